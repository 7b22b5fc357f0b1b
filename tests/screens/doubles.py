"""
A renderer without processes.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, maybeDeferred
from zope.interface import implementer

from twisted_exec.screens.interfaces import IRenderer, Job, Rendered


def description(job: Job) -> Rendered:
    """Return a result with the form and the output of a job, without an emulator."""
    return Rendered(job.form.encode() + b" of " + job.output, "", 0, job.columns, job.rows)


@implementer(IRenderer)
class MemoryRenderer:
    """
    Renders in this process; keeps the jobs.

    :param render: does a job; by default the result says what the job is.
    :ivar waits: does not finish any more.
    """

    def __init__(self, render: Callable[[Job], Rendered] = description) -> None:
        self._do = render
        self.jobs: list[Job] = []
        self.problem: Exception | None = None
        self.waits = False

    def render(self, job: Job, key: str) -> Deferred[Rendered]:
        self.jobs.append(job)
        if self.waits:
            return Deferred()
        return maybeDeferred(self._render, job)

    def _render(self, job: Job) -> Rendered:
        if self.problem is not None:
            raise self.problem
        return self._do(job)
