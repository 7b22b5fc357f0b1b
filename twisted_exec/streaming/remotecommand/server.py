"""The machine's end of a console, over WebSocket or SPDY."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from twisted_exec.streaming.interfaces import (
    INTERNAL,
    REVOKED,
    Ending,
    IAttachment,
    IAttachmentTransport,
    IEchoTransport,
    ITermsAttachment,
)
from twisted_exec.streaming.lives import Living
from twisted_exec.streaming.rejoinable_transport import RejoinableTransport
from twisted_exec.streaming.remotecommand.carrier import ServerCarrier
from twisted_exec.streaming.remotecommand.carriers import StreamLimits
from twisted_exec.streaming.remotecommand.user_input import UserInput
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.sessions.stream import SessionStream
from twisted_exec.streaming.sessions.time_limits import TimeLimits
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.endings import encode_ending
from twisted_exec.wire.marks import Notice
from twisted_exec.wire.notices import wrapped_notice
from twisted_exec.wire.session_terms import FULL, Terms
from twisted_exec.wire.stream_options import StreamOptions

__all__ = [
    "GOES_ON",
    "HAS_LEFT",
    "SERVED_TRANSITIONS",
    "ConsoleServer",
    "ServedLife",
]


_STATUS_SECONDS = 5.0
"""How long an ended session with a lost connection waits for a user who lacks the status."""


class _Served(SessionStream):
    """The stream of a session at the machine's end."""

    def __init__(self, server: ConsoleServer) -> None:
        self._server = server

    def end(self, ending: Ending) -> None:
        self._server.end_by_hop(ending)

    def cut(self) -> None:
        self._server.cut()

    def hold_to(self, terms: Terms) -> bool:
        self._server.hold_to(terms)
        return True

    def transports(self) -> tuple[object, object]:
        transport = self._server.transport
        if isinstance(transport, RejoinableTransport):
            transport = transport.connection_transport
        return transport, None


class ServedLife(Enum):
    """The phases of a stream's life at the machine's end; :data:`SERVED_TRANSITIONS` has their order."""

    OPENING = "opening"
    """Its channels are not open, and its attachment is not attached."""
    ATTACHED = "attached"
    ENDING = "ending"
    """It has sent the status, and its attachment is not detached yet."""
    LEFT = "left"
    """Its attachment is detached, or away; the client may still read the status, or that a program restarts."""
    OVER = "over"
    """The session is over, too."""


SERVED_TRANSITIONS: Mapping[ServedLife, frozenset[ServedLife]] = {
    ServedLife.OPENING: frozenset({ServedLife.ATTACHED, ServedLife.ENDING, ServedLife.OVER}),
    ServedLife.ATTACHED: frozenset({ServedLife.ENDING, ServedLife.LEFT, ServedLife.OVER}),
    ServedLife.ENDING: frozenset({ServedLife.LEFT, ServedLife.OVER}),
    ServedLife.LEFT: frozenset({ServedLife.OVER}),
    ServedLife.OVER: frozenset(),
}
"""What may follow each phase of the life of such a stream."""

GOES_ON = frozenset({ServedLife.OPENING, ServedLife.ATTACHED})
HAS_LEFT = frozenset({ServedLife.LEFT, ServedLife.OVER})


def unenforced(terms: Terms) -> str:
    """
    Return why a console that does not know its users cannot enforce terms; empty if it can.

    It has no floor that somebody else could take, so its user yields to all who could type.
    """
    if terms.recording:
        return (
            f"{terms.rule('require', 'recording')} a recording, and this console cannot be recorded"
        )
    if terms.input_rate:
        rule = terms.rule("limit", "input_rate")
        return f"{rule} the rate of input, and this console cannot: select other machines in the policy"
    if terms.people <= 1 and not terms.viewers:
        return ""
    term = "people" if terms.people > 1 else "viewers"
    return (
        f"{terms.rule('limit', term)} the users at a console, and this console does not know its users:"
        " select other machines in the policy"
    )


@implementer(IAttachmentTransport, IEchoTransport)
class ConsoleServer(Living[ServedLife]):
    """
    A session's stream at the machine's end; made by :func:`.serving.serve`.

    :ivar life: the phase of its life.
    :ivar terms: those that it enforces.
    """

    transitions = SERVED_TRANSITIONS

    _is_spent = False  # the client accepts no more output before its next report

    def __init__(
        self,
        attachment: IAttachment,
        *,
        session: str,
        user: str,
        options: StreamOptions,
        clock: IReactorTime,
        limits: StreamLimits,
        entry: Session | None,
        terms: Terms = FULL,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.session, self.user, self.options = session, user, options
        self.terms = terms
        self.bytes_to_user = 0
        self._attachment, self._clock, self._limits = attachment, clock, limits
        self._entry = entry
        self._time_limits = TimeLimits(clock, self._warn, self.end_by_hop, now=now)
        self._producer: Any = None
        self._rejoinable: RejoinableTransport | None = None  # the transport, if it can be rejoined
        self._input = UserInput(
            attachment,
            options,
            clock,
            terms=terms,
            tell=self._tell,
            used=self._time_limits.touch,
            limit_bytes=limits.input_bytes,
            set_full=self._pace_client,
        )
        self.life = ServedLife.OPENING
        self._why = ""
        self._pinged_at: float | None = None  # when the oldest ping without an answer was sent
        self._timer: IDelayedCall | None = None

    def use(self, carrier: ServerCarrier) -> None:
        self._carrier = carrier
        carrier.on_flow(self._flow)

    @property
    def transport(self) -> object:
        """The transport of the connection, which may be rejoined."""
        return self._carrier.transport

    @property
    def protocol(self) -> str:
        """Name of the protocol version; empty for a WebSocket without subprotocol."""
        return self._carrier.protocol

    @property
    def bytes_to_machine(self) -> int:
        return self._input.bytes_to_machine

    # IAttachmentTransport

    def write(self, data: bytes) -> None:
        if self.life is ServedLife.ATTACHED:
            self.bytes_to_user += len(data)
            self._carrier.send(Channel.STDOUT, data)

    def write_error(self, data: bytes) -> None:
        """
        Send error output, as for a command without a terminal, if the client has a channel for it.
        """
        if self.life is ServedLife.ATTACHED:
            self.bytes_to_user += len(data)
            self._carrier.send(Channel.STDERR, data)

    def end(self, ending: Ending) -> None:
        if self.life not in GOES_ON:
            return
        self._finish(ending)
        self._carrier.close()

    def pause_input(self) -> None:
        self._input.pause()

    def resume_input(self) -> None:
        self._input.resume()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self._producer is not None:
            raise RuntimeError("the attachment has registered a producer already")
        self._producer = producer
        if self.life in HAS_LEFT:
            producer.stopProducing()
        elif self._carrier.blocked or self._is_spent:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self._producer = None

    def hold_to(self, terms: Terms) -> None:
        """Change the terms of the session, also for input that is not delivered yet."""
        if terms == self.terms:
            return
        self.terms = terms
        self._input.hold_to(terms)
        if self.life not in GOES_ON:
            return
        if not ITermsAttachment.providedBy(self._attachment):
            if why := unenforced(terms):
                self.end_by_hop(Ending(REVOKED, why))
        elif self.life is ServedLife.ATTACHED:
            self._attachment.terms_changed(terms)
        if self.life is ServedLife.ATTACHED:
            self._time_limits.hold_to(terms)  # last, because it may end the session

    def cut(self) -> None:
        self._carrier.abort()

    def echoed(self, seconds: float) -> None:
        if self._entry is not None:
            self._entry.echoed(seconds)

    # CarrierUser

    def connected(self) -> None:
        if self._entry is not None:
            self._entry.carry(_Served(self))

    def opened(self) -> None:
        if self.life is ServedLife.OPENING:
            self._arm(self._limits.ping_seconds, self._ping)
            self._become(ServedLife.ATTACHED)
            transport = self._carrier.transport
            if isinstance(transport, RejoinableTransport):
                self._rejoinable = transport
                transport.ping = self._send_ping
                transport.on_wait = self._forget_ping
            self._attach()
            self._time_limits.hold_to(self.terms)
            if self.options.input_ended:
                self._input.ended()

    def received(self, channel: Channel, data: bytes) -> None:
        if self.life is not ServedLife.ATTACHED:
            return
        if channel is Channel.STDIN:
            self._input.typed(data)
        elif channel is Channel.RESIZE:
            self._input.control_received(data)

    def ended(self, channel: Channel) -> None:
        if channel is Channel.STDIN and self.life is ServedLife.ATTACHED:
            self._input.ended()

    def pong_received(self) -> None:
        """TCP shows whether the peer is alive; the answer shows what has arrived."""
        pinged_at, self._pinged_at = self._pinged_at, None
        if pinged_at is not None and self._entry is not None:
            self._entry.pinged(self._clock.seconds() - pinged_at)
        if self._rejoinable is not None:
            self._rejoinable.answered()

    def failing(self, reason: str) -> None:
        if self.life in GOES_ON:
            self._finish(Ending(INTERNAL, f"the client broke the protocol: {reason}"))
            self._why = f"protocol error: {reason}"
        self._detach(self._why)

    def close_received(self, code: int | None = None, reason: str = "") -> None:
        if self.life in GOES_ON:
            self._disarm()
            self._detach("client closed")

    def lost(self, reason: str) -> None:
        self._disarm()
        self._detach(reason, self._lose)

    # Input, output and notices

    def _attach(self) -> None:
        self._attachment.attached(self)

    def _lose(self, reason: str) -> None:
        self._attachment.detached(reason)

    def _warn(self, text: str) -> None:
        self._tell(Notice(text))

    def _tell(self, notice: Notice) -> None:
        self.write(wrapped_notice(notice.output) if self.options.tty else notice.output)

    def _pace_client(self, full: bool) -> None:
        if full:
            # From here on pings stay unread too; there is no other way to stop this client.
            self._carrier.transport.pauseProducing()
        else:
            self._carrier.transport.resumeProducing()

    def _flow(self, full: bool) -> None:
        if self._producer is not None:
            if full or self._is_spent:
                self._producer.pauseProducing()
            else:
                self._producer.resumeProducing()
        if self.life not in GOES_ON and self._timer is not None and not full:
            self._timer.reset(self._limits.close_seconds)  # it still reads: give it more time

    # The end

    def end_by_hop(self, ending: Ending) -> None:
        """
        End the session, and leave the console now: a client that stays must not keep the floor.
        """
        self.end(ending)
        self._leave(self._why or ending.reason)

    def _leave(self, reason: str) -> None:
        if self.life is ServedLife.ENDING:
            self._become(ServedLife.LEFT)
            self._producer = None
            self._attachment.detached(reason)

    def _finish(self, ending: Ending) -> None:
        self._become(ServedLife.ENDING)
        self._why = ending.reason
        self._stop()
        # kubectl takes a Close without a status for success.
        self._carrier.send_status(encode_ending(ending, self.protocol))
        if self._rejoinable is not None:
            self._rejoinable.wait_at_most(_STATUS_SECONDS)
        # Discard further input, but keep reading to notice when the client leaves.
        self._carrier.transport.resumeProducing()
        # A server that closes sooner resets the connection and loses the tail of its output
        # (kubernetes#124571).
        self._arm(self._limits.close_seconds, self._carrier.hang_up)

    def _stop(self) -> None:
        self._time_limits.stop()
        self._input.close()

    def _detach(self, reason: str, leave: Callable[[str], None] | None = None) -> None:
        if self.life is ServedLife.OVER:
            return
        has_left = self.life is ServedLife.LEFT
        self._become(ServedLife.OVER)
        self._stop()
        reason = self._why or reason
        self._producer = None
        if self._entry is not None:
            sent = self.bytes_to_machine
            if ITermsAttachment.providedBy(self._attachment):
                sent = self._attachment.bytes_to_machine  # without the input that it has discarded
            self._entry.over(
                reason,
                bytes_to_machine=sent,
                bytes_to_user=self.bytes_to_user,
            )
        if not has_left:
            (leave or self._attachment.detached)(reason)

    def _ping(self) -> None:
        self._timer = None
        if self._rejoinable is not None:
            self._rejoinable.keep_alive()
        else:
            self._send_ping()
        self._arm(self._limits.ping_seconds, self._ping)

    def _send_ping(self) -> bool:
        if self._carrier.blocked:
            return False
        if self._pinged_at is None:
            self._pinged_at = self._clock.seconds()
        self._carrier.ping()
        return True

    def _forget_ping(self) -> None:
        self._pinged_at = None

    def _arm(self, seconds: float, then: Any) -> None:
        self._disarm()
        self._timer = self._clock.callLater(seconds, then)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


def _discard(_: object) -> None:
    """Do nothing."""
