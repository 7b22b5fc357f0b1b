"""
The ``kind`` program, run as its users do.

Runs that only look, or delete, are ours: they end when they are cancelled or take too long, and so does all that
they have started (docker, podman), for each leads a process group.  A run that makes a cluster is nobody's: it
prints into a file, goes on when this process ends, and says its exit code in a file.

``KUBECONFIG`` is never passed on, and every run that would write a kubeconfig is given a file of its own: kind
writes into its user's otherwise, and switches its context (SF 10).  All else of the environment is passed on,
``KIND_EXPERIMENTAL_PROVIDER`` and ``DOCKER_HOST`` included.
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
from twisted_exec.program.tasks import Stopping

PROGRAM = "kind"
MAX_OUT_BYTES = 1 << 20
MAX_TOLD_BYTES = 64 << 10
"""Of standard error, from its end: that is where it says what went wrong."""
AT_ONCE = 4
"""How many runs of ours: each starts others in turn."""

_MAKING = 'cd /; ulimit -f 16384; trap "" HUP; "$@"; echo $? > "$0.new" && mv -f "$0.new" "$0"'
"""
For ``sh -c``: run a program that may print 8 MiB, and write its exit code into the file ``$0``, whole or not at
all.
"""


@dataclass(frozen=True)
class CompletedRun:
    """
    How a run went.

    :param code: its exit code.
    :param out: what it printed.
    :param told: the end of what it said beside that, printable, on one line.
    """

    code: int
    out: bytes = field(repr=False)
    told: str


class KindCli:
    """
    :param reactor: spawns processes, and knows the time.
    :param environ: what the program finds around itself.
    """

    def __init__(
        self, reactor: Any, environ: Mapping[str, str] | None = None, program: str = PROGRAM
    ) -> None:
        self._reactor, self._program = reactor, program
        around = os.environ if environ is None else environ
        self._environ = {key: value for key, value in around.items() if key != "KUBECONFIG"}
        self._room = DeferredSemaphore(AT_ONCE)
        self.running: set[_Run] = set()
        """Runs of ours that are under way."""
        self._ending = Stopping()

    async def run(self, *words: str, seconds: float) -> CompletedRun:
        """
        Run it and wait for its end.

        :raises ServiceUnavailable: it cannot be started.
        :raises GatewayTimeout: it took too long, and is there no more.
        :raises BadGateway: it printed more than any answer can be.
        """
        waiting: Deferred[Any] = self._room.acquire()
        await waiting
        try:
            return await self._started(words, seconds)
        finally:
            self._room.release()

    async def _started(self, words: Sequence[str], seconds: float) -> CompletedRun:
        run = _Run(self._reactor, f"{self._program} {' '.join(words[:2])}", seconds)
        self._spawn(run, [self._found(self._program), *words], {0: _NOTHING, 1: "r", 2: "r"})
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
        Run it, and let it go on whatever becomes of us.

        :param code: the file for its exit code, made when it has ended by itself.
        :param log: the file for what it prints.
        :param lock: a descriptor that is open in it for as long as any of it runs.
        :param ended: called when it has ended, if this process is there to see it.
        :return: the number of its process group; 0 when it has ended already.
        :raises ServiceUnavailable: it cannot be started.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        prints = os.open(log, flags, 0o600)
        try:
            whole = [self._found("sh"), "-c", _MAKING, code, self._found(self._program), *words]
            found: int = self._spawn(
                _Told(ended), whole, {0: _NOTHING, 1: prints, 2: prints, 3: lock}
            )
            return found
        finally:
            os.close(prints)

    def close(self) -> Deferred[Any]:
        """End all runs of ours; fires when their processes are gone."""
        for run in list(self.running):
            run.kill()
        return self._ending.over()

    def _found(self, program: str) -> str:
        path = shutil.which(program, path=self._environ.get("PATH", os.defpath))
        if path is None:
            raise ServiceUnavailable(
                f"the program {program} is not on PATH where the manager runs; install it there"
            )
        return path

    def _spawn(
        self, protocol: ProcessProtocol, words: Sequence[str], files: Mapping[int, Any]
    ) -> int:
        leading = self._found("setsid")  # then its number is that of its group
        nothing = os.open(os.devnull, os.O_RDONLY)
        given = {number: nothing if file is _NOTHING else file for number, file in files.items()}
        try:
            # Without a directory to go to, Twisted need not fork: that is four times as fast.
            transport = self._reactor.spawnProcess(
                protocol, leading, ["setsid", *words], env=self._environ, childFDs=given
            )
        except OSError as problem:
            raise ServiceUnavailable(
                f"{words[0]} cannot be started: {problem.strerror}; see the limits of the manager"
            ) from None
        finally:
            os.close(nothing)
        pid: int | None = transport.pid
        return pid or 0  # it may have ended, and been waited for, before we get to know it


_NOTHING = object()


def kill_group(number: int) -> bool:
    """End a process group at once; :return: whether there was one."""
    try:
        os.killpg(number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class _Told(ProcessProtocol):
    """A run that is nobody's."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def processEnded(self, reason: Failure) -> None:
        """Called by Twisted."""
        self._ended()


class _Run(ProcessProtocol):
    """
    One run of ours.

    :ivar ended: fires with how it went.
    :ivar gone: fires when there is no such process any more.
    """

    def __init__(self, reactor: Any, title: str, seconds: float) -> None:
        self.ended: Deferred[CompletedRun] = Deferred(lambda _: self.kill())
        self.gone: Deferred[None] = Deferred()
        self._reactor, self._title, self._seconds = reactor, title, seconds
        self._out: list[bytes] = []
        self._size = 0
        self._told = b""
        self._limit: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """Called by Twisted when it runs."""
        self._limit = self._reactor.callLater(self._seconds, self._too_slow)

    def outReceived(self, data: bytes) -> None:
        """Called by Twisted."""
        self._size += len(data)
        if self._size > MAX_OUT_BYTES:
            told = f"{self._title} prints more than {MAX_OUT_BYTES >> 20} MiB; see what is installed as kind"
            self._give_up(BadGateway(told))
        else:
            self._out.append(data)

    def errReceived(self, data: bytes) -> None:
        """Called by Twisted."""
        self._told = (self._told + data)[-MAX_TOLD_BYTES:]

    def processEnded(self, reason: Failure) -> None:
        """Called by Twisted when it has ended and closed its output."""
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
        self.ended.callback(CompletedRun(code, b"".join(self._out), said(self._told)))

    def kill(self) -> None:
        """End it, and all that it has started."""
        self._disarm()
        transport: Any = self.transport
        if transport is not None:
            if transport.pid is not None and not kill_group(transport.pid):
                os.kill(transport.pid, signal.SIGKILL)  # it does not lead a group yet
            # Who left its group may hold its output open, and must not hold us.
            transport.loseConnection()

    def _too_slow(self) -> None:
        self._limit = None
        told = f"{self._title} did not end within {self._seconds:g} s; see whether docker answers"
        self._give_up(GatewayTimeout(told))

    def _give_up(self, why: Exception) -> None:
        self._out.clear()
        self.kill()
        if not self.ended.called:
            self.ended.errback(why)

    def _disarm(self) -> None:
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.cancel()


def said(told: bytes) -> str:
    """What kind says is wrong: from its last ``ERROR:`` on, or else its last lines."""
    text = told.decode("utf-8", "replace")
    _before, found, error = text.rpartition("ERROR: ")
    chosen = error if found else text[-500:]
    return one_line(chosen)[:500]
