"""A session's stream at the user's end, and its user."""

from __future__ import annotations

from typing import Any

from twisted_exec.wire.endings import Ending
from twisted_exec.wire.marks import At, Attendance, Mark, Notice, NoticeKind
from twisted_exec.wire.notices import encode_gap
from twisted_exec.wire.resize import Break, Message, Role, TerminalSize
from twisted_exec.wire.resume import Position, RoundTrip
from twisted_exec.wire.typed_keys import dropped_keys


class ConsoleStream:
    """
    A session's stream, as its user sees it: one connection, or several in succession.

    Its facts have defaults: those of a stream that knows nothing about them.

    :ivar recorded_input: the input that is recorded; empty without a recording.
    :ivar resumes: how often the session was resumed.
    :ivar missed_bytes: bytes that the machine printed while the connection was lost last.
    """

    recorded_input = ""
    resumes = missed_bytes = 0

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
    def hindrance(self) -> str:
        """Why the lost connection could not be made again so far; empty if unknown."""
        return ""

    @property
    def waiting_keys(self) -> int:
        """Number of keys and requests that the server has not confirmed."""
        return 0

    @property
    def unconfirmed(self) -> tuple[int, int]:
        """The :attr:`waiting_keys`: those that were sent, and those that were not."""
        return (0, 0)

    @property
    def drops_keys(self) -> bool:
        """Whether the :attr:`waiting_keys` are dropped when the connection is back: it is too late."""
        return False

    @property
    def owed_seconds(self) -> float:
        """For how long a server has confirmed none of the input that it got; 0 if it has all."""
        return 0.0

    @property
    def echo_seconds(self) -> float | None:
        """The machine's last time from input to output; ``None`` if unknown."""
        return None

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


class ConsoleUser:
    """
    Callbacks of a :class:`ConsoleStream`.

    A user overrides :meth:`attached`, :meth:`data_received`, :meth:`ended` and :meth:`detached`.
    Only a stream that can be resumed calls the others. Their defaults are those of a user that has
    the output alone: messages are written into it, except those of other users of the console.
    """

    @property
    def is_observer(self) -> bool | None:
        """
        Whether a resumed session is to have an observer; ``None`` for the role of the beginning.

        A new process of the machine's runtime does not know the role.
        """
        return None

    @property
    def sends_late(self) -> bool:
        """
        Whether input that waits for a connection is sent however long that takes.

        Keys of a person mean what the person saw, so after the time for which the server keeps a lost
        session they may do harm. A program expects that its input arrives, or that it hears of a
        failure; and it limits the time itself.

        Also, a person may go on typing blindly when the machine has started again, and a program types
        by what it reads. So only a person's stream waits for a pause before it answers the server's
        ping, until which the server discards and counts the input.
        """
        return True

    def attached(self, stream: ConsoleStream) -> None:
        """The stream is open; called once, first of all."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        """Output of the machine, 1 byte or more."""
        raise NotImplementedError

    def ended(self, ending: Ending) -> None:
        """The server ended the session with this status; :meth:`detached` follows."""
        raise NotImplementedError

    def detached(self, reason: str) -> None:
        """
        The stream is closed; called once after :meth:`attached`, last of all.

        Without :meth:`ended` before, the connection was lost, unless this side left.
        """
        raise NotImplementedError

    def outage(self, reason: str) -> None:
        """The connection is lost; :meth:`resumed` or :meth:`detached` follows."""

    def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
        """
        The session goes on.

        :param seconds: since :meth:`outage`.
        :param uncertain: number of dropped keys and requests, some of which the machine may have
            received.
        :param unsent: number of those that were never sent.
        """
        if uncertain:
            self.notice(Notice(f"the connection was lost: {dropped_keys(uncertain, unsent)}"))

    def caught_up(self) -> None:
        """
        The output that the machine printed during the loss has arrived; what follows is of now.

        Called once after :meth:`resumed`, unless the connection is lost again before.
        """

    def dropped(self, dropped: int, unsent: int) -> str:
        """
        Return the message about dropped keys and requests; empty for no message.

        :param dropped: their number, at least 1.
        :param unsent: number of those that were never sent.
        """
        return dropped_keys(dropped, unsent)

    def notice(self, notice: Notice) -> None:
        """A message for people, and for programs what it is about."""
        if notice.kind is not NoticeKind.SAID:  # in the output it could be the machine's
            self.data_received(notice.output)

    def placed(self, mark: At) -> None:
        """The position of the next output; called before :meth:`skipped`."""

    def skipped(self, count: int | None) -> None:
        """Output is missing here: its bytes, or ``None`` if unknown."""
        self.data_received(encode_gap(count))

    def attendance_changed(self, attendance: Attendance) -> None:
        """The sessions at the console have changed, or may have."""


class MarkUser(ConsoleUser):
    """Callbacks of one connection of a session that can be resumed."""

    def mark_received(self, mark: Mark) -> None:
        """Handle a mark, in order with the output."""
        raise NotImplementedError
