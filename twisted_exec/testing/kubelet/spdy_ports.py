"""
Ports of a Pod, forwarded by a kubelet's double to those of this host's loopback.

Over SPDY each connection is a pair of streams that a client opens, an error stream first.  Facts:
``httpstream.go`` of ``k8s.io/kubelet/pkg/cri/streaming/portforward``.

SPDY in Kubernetes has no flow control, so a slow receiver pauses the whole connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import Protocol as Typing

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from twisted_exec.streaming.remotecommand.carrier import PacedConnection
from twisted_exec.testing.kubelet.targets import Way, port_of
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.spdy.connection import (
    Connection,
    DataReceived,
    Event,
    GoAwayReceived,
    PingReceived,
    StreamEnded,
    StreamOpened,
    StreamReset,
)
from twisted_exec.wire.spdy.frames import GOING_WRONG
from twisted_exec.wire.upgrade import Headers, values

PORT_FORWARD = "portforward.k8s.io"

_PAIR_SECONDS = 30
_MAX_STREAMS = 2000
_LINGER_SECONDS = 5.0


class Carried(Typing):
    """Carrier of a forwarding: a transport, or a WebSocket on one."""

    def send(self, data: bytes) -> None:
        """Send SPDY bytes, split anywhere."""

    def hold(self, still: bool) -> None:
        """Pause reading from the client if ``still``, otherwise resume."""

    def close(self) -> None:
        """Close after the data written so far."""


class _Pair:
    """The error stream and the data stream of one forwarded connection."""

    def __init__(self, forwards: PortForwards, request: str) -> None:
        self.forwards, self.request = forwards, request
        self.streams: dict[bytes, int] = {}
        self.port = 0
        self.way: Way | None = None
        self.timer: IDelayedCall | None = None
        self._said = self._over = False

    def connect(self) -> None:
        """Connect to the port, after both streams are open."""
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
    """
    The server's end of one SPDY connection of ``portforward.k8s.io``.

    :param pod: name of the Pod, for error messages.
    """

    def __init__(self, reactor: Any, pod: str, carried: Carried) -> None:
        self.reactor, self.pod = reactor, pod
        self._carried = carried
        self._connection = Connection(client=False, max_streams=_MAX_STREAMS)
        self._pairs: dict[str, _Pair] = {}
        self._by_stream: dict[int, tuple[_Pair, bytes]] = {}
        self._full: set[_Pair] = set()

    # Input from the client.

    def received(self, data: bytes) -> None:
        """Handle bytes from the client, split anywhere."""
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
            self._of_stream(event)

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

    def _of_stream(self, event: DataReceived | StreamEnded | StreamReset) -> None:
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
        """Send data on a stream, unless the stream is closed."""
        if self._connection.can_send(stream_id):
            self._connection.send(stream_id, data)
            self._flush()

    def end(self, stream_id: int) -> None:
        """Close the sending side of a stream."""
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
        """Forget a closed pair."""
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
        """The client has disconnected."""
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
        """Abort the connection, because the kubelet stops."""
        self.abort()
