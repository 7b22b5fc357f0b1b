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
    Break,
    Ending,
    IAttachment,
    IAttachmentTransport,
    IEchoTransport,
    IMessaging,
    IOperable,
    ITermsAttachment,
    TerminalSize,
)
from twisted_exec.streaming.lifecycle import Living
from twisted_exec.streaming.rejoinable_transport import RejoinableTransport
from twisted_exec.streaming.remotecommand.carrier import ServerCarrier
from twisted_exec.streaming.remotecommand.carriers import StreamLimits
from twisted_exec.streaming.remotecommand.waiting_input import Item, WaitingInput, pieces
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.sessions.stream import SessionStream
from twisted_exec.streaming.sessions.time_limits import TimeLimits
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.endings import encode_ending
from twisted_exec.wire.marks import Notice, NoticeKind, NoticeRole, not_sent
from twisted_exec.wire.notices import TELL_AGAIN_SECONDS, wrapped_notice
from twisted_exec.wire.resize import Message, SizeDecoder
from twisted_exec.wire.session_terms import FULL, MAY_ONLY_OBSERVE, Right, Terms
from twisted_exec.wire.stream_options import StreamOptions
from twisted_exec.wire.typed_keys import is_typed

__all__ = [
    "GOES_ON",
    "HAS_LEFT",
    "SERVED_TRANSITIONS",
    "ConsoleServer",
    "ServedLife",
]

READ_ONLY = Notice("you are an observer; what you type is not sent")
"""To a user who types in a ``readOnly=true`` session."""

MAY_OBSERVE = not_sent(MAY_ONLY_OBSERVE, NoticeRole.DENIED)
"""To a user without the right to drive who types, if the attachment knows no terms."""

MAY_NOT_SAY = Notice(f"your message was not sent: {MAY_ONLY_OBSERVE}", NoticeKind.RECEIPT)
"""To a user without the right to drive who sends a message."""

NO_MESSAGES = Notice(
    "your message was not sent: this console passes no messages on", NoticeKind.RECEIPT
)
NO_BREAK = Notice("this console has no BREAK")
NO_ROLES = Notice("this console has no roles: whoever is here may type")

_DELIVERIES_PER_SECOND = 10
"""Of input whose rate is limited."""

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


class ToldNotices:
    """When a user last had each of these notices."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock, self._told_at = clock, dict[Notice, float]()

    def allow(self, notice: Notice) -> bool:
        """Take note that the user gets a notice now, unless it came lately; return whether to tell it."""
        now = self._clock.seconds()
        if now - self._told_at.get(notice, -TELL_AGAIN_SECONDS) < TELL_AGAIN_SECONDS:
            return False
        self._told_at[notice] = now
        return True


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

    Input is delivered when it arrives, or waits while the attachment has paused it.  Beyond a limit
    the connection is not read: sizes, pings and the client's leaving then wait, too.

    :ivar life: the phase of its life.
    :ivar terms: those that it enforces.
    :ivar bytes_to_machine: keys that the attachment has.
    """

    transitions = SERVED_TRANSITIONS

    _is_spent = False  # the client accepts no more output before its next report
    _is_input_paused = False
    _is_delivering = False  # what follows an item must not overtake it
    _is_full = False  # so much input waits that the connection is not read
    _has_input_ended = False
    _is_stopped = False
    _size: TerminalSize | None = None  # the newest, until the next turn
    _last_size: TerminalSize | None = None
    _next_size: IDelayedCall | None = None

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
        self.bytes_to_user = self.bytes_to_machine = 0
        self._attachment, self._clock, self._limits = attachment, clock, limits
        self._entry = entry
        self._time_limits = TimeLimits(clock, self._warn, self.end_by_hop, now=now)
        self._producer: Any = None
        self._rejoinable: RejoinableTransport | None = None  # the transport, if it can be rejoined
        self._input = WaitingInput()
        self._accepted = self._accepted_bytes()  # before this stream; at its end, over this stream
        self._hold_input_to(terms)
        self._sizes = SizeDecoder()
        self._told = ToldNotices(clock)
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
        self._is_input_paused = True

    def resume_input(self) -> None:
        self._is_input_paused = False
        if self._input:
            self._deliver_waiting()

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
        self._hold_input_to(terms)
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
                self._end_input()

    def received(self, channel: Channel, data: bytes) -> None:
        if self.life is not ServedLife.ATTACHED:
            return
        if channel is Channel.STDIN:
            self._typed(data)
        elif channel is Channel.RESIZE:
            for event in self._sizes.feed(data):
                self._controlled(event)

    def ended(self, channel: Channel) -> None:
        if channel is Channel.STDIN and self.life is ServedLife.ATTACHED:
            self._end_input()

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

    # Input: whether it passes, and when

    def _hold_input_to(self, terms: Terms) -> None:
        """
        Drop waiting input of a user who may not drive any more, but not its end.

        The attachment limits the rate, which it can only between two deliveries.
        """
        self._may_drive = terms.right >= Right.DRIVE
        self._passes_input = self.options.takes_input and self._may_drive
        self._most_bytes = -(-terms.input_rate // _DELIVERIES_PER_SECOND)
        if not self._may_drive and self._input and (dropped := self._input.drop()):
            self._settle(dropped)
            self._deliver_waiting()

    def _typed(self, data: bytes) -> None:
        if self._has_input_ended:
            self._settle(len(data))
            return
        self._time_limits.touch()
        if self._passes_input:
            self._put(data)
            return
        self._settle(len(data))
        if is_typed(data):
            self._refuse()

    def _end_input(self) -> None:
        if not self._has_input_ended:
            self._has_input_ended = True
            self._put(None)

    def _controlled(self, event: TerminalSize | Message | Item) -> None:
        if isinstance(event, TerminalSize):
            if not self.options.read_only:
                self._resized(event)
            return
        self._time_limits.touch()
        if isinstance(event, Message):
            self._said(event.text)
        elif not self.options.takes_input or self._has_input_ended:
            self._settle(1)
        elif self._may_drive or ITermsAttachment.providedBy(self._attachment):
            self._put(event)  # also of a user who may only observe: the attachment says so
        else:
            self._settle(1)
            self._refuse()

    def _refuse(self) -> None:
        if self.options.read_only:
            self._tell_if_due(READ_ONLY)
        elif self.options.takes_input:
            if ITermsAttachment.providedBy(self._attachment):
                self._attachment.input_refused()
            else:
                self._tell_if_due(MAY_OBSERVE)

    def _said(self, text: str) -> None:
        # Not behind the input: users talk about a machine that takes no input, and from sessions that
        # take none, too. And not counted: a runtime of an earlier release takes it for a size.
        if self._has_input_ended:
            return
        if not self._may_drive:
            self._tell_if_due(MAY_NOT_SAY)
        elif IMessaging.providedBy(self._attachment):
            self._attachment.said(text)
        else:
            self._tell_if_due(NO_MESSAGES)

    def _resized(self, size: TerminalSize) -> None:
        # Some clients keep connections open with sizes, and each resumed stream begins with one.
        if self._last_size not in (None, size):
            self._time_limits.touch()
        self._last_size = self._size = size
        if self._next_size is None:  # not the second one of this turn
            self._pass_size()

    def _pass_size(self) -> None:
        self._next_size = (
            self._clock.callLater(0, self._pass_size) if self._size is not None else None
        )
        self._deliver_size()

    def _deliver_size(self) -> None:
        size, self._size = self._size, None
        if size is not None:
            self._attachment.window_changed(size)

    def _put(self, item: Item) -> None:
        if self._size is not None:
            self._deliver_size()  # it came before
        if self._is_input_paused or self._is_delivering or self._input or self._most_bytes:
            self._input.put(item)
        else:
            self._is_delivering = True
            try:
                self._deliver(item)
            finally:
                self._is_delivering = False
        if self._input:
            self._deliver_waiting()

    def _deliver_waiting(self) -> None:
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._input and not self._is_input_paused:
                self._deliver(self._input.take(self._most_bytes))
        finally:
            self._is_delivering = False
        is_full = self._input.cost >= self._limits.input_bytes
        if is_full is not self._is_full:
            self._is_full = is_full
            self._pace_client(is_full)

    def _deliver(self, item: Item) -> None:
        self._settle(pieces(item))
        if isinstance(item, bytes):
            self.bytes_to_machine += len(item)
            self._attachment.data_received(item)
        elif item is None:
            self._attachment.input_ended()
        elif IOperable.providedBy(self._attachment):
            self._attachment.wished(item)
        else:
            self._tell_if_due(NO_BREAK if isinstance(item, Break) else NO_ROLES)

    def _settle(self, number: int) -> None:
        """Take note of pieces of input that the attachment has, or that were discarded for good."""

    def _accepted_bytes(self) -> int:
        """Return the input of the session until now, without what the attachment has discarded."""
        if ITermsAttachment.providedBy(self._attachment):
            return int(self._attachment.bytes_to_machine)
        return self.bytes_to_machine

    def _stop_input(self) -> None:
        self._deliver_size()  # otherwise the machine keeps the size before
        self._input.clear()
        self._is_full = False
        if self._next_size is not None and self._next_size.active():
            self._next_size.cancel()

    # Output and notices

    def _attach(self) -> None:
        self._attachment.attached(self)

    def _lose(self, reason: str) -> None:
        """The connection is lost."""
        self._detached(reason)

    def _detached(self, reason: str) -> None:
        self._attachment.detached(reason)

    def _warn(self, text: str) -> None:
        self._tell(Notice(text))

    def _tell(self, notice: Notice) -> None:
        self.write(wrapped_notice(notice.output) if self.options.tty else notice.output)

    def _tell_if_due(self, notice: Notice) -> None:
        if self._told.allow(notice):
            self._tell(notice)

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
            self._detached(reason)

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
        self._stop_input()
        if not self._is_stopped:
            self._is_stopped, self._accepted = True, self._accepted_bytes() - self._accepted

    def _detach(self, reason: str, leave: Callable[[str], None] | None = None) -> None:
        if self.life is ServedLife.OVER:
            return
        has_left = self.life is ServedLife.LEFT
        self._become(ServedLife.OVER)
        self._stop()
        reason = self._why or reason
        self._producer = None
        if self._entry is not None:
            self._entry.over(
                reason,
                bytes_to_machine=self._accepted,
                bytes_to_user=self.bytes_to_user,
            )
        if not has_left:
            (leave or self._detached)(reason)

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
