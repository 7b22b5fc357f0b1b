"""
Clients of a kubelet, or of whatever passes its streams on: every channel by itself, ports by
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from twisted_exec.streaming.http.upgrade_client import UpgradeRequest, upgrade
from twisted_exec.streaming.interfaces import Ending, TerminalSize
from twisted_exec.streaming.remotecommand.carrier import ClientCarrier
from twisted_exec.streaming.remotecommand.carriers import STREAM_PROTOCOL, Attempt, create_carrier
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.endings import decode_ending
from twisted_exec.wire.resize import encode_size
from twisted_exec.wire.spdy_connection import DataReceived, SPDYConnection, StreamEnded, StreamReset

reactor: Any = _reactor


async def until(condition: Callable[[], Any], seconds: float = 300) -> Any:
    """Wait for something to become true; what it became."""
    limit = reactor.seconds() + seconds
    while not (found := condition()):
        if reactor.seconds() > limit:
            raise AssertionError(f"did not become true in {seconds} s")
        await deferLater(reactor, 0.005)
    return found


class Caller:
    """
    A session of ``exec`` or ``attach``.

    :ivar got: the received bytes of each channel.
    :ivar why: the reason why the connection ended; ``None`` while it is open.
    """

    carrier: ClientCarrier

    def __init__(self) -> None:
        self.got: dict[Channel, bytes] = dict.fromkeys(Channel, b"")
        self.why: str | None = None
        self.ready: Deferred[None] = Deferred()

    def ending(self) -> Ending:
        """Decode the status on the error channel."""
        return decode_ending(self.got[Channel.ERROR], self.carrier.protocol)

    async def over(self) -> Ending:
        """Wait for the end of the connection, and return how the session ended."""
        await until(lambda: self.why is not None)
        return self.ending()

    async def printed(self, text: bytes, channel: Channel = Channel.STDOUT) -> None:
        """Wait until ``text`` has arrived on ``channel``."""
        await until(lambda: text in self.got[channel] or self.why is not None)
        if text not in self.got[channel]:
            raise AssertionError(f"{self.got} is all, and {self.why}")

    def type(self, data: bytes) -> None:
        """Send input."""
        self.carrier.send(Channel.STDIN, data)

    def resize(self, columns: int, rows: int) -> None:
        """Tell a size."""
        self.carrier.send(Channel.RESIZE, encode_size(TerminalSize(columns, rows)))

    # CarrierUser

    def connected(self) -> None:
        """It is the channels that count."""

    def opened(self) -> None:
        self.ready.callback(None)

    def received(self, channel: Channel, data: bytes) -> None:
        self.got[channel] += data

    def ended(self, channel: Channel) -> None:
        """The connection's end counts."""

    def pong_received(self) -> None:
        """Ignore it: no ping was sent."""

    def failing(self, reason: str) -> None:
        self.why = reason

    def close_received(self, code: int | None = None, reason: str = "") -> None:
        """The other side has said all."""

    def lost(self, reason: str) -> None:
        self.why = reason
        if not self.ready.called:
            self.ready.errback(ConnectionError(reason))


async def call(
    endpoint: IStreamClientEndpoint,
    path: str,
    protocol: str,
    channels: Collection[Channel] = (Channel.STDOUT, Channel.STDERR),
    headers: Collection[tuple[bytes, bytes]] = (),
) -> Caller:
    """
    Open a session.

    :param protocol: a WebSocket's, or ``OVER_SPDY``.
    :raises UpgradeRefused: the server says no.
    """
    attempt, caller = Attempt.for_protocol(protocol), Caller()
    head = attempt.head(UpgradeRequest(b"GET", path.encode(), b"node", list(headers)))
    upgraded = await upgrade(endpoint, head, clock=reactor, timeout_seconds=600)
    chosen = attempt.chosen(upgraded)
    caller.carrier, holder = create_carrier(
        protocol,
        chosen,
        caller,
        clock=reactor,
        open_seconds=600,
        linger_seconds=5,
        channels=channels,
    )
    upgraded.hand_over(holder)
    await caller.ready
    return caller


class Forwarding(Protocol):
    """
    A client of ``portforward.k8s.io`` over SPDY.

    :ivar got: what came on each stream.
    :ivar ended: the streams that are at their end, or were reset.
    """

    transport: Any

    def __init__(self) -> None:
        self.connection = SPDYConnection(client=True, max_streams=0)
        self.got: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.lost = False
        self._requests = 0

    def connectionMade(self) -> None:
        self._flush()

    def dataReceived(self, data: bytes) -> None:
        self.connection.feed(data)
        while (event := self.connection.next_event()) is not None:
            if isinstance(event, DataReceived):
                self.got[event.stream_id] += event.data
            elif isinstance(event, StreamEnded | StreamReset):
                self.ended.add(event.stream_id)
        self._flush()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = True

    def open(self, port: int) -> tuple[int, int]:
        """A connection: its data stream and its error stream."""
        told = [(b"port", b"%d" % port), (b"requestid", b"%d" % self._requests)]
        self._requests += 1
        error = self.connection.open([(b"streamtype", b"error"), *told])
        data = self.connection.open([(b"streamtype", b"data"), *told])
        self.got[error] = self.got[data] = b""
        self._flush()
        return data, error

    async def send(self, stream: int, data: bytes, fin: bool = False) -> None:
        """Send ``data`` on a stream as soon as the stream accepts it."""
        await until(lambda: self.connection.can_send(stream))
        self.connection.send(stream, data, fin=fin)
        self._flush()

    def leave(self) -> None:
        """Say that this was all."""
        self.connection.go_away()
        self._flush()
        self.transport.loseConnection()

    def _flush(self) -> None:
        self.transport.write(self.connection.data_to_send())


async def forward(
    endpoint: IStreamClientEndpoint, path: str, headers: Collection[tuple[bytes, bytes]] = ()
) -> Forwarding:
    """Open port forwarding over SPDY."""
    asked = [
        (b"Connection", b"Upgrade"),
        (b"Upgrade", b"SPDY/3.1"),
        (STREAM_PROTOCOL, b"portforward.k8s.io"),
        (b"Content-Length", b"0"),
        *headers,
    ]
    head = UpgradeRequest(b"POST", path.encode(), b"node", asked)
    upgraded = await upgrade(endpoint, head, clock=reactor, timeout_seconds=600)
    client = Forwarding()
    upgraded.hand_over(client)
    return client
