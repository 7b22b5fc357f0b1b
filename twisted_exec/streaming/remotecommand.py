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
from dataclasses import dataclass
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from twisted_exec.streaming.carrier import ServerCarrier
from twisted_exec.streaming.channels import ServerMessages
from twisted_exec.streaming.interfaces import (
    INTERNAL,
    Ending,
    IAttachment,
    IAttachmentTransport,
)
from twisted_exec.streaming.negotiation import STREAM_PROTOCOL, choose_protocol
from twisted_exec.streaming.sessions import Session
from twisted_exec.streaming.site import Request
from twisted_exec.streaming.spdy import ServerSPDY
from twisted_exec.streaming.upgrade_server import header_pairs, is_upgrade, take_over
from twisted_exec.streaming.websocket import ServerSocket, server_factory, start
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.remotecommand import SizeDecoder
from twisted_exec.wire.remotecommand_streams import asked_channels
from twisted_exec.wire.upgrade import SPDY, switching_protocols, values


@dataclass(frozen=True)
class Limits:
    """
    Bounds of one session.

    :param message_bytes: the largest WebSocket message from the client, 64 KiB or
        more; larger ones end the session with Close 1009.
    :param input_bytes: kept while the attachment takes no input; beyond it the
        client is not read any more.
    :param hold_seconds: how long output is held back for a client that loses what
        comes too early (kubectl).
    :param open_seconds: how long a SPDY client may take to open its streams.
    :param close_seconds: how long the client may take to leave, counted
        from the last progress of the output.
    :param ping_seconds: between pings to the client, which keep the
        connections through load balancers alive.  No pong is demanded: a user
        whose terminal is stopped must not lose the session.
    """

    message_bytes: int = 1 << 20
    input_bytes: int = 256 << 10
    hold_seconds: float = 0.1
    open_seconds: float = 30
    close_seconds: float = 15
    ping_seconds: float = 30


DEFAULT_LIMITS = Limits()


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
    :param record: the session in :class:`~twisted_exec.streaming.sessions.Sessions`
        of this hop, if it keeps any: it can then end the stream, and learns
        when it is over.
    :return: the attachment's transport.
    :raises APIError: it is no such request; nothing has been answered.
    :raises ConnectionDone: the client has left.
    """
    protocol = choose_protocol(request)
    server = ConsoleServer(
        attachment, session=session, user=user, clock=clock, limits=limits, record=record
    )
    take = _take_over_spdy if is_upgrade(request) == SPDY else _take_over_websocket
    take(request, server, protocol, clock, limits)
    return server


def _take_over_websocket(
    request: Request, server: ConsoleServer, protocol: str, clock: IReactorTime, limits: Limits
) -> None:
    (key,) = values(header_pairs(request.requestHeaders), b"sec-websocket-key")
    socket = ServerSocket(key.decode("ascii"), protocol, {"Audit-Id": server.session})
    hold_seconds = limits.hold_seconds if _may_be_deaf(request) else 0.0
    carrier = ServerMessages(socket, protocol, server, clock, hold_seconds)
    server.use(carrier)
    factory = server_factory(clock, limits.message_bytes)
    take_over(request, start(socket, factory, carrier, clock, limits.close_seconds))


def _may_be_deaf(request: Request) -> bool:
    """Whether a client is one that loses what comes too early; see ``streaming.channels``."""
    agent = request.requestHeaders.getRawHeaders(b"user-agent", [b""])[-1]
    return b" kubernetes/" in agent  # as client-go names itself, whatever the program


def _take_over_spdy(
    request: Request, server: ConsoleServer, protocol: str, clock: IReactorTime, limits: Limits
) -> None:
    carrier = ServerSPDY(
        protocol,
        asked_channels(request.args),
        user=server,
        clock=clock,
        open_seconds=limits.open_seconds,
        linger_seconds=limits.close_seconds,
    )
    server.use(carrier)
    headers = [
        (STREAM_PROTOCOL, protocol.encode("ascii")),
        (b"Audit-Id", server.session.encode("ascii")),
    ]
    take_over(request, carrier, switching_protocols(SPDY, headers))


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
        clock: IReactorTime,
        limits: Limits,
        record: Session | None,
    ) -> None:
        self.session, self.user = session, user
        self.bytes_to_machine = self.bytes_to_user = 0
        self._attachment, self._clock, self._limits = attachment, clock, limits
        self._record = record
        self._sizes = SizeDecoder()
        self._producer: Any = None
        self._input: deque[bytes | None] = deque()  # None: the input's end
        self._queued = 0
        self._input_paused = False
        self._input_over = False
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
            self._take(data)
        elif channel is Channel.RESIZE:
            for size in self._sizes.feed(data):
                self._attachment.window_changed(size)

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

    def _take(self, data: bytes | None) -> None:
        self._input.append(data)
        self._queued += len(data or b"")
        self._deliver()
        if self._queued >= self._limits.input_bytes:
            # Pings stay unread as well from here on; there is no other way to
            # make this client stop.
            self._carrier.transport.pauseProducing()

    def _deliver(self) -> None:
        was_full = self._queued >= self._limits.input_bytes
        while self._input and not self._input_paused and not self._ending:
            data = self._input.popleft()
            if data is None:
                self._attachment.input_ended()
            else:
                self._queued -= len(data)
                self.bytes_to_machine += len(data)
                self._attachment.data_received(data)
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
        self._carrier.send_status(ending)
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
