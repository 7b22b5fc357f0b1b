"""
Spare connections: connections with a finished handshake for the next openings.

No byte of a request has passed over a spare connection.

A spare connection is taken once, and only if a new connection would have the same CA, certificate
and key.
"""

from __future__ import annotations

import socket
from collections import OrderedDict
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

from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.fast.transport import socket_transport

IDLE_SECONDS = 60.0
"""A spare connection that no opening takes is closed after this time."""

_LOOK_SECONDS = 1.0
"""Time between two checks whether a spare connection could still be taken."""

MOST = 32
"""The most spare connections of one program; a further one replaces the oldest."""

PAUSE_SECONDS = 0.02
"""Time from the last opening to the handshake of the next spare connection."""

_CONNECT_SECONDS = 10.0


class SpareConnections:
    """
    The spare connections of one program, at most one to each peer.

    :param most: of all peers together.
    """

    def __init__(self, clock: IReactorTime, most: int = MOST) -> None:
        self.clock, self._most = clock, most
        self._spares: OrderedDict[Hashable, _Spare] = OrderedDict()  # by peer, the oldest first
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
        """Close all spare connections, and make none until :meth:`resume`."""
        self._is_closed = True
        attempts, self._attempts = self._attempts, {}
        for attempt in attempts.values():
            attempt.cancel()
        for spare in list(self._spares.values()):
            spare.close()

    def resume(self) -> None:
        self._is_closed = False

    def make(self, endpoint: SparingEndpoint) -> None:
        """Make a spare connection of an endpoint soon."""
        peer = endpoint.peer
        self._postpone(peer)
        if not (self._is_closed or peer in self._spares or peer in self._attempts):
            self._attempts[peer] = self.clock.callLater(PAUSE_SECONDS, self._connect, endpoint)

    def take(self, peer: Hashable) -> Any:
        """Use up the spare connection to a peer, and return its transport, or ``None``."""
        self._postpone(peer)
        spare = self._spares.get(peer)
        return None if spare is None else spare.take()

    def _postpone(self, peer: Hashable) -> None:
        attempt = self._attempts.get(peer)
        if attempt is not None and not isinstance(attempt, Deferred):
            attempt.reset(PAUSE_SECONDS)

    def forget(self, spare: _Spare) -> None:
        if self._spares.get(spare.endpoint.peer) is spare:
            del self._spares[spare.endpoint.peer]

    def _connect(self, endpoint: SparingEndpoint) -> None:
        attempt = endpoint.connect(_Spares(endpoint))
        self._attempts[endpoint.peer] = attempt
        attempt.addTimeout(_CONNECT_SECONDS, self.clock)
        # The next opening meets the same problem, and reports it.
        attempt.addCallbacks(self._made, lambda _: None)
        attempt.addCallback(self._attempted, endpoint.peer)

    def _attempted(self, _: None, peer: Hashable) -> None:
        self._attempts.pop(peer, None)

    def _made(self, spare: Any) -> None:
        self._spares[spare.endpoint.peer] = spare
        spare.wait(self)
        if len(self._spares) > self._most:
            next(iter(self._spares.values())).close()


@implementer(IStreamClientEndpoint)
class SparingEndpoint:
    """An endpoint to one peer, which has at most one spare connection."""

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
        """
        Use up the spare connection.

        :return: the factory's protocol, connected, or ``None``.
        """
        transport = self._spares.take(self.peer)
        if transport is None:
            return None
        protocol: Any = factory.buildProtocol(transport.getPeer())
        transport.wrappedProtocol = protocol
        protocol.makeConnection(transport)
        return protocol

    def replenish(self) -> None:
        """Make a spare connection soon."""
        self._spares.make(self)


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
        if left_seconds > 0 and self._is_current():
            left = left_seconds - _LOOK_SECONDS
            self._look = spares.clock.callLater(_LOOK_SECONDS, self._look_again, spares, left)
        else:
            self.close()

    def take(self) -> Any:
        if not self._is_current():
            self.close()
        elif _is_quiet(self.transport):
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

    def _is_current(self) -> bool:
        transport = self.transport
        if self._is_lost or transport.disconnecting:
            return False
        engine: SSL.Connection = transport.getHandle()
        if engine.get_context() is not self.endpoint.tls.context():
            return False  # a file was replaced
        certificate = engine.get_peer_certificate(as_cryptography=True)
        return certificate is not None and certificate.not_valid_after_utc > datetime.now(UTC)


def _is_quiet(transport: object) -> bool:
    plug: Any = getattr(socket_transport(transport), "socket", None)
    try:
        plug.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


class _Spares(Factory):
    noisy = False

    def __init__(self, endpoint: SparingEndpoint) -> None:
        self._endpoint = endpoint

    def buildProtocol(self, addr: object) -> _Spare:
        return _Spare(self._endpoint)
