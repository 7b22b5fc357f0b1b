"""
Processes for jobs whose cost users choose, and the queue before them.

A process that ends, or takes too long, costs only its own job.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import ProcessDone
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.program.job_messages import decode

T = TypeVar("T")

PROCESSES = 2
WAITING = 64
"""Jobs that wait for a process."""
IDLE_SECONDS = 30.0


class JobRefused(Exception):
    """A job has no place now; the message is for the user."""


class JobFailed(Exception):
    """The process of a job failed, or took too long; the message is for the user."""


@dataclass(frozen=True)
class JobKind(Generic[T]):
    """
    The jobs of a pool, and words for messages.

    :param result: returns the result in head and body of an answer; raises :exc:`ValueError` if it
        is none.
    :param worker: the program in the processes, such as ``the terminal emulator``.
    :param waiting_of_key: jobs of one key that wait.
    """

    result: Callable[[dict[str, Any], bytes], T]
    worker: str
    jobs: str
    owner: str
    seconds: float
    waiting: int = WAITING
    waiting_of_key: int = WAITING


def command(module: str) -> list[str]:
    """Return the command line of a process that runs ``main`` of a module."""
    bootstrap = f"import sys; sys.path += sys.argv[1:]; from {module} import main; main()"
    # The paths of this program, because -I ignores PYTHONPATH.
    paths = [os.path.abspath(path) for path in sys.path]
    return [sys.executable, "-I", "-S", "-c", bootstrap, *paths]


@dataclass(eq=False)
class _Waiting(Generic[T]):
    message: bytes
    done: Deferred[T]


class JobProcesses(Generic[T]):
    """A pool of processes."""

    def __init__(self, reactor: Any, argv: Callable[[], list[str]], kind: JobKind[T]) -> None:
        self._reactor, self._argv, self._kind = reactor, argv, kind
        # By key; the first key is served next.
        self._waiting: OrderedDict[str, deque[_Waiting[T]]] = OrderedDict()
        self._processes: list[_Process[T]] = []
        self._unended: set[_Process[T]] = set()  # also those that were killed

    def do(self, message: bytes, key: str) -> Deferred[T]:
        """
        Let a process do a job.

        :param key: whose job it is; keys take turns.
        :return: fails with :class:`JobRefused` or :class:`JobFailed`; cancelling gives the turn to
            another job, unless the job has begun.
        """
        done: Deferred[T] = Deferred(lambda _: self._cancel(key, waiting))
        waiting = _Waiting(message, done)
        own = len(self._waiting.get(key, ()))
        for count, most in (
            (sum(map(len, self._waiting.values())), self._kind.waiting),
            (own, self._kind.waiting_of_key),
        ):
            if count >= most:
                done.errback(JobRefused(f"{most} {self._kind.jobs}; try again"))
                return done
        self._waiting.setdefault(key, deque()).append(waiting)
        self._serve()
        return done

    def close(self) -> Deferred[None]:
        """End the processes and fail their jobs; fires when no process is left."""
        for waiting in [each for jobs in self._waiting.values() for each in jobs]:
            waiting.done.errback(JobRefused(self._shutting_down))
        self._waiting.clear()
        for process in list(self._processes):
            process.end()
        gone = DeferredList([process.gone for process in self._unended])
        return gone.addCallback(lambda _: None)

    @property
    def _shutting_down(self) -> str:
        return f"{self._kind.owner} is shutting down"

    def _cancel(self, key: str, waiting: _Waiting[T]) -> None:
        jobs = self._waiting.get(key, deque())
        if waiting in jobs:
            jobs.remove(waiting)
            if not jobs:
                del self._waiting[key]

    def _serve(self) -> None:
        while self._waiting:
            process = next((each for each in self._processes if each.is_idle), None)
            if process is None and len(self._processes) >= PROCESSES:
                return
            key, jobs = self._waiting.popitem(last=False)
            waiting = jobs.popleft()
            if jobs:
                self._waiting[key] = jobs  # behind the other keys
            if process is None:
                try:
                    process = self._start()
                except OSError as error:
                    problem = f"{self._kind.worker} cannot be started at present: {error.strerror}"
                    waiting.done.errback(JobRefused(problem))
                    continue
            process.work(waiting)

    def _start(self) -> _Process[T]:
        process: _Process[T] = _Process(
            self._reactor, self._kind, self._serve, self._processes.remove
        )
        argv = self._argv()
        # No environment variables: those of the program may have secrets.
        self._reactor.spawnProcess(process, argv[0], argv, env={}, path="/")
        self._processes.append(process)
        self._unended.add(process)
        process.gone.addCallback(lambda _: self._unended.discard(process))
        return process


class _Process(ProcessProtocol, Generic[T]):
    _log = Logger()
    transport: Any = None

    def __init__(
        self,
        reactor: Any,
        kind: JobKind[T],
        ready: Callable[[], None],
        ended: Callable[[_Process[T]], None],
    ) -> None:
        self._reactor, self._kind = reactor, kind
        self._ready, self._ended = ready, ended
        self._waiting: _Waiting[T] | None = None
        self._late: IDelayedCall | None = None
        self._received = bytearray()
        self._errors = b""
        self._over = False
        self.gone: Deferred[None] = Deferred()

    @property
    def is_idle(self) -> bool:
        return self._waiting is None and not self._over

    def work(self, waiting: _Waiting[T]) -> None:
        self._waiting = waiting
        self._set_timer(self._kind.seconds, self._too_late)
        self.transport.write(waiting.message)

    def end(self) -> None:
        self._fail(f"{self._kind.owner} is shutting down")

    def outReceived(self, data: bytes) -> None:
        self._received += data
        try:
            message = decode(self._received)
            if message is None:
                return
            result = self._kind.result(*message)
        except ValueError as problem:
            self._fail(f"{self._kind.worker}'s answer cannot be read: {problem}")
            return
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            self._fail(f"{self._kind.worker} answers without a job")
            return
        self._set_timer(IDLE_SECONDS, self.end)
        if not waiting.done.called:  # the caller may have cancelled it
            waiting.done.callback(result)
        self._ready()

    def errReceived(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-1000:]

    def processEnded(self, reason: Failure) -> None:
        ending = "it ended" if reason.check(ProcessDone) else reason.getErrorMessage()
        last = self._errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        self._fail(f"{self._kind.worker} failed: {last or ending}")
        self.gone.callback(None)

    def _too_late(self) -> None:
        self._fail(f"{self._kind.worker} has not finished within {self._kind.seconds:g} s")

    def _set_timer(self, seconds: float, call: Callable[[], None]) -> None:
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._late = self._reactor.callLater(seconds, call)

    def _fail(self, message: str) -> None:
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
            self._log.warn("{why}", why=message)
            if not waiting.done.called:
                waiting.done.errback(JobFailed(message))
        self._ready()
