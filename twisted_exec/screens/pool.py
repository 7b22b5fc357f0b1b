"""
Processes that render screens.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, NoReturn

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import NotImplementedByBackend, ServiceUnavailable
from twisted_exec.program import job_processes
from twisted_exec.program.job_processes import JobFailed, JobKind, JobProcesses, JobRefused
from twisted_exec.screens.interfaces import (
    CannotRender,
    IRenderer,
    Job,
    Rendered,
    encode_job,
    rendered_of,
)

SECONDS = 5.0
"""For one job in a process; :mod:`twisted_exec.screens.from_journal` limits the whole request."""

_MODULE = "avt"


def command() -> list[str]:
    """Return the command line of a process."""
    return job_processes.command("twisted_exec.screens.process")


def is_installed() -> bool:
    """Return whether there is a terminal emulator."""
    return importlib.util.find_spec(_MODULE) is not None


@implementer(IRenderer)
class ScreenProcesses:
    """A pool of processes."""

    def __init__(
        self,
        reactor: Any,
        argv: Callable[[], list[str]] = command,
        installed: Callable[[], bool] = is_installed,
        seconds: float = SECONDS,
    ) -> None:
        self._installed = installed
        kind = JobKind(
            rendered_of,
            "the terminal emulator",
            "screens wait to be rendered",
            "the machine runtime",
            seconds,
        )
        self._processes = JobProcesses(reactor, argv, kind)

    def render(self, job: Job, key: str) -> Deferred[Rendered]:
        if not self._installed():
            message = (
                "the machine's runtime renders no screens: on its host, install the Python package "
                "pyavt: pip install pyavt"
            )
            return fail(NotImplementedByBackend(message))
        return self._processes.do(encode_job(job), key).addErrback(_unavailable)

    def close(self) -> Deferred[None]:
        """End all processes; jobs fail. Fires when no process is left."""
        return self._processes.close()


def _unavailable(failure: Failure) -> NoReturn:
    problem = failure.trap(JobRefused, JobFailed)
    message = str(failure.value)
    if problem is JobFailed:
        raise CannotRender(f"{message}; the log of the machine is still available")
    raise ServiceUnavailable(message, retry_after_seconds=1)
