"""
The machine's end of a console, over a WebSocket or over SPDY.

:func:`serve` joins an upgrade request to an attachment.  Order at the end, as
Kubernetes' newest servers keep it: all output, the status, the protocol's own end
(Close 1000, or an end to each stream), then wait for the client to leave.  A server
that closes sooner resets the tail of its output away; one that closes without a
status looks like success.

What the client types is kept while the attachment takes no input, up to a limit.
Beyond it the client is not read any more, since neither protocol can hold back one
channel: then its sizes, its pings and its leaving wait as well, until the attachment
takes input again.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import (
    INTERNAL,
    Break,
    Ending,
    IAttachment,
    IAttachmentTransport,
    IOperable,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.carrier import ServerCarrier
from twisted_exec.streaming.remotecommand.carriers import DEFAULT_LIMITS, Limits, accept
from twisted_exec.streaming.remotecommand.negotiation import choose_protocol
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.remotecommand.messages import SizeDecoder, encode_ending
from twisted_exec.wire.stream_options import StreamOptions

READ_ONLY = b"\r\n[twisted-exec: you are an observer; what you type is not sent]\r\n"
"""What a user reads who asked to look on, and types."""

NO_BREAK = b"\r\n[twisted-exec: this console has no BREAK]\r\n"
"""What a user reads whose BREAK cannot be sent."""

NO_ROLES = b"\r\n[twisted-exec: this console has no roles: whoever is here may type]\r\n"
"""What a user reads who asks for one where there are none."""

_WISH_COST = 64
"""What one of them counts in the queue of input."""


def serve(
    request: Request,
    attachment: IAttachment,
    *,
    session: str,
    user: str,
    clock: IReactorTime,
    limits: Limits = DEFAULT_LIMITS,
    record: Session | None = None,
) -> ConsoleServer:
    """
    Answer a request with a console.

    Over a WebSocket ``attachment.attached`` is called before this returns, and so may
    ``data_received`` be: a client may send right behind its request.  Over SPDY that
    waits for the client's streams; a client that opens none is never attached, but
    detached all the same.

    :param session: the session's id, told to the client as ``Audit-Id``.
    :param record: the session in :class:`~twisted_exec.streaming.sessions.registry.Sessions`
        of this hop, if it keeps any: it can then end the stream, and learns
        when it is over.
    :return: the attachment's transport.
    :raises APIError: it is no such request; nothing has been answered.
    :raises ConnectionDone: the client has left.
    """
    protocol = choose_protocol(request)
    server = ConsoleServer(
        attachment,
        session=session,
        user=user,
        asked=StreamOptions.of(request.args),
        clock=clock,
        limits=limits,
        record=record,
    )
    accept(request, protocol, server, session=session, clock=clock, limits=limits)
    return server


@implementer(IAttachmentTransport)
class ConsoleServer:
    """
    A session's stream, from the machine's side; :func:`serve` makes it.

    :ivar bytes_to_machine: input that came, without framing.
    :ivar bytes_to_user: output that was sent, without framing.
    """

    def __init__(
        self,
        attachment: IAttachment,
        *,
        session: str,
        user: str,
        asked: StreamOptions,
        clock: IReactorTime,
        limits: Limits,
        record: Session | None,
    ) -> None:
        self.session, self.user, self.asked = session, user, asked
        self.bytes_to_machine = self.bytes_to_user = 0
        self._attachment, self._clock, self._limits = attachment, clock, limits
        self._record = record
        self._sizes = SizeDecoder()
        self._producer: Any = None
        self._input: deque[bytes | Break | Role | None] = deque()  # None: the input's end
        self._queued = 0
        self._input_paused = False
        self._input_over = False
        self._refused: set[bytes] = set()  # what the user was told that it cannot have
        self._ending = False  # the status is sent, or never will be
        self._detached = False
        self._why = ""
        self._timer: IDelayedCall | None = None

    def use(self, carrier: ServerCarrier) -> None:
        """What it speaks through."""
        self._carrier = carrier
        carrier.on_flow(self._flow)

    @property
    def protocol(self) -> str:
        """The version's name, empty for a WebSocket that named none."""
        return self._carrier.protocol

    # IAttachmentTransport

    def write(self, data: bytes) -> None:
        if not self._ending:
            self.bytes_to_user += len(data)
            self._carrier.send(Channel.STDOUT, data)

    def write_error(self, data: bytes) -> None:
        """
        Send errors apart from output, as a command without a terminal has them.

        They are dropped where the client has opened no stream for them.
        """
        if not self._ending:
            self.bytes_to_user += len(data)
            self._carrier.send(Channel.STDERR, data)

    def end(self, ending: Ending) -> None:
        if self._ending:
            return
        self._finish(ending)
        self._carrier.close()

    def pause_input(self) -> None:
        self._input_paused = True

    def resume_input(self) -> None:
        self._input_paused = False
        self._deliver()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self._producer is not None:
            raise RuntimeError("the attachment has registered a producer already")
        self._producer = producer
        if self._detached:
            producer.stopProducing()
        elif self._carrier.blocked:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self._producer = None

    def cut(self) -> None:
        """End without a word; for when the time to say one is over."""
        self._carrier.abort()

    # CarrierUser

    def connected(self) -> None:
        if self._record is not None:
            self._record.carry(self.end, self.cut)

    def opened(self) -> None:
        if not self._ending:
            self._arm(self._limits.ping_seconds, self._ping)
            self._attachment.attached(self)

    def received(self, channel: Channel, data: bytes) -> None:
        if self._ending:
            return
        if channel is Channel.STDIN and not self._input_over:
            if self.asked.takes_input:
                self._take(data)
            else:
                self._refuse()
        elif channel is Channel.RESIZE and not self.asked.read_only:
            for told in self._sizes.feed(data):
                self._told(told)

    def ended(self, channel: Channel) -> None:
        if channel is Channel.STDIN and not self._input_over and not self._ending:
            self._input_over = True
            self._take(None)

    def pong_received(self) -> None:
        """That the peer lives is known from TCP."""

    def failing(self, reason: str) -> None:
        if not self._ending:
            self._finish(Ending(INTERNAL, f"the client broke the protocol: {reason}"))
            self._why = f"protocol error: {reason}"
        self._detach(self._why)

    def close_received(self) -> None:
        if not self._ending:
            self._ending = True
            self._disarm()
            self._detach("client closed")

    def lost(self, reason: str) -> None:
        self._disarm()
        self._ending = True
        self._detach(reason)

    # Input

    def _refuse(self) -> None:
        """
        Nothing of it is for the machine.

        Whoever did not ask for input and sends some gets no word, as in Kubernetes.
        """
        if self.asked.read_only:
            self._tell_once(READ_ONLY)

    def _tell_once(self, notice: bytes) -> None:
        if notice not in self._refused:
            self._refused.add(notice)
            self.write(notice)

    def _told(self, told: TerminalSize | Break | Role) -> None:
        """A size goes at once; what is asked for waits for its turn behind what was typed."""
        if isinstance(told, TerminalSize):
            self._attachment.window_changed(told)
        elif self.asked.takes_input and not self._input_over:
            self._take(told)

    def _take(self, data: bytes | Break | Role | None) -> None:
        self._input.append(data)
        self._queued += len(data) if isinstance(data, bytes) else _WISH_COST
        self._deliver()
        if self._queued >= self._limits.input_bytes:
            # Pings stay unread as well from here on; there is no other way to
            # make this client stop.
            self._carrier.transport.pauseProducing()

    def _deliver(self) -> None:
        was_full = self._queued >= self._limits.input_bytes
        while self._input and not self._input_paused and not self._ending:
            data = self._input.popleft()
            self._queued -= len(data) if isinstance(data, bytes) else _WISH_COST
            if data is None:
                self._attachment.input_ended()
            elif isinstance(data, bytes):
                self.bytes_to_machine += len(data)
                self._attachment.data_received(data)
            elif IOperable.providedBy(self._attachment):
                self._attachment.wished(data)
            else:
                self._tell_once(NO_BREAK if isinstance(data, Break) else NO_ROLES)
        if was_full and self._queued < self._limits.input_bytes:
            self._carrier.transport.resumeProducing()

    # Output

    def _flow(self, full: bool) -> None:
        if self._producer is not None:
            if full:
                self._producer.pauseProducing()
            else:
                self._producer.resumeProducing()
        if self._ending and self._timer is not None and not full:
            self._timer.reset(self._limits.close_seconds)  # it reads; be patient

    # The end

    def _finish(self, ending: Ending) -> None:
        """Say how it ended; to close is the caller's."""
        self._ending, self._why = True, ending.reason
        self._carrier.send_status(encode_ending(ending, self.protocol))
        self._input.clear()
        self._queued = 0
        # Whatever the client still sends is thrown away, but that it leaves must be seen.
        self._carrier.transport.resumeProducing()
        self._arm(self._limits.close_seconds, self._carrier.hang_up)

    def _detach(self, reason: str) -> None:
        if self._detached:
            return
        self._detached = True
        reason = self._why or reason
        self._producer = None
        self._input.clear()
        if self._record is not None:
            self._record.over(
                reason,
                bytes_to_machine=self.bytes_to_machine,
                bytes_to_user=self.bytes_to_user,
            )
        self._attachment.detached(reason)

    def _ping(self) -> None:
        self._timer = None
        self._carrier.ping()
        self._arm(self._limits.ping_seconds, self._ping)

    def _arm(self, seconds: float, then: Any) -> None:
        self._disarm()
        self._timer = self._clock.callLater(seconds, then)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
