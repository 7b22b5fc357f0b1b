"""
Processes that render screens, and the queue before them.

A process serves one job at a time.  A process that ends, or takes too long, costs its own job only.
Idle processes end after a while, so there are none while no screens are requested.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import ProcessDone
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import APIError, NotImplementedByBackend, ServiceUnavailable

from .interfaces import IRenderer, Job, Rendered
from .messages import decode, encode_job, rendered_of

PROCESSES = 2
WAITING = 64
"""Jobs that wait for a process."""
SECONDS = 5.0
"""For one job."""
IDLE_SECONDS = 30.0

_BOOTSTRAP = (
    "import sys; sys.path += sys.argv[1:]; from twisted_exec.screens.process import main; main()"
)
_MODULE = "avt"


def command() -> list[str]:
    """Return the command line of a process."""
    # The paths of this program, because -I ignores PYTHONPATH.
    paths = [os.path.abspath(path) for path in sys.path]
    return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, *paths]


def is_installed() -> bool:
    """Return whether there is a terminal emulator."""
    return importlib.util.find_spec(_MODULE) is not None


@dataclass(eq=False)
class _Waiting:
    job: Job
    rendered: Deferred[Rendered]


@implementer(IRenderer)
class ScreenProcesses:
    """
    A pool of processes.

    :param argv: returns the command line of a process.
    :param installed: returns whether there is an emulator.
    :param seconds: for one job.
    """

    def __init__(
        self,
        reactor: Any,
        argv: Callable[[], list[str]] = command,
        installed: Callable[[], bool] = is_installed,
        seconds: float = SECONDS,
    ) -> None:
        self._reactor, self._argv, self._installed = reactor, argv, installed
        self._seconds = seconds
        # By machine; the first machine is served next.
        self._waiting: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self._processes: list[_Process] = []
        self._unended: set[_Process] = set()  # also those that were killed

    def render(self, job: Job, key: str) -> Deferred[Rendered]:
        """See :meth:`IRenderer.render`."""
        rendered: Deferred[Rendered] = Deferred(lambda _: self._cancel(key, waiting))
        waiting = _Waiting(job, rendered)
        if not self._installed():
            message = (
                'the machine\'s runtime renders no screens: on its host, install the extra "screen" '
                "of twisted-exec, pip install 'twisted-exec[screen]'"
            )
            rendered.errback(NotImplementedByBackend(message))
        elif sum(map(len, self._waiting.values())) >= WAITING:
            message = f"{WAITING} screens wait to be rendered; try again"
            rendered.errback(ServiceUnavailable(message, retry_after_seconds=1))
        else:
            self._waiting.setdefault(key, deque()).append(waiting)
            self._serve()
        return rendered

    def close(self) -> Deferred[None]:
        """End all processes; jobs fail.  Fires when no process is left."""
        for waiting in [each for jobs in self._waiting.values() for each in jobs]:
            waiting.rendered.errback(ServiceUnavailable("the machine runtime is shutting down"))
        self._waiting.clear()
        for process in list(self._processes):
            process.end()
        gone = DeferredList([process.gone for process in self._unended])
        return gone.addCallback(lambda _: None)

    def _cancel(self, key: str, waiting: _Waiting) -> None:
        jobs = self._waiting.get(key, deque())
        if waiting in jobs:
            jobs.remove(waiting)
            if not jobs:
                del self._waiting[key]

    def _serve(self) -> None:
        """Give the next jobs to processes that have none."""
        while self._waiting:
            process = next((each for each in self._processes if each.is_idle), None)
            if process is None and len(self._processes) >= PROCESSES:
                return
            key, jobs = self._waiting.popitem(last=False)
            waiting = jobs.popleft()
            if jobs:
                self._waiting[key] = jobs  # behind the other machines
            if process is None:
                try:
                    process = self._start()
                except OSError as error:
                    problem = f"a screen cannot be rendered at present: {error.strerror}"
                    waiting.rendered.errback(ServiceUnavailable(problem, retry_after_seconds=1))
                    continue
            process.work(waiting)

    def _start(self) -> _Process:
        process = _Process(self._reactor, self._seconds, self._serve, self._processes.remove)
        argv = self._argv()
        # No environment variables: those of the runtime may have secrets.
        self._reactor.spawnProcess(process, argv[0], argv, env={}, path="/")
        self._processes.append(process)
        self._unended.add(process)
        process.gone.addCallback(lambda _: self._unended.discard(process))
        return process


class _Process(ProcessProtocol):
    """
    One process.

    :param ready: called when a job has ended.
    :param ended: called when the process takes no more jobs.
    :ivar gone: fires when it has ended.
    """

    _log = Logger()
    transport: Any = None

    def __init__(
        self,
        reactor: Any,
        seconds: float,
        ready: Callable[[], None],
        ended: Callable[[_Process], None],
    ) -> None:
        self._reactor, self._seconds = reactor, seconds
        self._ready, self._ended = ready, ended
        self._waiting: _Waiting | None = None
        self._late: IDelayedCall | None = None
        self._received = b""
        self._errors = b""
        self._over = False
        self.gone: Deferred[None] = Deferred()

    @property
    def is_idle(self) -> bool:
        return self._waiting is None and not self._over

    def work(self, waiting: _Waiting) -> None:
        """Send a job to the process."""
        self._waiting = waiting
        self._set_timer(self._seconds, self._too_late)
        self.transport.write(encode_job(waiting.job))

    def end(self) -> None:
        """End the process; its job fails."""
        self._fail("the machine runtime is shutting down")

    def outReceived(self, data: bytes) -> None:
        self._received += data
        try:
            message = decode(self._received)
            if message is None:
                return
            head, body, self._received = message
            rendered = rendered_of(head, body)
        except ValueError as problem:
            self._fail(f"the terminal emulator's answer cannot be read: {problem}")
            return
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            self._fail("the terminal emulator answers without a job")
            return
        self._set_timer(IDLE_SECONDS, self.end)
        if not waiting.rendered.called:  # the caller may have cancelled it
            waiting.rendered.callback(rendered)
        self._ready()

    def errReceived(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-1000:]

    def processEnded(self, reason: Failure) -> None:
        ending = "it ended" if reason.check(ProcessDone) else reason.getErrorMessage()
        last = self._errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        self._fail(f"the terminal emulator failed: {last or ending}")
        self.gone.callback(None)

    def _too_late(self) -> None:
        self._fail(f"the terminal emulator has not finished within {self._seconds:g} s")

    def _set_timer(self, seconds: float, call: Callable[[], None]) -> None:
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._late = self._reactor.callLater(seconds, call)

    def _fail(self, message: str) -> None:
        """Let the job fail, if there is one, and kill the process."""
        if self._over:
            return
        self._over = True
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._ended(self)
        waiting, self._waiting = self._waiting, None
        if self.transport is not None and self.transport.pid:
            self.transport.signalProcess("KILL")
        if waiting is not None:
            self._log.warn("{message}", message=message)
            if not waiting.rendered.called:
                waiting.rendered.errback(_failure(message))
        self._ready()


def _failure(message: str) -> APIError:
    return ServiceUnavailable(f"{message}; the log of the machine is still available")
