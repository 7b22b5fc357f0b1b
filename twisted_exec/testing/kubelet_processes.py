"""
Processes in the containers of a kubelet's double: commands of this host, and logs of their output.

A command (:class:`LocalProcess`) has a pseudo-terminal of its own or three pipes.  A container's
log is as a kubelet reads it: lines with a time and a stream (:class:`ContainerLog`).  Sources:
``kubelet/server/server.go`` (``getContainerLogs``, for the options) and
``k8s.io/cri-client/pkg/logs`` (for the output).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from typing import Protocol as Typing

from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, BadRequest
from twisted_exec.runtimes.terminals import set_size
from twisted_exec.streaming.interfaces import COMPLETED, INTERNAL, Ending, TerminalSize
from twisted_exec.wire.channel import Channel

_BY_SIGNAL = 128
_OUTPUTS = {1: Channel.STDOUT, 2: Channel.STDERR}
STDOUT, STDERR, ALL = "Stdout", "Stderr", "All"
Wake = Callable[[], None]


class ProcessUser(Typing):
    """Receiver of a process's events."""

    def printed(self, channel: Channel, data: bytes) -> None:
        """Handle output of the process, at least 1 byte."""

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
        Start the command.  A command that does not exist ends with the message of a container
        runtime.
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

    # Methods that Twisted calls.

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


class Unprocessable(APIError):
    """Well-formed options that contradict each other or are out of range (422)."""

    code, reason = 422, "Invalid"


@dataclass(frozen=True)
class LogOptions:
    """
    Options of a reader; ``None`` if not given.

    :param since: omit older lines.
    :param tail_lines: number of last lines, of all streams and before other filters; ``None`` for
        all.
    :param limit_bytes: of the output with timestamps; may cut a line in two.
    :param stream: ``All``, ``Stdout`` or ``Stderr``.
    """

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since: datetime | None = None
    tail_lines: int | None = None
    limit_bytes: int | None = None
    stream: str = ALL

    @classmethod
    def of(cls, query: Mapping[bytes, list[bytes]], now: datetime) -> LogOptions:
        """
        Parse a query.

        :raises BadRequest: a value is malformed.
        :raises Unprocessable: a value is out of range, or contradicts another.
        """
        words = {
            name.decode("ascii", "replace"): each[0].decode("utf-8", "replace")
            for name, each in query.items()
        }
        if "tail" in words:  # the former name in kubelets
            words["tailLines"] = words.pop("tail")
            if words["tailLines"] == "all":
                del words["tailLines"]
        try:
            seconds, at = _number(words, "sinceSeconds"), _time(words, "sinceTime")
            options = cls(
                follow=_flag(words, "follow"),
                previous=_flag(words, "previous"),
                timestamps=_flag(words, "timestamps"),
                since=at if seconds is None else now - timedelta(seconds=seconds),
                tail_lines=_number(words, "tailLines"),
                limit_bytes=_number(words, "limitBytes"),
                stream=words.get("stream", ALL),
            )
        except (ValueError, OverflowError):
            raise BadRequest('{"message": "Unable to decode query."}') from None
        if not options._is_valid() or (seconds is not None and (seconds < 1 or at is not None)):
            raise Unprocessable('{"message": "Invalid request."}')
        return options

    def _is_valid(self) -> bool:
        return (
            (self.tail_lines is None or self.tail_lines >= 0)
            and (self.limit_bytes is None or self.limit_bytes >= 1)
            and self.stream in (ALL, STDOUT, STDERR)
            and not (self.stream != ALL and self.tail_lines is not None)
        )


def _flag(words: Mapping[str, str], name: str) -> bool:
    value = words.get(name, "false").lower()
    if value not in ("", "1", "t", "true", "0", "f", "false"):
        raise ValueError(value)
    return value in ("", "1", "t", "true")


def _number(words: Mapping[str, str], name: str) -> int | None:
    return int(words[name]) if words.get(name) else None


def _time(words: Mapping[str, str], name: str) -> datetime | None:
    if not words.get(name):
        return None
    when = datetime.fromisoformat(words[name])
    if when.tzinfo is None:
        raise ValueError("a time without a zone")
    return when


@dataclass(frozen=True)
class Line:
    """A log line; ``text`` includes the newline unless the line is partial."""

    at: datetime
    stream: str
    text: bytes

    def printed(self, options: LogOptions) -> bytes:
        """Return the line as the options format it; empty if they exclude it."""
        if options.stream not in (ALL, self.stream):
            return b""
        if options.since is not None and self.at < options.since:
            return b""
        if not options.timestamps:
            return self.text
        at = self.at.astimezone(UTC)
        return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06}000Z ".encode() + self.text


@dataclass
class ContainerLog:
    """
    The log of a container in memory, its newest ``most_lines``.

    :ivar ended: whether the log is complete, so that followers end.
    """

    lines: list[Line] = field(default_factory=list)
    most_lines: int = 10_000
    ended: bool = False
    dropped: int = 0
    _waiting: set[Wake] = field(default_factory=set)

    def write(self, text: bytes, stream: str = STDOUT, at: datetime | None = None) -> None:
        """
        Add lines, and wake followers.

        :param text: one or several lines; the last may lack its newline.
        """
        when = at or datetime.now(UTC)
        self.lines += [Line(when, stream, each) for each in text.splitlines(keepends=True)]
        excess = max(0, len(self.lines) - self.most_lines)
        del self.lines[:excess]
        self.dropped += excess
        self._wake()

    def end(self) -> None:
        """Complete the log, because the container has ended."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        for each in list(self._waiting):
            each()

    def wait(self, wake: Wake) -> None:
        """Call ``wake`` after each change."""
        self._waiting.add(wake)

    def forget(self, wake: Wake) -> None:
        """Stop calling ``wake``."""
        self._waiting.discard(wake)


class LogReader:
    """
    One reader's place in a log.

    :ivar exhausted: whether ``limitBytes`` is reached.
    """

    def __init__(self, log: ContainerLog, options: LogOptions) -> None:
        self._log, self._options = log, options
        tail, length = options.tail_lines, len(log.lines)
        self._next = log.dropped + (0 if tail is None else max(0, length - tail))
        self._room = options.limit_bytes
        self.exhausted = False

    def read(self) -> Iterator[bytes]:
        """Yield the lines since the last call."""
        log = self._log
        while not self.exhausted and self._next < log.dropped + len(log.lines):
            place = max(0, self._next - log.dropped)
            self._next = log.dropped + place + 1
            text = log.lines[place].printed(self._options)
            if self._room is not None:
                text = text[: self._room]
                self._room -= len(text)
                self.exhausted = self._room <= 0
            if text:
                yield text
