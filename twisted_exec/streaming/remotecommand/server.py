"""
The machine's end of a console, over WebSocket or SPDY.

Input is buffered up to a limit while the attachment has paused it.  Beyond it the connection is not
read: sizes, pings and the client's leaving then wait, too.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
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
from twisted_exec.streaming.lives import Living
from twisted_exec.streaming.rejoinable_transport import RejoinableTransport
from twisted_exec.streaming.remotecommand.carrier import ServerCarrier
from twisted_exec.streaming.remotecommand.carriers import StreamLimits
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.sessions.stream import SessionStream
from twisted_exec.streaming.sessions.time_limits import TimeLimits
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.control_messages import Break as BreakMessage
from twisted_exec.wire.control_messages import (
    Message,
    Role,
    SizeDecoder,
    encode_ending,
    wrapped_notice,
)
from twisted_exec.wire.resume import Notice, NoticeKind, NoticeRole, not_sent
from twisted_exec.wire.session_terms import FULL, MAY_ONLY_OBSERVE, Right, Terms
from twisted_exec.wire.stream_options import StreamOptions

__all__ = [
    "GOES_ON",
    "HAS_LEFT",
    "MAY_NOT_SAY",
    "MAY_OBSERVE",
    "NO_BREAK",
    "NO_MESSAGES",
    "NO_ROLES",
    "READ_ONLY",
    "SAYS_NOTHING",
    "SERVED_TRANSITIONS",
    "ConsoleServer",
    "InputQueue",
    "Item",
    "ServedLife",
    "UserInput",
    "pieces",
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
    """Where a stream at the machine's end is in its life; :data:`SERVED_TRANSITIONS` has the order."""

    OPENING = "opening"
    """Its channels are not open, and its attachment is not attached."""
    ATTACHED = "attached"
    ENDING = "ending"
    """It has sent the status, and its attachment is not detached yet."""
    LEFT = "left"
    """Its attachment is detached; the client may still read the status."""
    OVER = "over"
    """The session is over, too."""


SERVED_TRANSITIONS: Mapping[ServedLife, frozenset[ServedLife]] = {
    ServedLife.OPENING: frozenset({ServedLife.ATTACHED, ServedLife.ENDING, ServedLife.OVER}),
    ServedLife.ATTACHED: frozenset({ServedLife.ENDING, ServedLife.OVER}),
    ServedLife.ENDING: frozenset({ServedLife.LEFT, ServedLife.OVER}),
    ServedLife.LEFT: frozenset({ServedLife.OVER}),
    ServedLife.OVER: frozenset(),
}
"""What may follow each phase of the life of such a stream."""

GOES_ON = frozenset({ServedLife.OPENING, ServedLife.ATTACHED})
HAS_LEFT = frozenset({ServedLife.LEFT, ServedLife.OVER})


def unenforced(terms: Terms) -> str:
    """Return why a console that does not know its users cannot enforce terms; empty if it can."""
    if terms.recording:
        return f"{terms.rule('require')} a recording, and this console cannot be recorded"
    if terms.people <= 1 and not terms.viewers:
        return ""
    return (
        f"{terms.rule('limit')} the users at a console, and this console does not know its users:"
        " select other machines in the policy"
    )


@implementer(IAttachmentTransport, IEchoTransport)
class ConsoleServer(Living[ServedLife]):
    """
    A session's stream at the machine's end; made by :func:`.serving.serve`.

    :ivar life: where it is in its life.
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
            takes_input=self.takes_input,
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

    @property
    def takes_input(self) -> bool:
        """Return whether input passes: there is stdin, and the user may drive."""
        return self.options.takes_input and self.terms.right >= Right.DRIVE

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

    # For another process

    def suspend(self) -> tuple[dict[str, Any], bytes] | None:
        """
        Let nothing pass until :meth:`unsuspend`, and return the state for another process, as JSON
        values, and the digest of the key that rejoins the stream; see :class:`ContinuedServer`.

        :return: ``None`` if another process cannot go on; then everything passes as before.
        """
        transport, carrier = self._rejoinable, self._carrier
        if transport is None or self.life is not ServedLife.ATTACHED:
            return None
        exported = carrier.export()
        if exported is None:
            return None
        values = {
            "protocol": self.protocol,
            "carrier": exported,
            "input": self._input.export(),
            "bytesToUser": self.bytes_to_user,
        }
        state = transport.suspend(carrier.unread)
        kept = b64encode(state.kept).decode("ascii")
        values["transport"] = [state.received, state.first, kept, state.pings]
        return values, transport.digest

    def unsuspend(self) -> None:
        if self._rejoinable is not None:
            self._rejoinable.unsuspend()

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
        self._input.takes_input = self.takes_input
        if not self.takes_input:
            self._input.drop()
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

    def close_received(self, code: int | None = None) -> None:
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


class ContinuedServer(ConsoleServer):
    """
    A stream of another process, which the previous hop rejoins here.

    :param earlier: what :meth:`ConsoleServer.suspend` returned there.
    :param attach: attaches the attachment, which knows the session already.
    """

    def __init__(
        self,
        earlier: Mapping[str, Any],
        attach: Callable[[ConsoleServer], None],
        attachment: IAttachment,
        **more: Any,
    ) -> None:
        super().__init__(attachment, **more)
        self._earlier, self._attach_again = earlier, attach

    def _attach(self) -> None:
        self.bytes_to_user = self._earlier["bytesToUser"]
        self._input.restore(self._earlier["input"])
        self._earlier = {}
        self._attach_again(self)
        self._attach_again = _discard


class UserInput:
    """
    The input of one session, counted in pieces (:mod:`twisted_exec.wire.resume`).

    A piece is settled when the attachment has it, or when it was discarded for good.

    :param used: is called when the user has sent keys, a request, or another size.
    :ivar takes_input: whether input passes now; the owner sets it, see also :meth:`drop`.
    :ivar on_settled: is called with the number of settled pieces when it changes.
    """

    def __init__(
        self,
        attachment: IAttachment,
        options: StreamOptions,
        clock: IReactorTime,
        *,
        takes_input: bool,
        tell: Callable[[Notice], None],
        used: Callable[[], None],
        limit_bytes: int,
        set_full: Callable[[bool], None],
    ) -> None:
        self._attachment, self._options, self._clock = attachment, options, clock
        self.takes_input = takes_input
        self.on_settled: Callable[[int], None] | None = None
        self.settled = self.bytes_to_machine = 0
        self._tell, self._used = tell, used
        self._queue = InputQueue(limit_bytes, self._deliver, set_full)
        self._sizes = SizeDecoder()
        self._size: TerminalSize | None = None  # the newest, until the next turn
        self._last_size: TerminalSize | None = None
        self._next_size: IDelayedCall | None = None
        self._is_over = self._is_closed = False
        self._told: set[Notice] = set()  # notices that the user has had

    def __len__(self) -> int:
        return len(self._queue)

    # From the stream.

    def typed(self, data: bytes) -> None:
        if self._is_over:
            self._settle(len(data))
            return
        if data:  # some clients keep connections open with empty input
            self._used()
        if self.takes_input:
            self._put(data)
        else:
            self._settle(len(data))
            self._refuse()

    def control_received(self, data: bytes) -> None:
        for event in self._sizes.feed(data):
            if isinstance(event, Message):
                self._used()
                self._said(event.text)
            elif not isinstance(event, TerminalSize):
                self._used()
                self._wished(event)
            elif not self._options.read_only:
                # Some clients keep connections open with sizes, and each resumed stream begins with one.
                if self._last_size not in (None, event):
                    self._used()
                self._last_size = event
                self._size = event
                if self._next_size is None:  # not the second one of this turn
                    self._resize()

    def ended(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._put(None)

    # For another process.

    def export(self) -> dict[str, Any]:
        """Return the state for another process, as JSON values."""
        size, last = self._size, self._last_size
        return {
            "waiting": [_exported(each) for each in self._queue.items],
            "sizes": self._sizes.export(),
            "size": None if size is None else astuple(size),
            "lastSize": None if last is None else astuple(last),
            "isOver": self._is_over,
            "bytesToMachine": self.bytes_to_machine,
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Continue the input of another process, which waits for :meth:`resume`."""
        size, last = values["size"], values["lastSize"]
        self.bytes_to_machine = values["bytesToMachine"]
        self._sizes.restore(values["sizes"])
        self._is_over = values["isOver"]
        self._last_size = None if last is None else TerminalSize(*last)
        self._size = None if size is None else TerminalSize(*size)
        self.pause()
        for each in values["waiting"]:
            self._queue.put(_restored(each))
        self._resize()

    # From the owner.

    def pause(self) -> None:
        self._queue.pause()

    def resume(self) -> None:
        self._queue.resume()

    def drop(self) -> None:
        """Drop waiting input, but not the end of input: the user may not drive any more."""
        if dropped := self._queue.drop():
            self._settle(dropped)

    def close(self) -> None:
        self._deliver_size()  # otherwise the machine keeps the size before
        self._is_closed = True
        self._queue.close()
        self.on_settled = None
        self._tell, self._used = _discard, _do_nothing
        if self._next_size is not None and self._next_size.active():
            self._next_size.cancel()

    # To the attachment.

    def _settle(self, number: int) -> None:
        self.settled += number
        if self.on_settled is not None:
            self.on_settled(self.settled)

    def _refuse(self) -> None:
        if self._options.read_only:
            self._tell_once(READ_ONLY)
        elif self._options.takes_input:
            if ITermsAttachment.providedBy(self._attachment):
                self._attachment.input_refused()
            else:
                self._tell_once(MAY_OBSERVE)

    def _tell_once(self, notice: Notice) -> None:
        if notice not in self._told:
            self._told.add(notice)
            self._tell(notice)

    def _wished(self, wish: Item) -> None:
        if not self._options.takes_input or self._is_over:
            self._settle(1)
        elif self.takes_input or ITermsAttachment.providedBy(self._attachment):
            self._put(wish)  # also of a user who may only observe: the attachment says so
        else:
            self._settle(1)
            self._refuse()

    def _said(self, text: str) -> None:
        # Not behind the input: users talk about a machine that takes no input, too. And not counted: a
        # runtime of an earlier release takes it for a size.
        if self._is_closed or self._is_over:
            return
        if self._options.read_only:
            self._tell_once(SAYS_NOTHING)
        elif not self.takes_input:
            self._tell_once(MAY_NOT_SAY)
        elif IMessaging.providedBy(self._attachment):
            self._attachment.said(text)
        else:
            self._tell_once(NO_MESSAGES)

    def _resize(self) -> None:
        self._next_size = self._clock.callLater(0, self._resize) if self._size is not None else None
        self._deliver_size()

    def _deliver_size(self) -> None:
        size, self._size = self._size, None
        if size is not None and not self._is_closed:
            self._attachment.window_changed(size)

    def _put(self, item: Item) -> None:
        self._deliver_size()  # it came before
        self._queue.put(item)

    def _deliver(self, item: Item) -> None:
        self._settle(pieces(item))
        if item is None:
            self._attachment.input_ended()
        elif isinstance(item, bytes):
            self.bytes_to_machine += len(item)
            self._attachment.data_received(item)
        elif IOperable.providedBy(self._attachment):
            self._attachment.wished(item)
        else:
            self._tell_once(NO_BREAK if isinstance(item, Break) else NO_ROLES)


def _do_nothing() -> None:
    """Do nothing."""


Item = bytes | BreakMessage | Role | None

_WISH_COST = 64
"""Cost of a BREAK or role request, in bytes."""


class InputQueue:
    """
    A bounded queue that delivers directly, unless it is paused.

    :param deliver: receives each item; it may pause or close the queue.
    """

    def __init__(
        self, limit_bytes: int, deliver: Callable[[Item], None], set_full: Callable[[bool], None]
    ) -> None:
        self._limit_bytes, self._deliver, self._set_full = limit_bytes, deliver, set_full
        self._items: deque[Item] = deque()
        self._cost = 0
        self._paused = False
        self._is_full = self._is_closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> Sequence[Item]:
        """What waits, oldest first."""
        return tuple(self._items)

    def put(self, item: Item) -> None:
        """Deliver an item after those that wait; ignored after :meth:`close`."""
        if self._is_closed:
            return
        self._items.append(item)
        self._cost += _cost(item)
        self._run()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._run()

    def drop(self) -> int:
        """
        Drop what waits, but not the end of input.

        :return: the number of pieces that were dropped.
        """
        ends = [item for item in self._items if item is None]
        dropped = sum(map(pieces, self._items)) - len(ends)
        self._items.clear()
        self._items.extend(ends)
        self._cost = sum(map(_cost, ends))
        self._run()
        return dropped

    def close(self) -> None:
        """Drop what waits, and break the cycle of references."""
        self._items.clear()
        self._deliver = self._set_full = _discard
        self._cost, self._is_full, self._is_closed = 0, False, True

    def _run(self) -> None:
        while self._items and not self._paused:
            item = self._items.popleft()
            self._cost -= _cost(item)
            self._deliver(item)
        is_full = self._cost >= self._limit_bytes
        if is_full is not self._is_full:
            self._is_full = is_full
            self._set_full(is_full)


def _exported(item: Item) -> list[Any]:
    if item is None:
        return []
    if isinstance(item, bytes):
        return ["keys", b64encode(item).decode("ascii")]
    if isinstance(item, Role):
        return ["role", item.name]
    return ["break", item.milliseconds]


def _restored(values: list[Any]) -> Item:
    if not values:
        return None
    kind, value = values
    if kind == "keys":
        return b64decode(value, validate=True)
    return Role[value] if kind == "role" else BreakMessage(value)


def pieces(item: Item) -> int:
    """Return the number of pieces in an item of input."""
    return len(item) if isinstance(item, bytes) else 1


def _cost(item: Item) -> int:
    return len(item) if isinstance(item, bytes) else _WISH_COST


def _discard(_: object) -> None:
    """Do nothing."""


READ_ONLY = Notice("you are an observer; what you type is not sent")
"""To a user who types in a ``readOnly=true`` session."""

MAY_OBSERVE = not_sent(MAY_ONLY_OBSERVE, NoticeRole.DENIED)
"""To a user without the right to drive who types."""

SAYS_NOTHING = Notice("your message was not sent: this session only observes", NoticeKind.RECEIPT)
"""To a user who sends a message in a ``readOnly=true`` session."""

MAY_NOT_SAY = Notice(f"your message was not sent: {MAY_ONLY_OBSERVE}", NoticeKind.RECEIPT)
"""To a user without the right to drive who sends a message."""

NO_MESSAGES = Notice(
    "your message was not sent: this console passes no messages on", NoticeKind.RECEIPT
)

NO_BREAK = Notice("this console has no BREAK")

NO_ROLES = Notice("this console has no roles: whoever is here may type")
