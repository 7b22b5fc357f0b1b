"""
The process that runs a terminal emulator: ``pyavt``, of the asciinema project.

The kernel limits it: a job that takes too much memory or time ends the process.
"""

from __future__ import annotations

import codecs
import sys

from twisted_exec.program.job_limits import allow_time, limit_process
from twisted_exec.program.job_messages import read
from twisted_exec.screens.emulator import AvtScreen
from twisted_exec.screens.interfaces import Job, Rendered, encode_rendered, job_of
from twisted_exec.screens.rendering import FORM, RENDERERS, as_state

MEMORY_BYTES = 512 << 20
CPU_SECONDS = 4
"""For one job."""


def main() -> None:
    """Render jobs until the input ends."""
    limit_process(MEMORY_BYTES)
    while (message := read(sys.stdin.buffer)) is not None:
        allow_time(CPU_SECONDS)
        sys.stdout.buffer.write(encode_rendered(render(job_of(*message))))
        sys.stdout.buffer.flush()


def render(job: Job) -> Rendered:
    screen = AvtScreen(job.columns, job.rows)
    screen.feed(job.key_frame)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    at = 0
    for resize in job.resizes:
        screen.feed(decoder.decode(job.output[at : resize.position]))
        at = resize.position
        screen.resize(resize.columns, resize.rows)
    screen.feed(decoder.decode(job.output[at:]))
    pending, _ = decoder.getstate()
    key_frame, (columns, rows) = screen.key_frame(), screen.size
    if job.shown_size is not None:
        # After the key frame, which has the size of the console's terminal.
        screen.show_at(*job.shown_size)
    return Rendered(_body(screen, job, len(pending)), key_frame, len(pending), columns, rows)


def _body(screen: AvtScreen, job: Job, pending: int) -> bytes:
    content = screen.screen()
    if job.form != FORM:
        return RENDERERS[job.form](content, job.facts)
    facts, offset = dict(job.facts), job.facts.get("offset")
    if isinstance(offset, int):  # the next output begins with the incomplete character
        facts["offset"] = offset - pending
    return as_state(screen.key_frame(), content.columns, content.rows, facts)
