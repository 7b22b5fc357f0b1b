"""
Runs of the ``kind`` program, and their output.

Source: ``sigs.k8s.io/kind`` v0.32.0, ``pkg/cluster/internal/create/create.go``.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from twisted_exec.api.status import BadGateway, GatewayTimeout, ServiceUnavailable, one_line
from twisted_exec.control.runs import StoppingParts
from twisted_exec.program.process_groups import kill_group, leading

PROGRAM = "kind"
MAX_OUT_BYTES = 1 << 20
MAX_STDERR_BYTES = 64 << 10
"""Limit for stderr; its end is kept, which has the error."""
AT_ONCE = 4
"""Limit for concurrent runs that read or delete, because each starts other programs."""

_MAKING = 'cd /; ulimit -f 16384; trap "" HUP; "$@"; echo $? > "$0.new" && mv -f "$0.new" "$0"'
"""
Script for ``sh -c``: run a program with a limit of 8 MiB for its output, and write its exit code
atomically to the file ``$0``.
"""

_NOTHING = object()


@dataclass(frozen=True)
class CompletedRun:
    """
    Result of a run.

    :param errors: the error on stderr, on one line.
    """

    code: int
    out: bytes = field(repr=False)
    errors: str


class KindCli:
    """
    Runs the program.

    Runs that read or delete belong to the manager: they and their process group end when they are
    cancelled or time out. A run that creates a cluster is independent: it survives the manager, and
    writes its exit code to a file.

    ``KUBECONFIG`` is never passed on, and every run that writes a kubeconfig gets a file of its
    own: otherwise kind writes to the user's file and switches its context.
    """

    def __init__(
        self, reactor: Any, environ: Mapping[str, str] | None = None, program: str = PROGRAM
    ) -> None:
        self._reactor, self._program = reactor, program
        around = os.environ if environ is None else environ
        self._environ = {key: value for key, value in around.items() if key != "KUBECONFIG"}
        self._room = DeferredSemaphore(AT_ONCE)
        self.running: set[_Run] = set()
        self._ending = StoppingParts()

    async def run(self, *words: str, seconds: float) -> CompletedRun:
        """
        Run the program and wait for its end.

        :raises ServiceUnavailable: the program cannot be started, or was ended by a signal.
        :raises GatewayTimeout: the run took too long, and was killed.
        :raises BadGateway: the output was too large.
        """
        waiting: Deferred[Any] = self._room.acquire()
        await waiting
        try:
            return await self._started(words, seconds)
        finally:
            self._room.release()

    async def _started(self, words: Sequence[str], seconds: float) -> CompletedRun:
        run = _Run(self._reactor, f"{self._program} {' '.join(words[:2])}", seconds)
        self._spawn(run, [self._path_of(self._program), *words], {0: _NOTHING, 1: "r", 2: "r"})
        self.running.add(run)
        self._ending.add(run.gone)
        try:
            return await run.ended
        finally:
            self.running.discard(run)

    def make(
        self, words: Sequence[str], code: str, log: str, lock: int, ended: Callable[[], None]
    ) -> int:
        """
        Run the program independently of the manager.

        :param code: file for the exit code.
        :param lock: descriptor that the run keeps open until all of it has ended.
        :return: the process group; 0 if the run has already ended.
        :raises ServiceUnavailable: the program cannot be started.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            prints = os.open(log, flags, 0o600)
        except OSError as problem:
            raise _not_started(self._program, problem) from None
        try:
            whole = [self._path_of("sh"), "-c", _MAKING, code, self._path_of(self._program), *words]
            group: int = self._spawn(
                _IndependentRun(ended), whole, {0: _NOTHING, 1: prints, 2: prints, 3: lock}
            )
            return group
        finally:
            os.close(prints)

    def close(self) -> Deferred[Any]:
        """Kill the manager's own runs; fires when their processes are gone."""
        for run in list(self.running):
            run.kill()
        return self._ending.over()

    def _path_of(self, program: str) -> str:
        path = shutil.which(program, path=self._environ.get("PATH", os.defpath))
        if path is None:
            raise ServiceUnavailable(
                f"the program {program} is not on PATH where the manager runs; install it there"
            )
        return path

    def _spawn(
        self, protocol: ProcessProtocol, words: Sequence[str], files: Mapping[int, Any]
    ) -> int:
        command = leading(words)
        try:
            nothing = os.open(os.devnull, os.O_RDONLY)
        except OSError as problem:
            raise _not_started(words[0], problem) from None
        descriptors = {
            number: nothing if file is _NOTHING else file for number, file in files.items()
        }
        try:
            # Without a working directory Twisted need not fork, which is four times as fast.
            transport = self._reactor.spawnProcess(
                protocol, command[0], command, env=self._environ, childFDs=descriptors
            )
        except OSError as problem:
            raise _not_started(words[0], problem) from None
        finally:
            os.close(nothing)
        pid: int | None = transport.pid
        return pid or 0  # the process may already have been reaped


def _not_started(program: str, problem: OSError) -> ServiceUnavailable:
    return ServiceUnavailable(
        f"{program} cannot be started: {problem.strerror}; see the limits of the manager"
    )


class _IndependentRun(ProcessProtocol):
    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def processEnded(self, reason: Failure) -> None:
        self._ended()


class _Run(ProcessProtocol):
    def __init__(self, reactor: Any, title: str, seconds: float) -> None:
        self.ended: Deferred[CompletedRun] = Deferred(lambda _: self.kill())
        self.gone: Deferred[None] = Deferred()
        self._reactor, self._title, self._seconds = reactor, title, seconds
        self._out: list[bytes] = []
        self._size = 0
        self._stderr = b""
        self._limit: IDelayedCall | None = None

    def connectionMade(self) -> None:
        self._limit = self._reactor.callLater(self._seconds, self._too_slow)

    def outReceived(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_OUT_BYTES:
            message = f"{self._title} prints more than {MAX_OUT_BYTES >> 20} MiB; see what is installed as kind"
            self._give_up(BadGateway(message))
        else:
            self._out.append(data)

    def errReceived(self, data: bytes) -> None:
        self._stderr = (self._stderr + data)[-MAX_STDERR_BYTES:]

    def processEnded(self, reason: Failure) -> None:
        self._disarm()
        self.gone.callback(None)
        if self.ended.called:
            return
        value: Any = reason.value
        code = value.exitCode
        if code is None:
            self.ended.errback(
                ServiceUnavailable(f"{self._title} was ended by signal {value.signal}")
            )
            return
        self.ended.callback(CompletedRun(code, b"".join(self._out), error_of(self._stderr)))

    def kill(self) -> None:
        self._disarm()
        transport: Any = self.transport
        if transport is not None:
            if transport.pid is not None and not kill_group(transport.pid):
                os.kill(transport.pid, signal.SIGKILL)  # it has no process group yet
            # A process outside the group may hold the output open, and must not block us.
            transport.loseConnection()

    def _too_slow(self) -> None:
        self._limit = None
        message = (
            f"{self._title} did not end within {self._seconds:g} s; see whether docker answers"
        )
        self._give_up(GatewayTimeout(message))

    def _give_up(self, why: Exception) -> None:
        self._out.clear()
        self.kill()
        if not self.ended.called:
            self.ended.errback(why)

    def _disarm(self) -> None:
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.cancel()


def error_of(stderr: bytes) -> str:
    """Return kind's error."""
    text = stderr.decode("utf-8", "replace")
    _before, mark, error = text.rpartition("ERROR: ")
    chosen = error if mark else text[-500:]
    return one_line(chosen)[:500]
