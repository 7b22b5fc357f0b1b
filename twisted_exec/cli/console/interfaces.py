"""
The parts around a :class:`~twisted_exec.cli.console.session.ConsoleSession`, as it sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.interfaces import IPushProducer

from twisted_exec.wire.control_messages import Break, Role, TerminalSize
from twisted_exec.wire.resume import Attendance, Notice, Position, RoundTrip


@dataclass(frozen=True)
class NextSession:
    """
    The session that follows this session in the same terminal.

    :param reset: switch the machine off and on first.
    :param stopped: why the server was stopped, if it has to be back first.
    :param news: a message for the user once the session is open.
    """

    machine: str
    reset: bool = False
    stopped: str = ""
    observe: bool = False
    news: str = ""


class MachineStream(Protocol):
    """The stream to the machine."""

    @property
    def can_half_close(self) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def registerProducer(self, producer: object, streaming: bool) -> None: ...
    def pause_output(self) -> None: ...
    def resume_output(self) -> None: ...
    def end_input(self) -> None: ...
    def resize(self, size: TerminalSize) -> None: ...
    def wish(self, wish: Break | Role) -> None: ...
    def leave(self) -> None: ...
    def abort(self) -> None: ...


class ResumableStream(MachineStream, Protocol):
    """
    A stream that connects again by itself, and calls the session's ``outage`` and ``resumed``.

    Other streams lack :attr:`is_resumable`.
    """

    @property
    def is_resumable(self) -> bool:
        """True from ``attached`` on: notices come as marks, and a lost connection is no end."""

    @property
    def session(self) -> str:
        """The id of the session."""

    @property
    def position(self) -> Position | None:
        """Position of the next byte of output; ``None`` before the first mark."""

    @property
    def live_from(self) -> int:
        """Where the output ended when the present connection was made; 0 if unknown."""

    @property
    def attendance(self) -> Attendance | None:
        """The sessions at the console; ``None`` if the server has not said it."""

    @property
    def round_trip_seconds(self) -> float | None:
        """Time of the last ping to the machine's end and back; ``None`` if unknown."""

    @property
    def overdue_seconds(self) -> float | None:
        """
        Waiting time of a ping that is suspiciously late; otherwise 0, and ``None`` while nothing is
        read.
        """

    @property
    def round_trips(self) -> Sequence[RoundTrip]:
        """TCP round trips between the hops, when the connection was new."""

    @property
    def echo_seconds(self) -> float | None:
        """Time from the last input to its answer by the machine; ``None`` if unknown."""

    @property
    def resumes(self) -> int:
        """The number of resumed connections so far."""

    @property
    def missed_bytes(self) -> int:
        """Output that the machine printed while the connection was lost last."""

    @property
    def unsent_pieces(self) -> int:
        """Of the input that was dropped after the last loss, the bytes that were never sent."""

    def network_changed(self) -> None:
        """Try to connect again now, if the connection is lost."""


class Source(Protocol):
    """The user's input: a producer that can be stopped for good."""

    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...
    def stop(self) -> None: ...


class Sink(Protocol):
    """The user's output."""

    def write(self, data: bytes) -> None: ...
    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...
    def loseConnection(self) -> None: ...


class SessionScript(Protocol):
    """A script that drives the session."""

    def noticed(self, notice: Notice) -> None:
        """Handle a message for the user of the session."""

    def skipped(self, text: str) -> None:
        """Handle a gap in the output."""

    def outage(self) -> None:
        """Wait without a limit: the connection is lost."""

    def resumed(self) -> None:
        """Go on: the connection is back."""

    def failed(self, line: str) -> None:
        """Do nothing any more: the session fails with this message."""
