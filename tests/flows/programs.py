"""
Start programs as separate processes, wait for their output, type to them, and stop them by pid.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import struct
import sys
import termios
from collections.abc import Mapping, Sequence

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.interfaces import IReactorProcess
from twisted.internet.process import Process, PTYProcess
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from . import forks

KEPT_BYTES = 4 << 20
SPARE_BYTES = 1 << 20
"""Output beyond :data:`KEPT_BYTES` that is removed in one step: each removal moves the rest."""


class Program(ProcessProtocol):
    """
    One running program.

    ``output`` holds standard output and standard error in order of arrival, and ``stdout`` only
    standard output. ``ended`` fires with the exit code (negative: the signal).
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)
        self._output, self._stdout = bytearray(), bytearray()
        self.exit_code: int | None = None
        self.pid = 0
        self.ended: Deferred[int] = Deferred()
        self._waiting: list[tuple[re.Pattern[bytes], int, Deferred[re.Match[bytes]]]] = []

    @property
    def output(self) -> bytes:
        return bytes(self._output)

    @property
    def stdout(self) -> bytes:
        return bytes(self._stdout)

    @property
    def stdout_bytes(self) -> int:
        """The size of :attr:`stdout`, without a copy."""
        return len(self._stdout)

    def connectionMade(self) -> None:
        pid = getattr(self.transport, "pid", None)
        self.pid = pid if isinstance(pid, int) else 0

    def outReceived(self, data: bytes) -> None:
        _append(self._stdout, data)
        self._received(data)

    def errReceived(self, data: bytes) -> None:
        self._received(data)

    def _received(self, data: bytes) -> None:
        _append(self._output, data)
        self._look()

    def _look(self) -> None:
        waiting, self._waiting = self._waiting, []
        for pattern, start, found in waiting:
            if pattern.search(self._output, start) is not None:
                # Again in bytes: further output must not change what has matched.
                found.callback(pattern.search(self.output, start))
            elif self.exit_code is not None:
                found.errback(AssertionError(self._told(f"ended without {pattern.pattern!r}")))
            else:
                self._waiting.append((pattern, start, found))

    def _told(self, what: str) -> str:
        return f"{' '.join(self.argv)}\n{what}\n{self.output.decode(errors='replace')[-6000:]}"

    def until(
        self, pattern: bytes, *, start: int = 0, seconds: float = 600
    ) -> Deferred[re.Match[bytes]]:
        """
        Wait for output.

        :param start: where in ``output`` to begin to look.
        :return: fires with the match; fails when the program ends or ``seconds`` pass.
        """
        found: Deferred[re.Match[bytes]] = Deferred()
        self._waiting.append((re.compile(pattern), start, found))

        def late(result: object, timeout: float) -> Failure:
            return Failure(AssertionError(self._told(f"no {pattern!r} in {timeout} s")))

        found.addTimeout(seconds, _reactor, onTimeoutCancel=late)
        self._look()
        return found

    def type(self, data: bytes) -> None:
        """Write to the program's standard input."""
        assert self.transport is not None
        self.transport.write(data)

    async def asked(self, question: bytes, answer: bytes) -> bytes:
        """
        Type a line into a console, again if its user reads that keys were lost.

        :param answer: what the machine prints then; it has one group.
        :return: the text of the group.
        """
        lost = rb"may\s+not\s+have\s+reached|were\s+discarded|type\s+is\s+not\s+sent"
        found = None
        while found is None:
            start = len(self.output)
            self.type(question)
            found = (await self.until(answer + rb"|" + lost, start=start))[1]
        return found

    def processEnded(self, reason: Failure) -> None:
        if reason.check(ProcessDone):
            self.exit_code = 0
        else:
            assert reason.check(ProcessTerminated)
            self.exit_code = (
                -reason.value.signal if reason.value.signal is not None else reason.value.exitCode
            )
        self._look()
        self.ended.callback(self.exit_code)

    def pause(self) -> None:
        """Stop to read the output. The program runs on, but the reactor has no part of it."""
        for pipe in getattr(self.transport, "pipes", {}).values():
            pipe.stopReading()

    def resume(self, size: int) -> None:
        """Read the output again, after :meth:`pause`; forget all but the first ``size`` bytes."""
        del self._output[size:], self._stdout[size:]
        for pipe in getattr(self.transport, "pipes", {}).values():
            pipe.startReading()

    async def stop(self, with_signal: int = signal.SIGTERM, *, seconds: float = 600) -> int:
        """Stop the program if it still runs; fires with its exit code."""
        if self.exit_code is None:
            self._signal(with_signal)
            killer = _reactor.callLater(seconds, self._signal, signal.SIGKILL)
            await self.ended
            if killer.active():
                killer.cancel()
        assert self.exit_code is not None
        return self.exit_code

    def _signal(self, number: int) -> None:
        # It may have ended already, while a child of its has its output.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _append(buffer: bytearray, data: bytes) -> None:
    buffer += data
    if len(buffer) > KEPT_BYTES + SPARE_BYTES:
        del buffer[:-KEPT_BYTES]


class _ForkedProcess(Process):
    """A program that :mod:`tests.flows.forks` forks."""

    def __init__(self, *arguments: object, nursery: forks.Nursery) -> None:
        self._nursery = nursery
        super().__init__(*arguments)

    def _fork(self, path, uid, gid, executable, args, environment, *, fdmap, **_):  # type: ignore[no-untyped-def]
        standard = [fdmap[number] for number in range(3)]
        self.pid = self._nursery.fork(args, environment, path, standard, terminal=False)
        self.status = -1


class _ForkedTerminalProcess(PTYProcess):
    """The same in a terminal of its own."""

    def _fork(self, path, uid, gid, executable, args, environment, *, slavefd, **_):  # type: ignore[no-untyped-def]
        standard = [slavefd] * 3
        self.pid = forks.nursery().fork(args, environment, path, standard, terminal=True)
        self.status = -1


def _environment(argv: Sequence[str], more: Mapping[str, str]) -> dict[str, str]:
    environment = {**os.environ, **more}
    if os.path.basename(argv[0]).startswith("kubectl"):
        # Go collects garbage from 4 MB on, and kubectl needs more to begin: a fifth of its CPU time.
        environment.setdefault("GOGC", "400")
    return environment


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    fork: bool = True,
) -> Program:
    """
    Start a program with pipes.

    :param env: is added to this process's environment.
    :param fork: one of our programs may be a fork, which costs a tenth of a start.
    """
    program, arguments, environment = Program(argv), list(argv), _environment(argv, env or {})
    if fork and forks.can_fork(argv, environment):
        nursery = forks.nursery()
        _ForkedProcess(_reactor, argv[0], arguments, environment, cwd, program, nursery=nursery)
    else:
        IReactorProcess(_reactor).spawnProcess(
            program, argv[0], arguments, env=environment, path=cwd
        )
    return program


def fork(
    script: Sequence[str],
    nursery: forks.Nursery,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> Program:
    """
    Fork a Python script from a process that has imported what it needs.

    :param script: path and arguments.
    :param env: is added to this process's environment.
    """
    program, environment = Program(script), {**os.environ, **(env or {})}
    _ForkedProcess(_reactor, script[0], list(script), environment, cwd, program, nursery=nursery)
    return program


def terminal(argv: Sequence[str], *, columns: int = 80, rows: int = 24, **env: str) -> Program:
    """Start a program in a terminal of its own; ``env`` is added to this process's environment."""
    program, arguments, environment = Program(argv), list(argv), _environment(argv, env)
    if forks.can_fork(argv, environment):
        _ForkedTerminalProcess(_reactor, argv[0], arguments, environment, None, program)
    else:
        IReactorProcess(_reactor).spawnProcess(
            program, argv[0], arguments, env=environment, usePTY=True
        )
    resize(program, columns, rows)
    return program


def resize(program: Program, columns: int, rows: int) -> None:
    """Change the size of the window that a program runs in."""
    assert program.transport is not None
    size = struct.pack("HHHH", rows, columns, 0, 0)
    fcntl.ioctl(program.transport.fd, termios.TIOCSWINSZ, size)


def twistd(
    plugin: str,
    *options: str,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    pidfile: str = "",
    fork: bool = True,
) -> Program:
    """
    Start one of our plugins in the foreground, with this very interpreter.

    Machines end with it, unless the test keeps them on purpose.

    :param pidfile: path of a file for its pid; empty for none.
    :param fork: as for :func:`start`.
    """
    if plugin == "exec-standalone" and "--no-keep-machines" not in options:
        options = (*options, "--no-keep-machines")
    argv = [script("twistd"), "-n", f"--pidfile={pidfile}", plugin, *options]
    return start(argv, env=env, cwd=cwd, fork=fork)


def script(name: str) -> str:
    """The path of a console script that belongs to this interpreter's environment."""
    return os.path.join(os.path.dirname(sys.executable), name)
