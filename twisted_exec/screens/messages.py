"""
Jobs and results as messages between a pool and its processes.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from twisted_exec.program.job_messages import encode

from .interfaces import Job, Rendered, Resize


def encode_job(job: Job) -> bytes:
    """Return the message with a job."""
    head = {
        "columns": job.columns,
        "rows": job.rows,
        "key_frame": job.key_frame,
        "resizes": [asdict(each) for each in job.resizes],
        "form": job.form,
        "facts": job.facts,
        "shown_size": job.shown_size,
    }
    return encode(head, job.output)


def job_of(head: dict[str, Any], output: bytes) -> Job:
    """Return the job of a message."""
    resizes = [Resize(**each) for each in head.pop("resizes")]
    size = head.pop("shown_size")
    shown_size = None if size is None else (size[0], size[1])
    return Job(**head, resizes=resizes, output=output, shown_size=shown_size)


def encode_rendered(rendered: Rendered) -> bytes:
    """Return the message with a result."""
    head = asdict(rendered)
    del head["body"]
    return encode(head, rendered.body)


def rendered_of(head: dict[str, Any], body: bytes) -> Rendered:
    """
    Return the result of a message.

    :raises ValueError: the fields are not those of a result.
    """
    try:
        return Rendered(body=body, **head)
    except TypeError as problem:
        raise ValueError(str(problem)) from None
