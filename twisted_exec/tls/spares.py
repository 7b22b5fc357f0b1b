"""
Spare connections: verified TLS connections that wait for the next openings.

A spare connection is made in advance, or is left by a session that has ended in order
(:mod:`twisted_exec.tls.fast.reuse`).  It is taken only if a new connection would have the same CA,
certificate and key, and if the peer's certificate would still be accepted.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Any

from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IDelayedCall,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.tls import pem
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import ISparingEndpoint
from twisted_exec.tls.errors import VerificationError
from twisted_exec.tls.fast.descriptor import TLSOnDescriptor
from twisted_exec.tls.fast.reuse import (
    OLDEST_SECONDS,
    CarriedStream,
    acceptance,
    is_quiet,
    offer,
)
from twisted_exec.wire.blocks import Mark

IDLE_SECONDS = 60.0
"""A spare connection that no opening takes is closed after this time."""

_LOOK_SECONDS = 1.0
"""Time between two checks whether a spare connection could still be taken."""

MOST = 32
"""The most spare connections of one program; a further one replaces the oldest."""

MOST_OF_PEER = 8
"""The most spare connections to one peer."""

PAUSE_SECONDS = 0.02
"""Time from the last opening to the handshake of the next spare connection."""

_CONNECT_SECONDS = 10.0

_READY_SECONDS = 30.0
"""Limit of the time in which the peer of an ended session reads our mark and answers it."""


class SpareConnections:
    """
    The spare connections of one program.

    :param most: of all peers together.
    """

    def __init__(self, clock: IReactorTime, most: int = MOST) -> None:
        self.clock, self._most = clock, most
        self._spares: list[_Spare] = []  # the oldest first
        self._left: set[_Spare] = set()  # their peers are not ready for another session
        self._attempts: dict[Hashable, IDelayedCall | Deferred[IProtocol]] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._spares)

    def endpoint(
        self, peer: Hashable, inner: IStreamClientEndpoint, tls: ClientTLS
    ) -> SparingEndpoint:
        """
        Return an endpoint that takes spare connections.

        :param peer: equal for endpoints to one peer, with the same verification.
        """
        return SparingEndpoint(self, peer, inner, tls)

    def close(self) -> None:
        """Close all spare connections, and make no others."""
        self._is_closed = True
        attempts, self._attempts = self._attempts, {}
        for attempt in attempts.values():
            attempt.cancel()
        for spare in (*self._spares, *self._left):
            spare.close()

    def make(self, endpoint: SparingEndpoint) -> None:
        """Make a spare connection of an endpoint soon, unless there is one."""
        peer = endpoint.peer
        self._postpone(peer)
        if not (self._is_closed or self._of(peer) or peer in self._attempts):
            self._attempts[peer] = self.clock.callLater(PAUSE_SECONDS, self._connect, endpoint)

    def take(self, endpoint: SparingEndpoint) -> Any:
        """Use up a spare connection of an endpoint, and return its transport, or ``None``."""
        self._postpone(endpoint.peer)
        for spare in reversed(self._of(endpoint.peer)):
            transport = spare.take(endpoint.tls)
            if transport is not None:
                return transport
        return None

    def _of(self, peer: Hashable) -> list[_Spare]:
        return [spare for spare in self._spares if spare.endpoint.peer == peer]

    def _postpone(self, peer: Hashable) -> None:
        attempt = self._attempts.get(peer)
        if attempt is not None and not isinstance(attempt, Deferred):
            attempt.reset(PAUSE_SECONDS)

    def await_peer(self, left: _Left) -> None:
        """Close a connection if its peer is not ready for another session in time."""
        self._left.add(left)
        if self._is_closed:
            left.close()
        else:
            left.limit(self.clock.callLater(_READY_SECONDS, left.close))

    def forget(self, spare: _Spare) -> None:
        if spare in self._spares:
            self._spares.remove(spare)
        self._left.discard(spare)

    def _connect(self, endpoint: SparingEndpoint) -> None:
        attempt = endpoint.connect(_Spares(endpoint))
        self._attempts[endpoint.peer] = attempt
        attempt.addTimeout(_CONNECT_SECONDS, self.clock)
        # The next opening meets the same problem, and reports it.
        attempt.addCallbacks(self.add, lambda _: None)
        attempt.addCallback(self._attempted, endpoint.peer)

    def _attempted(self, _: None, peer: Hashable) -> None:
        self._attempts.pop(peer, None)

    def add(self, spare: Any) -> None:
        """Keep a connection for the next openings."""
        self._spares.append(spare)
        spare.wait(self)
        of_peer = self._of(spare.endpoint.peer)
        if self._is_closed:
            spare.close()
        elif len(of_peer) > MOST_OF_PEER:
            of_peer[0].close()
        elif len(self._spares) > self._most:
            self._spares[0].close()


@implementer(ISparingEndpoint)
class SparingEndpoint:
    """An endpoint to one peer, which has spare connections."""

    def __init__(
        self,
        spares: SpareConnections,
        peer: Hashable,
        inner: IStreamClientEndpoint,
        tls: ClientTLS,
    ) -> None:
        self._spares, self._inner = spares, inner
        self.peer, self.tls = peer, tls

    def __repr__(self) -> str:
        return f"<sparing {self._inner!r}>"

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        return self._inner.connect(protocolFactory)

    def take(self, factory: IProtocolFactory) -> Any:
        transport = self._spares.take(self)
        if transport is None:
            return None
        protocol: Any = factory.buildProtocol(transport.getPeer())
        transport.wrappedProtocol = protocol
        protocol.makeConnection(transport)
        return protocol

    def replenish(self) -> None:
        self._spares.make(self)

    def offer(self, transport: object) -> bytes:
        return offer(transport)

    def carry(self, transport: Any, accepted: bytes, early: bytes) -> bytes:
        if accepted != acceptance(transport):
            return early
        data: bytes = transport.carry(CarriedStream(self._following, is_server=False), early)
        return data

    def _following(self, transport: object, mark: Mark) -> IProtocol:
        return _Left(self, self._spares, mark)


class _Spare(Protocol):
    transport: Any

    def __init__(self, endpoint: SparingEndpoint) -> None:
        self.endpoint = endpoint
        self._spares: SpareConnections | None = None
        self._look: IDelayedCall | None = None
        self._is_lost = False

    def wait(self, spares: SpareConnections) -> None:
        self._spares = spares
        self._look_again(spares, IDLE_SECONDS)
        if self._is_lost:
            self._end()

    def _look_again(self, spares: SpareConnections, left_seconds: float) -> None:
        if left_seconds > 0 and self._is_current(self.endpoint.tls):
            left = left_seconds - _LOOK_SECONDS
            self._look = spares.clock.callLater(_LOOK_SECONDS, self._look_again, spares, left)
        else:
            self.close()

    def take(self, tls: ClientTLS) -> Any:
        if not self._is_current(tls):
            self.close()
        elif is_quiet(self.transport):
            self._end()
            return self.transport
        return None  # what has arrived may be a session ticket, or the end: it is read soon

    def close(self) -> None:
        self._end()
        self.transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        self.close()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._is_lost = True
        self._end()

    def _end(self) -> None:
        if self._look is not None and self._look.active():
            self._look.cancel()
        if self._spares is not None:
            self._spares.forget(self)

    def _is_current(self, tls: ClientTLS) -> bool:
        transport = self.transport
        if self._is_lost or transport.disconnecting:
            return False
        if isinstance(transport, TLSOnDescriptor) and transport.age_seconds >= OLDEST_SECONDS:
            return False
        engine: SSL.Connection = transport.getHandle()
        if engine.get_context() is not tls.context():
            return False  # a file was replaced
        certificate = pem.peer_leaf(engine)
        if certificate is None or certificate.not_valid_after_utc <= datetime.now(UTC):
            return False
        try:
            tls.judge(certificate)
        except VerificationError:
            return False
        return True


class _Left(_Spare):
    """
    The connection of a session that has ended, before and while it is a spare one.

    :param mark: that has ended the peer's side.
    """

    def __init__(self, endpoint: SparingEndpoint, spares: SpareConnections, mark: Mark) -> None:
        super().__init__(endpoint)
        self._pool, self._mark = spares, mark

    def connectionMade(self) -> None:
        if self._mark is Mark.READY:
            self._pool.add(self)
        else:
            self._pool.await_peer(self)

    def limit(self, close: IDelayedCall) -> None:
        self._look = close

    def _end(self) -> None:
        super()._end()
        self._pool.forget(self)

    def dataReceived(self, data: bytes) -> None:
        if self._mark is Mark.READY or data != Mark.READY.value:
            self.close()
            return
        self._mark = Mark.READY
        self._end()
        self._pool.add(self)


class _Spares(Factory):
    noisy = False

    def __init__(self, endpoint: SparingEndpoint) -> None:
        self._endpoint = endpoint

    def buildProtocol(self, addr: object) -> _Spare:
        return _Spare(self._endpoint)
