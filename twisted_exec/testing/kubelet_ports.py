"""
Ports of a Pod, forwarded by a kubelet's double to those of this host's loopback.

A WebSocket carries SPDY in its messages (``SPDY/3.1+portforward.k8s.io``) or, in an older form, two
channels for each port. Facts: ``httpstream.go`` and ``websocket.go`` of
``k8s.io/kubelet/pkg/cri/streaming/portforward``.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Sequence
from typing import Any
from typing import Protocol as Typing

from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.interfaces import IDelayedCall, IHalfCloseableProtocol, IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.paced_connection import PacedConnection
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.spdy import GOING_WRONG
from twisted_exec.wire.spdy_connection import (
    DataReceived,
    Event,
    GoAwayReceived,
    PingReceived,
    SPDYConnection,
    StreamEnded,
    StreamOpened,
    StreamReset,
)
from twisted_exec.wire.upgrade import Headers, values

PORT_FORWARD = "portforward.k8s.io"

_PAIR_SECONDS = 30
_MAX_STREAMS = 2000
_LINGER_SECONDS = 5.0
TUNNEL = "SPDY/3.1+portforward.k8s.io"
OLD_PROTOCOLS = ("v4.channel.k8s.io", "v4.base64.channel.k8s.io")
_CONNECT_SECONDS = 10


class Carried(Typing):
    """Carrier of a forwarding: a transport, or a WebSocket on one."""

    def send(self, data: bytes) -> None:
        """Send SPDY bytes, split anywhere."""

    def hold(self, still: bool) -> None:
        """Pause reading from the client if ``still``, otherwise resume."""

    def close(self) -> None:
        """Close after the data written so far."""


class _Pair:
    def __init__(self, forwards: PortForwards, request: str) -> None:
        self.forwards, self.request = forwards, request
        self.streams: dict[bytes, int] = {}
        self.port = 0
        self.way: Way | None = None
        self.timer: IDelayedCall | None = None
        self._said = self._over = False

    def connect(self) -> None:
        forwards = self.forwards
        self.way = Way(forwards.reactor, self.port, self)
        self.way.connecting.addCallbacks(self.way.connected, self._refused)
        self.way.connecting.addCallback(lambda _: self.target_full(False))

    def _refused(self, failure: Failure) -> None:
        if self.way is None or self.way.left:
            return
        message = f"failed to connect to localhost:{self.port}: {failure.getErrorMessage()}"
        forwards = self.forwards
        forwards.fail(
            self, f"error forwarding port {self.port} to pod {forwards.pod}, uid : {message}"
        )

    def target_said(self, data: bytes) -> None:
        self.forwards.send(self.streams[b"data"], data)

    def target_ended(self) -> None:
        if not self._said:
            self._said = True
            self.forwards.end(self.streams[b"data"])

    def target_full(self, full: bool) -> None:
        self.forwards.hold(self, full)

    def target_lost(self) -> None:
        if not self._over:
            self._over = True
            self.target_ended()
            self.forwards.end(self.streams[b"error"])
            self.forwards.done(self)


class PortForwards:
    """The server's end of one SPDY connection of ``portforward.k8s.io``."""

    def __init__(self, reactor: Any, pod: str, carried: Carried) -> None:
        self.reactor, self.pod = reactor, pod
        self._carried = carried
        self._connection = SPDYConnection(client=False, max_streams=_MAX_STREAMS)
        self._pairs: dict[str, _Pair] = {}
        self._by_stream: dict[int, tuple[_Pair, bytes]] = {}
        self._full: set[_Pair] = set()

    # Input from the client.

    def received(self, data: bytes) -> None:
        self._connection.feed(data)
        try:
            while (event := self._connection.next_event()) is not None:
                self._take(event)
        except RemoteProtocolError:
            self._connection.go_away(GOING_WRONG)
            self._flush()
            self._carried.close()
        self._flush()

    def _take(self, event: Event) -> None:
        if isinstance(event, StreamOpened):
            self._opened(event)
        elif isinstance(event, PingReceived):
            self._connection.answer(event.ping_id)
        elif isinstance(event, GoAwayReceived):
            self._carried.close()
        elif isinstance(event, DataReceived | StreamEnded | StreamReset):
            self._stream_event(event)

    def _opened(self, event: StreamOpened) -> None:
        kind = b"".join(values(event.headers, b"streamtype")[:1]).lower()
        port = port_of(b"".join(values(event.headers, b"port")[:1]))
        if kind not in (b"error", b"data") or port is None:
            self._connection.reset(event.stream_id)
            return
        self._connection.accept(event.stream_id)
        request = _request(event.stream_id, kind, event.headers)
        pair = self._pairs.get(request) or self._new_pair(request)
        if kind in pair.streams:
            self.fail(pair, f"error processing stream for request {request}:"
                            f" {kind.decode()} stream already assigned")  # fmt: skip
            return
        pair.streams[kind], pair.port = event.stream_id, port
        self._by_stream[event.stream_id] = pair, kind
        if len(pair.streams) == 2:
            self._settle(pair)
            pair.connect()

    def _new_pair(self, request: str) -> _Pair:
        pair = self._pairs[request] = _Pair(self, request)
        message = f"(request={request}) timed out waiting for streams"
        pair.timer = self.reactor.callLater(_PAIR_SECONDS, self.fail, pair, message)
        return pair

    def _stream_event(self, event: DataReceived | StreamEnded | StreamReset) -> None:
        pair, kind = self._by_stream.get(event.stream_id, (None, b""))
        if pair is None or kind == b"error" or pair.way is None:
            return
        if isinstance(event, DataReceived):
            pair.way.write(event.data)
        elif isinstance(event, StreamEnded):
            pair.way.end()
        else:
            pair.way.abort()
            self.done(pair)

    # Output to the client.

    def send(self, stream_id: int, data: bytes) -> None:
        if self._connection.can_send(stream_id):
            self._connection.send(stream_id, data)
            self._flush()

    def end(self, stream_id: int) -> None:
        if self._connection.can_send(stream_id):
            self._connection.send(stream_id, b"", fin=True)
            self._flush()

    def fail(self, pair: _Pair, message: str) -> None:
        """Report a message on the error stream and close the pair."""
        error = pair.streams.get(b"error")
        if error is not None:
            self.send(error, message.encode())
        for stream_id in pair.streams.values():
            self._connection.reset(stream_id)
        self._flush()
        if pair.way is not None:
            pair.way.abort()
        self.done(pair)

    def done(self, pair: _Pair) -> None:
        self._settle(pair)
        self._pairs.pop(pair.request, None)
        for stream_id in pair.streams.values():
            self._by_stream.pop(stream_id, None)
        self.hold(pair, False)

    def _settle(self, pair: _Pair) -> None:
        timer, pair.timer = pair.timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _flush(self) -> None:
        data = self._connection.data_to_send()
        if data:
            self._carried.send(data)

    # Flow control and disconnection.

    def hold(self, pair: _Pair, full: bool) -> None:
        """Pause the whole connection while one port is full."""
        (self._full.add if full else self._full.discard)(pair)
        self._carried.hold(bool(self._full))

    def pace(self, full: bool) -> None:
        """The client stopped reading (``full``), or reads again."""
        for pair in self._pairs.values():
            if pair.way is not None:
                pair.way.pace(full)

    def lost(self) -> None:
        for pair in list(self._pairs.values()):
            if pair.way is not None:
                pair.way.abort()
            self._settle(pair)
        self._pairs.clear()
        self._by_stream.clear()


def _request(stream_id: int, kind: bytes, headers: Headers) -> str:
    request_id = b"".join(values(headers, b"requestid")[:1])
    if request_id:
        return request_id.decode("ascii", "replace")
    return str(stream_id if kind == b"error" else stream_id - 2)  # older clients send no request ID


class SPDYPorts(PacedConnection, Protocol):
    """Port forwarding over a connection that was upgraded to SPDY."""

    transport: Any
    linger_seconds = _LINGER_SECONDS

    def __init__(self, reactor: Any, pod: str, over: Callable[[Any], None]) -> None:
        self.clock, self._over = reactor, over
        self._forwards = PortForwards(reactor, pod, self)
        self.on_flow(self._forwards.pace)

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)

    def dataReceived(self, data: bytes) -> None:
        self._forwards.received(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.connection_lost(reason)
        self._forwards.lost()
        self._over(self)

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def hold(self, still: bool) -> None:
        if not self._hung_up:
            (self.transport.pauseProducing if still else self.transport.resumeProducing)()

    def close(self) -> None:
        self.hang_up()

    def cut(self) -> None:
        self.abort()


def read_ports(values: Sequence[bytes]) -> list[int]:
    """
    Return the ports of a WebSocket's query, at most 100 of them.

    :raises ValueError: there are none or too many, or a value is not a port.
    """
    ports = [port_of(each) for value in values for each in value.split(b",")]
    numbers = [port for port in ports if port is not None]
    if not ports or len(numbers) != len(ports) or len(ports) > 100:
        raise ValueError('query parameter "port" must have one port or several')
    return numbers


class _SocketPorts:
    def __init__(self, socket: Any, over: Callable[[Any], None]) -> None:
        self.socket, self._over = socket, over

    def opened(self) -> None:
        """The WebSocket is open."""

    def message_received(self, message: bytes) -> None:
        raise NotImplementedError

    def pong_received(self) -> None:
        """Ignore pongs, as no ping was sent."""

    def failing(self, reason: str) -> None:
        """Do nothing: the socket reports the error in its Close message."""

    def close_received(self, code: int | None, reason: str) -> None:
        """Do nothing: the socket replies with its own Close."""

    def lost(self, reason: str) -> None:
        self._over(self)

    def hold(self, still: bool) -> None:
        if self.socket.can_send:
            transport = self.socket.transport
            (transport.pauseProducing if still else transport.resumeProducing)()

    def close(self) -> None:
        self.socket.close()
        self.socket.hang_up()

    def cut(self) -> None:
        self.socket.abort()


class TunnelPorts(_SocketPorts):
    """SPDY in binary messages, without regard to message boundaries."""

    def __init__(self, reactor: Any, pod: str, socket: Any, over: Callable[[Any], None]) -> None:
        super().__init__(socket, over)
        self._forwards = PortForwards(reactor, pod, self)
        socket.on_flow(self._forwards.pace)

    def message_received(self, message: bytes) -> None:
        if message:  # an empty message does not end the stream
            self._forwards.received(message)

    def send(self, data: bytes) -> None:
        self.socket.send(data)

    def lost(self, reason: str) -> None:
        self._forwards.lost()
        super().lost(reason)


class _OldPort:
    def __init__(self, ports: OldPorts, channel: int, port: int) -> None:
        self._ports, self._channel = ports, channel
        self.port = port
        self.is_over = False
        number = struct.pack("<H", port)
        ports.say(channel, number)
        ports.say(channel + 1, number)
        self.way = Way(ports.reactor, port, self)
        self.way.connecting.addCallbacks(self.way.connected, self._refused)
        self.way.connecting.addCallback(lambda _: self.target_full(False))

    def _refused(self, failure: Failure) -> None:
        if self.way.left:
            return
        prefix = f"error forwarding port {self.port} to pod {self._ports.pod}, uid : "
        self._ports.say(self._channel + 1, (prefix + failure.getErrorMessage()).encode())
        self.target_lost()

    def target_said(self, data: bytes) -> None:
        self._ports.say(self._channel, data)

    def target_ended(self) -> None:
        """Do nothing: these channels have no half-close."""

    def target_full(self, full: bool) -> None:
        self._ports.full(self, full)

    def target_lost(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._ports.target_over()


class OldPorts(_SocketPorts):
    """
    ``v4.channel.k8s.io`` with ``port=`` in the query.

    :param in_base64: messages are text: a digit for the channel, then base64.
    """

    def __init__(
        self,
        reactor: Any,
        pod: str,
        socket: Any,
        over: Callable[[Any], None],
        *,
        ports: Sequence[int],
        in_base64: bool,
    ) -> None:
        super().__init__(socket, over)
        self.reactor, self.pod = reactor, pod
        self._numbers, self._in_base64 = ports, in_base64
        self._ports: list[_OldPort] = []
        self._full: set[_OldPort] = set()
        socket.on_flow(self._pace)

    def opened(self) -> None:
        for at, port in enumerate(self._numbers):
            self._ports.append(_OldPort(self, 2 * at, port))

    def say(self, channel: int, data: bytes) -> None:
        if self._in_base64:
            self.socket.send(bytes((channel + ord("0"),)) + base64.b64encode(data), text=True)
        else:
            self.socket.send(bytes((channel,)) + data)

    def message_received(self, message: bytes) -> None:
        channel = message[0] - (ord("0") if self._in_base64 else 0) if message else -1
        if channel % 2 or not 0 <= channel // 2 < len(self._ports):
            return
        try:
            data = base64.b64decode(message[1:]) if self._in_base64 else message[1:]
        except binascii.Error:
            return
        if data:
            self._ports[channel // 2].way.write(data)

    def full(self, port: _OldPort, full: bool) -> None:
        (self._full.add if full else self._full.discard)(port)
        self.hold(bool(self._full))

    def _pace(self, full: bool) -> None:
        for each in self._ports:
            each.way.pace(full)

    def target_over(self) -> None:
        """Close the connection once all its ports are over."""
        if len(self._ports) == len(self._numbers) and all(port.is_over for port in self._ports):
            self.close()

    def lost(self, reason: str) -> None:
        for each in self._ports:
            each.way.abort()
        super().lost(reason)


class TargetUser(Typing):
    """Receiver of a port connection's events."""

    def target_said(self, data: bytes) -> None:
        """Handle data from the port, at least 1 byte."""

    def target_ended(self) -> None:
        """The port has closed its sending side."""

    def target_lost(self) -> None:
        """The connection is closed; this is the last call."""

    def target_full(self, full: bool) -> None:
        """The port stopped reading (``full``), or reads again."""


@implementer(IHalfCloseableProtocol, IPushProducer)
class _Target(Protocol):
    transport: Any

    def __init__(self, user: TargetUser) -> None:
        self._user = user

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)

    def dataReceived(self, data: bytes) -> None:
        self._user.target_said(data)

    def readConnectionLost(self) -> None:
        # Close after the target's half-close, as kubelets do.
        self._user.target_ended()
        self.transport.unregisterProducer()
        self.transport.loseConnection()

    def writeConnectionLost(self) -> None:
        """Ignore our own half-close."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._user.target_lost()

    def pauseProducing(self) -> None:
        self._user.target_full(True)

    def resumeProducing(self) -> None:
        self._user.target_full(False)

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""


class Way:
    """A connection to one port, with a buffer until it is connected."""

    target: Any = None

    def __init__(self, reactor: Any, port: int, user: TargetUser) -> None:
        self._early: list[bytes] = []
        self._ended = self.left = False
        self._user = user
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port, timeout=_CONNECT_SECONDS)
        self.connecting = connectProtocol(endpoint, _Target(user))

    def connected(self, target: Any) -> None:
        if self.left:
            target.transport.abortConnection()
            return
        self.target = target
        for each in self._early:
            target.transport.write(each)
        self._early.clear()
        if self._ended:
            target.transport.loseWriteConnection()

    def write(self, data: bytes) -> None:
        if self.target is not None:
            self.target.transport.write(data)
        else:
            self._early.append(data)
            self._user.target_full(True)

    def end(self) -> None:
        self._ended = True
        if self.target is not None:
            self.target.transport.loseWriteConnection()

    def pace(self, still: bool) -> None:
        """Pause reading from the port if ``still``, otherwise resume."""
        if self.target is not None:
            if still:
                self.target.transport.pauseProducing()
            else:
                self.target.transport.resumeProducing()

    def abort(self) -> None:
        self.left = True
        if self.target is not None:
            self.target.transport.abortConnection()
        else:
            self.connecting.cancel()


def port_of(digits: bytes) -> int | None:
    """Parse a TCP port; ``None`` unless it is 1 to 65535."""
    if not digits.isdigit() or len(digits) > 5:
        return None
    return int(digits) if 1 <= int(digits) <= 0xFFFF else None
