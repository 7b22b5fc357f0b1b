"""
The transport at the machine's end of a stream that the previous hop can rejoin.

It outlives its connections: that hop can *rejoin* the stream over a new connection (:mod:`twisted_exec.wire.rejoin`), and each
end sends again what the other has not received. This end keeps about :data:`MOST_KEPT_BYTES`, so it
cannot go on for a client that is further behind.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IDelayedCall,
    IHalfCloseableDescriptor,
    IProtocol,
    IPushProducer,
    IReactorTime,
    ITransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import alsoProvides, implementer

from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.streaming.kept_bytes import KeptBytes
from twisted_exec.streaming.lifecycle import Living
from twisted_exec.streaming.transports import can_half_close
from twisted_exec.tls.turns import IFramed
from twisted_exec.wire.keys import digest, new_key
from twisted_exec.wire.rejoin import Rejoin, Rejoinable

MOST_KEPT_BYTES = 1 << 20
"""How much is kept because the client may not have received it."""

PING_BYTES = 64 << 10
"""Bytes after which the client is asked whether it has received them."""

_MOST_PINGS = 16
_END_OF_HEAD = b"\r\n\r\n"
_MOST_STREAMS = 20_000


class TransportLife(Enum):
    """The phases of a transport's life; :data:`TRANSPORT_TRANSITIONS` has their order."""

    OPENING = "opening"
    """It has no connection yet."""
    CARRIED = "carried"
    """It has a connection."""
    WAITING = "waiting"
    """The connection was lost, and the previous hop may rejoin the stream."""
    CLOSING = "closing"
    """The protocol has closed the stream, which ends with its connection."""
    OVER = "over"
    """The protocol knows of the end."""


TRANSPORT_TRANSITIONS: Mapping[TransportLife, frozenset[TransportLife]] = {
    TransportLife.OPENING: frozenset({TransportLife.CARRIED, TransportLife.WAITING}),
    TransportLife.CARRIED: frozenset(
        {TransportLife.WAITING, TransportLife.CLOSING, TransportLife.OVER}
    ),
    TransportLife.WAITING: frozenset(
        {TransportLife.CARRIED, TransportLife.CLOSING, TransportLife.OVER}
    ),
    TransportLife.CLOSING: frozenset({TransportLife.OVER}),
    TransportLife.OVER: frozenset(),
}
"""What may follow each phase of a transport's life."""


@implementer(ITransport, IConsumer, IPushProducer)
class RejoinableTransport(Living[TransportLife]):
    """
    A transport of one stream's protocol, over one connection after the other.

    :param has_head: the protocol first writes the head of a response, which is no part of the
        stream.
    :ivar ping: sends a ping, and returns whether it did.  Its owner calls :meth:`keep_alive`
        instead of sending pings itself, and :meth:`answered` at each answer.
    :ivar received: bytes that the protocol got.
    """

    transitions = TRANSPORT_TRANSITIONS

    disconnecting = False

    def __init__(
        self,
        protocol: IProtocol,
        clock: IReactorTime,
        wait_seconds: float,
        *,
        has_head: bool = False,
        on_open: Callable[[], None] = lambda: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.life = TransportLife.OPENING
        self.received = 0
        self.ping: Callable[[], bool] | None = None
        self.on_wait: Callable[[], None] | None = None
        self._protocol: Any = protocol
        self._clock, self._wait_seconds = clock, wait_seconds
        self._head = b"" if has_head else None  # what was written of it; ``None``: it is complete
        self._on_open, self._on_end = on_open, on_end
        self._connection: _Connection | None = None
        self._peer: Any = None
        self._host: Any = None
        self._kept = KeptBytes(MOST_KEPT_BYTES)  # sent, and perhaps not received
        self._asked: deque[int] = deque()  # bytes before each ping that is not answered yet
        self._is_asking = False
        self._producer: Any = None
        self._is_full = False  # the connection takes no more, or there is none
        self._is_paused = False  # the producer is
        self._reading = True
        self._timer: IDelayedCall | None = None
        self._close_transport: Callable[[Any], object] = _keep_open

    def connection(self) -> IProtocol:
        """Return the protocol for the first connection."""
        return _Connection(self)

    @property
    def connected(self) -> bool:
        return self.life is not TransportLife.OVER

    def check(self, received: int) -> None:
        """
        Check whether another connection can continue the stream.

        :param received: how many bytes the other side has got.
        :raises Conflict: the stream cannot be continued.
        """
        if not self.connected or not self._kept.has(received):
            raise Conflict("the stream cannot be continued: the lost bytes are no longer kept")

    def wait_at_most(self, seconds: float) -> None:
        self._wait_seconds = min(self._wait_seconds, seconds)
        if self._timer is not None and self._timer.active():
            left = self._timer.getTime() - self._clock.seconds()
            self._timer.reset(min(left, seconds))

    def rejoin(self, received: int) -> IProtocol:
        """
        Return the protocol for the connection that replaces the present one.

        :param received: as for :meth:`check`, called in the same turn of the reactor.
        """
        old, self._connection = self._connection, None
        if old is not None:
            self._wait(Failure(ConnectionLost()))  # the new connection may be lost at once
            old.transport.abortConnection()
        self._kept.forget_until(received)
        return _Connection(self)

    @property
    def connection_transport(self) -> object:
        return None if self._connection is None else self._connection.transport

    # Called by connections

    def _joined(self, connection: _Connection) -> None:
        self._connection = connection
        self._stop_waiting()
        transport = connection.transport
        self._peer, self._host = transport.getPeer(), transport.getHost()
        self._is_full = False
        transport.registerProducer(connection, True)
        if can_half_close(transport):
            alsoProvides(self, IHalfCloseableDescriptor)
        before = self.life
        if before is not TransportLife.CLOSING:
            self._become(TransportLife.CARRIED)
        if before is TransportLife.OPENING:
            self._on_open()
            self._protocol.makeConnection(self)
            return
        if not self._reading:
            transport.pauseProducing()
        for data in self._kept:
            transport.write(data)
        self._pace()
        if before is TransportLife.CLOSING:
            self._close_connection(connection)

    def _lost(self, connection: _Connection, reason: Failure) -> None:
        if connection is not self._connection:
            return  # another connection has replaced it
        self._connection = None
        if self.life is TransportLife.CLOSING or not self._wait_seconds:
            self._over(reason)
            return
        self._wait(reason)

    def _wait(self, reason: Failure) -> None:
        if self.life is not TransportLife.CLOSING:
            self._become(TransportLife.WAITING)
        self._is_full = True
        self._timer = self._clock.callLater(self._wait_seconds, self._over, reason)
        if self.on_wait is not None:
            self.on_wait()
        self._pace()

    def _flow(self, connection: _Connection, full: bool) -> None:
        if connection is self._connection:
            self._is_full = full
            self._pace()

    def _stop_waiting(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _over(self, reason: Failure) -> None:
        self._stop_waiting()
        if self.life is TransportLife.OVER:
            return
        self._become(TransportLife.OVER)
        self._kept.clear()
        self.ping = self.on_wait = None
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.stopProducing()
        self._on_end()
        self._protocol.connectionLost(reason)
        del self._protocol  # which refers to this stream

    # Acknowledgements

    def keep_alive(self) -> None:
        if len(self._asked) < _MOST_PINGS:
            self._ask()

    def answered(self) -> None:
        if self._asked:
            # If an earlier ping was not answered at all, this forgets less than it could.
            self._kept.forget_until(self._asked.popleft())

    def _ask(self) -> None:
        before = self._kept.end
        if self.ping is not None and self.ping():
            self._asked.append(before)

    def _keep(self, data: bytes) -> None:
        kept = self._kept
        # The oldest bytes give way, and the producer is not paused: a client that answers no pings,
        # or only some, would stop for good.
        kept.add(data)
        if kept.end - kept.first >= PING_BYTES and not self._asked and not self._is_asking:
            self._is_asking = True  # a ping is written, too
            self._ask()
            self._is_asking = False

    def _pace(self) -> None:
        if self._producer is None or self._is_full is self._is_paused:
            return
        self._is_paused = self._is_full
        if self._is_paused:
            self._producer.pauseProducing()
        else:
            self._producer.resumeProducing()

    # ITransport and IConsumer, for the protocol

    def write(self, data: bytes) -> None:
        """Send data, and keep it until it has arrived, up to about :data:`MOST_KEPT_BYTES`."""
        if self.life is TransportLife.CLOSING or self.life is TransportLife.OVER:
            return
        connection = self._connection
        if connection is not None:
            connection.transport.write(data)
        if self._head is not None:
            data = self._behind_head(self._head + data)
        if data and self._wait_seconds:
            self._keep(data)

    def _behind_head(self, written: bytes) -> bytes:
        _, end, rest = written.partition(_END_OF_HEAD)
        self._head = None if end else written
        return rest

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if not self.connected:
            producer.stopProducing()
            return
        self._producer, self._is_paused = producer, False
        self._pace()

    def unregisterProducer(self) -> None:
        self._producer, self._is_paused = None, False

    def pauseProducing(self) -> None:
        self._reading = False
        if self._connection is not None:
            self._connection.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self._reading = True
        if self._connection is not None:
            self._connection.transport.resumeProducing()

    def stopProducing(self) -> None:
        self.loseConnection()

    def loseConnection(self) -> None:
        """Close behind everything written; without a connection the stream is over."""
        self.disconnecting = True
        self._close(lambda transport: transport.loseConnection())

    def loseWriteConnection(self) -> None:
        """Close for writing; without a connection the stream is over."""
        self._close(lambda transport: transport.loseWriteConnection())

    def abortConnection(self) -> None:
        self.disconnecting = True
        self._close(lambda transport: transport.abortConnection())

    def getPeer(self) -> IAddress:
        return self._peer  # type: ignore[no-any-return]

    def getHost(self) -> IAddress:
        return self._host  # type: ignore[no-any-return]

    def _close(self, close: Callable[[Any], object]) -> None:
        if self.life is TransportLife.OVER:
            return
        if self.life is not TransportLife.CLOSING:
            self._become(TransportLife.CLOSING)
        self._close_transport = close  # of a connection that replaces the present one, too
        if self._connection is not None:
            self._close_connection(self._connection)
        else:
            self._stop_waiting()
            # Twisted's transports do not call connectionLost from within these calls either.
            self._timer = self._clock.callLater(0, self._over, Failure(connectionDone.value))

    def _close_connection(self, connection: _Connection) -> None:
        connection.transport.unregisterProducer()  # TLS never closes with a producer
        self._close_transport(connection.transport)


def _keep_open(transport: Any) -> None:
    """Leave a transport open."""


@implementer(IFramed, IPushProducer)
class _Connection(Protocol):
    transport: Any

    def __init__(self, stream: RejoinableTransport) -> None:
        self._stream = stream

    def connectionMade(self) -> None:
        self._stream._joined(self)

    def dataReceived(self, data: bytes) -> None:
        stream = self._stream
        if stream._connection is not self:
            return
        stream.received += len(data)
        stream._protocol.dataReceived(data)

    def frame_rest(self, size: int) -> int | None:
        protocol = getattr(self._stream, "_protocol", None)
        return protocol.frame_rest(size) if IFramed.providedBy(protocol) else None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._stream._lost(self, reason)

    def pauseProducing(self) -> None:
        self._stream._flow(self, True)

    def resumeProducing(self) -> None:
        self._stream._flow(self, False)

    def stopProducing(self) -> None:
        """The transport is dying; ``connectionLost`` follows."""


@dataclass(frozen=True)
class StreamOwner:
    """The session, user and machine of a stream; a request for others cannot rejoin it."""

    session: str
    user: str
    uid: str


class RejoinableTransports:
    """
    The transports of one server whose streams the hop before may rejoin.

    :param seconds: how long a stream waits after a loss; 0 to refuse all offers.
    """

    def __init__(self, clock: IReactorTime, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._streams: dict[bytes, tuple[StreamOwner, RejoinableTransport]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def offered(self, owner: StreamOwner) -> Offer | None:
        """Accept an offer, or return ``None``, such as for too many streams."""
        if not self._seconds or len(self._streams) >= _MOST_STREAMS:
            return None
        key = new_key()
        return Offer(self, owner, Rejoinable(key, math.ceil(self._seconds)))

    def find(self, owner: StreamOwner, rejoin: Rejoin) -> RejoinableTransport:
        """
        Return the stream that a request rejoins.

        :raises NotFound: there is none with this key and owner.
        :raises Conflict: the stream cannot be continued.
        """
        owner_of_stream, stream = self._streams.get(digest(rejoin.key), (None, None))
        if stream is None or owner_of_stream != owner:
            raise NotFound("exec", "", message="there is no stream to rejoin: its session is over")
        stream.check(rejoin.received)
        return stream

    def make(
        self, key: bytes, owner: StreamOwner, protocol: IProtocol, *, has_head: bool
    ) -> RejoinableTransport:
        """
        Create the transport of a stream.

        :param key: the digest of the key that rejoins the stream.
        """

        def keep() -> None:
            self._streams[key] = owner, stream

        stream = RejoinableTransport(
            protocol,
            self._clock,
            self._seconds,
            has_head=has_head,
            on_open=keep,
            on_end=lambda: self._forget(key),
        )
        return stream

    def _forget(self, key: bytes) -> None:
        del self._streams[key]


@dataclass(frozen=True)
class Offer:
    """An accepted offer of the previous hop."""

    transports: RejoinableTransports
    owner: StreamOwner
    answer: Rejoinable

    def connection(self, protocol: IProtocol, *, has_head: bool) -> IProtocol:
        key = digest(self.answer.key)
        return self.transports.make(key, self.owner, protocol, has_head=has_head).connection()
