"""
Commands of this host that play the commands of a container.

With a terminal a command gets a pseudo-terminal of its own, without one three pipes: so errors
are apart, and the end of input is an end.  As in a container, the end of a client's input ends
nothing that a terminal reads.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from typing import Any
from typing import Protocol as Typing

from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from twisted_exec.runtimes.terminals import set_size
from twisted_exec.streaming.interfaces import COMPLETED, INTERNAL, Ending, TerminalSize
from twisted_exec.wire.channel import Channel

_BY_SIGNAL = 128
_OUTPUTS = {1: Channel.STDOUT, 2: Channel.STDERR}


class ProcessUser(Typing):
    """Receiver of a process's events."""

    def printed(self, channel: Channel, data: bytes) -> None:
        """
        Handle output of the process.

        :param data: at least 1 byte.
        """

    def process_ended(self, ending: Ending) -> None:
        """The process has ended and its output is delivered; the last call."""


class LocalProcess(ProcessProtocol):
    """
    One command.

    :ivar ended: how the process ended; ``None`` while it runs.
    """

    transport: Any

    def __init__(self, user: ProcessUser, *, tty: bool) -> None:
        self._user, self._tty = user, tty
        self.ended: Ending | None = None
        self._size: TerminalSize | None = None

    def start(
        self,
        reactor: Any,
        command: Sequence[str],
        *,
        stdin: bool,
        environment: Mapping[str, str],
        directory: str,
    ) -> None:
        """
        Start it.

        A command that there is not ends at once, with what a container runtime says then.
        """
        program = shutil.which(command[0]) if command and command[0] else None
        if program is None:
            message = (
                f"exec: {command[0]!r}: executable file not found" if command else "no command"
            )
            self._end(Ending(INTERNAL, f"error executing command in container: {message}"))
            return
        surroundings = {**os.environ, "TERM": "xterm", **environment}
        # A process group of its own, so that kill() ends all of it; with a terminal it has one already.
        leading = [] if self._tty else [path for path in [shutil.which("setsid")] if path]
        words = [*leading, program, *command[1:]]
        reactor.spawnProcess(
            self, words[0], words, env=surroundings, path=directory, usePTY=self._tty
        )
        if not stdin and not self._tty:
            self.end_input()

    def connectionMade(self) -> None:
        if self._size is not None:
            self.resize(self._size)

    # For the user.

    def write(self, data: bytes) -> None:
        """Send input; it is dropped after the process has closed its end."""
        if self._is_running():
            self.transport.write(data)

    def end_input(self) -> None:
        """Close the input of the process."""
        if self._is_running() and not self._tty:
            self.register_input(None)
            self.transport.closeStdin()

    def resize(self, size: TerminalSize) -> None:
        """Resize the terminal, if the process has one."""
        self._size = size
        if self._tty and self._is_running() and self.transport.connected:
            set_size(self.transport.fd, size)

    def register_input(self, producer: Any) -> None:
        """Set the producer to pause while the command reads no input; ``None`` for none."""
        line = self._input()
        if line is not None:
            line.unregisterProducer()
            if producer is not None:
                line.registerProducer(producer, True)

    def _input(self) -> Any:
        if not self._is_running():
            return None
        return self.transport if self._tty else self.transport.pipes.get(0)

    def pause(self) -> None:
        """Pause reading the output of the process."""
        if self._is_running():
            self.transport.pauseProducing()

    def resume(self) -> None:
        """Resume reading the output."""
        if self._is_running():
            self.transport.resumeProducing()

    def hang_up(self) -> None:
        """Close input and output, because the client has disconnected."""
        if self._is_running():
            self.register_input(None)
            self.transport.loseConnection()

    def kill(self) -> None:
        """Kill the process and its process group."""
        if not self._is_running() or self.transport.pid is None:
            return
        with contextlib.suppress(ProcessLookupError):  # the process does not lead its group yet
            os.killpg(self.transport.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessExitedAlready):
            self.transport.signalProcess("KILL")
        self.hang_up()

    def _is_running(self) -> bool:
        return self.transport is not None and self.ended is None

    # What Twisted calls.

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        self._user.printed(_OUTPUTS[childFD], data)

    def processEnded(self, reason: Failure) -> None:
        self._end(Ending(COMPLETED, exit_code=_exit_code(reason)))

    def _end(self, ending: Ending) -> None:
        self.ended = ending
        self._user.process_ended(ending)


def _exit_code(reason: Failure) -> int:
    problem = reason.value
    if isinstance(problem, ProcessDone) or not isinstance(problem, ProcessTerminated):
        return 0
    if problem.signal is not None:
        return _BY_SIGNAL + int(problem.signal)
    return int(problem.exitCode or 0)
