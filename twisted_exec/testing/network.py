"""
Connections and HTTP servers without sockets, for whole chains in one synchronous test.

:class:`MemoryNetwork` behaves as TCP does where streams care, such as for full buffers.  Bytes move
only in :meth:`MemoryNetwork.pump`.  :class:`MemoryServer` takes raw requests, and returns parsed
responses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from io import BytesIO
from typing import Any

from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IHalfCloseableDescriptor,
    IHalfCloseableProtocol,
    IProtocol,
    IProtocolFactory,
    IPushProducer,
    ISSLTransport,
    IStreamClientEndpoint,
    ITransport,
)
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from zope.interface import alsoProvides, implementer

from twisted_exec.streaming.http.site import Site

BUFFER_BYTES = 64 << 10
_TURNS = 1000
"""Turns of the reactor within which a request is answered."""


@implementer(ITransport, IConsumer, IPushProducer, IHalfCloseableDescriptor)
class MemoryTransport:
    """
    One end of a connection.

    :param encrypted: ends as TLS does: for both directions, never for one.
    :ivar protocol: the protocol, which can be replaced as on a socket's transport.
    :ivar queued: bytes that were written and not yet delivered.
    :ivar lost: the reason its protocol was given at the end.
    """

    peer: MemoryTransport
    disconnecting = False

    def __init__(self, protocol: IProtocol, encrypted: bool = False) -> None:
        if encrypted:
            alsoProvides(self, ISSLTransport)
        self.protocol: Any = protocol
        self.queued = b""
        self.lost: Exception | None = None
        self.reading = True
        self.producer: Any = None
        self._paused_producer = False
        self._ends_output = False  # close for writing when all is delivered
        self._output_ended = False
        self._input_ended = False

    @property
    def encrypted(self) -> bool:
        return ISSLTransport.providedBy(self)

    def getPeerCertificate(self) -> None:
        """As of :class:`ISSLTransport`; there are no certificates here."""

    @property
    def connected(self) -> bool:
        return self.lost is None

    # ITransport, IConsumer

    def write(self, data: bytes) -> None:
        if self._ends_output or self.disconnecting or not self.connected:
            return
        self.queued += data
        if len(self.queued) > BUFFER_BYTES and self.producer is not None:
            self._paused_producer = True
            self.producer.pauseProducing()

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self.producer is not None or not streaming:
            raise RuntimeError("one producer at a time, and a streaming one")
        if self.connected:
            self.producer = producer
        else:
            producer.stopProducing()

    def unregisterProducer(self) -> None:
        self.producer = None

    def loseConnection(self) -> None:
        self.disconnecting = True
        self.reading = False

    def loseWriteConnection(self) -> None:
        self._ends_output = True

    def abortConnection(self) -> None:
        if self.connected:
            self.queued = b""
            self.disconnecting = True
            self._lose(ConnectionAborted())

    def getPeer(self) -> IAddress:
        return UNIXAddress("memory")

    def getHost(self) -> IAddress:
        return UNIXAddress("memory")

    # IPushProducer

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        if self.connected and not self.disconnecting:
            self.reading = True

    def stopProducing(self) -> None:
        self.loseConnection()

    # IHalfCloseableDescriptor: what a reactor would call.

    def readConnectionLost(self, reason: Failure) -> None:
        self.protocol.readConnectionLost()

    def writeConnectionLost(self, reason: Failure) -> None:
        self._output_ended = True

    # The network's turn.

    def step(self, limit: int) -> bool:
        """Deliver up to ``limit`` bytes, or what follows them; return whether anything happened."""
        if not self.connected:
            return False
        return self._step_bytes(limit) or self._step_end()

    def _step_bytes(self, limit: int) -> bool:
        peer = self.peer
        if self.queued and not peer.connected:
            self._lose(ConnectionLost())  # the peer has closed, so data leads to a reset
            return True
        if self.queued and peer.reading:
            data, self.queued = self.queued[:limit], self.queued[limit:]
            peer.protocol.dataReceived(data)
            self._drained()
            return True
        return False

    def _drained(self) -> None:
        if not self.queued and self.producer is not None and self._paused_producer:
            self._paused_producer = False
            self.producer.resumeProducing()

    def _step_end(self) -> bool:
        if self.queued:
            return False
        # A producer that was paused may have more; it must let go before an end.
        if self.disconnecting and (self.producer is None or not self._paused_producer):
            self._lose(ConnectionDone())
            return True
        if self._ends_output and not self._output_ended:
            self.writeConnectionLost(Failure(ConnectionDone()))
            return True
        return self._see_end()

    def _see_end(self) -> bool:
        peer = self.peer
        over = peer._output_ended or not peer.connected
        if self._input_ended or not over or not self.reading:
            return False
        self._input_ended = True
        if isinstance(peer.lost, ConnectionAborted | ConnectionLost):
            self._lose(ConnectionLost())
        elif IHalfCloseableProtocol.providedBy(self.protocol) and not self.encrypted:
            self.reading = False
            self.readConnectionLost(Failure(ConnectionDone()))
        else:
            self._lose(ConnectionDone())
        return True

    def _lose(self, reason: Exception) -> None:
        self.lost = reason
        self.reading = False
        producer, self.producer = self.producer, None
        if producer is not None:
            producer.stopProducing()
        self.protocol.connectionLost(Failure(reason))


class MemoryNetwork:
    """
    All connections of a test.

    :ivar transports: both ends of each, in the order they were made.
    """

    def __init__(self) -> None:
        self.transports: list[MemoryTransport] = []

    def endpoint(self, factory: IProtocolFactory) -> IStreamClientEndpoint:
        """Return an endpoint that connects to protocols of ``factory``."""
        return _Endpoint(self, factory)

    def join(
        self, client: Any, server: Any, encrypted: bool = False
    ) -> tuple[MemoryTransport, MemoryTransport]:
        """
        Connect two protocols, the server first, as with an accepted socket.

        :return: the client's transport and the server's.
        """
        ends = MemoryTransport(client, encrypted), MemoryTransport(server, encrypted)
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        self.transports += ends
        server.makeConnection(ends[1])
        client.makeConnection(ends[0])
        return ends

    def pump(self, chunk_bytes: int = BUFFER_BYTES, turns: int = 100_000) -> int:
        """
        Let the network work until nothing moves.

        :return: how many turns anything happened in.
        :raises AssertionError: it never came to rest.
        """
        for turn in range(turns):
            moved = [transport.step(chunk_bytes) for transport in list(self.transports)]
            if not any(moved):
                return turn
        raise AssertionError(f"the network did not come to rest in {turns} turns")


@implementer(IStreamClientEndpoint)
class _Endpoint:
    def __init__(self, network: MemoryNetwork, factory: IProtocolFactory) -> None:
        self._network, self._factory = network, factory

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        server: Any = self._factory.buildProtocol(UNIXAddress("memory"))
        client: Any = protocolFactory.buildProtocol(UNIXAddress("memory"))
        self._network.join(client, server)
        return succeed(client)


@dataclass(frozen=True)
class Response:
    """One answer.  ``headers`` are by lower-case name, the last value of each."""

    code: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body's document."""
        return json.loads(self.body)


class _Transport(StringTransportWithDisconnection):
    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True
        self.loseConnection()


class MemoryClient:
    """
    One connection to a :class:`MemoryServer`.

    :ivar transport: the server's side of it.
    """

    def __init__(self, site: Site) -> None:
        self.transport = _Transport(peerAddress=IPv4Address("TCP", "192.0.2.1", 54321))
        self.protocol = site.buildProtocol(self.transport.getPeer())
        self.transport.protocol = self.protocol
        self.protocol.makeConnection(self.transport)

    @property
    def aborted(self) -> bool:
        """Whether the server has reset the connection."""
        return self.transport.aborted

    @property
    def closed(self) -> bool:
        """Whether the server has closed the connection."""
        return not self.transport.connected

    def send(self, data: bytes) -> None:
        """Deliver bytes to the current protocol of the connection."""
        self.transport.protocol.dataReceived(data)

    def received(self) -> bytes:
        """Return the server's bytes since the last call."""
        data: bytes = self.transport.value()
        self.transport.clear()
        return data

    def responses(self, method: str = "GET") -> list[Response]:
        """Return the server's responses since the last call."""
        rest, answers = BytesIO(self.received()), []
        while rest.tell() < len(rest.getbuffer()):
            answer = HTTPResponse(_Socket(rest), method=method)  # type: ignore[arg-type]
            answer.begin()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            answers.append(Response(answer.status, headers, answer.read()))
        return answers

    def lose(self) -> None:
        """Leave; does nothing if the server has closed the connection."""
        if self.transport.connected:
            self.transport.connected = False
            self.transport.protocol.connectionLost(Failure(ConnectionDone()))


class _Socket:
    """The part of a socket that :class:`HTTPResponse` uses."""

    def __init__(self, data: BytesIO) -> None:
        self._data = data

    def makefile(self, mode: str) -> _Unclosed:
        return _Unclosed(self._data)


class _Unclosed:
    def __init__(self, data: BytesIO) -> None:
        self.read, self.readline, self.readinto = data.read, data.readline, data.readinto

    def flush(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """The next response is still to be read."""


class MemoryServer:
    """
    A resource, served in memory.

    :param limits: as :class:`~twisted_exec.streaming.http.site.Site` takes them.
    :ivar clock: advance it to reach deadlines.
    """

    def __init__(self, resource: Resource, clock: Clock | None = None, **limits: Any) -> None:
        self.clock = clock or Clock()
        self.site = Site(resource, self.clock, **limits)

    def connect(self) -> MemoryClient:
        """Return a new connection, in a turn of the reactor of its own."""
        self.clock.advance(0)
        return MemoryClient(self.site)

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Iterable[tuple[str, str]] = (),
    ) -> Response:
        """
        Send a request on a connection of its own; return the response.

        :raises AssertionError: it was not answered within some turns of the reactor.
        """
        lines = [f"{method} {path} HTTP/1.1", "Host: server"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        client = self.connect()
        client.send("\r\n".join([*lines, "", ""]).encode() + body)
        for _ in range(_TURNS):
            if answers := client.responses(method):
                break
            self.clock.advance(0)
        assert len(answers) == 1, f"{method} {path} was answered {len(answers)} times"
        client.lose()
        return answers[0]
