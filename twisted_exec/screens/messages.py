"""
Messages between a pool and its processes: a head in JSON, and bytes.

Each message begins with the sizes of both, 4 bytes each.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict
from typing import IO, Any

from .interfaces import Job, Rendered, Resize

SIZES = struct.Struct("!II")
LARGEST = 32 << 20
"""A message with more bytes is refused."""


def encode(head: dict[str, Any], body: bytes) -> bytes:
    """Return a message."""
    text = json.dumps(head).encode()
    return SIZES.pack(len(text), len(body)) + text + body


def decode(message: bytes) -> tuple[dict[str, Any], bytes, bytes] | None:
    """
    Return head, body, and the bytes after the message; ``None`` if it is incomplete.

    :raises ValueError: the message is too large, or its head is not JSON.
    """
    if len(message) < SIZES.size:
        return None
    text, body = SIZES.unpack_from(message)
    if text + body > LARGEST:
        raise ValueError(f"a message of {text + body} bytes")
    end = SIZES.size + text + body
    if len(message) < end:
        return None
    head = json.loads(message[SIZES.size : SIZES.size + text])
    return head, message[SIZES.size + text : end], message[end:]


def read(source: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Wait for a message, and return head and body; ``None`` at the end of the source."""
    sizes = source.read(SIZES.size)
    if len(sizes) < SIZES.size:
        return None
    text, body = SIZES.unpack(sizes)
    return json.loads(source.read(text)), source.read(body)


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
