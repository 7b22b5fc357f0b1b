"""
The machine's end of a console whose client can come back after a loss of the connection.

A connection is *lost* when it ends before the client's Close, unless this end has ended the
session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from typing import Protocol as Typing

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from twisted_exec.streaming.http.websocket import GOING_AWAY
from twisted_exec.streaming.interfaces import (
    INTERNAL,
    RESTARTING,
    Ending,
    IMarkTransport,
    IResumableAttachment,
    Position,
)
from twisted_exec.streaming.remotecommand.server import GOES_ON, HAS_LEFT, ConsoleServer, ServedLife
from twisted_exec.streaming.sessions.time_limits import LastInput
from twisted_exec.wire.channel import MAX_PAYLOAD_BYTES, Channel
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.marks import (
    Ack,
    Answer,
    At,
    Attendance,
    EchoTime,
    Mark,
    Notice,
    Question,
    Report,
    Taken,
    encode_mark,
    parse_report,
)
from twisted_exec.wire.resume import Resumable

GIVEN_UP = 4001
"""With this code a page closes a connection whose session goes on over another connection."""

_ACK_PIECES = 4 << 10
_ACK_SECONDS = 1.0
_BURST_SECONDS = 0.05


class StreamSession(Typing):
    """The session of a stream, which outlives it."""

    def connected(self, stream: ResumableServer) -> None:
        """The stream is up; it replaces an older one."""

    def heard(self) -> None:
        """The client has sent something over the stream; called at most once."""

    def lost(self) -> None:
        """The stream is lost, and the user may come back."""

    def over(self, reason: str) -> None:
        """The session is over, unless it has another stream."""


@dataclass(frozen=True)
class Resumption:
    """
    The beginning of a stream whose client can resume.

    :param position: where the output of a resumed session continues; ``None`` for a new session.
    :param settled: pieces of input that earlier streams settled; ``None`` if unknown.
    :param last_input: shared by the streams of a session; ``None`` for the first.
    """

    answer: Resumable
    session: StreamSession
    position: Position | None = None
    settled: int | None = 0
    credit: int = 0
    last_input: LastInput | None = None


class Acknowledgements:
    """Tells a client from time to time how much of its input is settled."""

    def __init__(self, clock: IReactorTime, send: Callable[[Mark], None], settled: int) -> None:
        self._clock, self._send = clock, send
        self._settled = self._sent = settled
        self._sent_at = clock.seconds()
        self._is_blocked = False
        self._timer: IDelayedCall | None = None

    def settled(self, count: int) -> None:
        self._settled = count
        if self._is_blocked:
            return
        if count - self._sent >= _ACK_PIECES:
            self._acknowledge()
        elif self._timer is None:
            due_seconds = self._sent_at + _ACK_SECONDS - self._clock.seconds()
            self._timer = self._clock.callLater(max(_BURST_SECONDS, due_seconds), self._due)

    def set_blocked(self, blocked: bool) -> None:
        self._is_blocked = blocked
        if self._settled != self._sent:
            self.settled(self._settled)

    def send_last(self) -> None:
        """Tell the client all that is settled, even if output is blocked: nothing follows."""
        if self._settled != self._sent:
            self._acknowledge()

    def stop(self) -> None:
        """Send nothing more, and break the cycle of references."""
        self._sent = self._settled
        self._send = _ignore
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _due(self) -> None:
        self._timer = None
        if not self._is_blocked and self._settled != self._sent:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self._sent, self._sent_at = self._settled, self._clock.seconds()
        self._send(Ack(self._sent))


def _ignore(_: object) -> None:
    """Do nothing."""


@implementer(IMarkTransport)
class ResumableServer(ConsoleServer):
    """A session's stream whose client reads marks; made by :func:`.serving.serve`."""

    _attachment: IResumableAttachment

    def __init__(
        self, resumption: Resumption, attachment: IResumableAttachment, **more: Any
    ) -> None:
        super().__init__(attachment, **more)
        # Without the key, which is a secret that only the client needs.
        self._kept = resumption.session
        self._position, self._settled_before = resumption.position, resumption.settled
        self._heard = False
        self._asks = False  # the attachment waits for an answer
        self._is_pinged = False  # a ping is on the way
        self._is_question = False  # this ping was sent after the last question
        self.settled = resumption.settled or 0
        if resumption.last_input is not None:
            self._time_limits.last_input = resumption.last_input
        self._acks = Acknowledgements(self._clock, self._send_mark, self.settled)

    # IMarkTransport

    @property
    def known_settled(self) -> int | None:
        """
        Number of settled pieces of the session's input; ``None`` if the client may count
        differently.
        """
        return (
            self._settled_before
            if self._settled_before is None and not self._heard
            else self.settled
        )

    def send_mark(self, mark: At | Attendance | Notice) -> None:
        self._send_mark(mark)

    def ask(self) -> None:
        self._asks, self._is_question = True, False
        self._ask_now()

    def _ask_now(self) -> None:
        # One ping at a time: an answer does not say to which one it is, and a client may answer the
        # last of several pings only.
        if self._asks and not self._is_pinged and not self._carrier.blocked:
            self._is_pinged = self._is_question = True
            self._send_ping()

    def _send_mark(self, mark: Mark | Question | Answer) -> None:
        if self.life is ServedLife.ATTACHED:
            self._carrier.send(Channel.RESIZE, encode_mark(mark))

    def _tell(self, notice: Notice) -> None:
        self._send_mark(notice)

    def echoed(self, seconds: float) -> None:
        super().echoed(seconds)
        if not self._carrier.blocked:
            self._send_mark(EchoTime(round(seconds * 1_000_000)))

    # CarrierUser

    def _attach(self) -> None:
        self._send_mark(Ack(self._settled_before))
        position = self._position
        # The answer shows that the client has the key, and follows the input of an outage.
        self._asks = position is not None
        self._is_pinged = self._is_question = self._send_ping()
        self._kept.connected(self)
        if position is None:
            self._attachment.attached(self)
        else:
            self._attachment.resumed(self, position)

    def received(self, channel: Channel, data: bytes) -> None:
        if not self._heard:
            self._hear()
        super().received(channel, data)

    def _settle(self, number: int) -> None:
        self.settled += number
        self._acks.settled(self.settled)

    def ended(self, channel: Channel) -> None:
        self._hear()
        super().ended(channel)

    def pong_received(self) -> None:
        self._hear()
        self._is_pinged = False
        if not self._is_question:
            self._ask_now()
        elif self._asks and self.life not in HAS_LEFT:
            self._asks = False
            self._attachment.answered()
        super().pong_received()

    def close_received(self, code: int | None = None, reason: str = "") -> None:
        self._leave(self._why)  # if it has the status
        super().close_received(code, reason)

    def lost(self, reason: str) -> None:
        if self.life not in HAS_LEFT:
            reason = f"{reason}; may be resumed"
        super().lost(reason)

    def _hear(self) -> None:
        if not self._heard and self.life not in HAS_LEFT:
            self._heard = True
            self._kept.heard()

    def _ping(self) -> None:
        if (
            self._is_pinged
        ):  # a client that reads nothing now keeps the connection alive by its pings
            self._arm(self._limits.ping_seconds, self._ping)
            return
        self._is_pinged = self._is_question = not self._carrier.blocked
        super()._ping()

    def _flow(self, full: bool) -> None:
        super()._flow(full)
        self._acks.set_blocked(full)
        self._ask_now()

    # The end

    def end_by_hop(self, ending: Ending) -> None:
        if ending.reason == RESTARTING:
            self._restart(ending)
        else:
            super().end_by_hop(ending)

    def _restart(self, ending: Ending) -> None:
        """
        Let the client open another connection, because a program on the path stops.

        Input that arrives from here on is not settled: the client sends it again.
        """
        if self.life is not ServedLife.ATTACHED:
            self.cut()
            return
        self._acks.send_last()
        self._disarm()
        self._stop()
        self._why, self._producer = ending.reason, None
        # The session is over with the connection: until then its client, or a hop, may read the Close.
        self._become(ServedLife.LEFT)
        self._kept.lost()
        self._carrier.transport.resumeProducing()
        self._carrier.restart(ending.message)

    def _lose(self, reason: str) -> None:
        self._kept.lost()

    def _detached(self, reason: str) -> None:
        self._kept.over(reason)

    def _stop(self) -> None:
        super()._stop()
        self._acks.stop()


class PageServer(ResumableServer):
    """
    A session's stream to a page, made by :func:`.serving.serve`.

    A page cannot stop reading its WebSocket, so it names a credit, and reports what it has taken.
    """

    def __init__(self, resumption: Resumption, *arguments: Any, **more: Any) -> None:
        super().__init__(resumption, *arguments, **more)
        self._credit = resumption.credit
        self._taken = 0
        self._questions = 0
        self._unanswered: int | None = None  # the page's latest question, while output is blocked

    def write(self, data: bytes) -> None:
        super().write(data)
        if not self._is_spent and self._rest < MAX_PAYLOAD_BYTES:
            self._is_spent = True
            if self._producer is not None:
                self._producer.pauseProducing()

    @property
    def _rest(self) -> int:
        return self._taken + self._credit - self.bytes_to_user

    def received(self, channel: Channel, data: bytes) -> None:
        if channel is Channel.RESIZE and self.life is ServedLife.ATTACHED:
            try:
                report = parse_report(data)
                if report is not None:
                    self._hear()
                    self._reported(report)
                    return
            except RemoteProtocolError as problem:
                self.end(Ending(INTERNAL, f"the client broke the protocol: {problem}"))
                return
        super().received(channel, data)

    def _reported(self, report: Report) -> None:
        if isinstance(report, Taken):
            self._take(report.count)
        elif isinstance(report, Question):
            self._unanswered = report.number
            self._answer()
        elif report.number == self._questions:
            super().pong_received()

    def _take(self, count: int) -> None:
        if not self._taken <= count <= self.bytes_to_user:
            raise RemoteProtocolError(
                f"{count} bytes of output are taken, of {self._taken} to {self.bytes_to_user}"
            )
        self._taken = count
        if self._is_spent and self._rest >= MAX_PAYLOAD_BYTES:
            self._is_spent = False
            if self._producer is not None and not self._carrier.blocked:
                self._producer.resumeProducing()

    def _answer(self) -> None:
        if self._unanswered is not None and not self._carrier.blocked:
            number, self._unanswered = self._unanswered, None
            self._send_mark(Answer(number))

    def _flow(self, full: bool) -> None:
        super()._flow(full)
        self._answer()

    def _send_ping(self) -> bool:
        if not super()._send_ping():
            return False
        self._questions += 1
        self._send_mark(Question(self._questions))
        return True

    def close_received(self, code: int | None = None, reason: str = "") -> None:
        """Treat the end of the page, or of a connection that it gives up, as a loss."""
        if code in (GOING_AWAY, GIVEN_UP) and self.life in GOES_ON:
            self._carrier.abort()
        else:
            super().close_received(code, reason)

    def pong_received(self) -> None:
        """Do nothing: the browser has answered, and not the page."""
