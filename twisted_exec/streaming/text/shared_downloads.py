"""
Pool of HTTP/2 connections, shared by requests with the same server and credentials.

A request takes a free stream of an existing connection or waits for a new one; it shares pending
connection attempts, up to as many requests as they are expected to serve.  A server that chooses
HTTP/1.1 in the handshake gets a connection per request, as without this pool.

Nothing idle is kept: a connection without streams closes by itself, and the last one removes the
server's entry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import (
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.flow import swap_protocol
from twisted_exec.streaming.text.shared_connection import MAX_STREAMS, SharedConnection

H2, HTTP_1_1 = b"h2", b"http/1.1"

OFFERED = (H2, HTTP_1_1)
"""Protocols offered in the handshake, preferred first."""

READY_SECONDS = 3.0
"""Time limit for an HTTP/2 server's SETTINGS."""


class SharedDownloads:
    """The connections of one program; make an endpoint for each request."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._places: dict[Hashable, _Place] = {}

    def __len__(self) -> int:
        """Number of servers in use."""
        return len(self._places)

    def endpoint(self, key: Hashable, inner: IStreamClientEndpoint) -> IStreamClientEndpoint:
        """
        Return an endpoint for a request that may share a connection.

        :param key: equal for requests that may share one: same server, same credentials.
        :param inner: connects, offering :data:`OFFERED`.
        :return: for :func:`~twisted_exec.streaming.http.upgrade_client.connect` with an
            :class:`~twisted_exec.streaming.http.upgrade_client.AskingFactory` of downloads.
        """
        return _Sharing(self, key, inner)

    def close(self) -> None:
        """Close idle connections now, and others behind their last stream."""
        for place in list(self._places.values()):
            place.close()

    def _connect(
        self, key: Hashable, inner: IStreamClientEndpoint, factory: IProtocolFactory
    ) -> Deferred[Any]:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _Place(self._clock, partial(self._emptied, key))
        return place.connect(inner, factory)

    def _emptied(self, key: Hashable, place: _Place) -> None:
        if self._places.get(key) is place:
            del self._places[key]


@implementer(IStreamClientEndpoint)
@dataclass(frozen=True)
class _Sharing:
    shared: SharedDownloads
    key: Hashable
    inner: IStreamClientEndpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        return self.shared._connect(self.key, self.inner, protocolFactory)


@dataclass(eq=False)
class _Waiting:
    """A request that waits for a stream, or for a connection of its own."""

    factory: IProtocolFactory
    done: Deferred[Any]


@dataclass(eq=False)
class _Place:
    """
    The connections to one server with one set of credentials.

    :param emptied: called when there are no connections and no waiters.
    """

    clock: Any
    emptied: Callable[[_Place], None]
    connections: list[SharedConnection] = field(default_factory=list)
    waiting: list[_Waiting] = field(default_factory=list)
    attempts: list[Deferred[Any]] = field(default_factory=list)
    each = MAX_STREAMS
    """How many requests a further connection is expected to serve."""

    def connect(self, inner: IStreamClientEndpoint, factory: IProtocolFactory) -> Deferred[Any]:
        for connection in self.connections:
            if connection.free > 0:
                return succeed(connection.take())
        waiting = _Waiting(factory, Deferred(self._cancelled))
        self.waiting.append(waiting)
        self._reach(inner)
        return waiting.done

    def close(self) -> None:
        for connection in list(self.connections):
            connection.retire()

    def _cancelled(self, done: Deferred[Any]) -> None:
        self.waiting = [each for each in self.waiting if each.done is not done]
        self._settle()

    def _settle(self) -> None:
        """Cancel attempts that no request waits for."""
        if not self.waiting:
            attempts, self.attempts = self.attempts, []
            for attempt in attempts:
                attempt.cancel()
        if not (self.connections or self.waiting or self.attempts):
            self.emptied(self)

    def _reach(self, inner: IStreamClientEndpoint) -> None:
        while len(self.attempts) * self.each < len(self.waiting):
            attempt = Deferred.fromCoroutine(self._connection(inner))
            self.attempts.append(attempt)
            attempt.addBoth(self._reached, attempt, inner)

    def _reached(self, result: Any, attempt: Deferred[Any], inner: IStreamClientEndpoint) -> None:
        if attempt not in self.attempts:  # no request waits for it any more
            if not isinstance(result, Failure):
                result.transport.abortConnection()
            return
        self.attempts.remove(attempt)
        if isinstance(result, Failure):
            self._failed(result)
        elif isinstance(result, SharedConnection):
            self.each = MAX_STREAMS
            self._serve(result)
        else:
            self.each = 1
            self._serve_one(result)
        self._reach(inner)
        self._settle()

    async def _connection(self, inner: IStreamClientEndpoint) -> Any:
        protocol: Any = await inner.connect(_Undecideds(self))
        connection = protocol.shared
        if connection is None:
            return protocol
        connection.ready.addTimeout(READY_SECONDS, self.clock)
        await connection.ready
        if connection.free <= 0:
            connection.abort()
            raise ValueError("it takes no requests")
        return connection

    def _failed(self, why: Failure) -> None:
        """Fail the requests this attempt was for; later ones have another attempt."""
        requests, self.waiting = self.waiting[: self.each], self.waiting[self.each :]
        for each in requests:
            each.done.errback(why)

    def _serve(self, connection: SharedConnection) -> None:
        self.connections.append(connection)
        while self.waiting and connection.free > 0:
            self.waiting.pop(0).done.callback(connection.take())

    def _serve_one(self, connection: Any) -> None:
        if not self.waiting:
            connection.transport.abortConnection()
            return
        waiting = self.waiting.pop(0)
        protocol: Any = waiting.factory.buildProtocol(connection.transport.getPeer())
        swap_protocol(connection.transport, protocol)
        protocol.makeConnection(connection.transport)
        waiting.done.callback(protocol)

    def gone(self, connection: SharedConnection) -> None:
        """A connection takes no further request."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._settle()


class _Undecided(Protocol):
    """A connection after its handshake, which chose the protocol."""

    transport: Any
    shared: SharedConnection | None = None

    def __init__(self, place: _Place) -> None:
        self._place = place

    def connectionMade(self) -> None:
        if getattr(self.transport, "negotiatedProtocol", None) == H2:
            self.shared = SharedConnection(self._place.clock, self._place.gone)
            swap_protocol(self.transport, self.shared)
            self.shared.makeConnection(self.transport)

    def dataReceived(self, data: bytes) -> None:
        self.transport.abortConnection()  # it sent bytes before our request: not an HTTP server


@dataclass
class _Undecideds(Factory):
    noisy = False

    place: _Place

    def buildProtocol(self, addr: object) -> _Undecided:
        return _Undecided(self.place)
