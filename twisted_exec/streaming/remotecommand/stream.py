"""A session's stream at the user's end, and its user."""

from __future__ import annotations

from typing import Any, Protocol

from twisted_exec.wire.control_messages import Break, Ending, Message, Role, TerminalSize
from twisted_exec.wire.resume import Attendance, Mark, Position, RoundTrip


class ConsoleStream:
    """
    A session's stream, as its user sees it: one connection, or several in succession.

    Its facts have defaults: those of a stream that knows nothing about them.

    :ivar recorded: the input that is recorded; empty without a recording.
    :ivar resumes: how often the session was resumed.
    :ivar missed_bytes: bytes that the machine printed while the connection was lost last.
    :ivar unsent_keys: number of keys and requests that were dropped after the last loss, and were
        never sent.
    """

    recorded = ""
    resumes = missed_bytes = unsent_keys = 0

    @property
    def is_resumable(self) -> bool:
        """Return whether the session goes on over another connection."""
        return False

    @property
    def attendance(self) -> Attendance | None:
        """The sessions at the console; ``None`` if the server did not say."""
        return None

    @property
    def position(self) -> Position | None:
        """The position of the next byte of output; ``None`` if unknown."""
        return None

    @property
    def round_trips(self) -> tuple[RoundTrip, ...]:
        """The round trips of the hops at the start."""
        return ()

    @property
    def round_trip_seconds(self) -> float | None:
        """The time of the last ping; ``None`` if unknown."""
        return None

    @property
    def overdue_seconds(self) -> float | None:
        """See :attr:`.Pings.overdue_seconds`."""
        return 0.0

    @property
    def echo_seconds(self) -> float | None:
        """The machine's last time from input to output; ``None`` if unknown."""
        return None

    def network_changed(self) -> None:
        """Try whether the server is in reach after a change of the network."""

    @property
    def session(self) -> str:
        """The session's id; may be empty."""
        return ""

    @property
    def protocol(self) -> str:
        """Name of the protocol version."""
        return ""

    @property
    def transport(self) -> Any:
        return None

    @property
    def can_half_close(self) -> bool:
        """Return whether the input can end while output goes on."""
        return False

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def end_input(self) -> None:
        raise NotImplementedError

    def resize(self, size: TerminalSize) -> None:
        raise NotImplementedError

    def wish(self, wish: Break | Role) -> None:
        raise NotImplementedError

    def say(self, message: Message) -> None:
        raise NotImplementedError

    def pause_output(self) -> None:
        raise NotImplementedError

    def resume_output(self) -> None:
        raise NotImplementedError

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        raise NotImplementedError

    def unregisterProducer(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError


class ConsoleUser(Protocol):
    """Callbacks of a :class:`ConsoleStream`."""

    def attached(self, stream: ConsoleStream) -> None:
        """The stream is open; called once, first of all."""

    def data_received(self, data: bytes) -> None:
        """Output of the machine, 1 byte or more."""

    def ended(self, ending: Ending) -> None:
        """The server ended the session with this status; :meth:`detached` follows."""

    def detached(self, reason: str) -> None:
        """
        The stream is closed; called once after :meth:`attached`, last of all.

        Without :meth:`ended` before, the connection was lost, unless this side left.
        """


class MarkUser(ConsoleUser, Protocol):
    """Callbacks of a stream that can be resumed."""

    def mark_received(self, mark: Mark) -> None:
        """Handle a mark, in order with the output."""
