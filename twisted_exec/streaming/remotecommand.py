"""
The machine's end of a console: ``channel.k8s.io`` messages over a WebSocket.

:func:`serve` joins an upgrade request to an attachment.  Order at the end, as
Kubernetes' newest servers keep it: all output, the Status on channel 3, Close
1000, then wait for the client's Close.  A server that closes sooner resets the
tail of its output away; one that closes without a Status looks like success.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from twisted_exec.api.status import BadRequest, Forbidden
from twisted_exec.streaming.interfaces import (
    INTERNAL,
    Ending,
    IAttachment,
    IAttachmentTransport,
)
from twisted_exec.streaming.sessions import Session
from twisted_exec.streaming.site import Request
from twisted_exec.streaming.upgrade_server import header_pairs, is_upgrade, take_over
from twisted_exec.streaming.websocket import ServerSocket, server_factory, start
from twisted_exec.wire.channel import (
    PROTOCOLS,
    Channel,
    StreamClosed,
    StreamData,
    decode,
    encode,
    messages,
)
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.remotecommand import SizeDecoder, encode_status
from twisted_exec.wire.upgrade import check_websocket, negotiate, values


@dataclass(frozen=True)
class Limits:
    """
    Bounds of one session.

    :param message_bytes: the largest message from the client, 64 KiB or more;
        larger ones end the session with Close 1009.
    :param input_bytes: kept while the attachment takes no input; beyond it the
        client is not read any more.
    :param close_seconds: how long the client may take for its Close, counted
        from the last progress of the output.
    :param ping_seconds: between pings to the client, which keep the
        connections through load balancers alive.  No pong is demanded: a user
        whose terminal is stopped must not lose the session.
    """

    message_bytes: int = 1 << 20
    input_bytes: int = 256 << 10
    close_seconds: float = 15
    ping_seconds: float = 30


DEFAULT_LIMITS = Limits()


def choose_protocol(request: Request) -> str:
    """
    Check that a request is a complete WebSocket handshake for a console.

    Whoever consumes a token for a session asks this before.

    :return: the subprotocol, ``v5.channel.k8s.io`` or ``v4.channel.k8s.io``.
    :raises APIError: 400 or 403, saying what is missing.
    """
    headers = header_pairs(request.requestHeaders)
    if not is_upgrade(request):
        raise BadRequest("Upgrade request required")
    try:
        check_websocket(request.method, headers)
    except RemoteProtocolError as problem:
        raise BadRequest(str(problem)) from None
    offered = values(headers, b"sec-websocket-protocol")
    chosen = negotiate(offered, PROTOCOLS)
    if chosen is None:
        ours = " and ".join(PROTOCOLS)
        if not offered:
            raise BadRequest(f"the request offers no subprotocol; this server speaks {ours}")
        raise Forbidden(f"no subprotocol in common; this server speaks {ours}")
    return chosen


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

    ``attachment.attached`` is called before this returns, and so may
    ``data_received`` be: a client may send right behind its request.

    :param session: the session's id, told to the client as ``Audit-Id``.
    :param record: the session in :class:`~twisted_exec.streaming.sessions.Sessions`
        of this hop, if it keeps any: it can then end the stream, and learns
        when it is over.
    :return: the attachment's transport.
    :raises APIError: it is no such request; nothing has been answered.
    :raises ConnectionDone: the client has left.
    """
    protocol = choose_protocol(request)
    (key,) = values(header_pairs(request.requestHeaders), b"sec-websocket-key")
    server = ConsoleServer(
        attachment, protocol, session=session, user=user, clock=clock, limits=limits
    )
    socket = ServerSocket(key.decode("ascii"), protocol, {"Audit-Id": session})
    server.use(socket, record)
    take_over(
        request,
        start(
            socket,
            server_factory(clock, limits.message_bytes),
            server,
            clock,
            limits.close_seconds,
        ),
    )
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
        protocol: str,
        *,
        session: str,
        user: str,
        clock: IReactorTime,
        limits: Limits,
    ) -> None:
        self.session, self.user, self.protocol = session, user, protocol
        self.bytes_to_machine = self.bytes_to_user = 0
        self._attachment, self._clock, self._limits = attachment, clock, limits
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

    def use(self, socket: ServerSocket, record: Session | None) -> None:
        """What it speaks through, and who keeps the record."""
        self._socket, self._record = socket, record
        socket.on_flow(self._flow)

    # IAttachmentTransport

    def write(self, data: bytes) -> None:
        if not self._ending:
            self.bytes_to_user += len(data)
            for message in messages(Channel.STDOUT, data):
                self._socket.send(message)

    def end(self, ending: Ending) -> None:
        if self._ending:
            return
        self._finish(ending)
        self._socket.close()

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
        elif self._socket.blocked:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self._producer = None

    def cut(self) -> None:
        """End without a word; for when the time to say one is over."""
        self._socket.abort()

    # SocketUser

    def opened(self) -> None:
        self._socket.send(encode(Channel.STDOUT))  # "connected"; some clients wait for it
        self._arm(self._limits.ping_seconds, self._ping)
        self._attachment.attached(self)
        if self._record is not None:
            self._record.carry(self.end, self.cut)

    def message_received(self, message: bytes) -> None:
        if self._ending:
            return
        try:
            event = decode(message, self.protocol)
        except RemoteProtocolError as problem:
            self._socket.fail(str(problem))
            return
        if isinstance(event, StreamClosed):
            if event.channel is Channel.STDIN and not self._input_over:
                self._input_over = True
                self._take(None)
        elif isinstance(event, StreamData):
            self._stream_data(event)

    def _stream_data(self, event: StreamData) -> None:
        if event.channel is Channel.STDIN and event.data and not self._input_over:
            self._take(event.data)
        elif event.channel is Channel.RESIZE:
            for size in self._sizes.feed(event.data):
                self._attachment.window_changed(size)

    def pong_received(self) -> None:
        """That the peer lives is known from TCP."""

    def failing(self, reason: str) -> None:
        if not self._ending:
            self._finish(Ending(INTERNAL, f"the client broke the protocol: {reason}"))
            self._why = f"protocol error: {reason}"
        self._detach(self._why)

    def close_received(self, code: int | None) -> None:
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
            self._socket.transport.pauseProducing()

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
            self._socket.transport.resumeProducing()

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
        """Say how it ended; the Close is the caller's."""
        self._ending, self._why = True, ending.reason
        self._socket.send(encode(Channel.ERROR, encode_status(ending)))
        self._input.clear()
        self._queued = 0
        # Whatever the client still sends is thrown away, but its Close must be seen.
        self._socket.transport.resumeProducing()
        self._arm(self._limits.close_seconds, self._socket.hang_up)

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
        self._socket.ping()
        self._arm(self._limits.ping_seconds, self._ping)

    def _arm(self, seconds: float, then: Any) -> None:
        self._disarm()
        self._timer = self._clock.callLater(seconds, then)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
