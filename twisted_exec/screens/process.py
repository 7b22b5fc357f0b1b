"""
The process that runs a terminal emulator.

It reads jobs from its standard input and writes results to its standard output, one at a time, until
the input ends.  Its limits are those of the kernel: a job that takes too much memory or time ends the
process, and the pool notices.
"""

from __future__ import annotations

import codecs
import sys

from twisted_exec.program.job_messages import allow_time, limit_process, read

from .emulator import AvtScreen
from .interfaces import Job, Rendered
from .messages import encode_rendered, job_of
from .rendering import RENDERERS
from .state import FORM, as_state

MEMORY_BYTES = 512 << 20
CPU_SECONDS = 4
"""For one job."""
MAX_COLUMNS, MAX_ROWS = 400, 150
"""A larger terminal is shown with this size."""


def main() -> None:
    """Do all jobs."""
    limit_process(MEMORY_BYTES)
    while (message := read(sys.stdin.buffer)) is not None:
        allow_time(CPU_SECONDS)
        sys.stdout.buffer.write(encode_rendered(render(job_of(*message))))
        sys.stdout.buffer.flush()


def render(job: Job) -> Rendered:
    """Do one job."""
    columns, rows = _size(job.columns, job.rows)
    screen = AvtScreen(columns, rows)
    screen.feed(job.key_frame)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    at = 0
    for resize in job.resizes:
        screen.feed(decoder.decode(job.output[at : resize.position]))
        at = resize.position
        columns, rows = _size(resize.columns, resize.rows)
        screen.resize(columns, rows)
    screen.feed(decoder.decode(job.output[at:]))
    pending, _ = decoder.getstate()
    key_frame = screen.key_frame()
    if (
        job.shown_size is not None
    ):  # after the key frame, which has the size of the console's terminal
        screen.resize(*_size(*job.shown_size))
    return Rendered(_body(screen, job, len(pending)), key_frame, len(pending), columns, rows)


def _body(screen: AvtScreen, job: Job, pending: int) -> bytes:
    content = screen.screen()
    if job.form != FORM:
        return RENDERERS[job.form](content, job.facts)
    facts, offset = dict(job.facts), job.facts.get("offset")
    if isinstance(offset, int):  # the next output begins with the incomplete character
        facts["offset"] = offset - pending
    return as_state(screen.key_frame(), content.columns, content.rows, facts)


def _size(columns: int, rows: int) -> tuple[int, int]:
    return max(1, min(columns, MAX_COLUMNS)), max(1, min(rows, MAX_ROWS))
