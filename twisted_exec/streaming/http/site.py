"""
The HTTP server of every program.

It limits the number of connections (:mod:`twisted_exec.streaming.http.channel` has the limits of
each), and the memory that slow clients take together.  Only HTTP/1.1 is offered: HTTP/2 has no
upgrade.

An upgraded connection (:mod:`twisted_exec.streaming.http.upgrade_server`) no longer counts here; it
is a session, limited by :mod:`twisted_exec.streaming.sessions.registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.web import http, resource, server

from twisted_exec.program.descriptors import SessionLimits
from twisted_exec.program.tasks import SharedTurns
from twisted_exec.streaming.http.channel import Channel
from twisted_exec.streaming.http.memory_budget import Budget, SlowReader
from twisted_exec.streaming.http.request import Request


class _TurnedAway(TwistedProtocol):
    """A connection beyond the limit, while handlers work for all others."""

    transport: Any

    def connectionMade(self) -> None:
        self.transport.abortConnection()


class Site(server.Site):
    """
    A server factory for one resource.

    :param resource: a leaf, usually a :class:`Dispatcher`.
    :param header_seconds: from the connection to the end of the headers.
    :param body_seconds: from there to the end of the body.
    :param idle_seconds: between two requests of one connection.
    :param linger_seconds: for a client to read the last response.
    :param max_body_bytes: larger bodies are refused with 413.
    :param max_connections: open connections, without upgraded ones.  A further connection evicts
        the oldest for which no handler works, so that silent clients cannot lock others out.
        ``None``: as many as ``fitting`` returns.
    :param fitting: returns how many connections fit into the process's file descriptors now; by
        default half of them.
    :param receiving_bytes: total of all incomplete request bodies.
    :param unread_bytes: total of all responses and watch events that clients have not read.
    :ivar turns: of responses with much to do.
    """

    protocol = Channel  # type: ignore[assignment]
    noisy = False
    closing = False
    requestFactory = Request

    def __init__(
        self,
        resource: resource.Resource,
        reactor: IReactorTime,
        *,
        header_seconds: float = 30,
        body_seconds: float = 30,
        idle_seconds: float = 90,
        linger_seconds: float = 10,
        max_body_bytes: int = 3 << 20,
        max_connections: int | None = None,
        fitting: Callable[[], int] | None = None,
        receiving_bytes: int = 64 << 20,
        unread_bytes: int = 256 << 20,
    ) -> None:
        super().__init__(resource, reactor=reactor, timeout=None)
        self.header_seconds = header_seconds
        self.body_seconds = body_seconds
        self.idle_seconds = idle_seconds
        self.linger_seconds = linger_seconds
        self.max_body_bytes = max_body_bytes
        self._max_connections = max_connections
        self._fitting = fitting or partial(SessionLimits.fitting().connections_beside, 0)
        self.connections: dict[Channel, None] = {}  # the oldest first
        self.turns = SharedTurns(reactor)
        self.receiving: Budget[Channel] = Budget(receiving_bytes, Channel.too_long)
        self.unread: Budget[SlowReader] = Budget(unread_bytes, lambda slow: slow.evict())

    def buildProtocol(self, addr: IAddress | None) -> Any:
        # None would say "close" as well, but TLS factories cannot wrap it.
        while len(self.connections) >= self.max_connections:
            oldest = next((each for each in self.connections if each.evictable), None)
            if oldest is None:
                return _TurnedAway()
            oldest.evict()
        return super().buildProtocol(addr)

    @property
    def max_connections(self) -> int:
        """Return the limit of open connections, which sinks while sessions open."""
        return self._fitting() if self._max_connections is None else self._max_connections

    def startFactory(self) -> None:
        """No access log: it would contain query strings.  The audit log is the record."""

    def stopFactory(self) -> None:
        """Nothing to stop."""

    def log(self, request: http.Request) -> None:
        """No access log, see :meth:`startFactory`."""

    def acceptableProtocols(self) -> list[bytes]:
        return [b"http/1.1"]

    def drain(self) -> None:
        """Close each connection after its response, and idle ones at once."""
        self.closing = True
        for channel in list(self.connections):
            channel.persistent = False
            if not channel.requests:
                channel.loseConnection()

    def wind_down(self) -> None:
        """
        Close each connection after its next response, and leave idle ones open.

        Unlike :meth:`drain` this loses no request: a client may be sending one on a connection that
        it believes to be kept open, and does not repeat a write whose connection is lost.
        """
        self.closing = True

    def resume(self) -> None:
        """Keep connections open between requests again, after :meth:`wind_down`."""
        self.closing = False

    def requests(self) -> int:
        """Return the number of requests that are being answered."""
        return sum(1 for channel in self.connections if channel.requests)
