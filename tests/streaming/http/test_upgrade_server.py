"""
Tests for :mod:`twisted_exec.streaming.http.upgrade_server`.

Early bytes must not be lost, whenever and however the connection is taken over.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import connectProtocol
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers
from zope.interface import implementer

from tests.streaming.places import KINDS, PlacesTestCase, turn
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_server import header_pairs, requested_protocol, take_over
from twisted_exec.testing.console import RecordingProducer
from twisted_exec.testing.network import MemoryServer

REQUEST = b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"


@implementer(IHalfCloseableProtocol)
class Taker(Protocol):
    """Takes a connection over and keeps what comes."""

    transport: Any

    def __init__(self, begin: Any = None) -> None:
        self.begin = begin
        self.received: list[bytes] = []
        self.size = 0
        self.lost: Failure | None = None
        self.half_closed = False

    def connectionMade(self) -> None:
        if self.begin is not None:
            self.begin(self)

    def dataReceived(self, data: bytes) -> None:
        self.received.append(data)
        self.size += len(data)

    def readConnectionLost(self) -> None:
        self.half_closed = True
        self.transport.loseConnection()

    def writeConnectionLost(self) -> None:
        pass

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = reason


class Upgrading(Dispatcher):
    """Gives every request's connection to its :class:`Taker`, when told to."""

    def __init__(self, taker: Taker, when: Deferred[None] | None = None) -> None:
        super().__init__()
        self.taker, self.when = taker, when
        self.requests: list[Request] = []

    async def dispatch(self, request: Request) -> None:
        self.requests.append(request)
        if self.when is not None:
            await self.when
        take_over(request, self.taker, SWITCHED)


class MemoryTests(SynchronousTestCase):
    """Taking over, without sockets."""

    def setUp(self) -> None:
        self.taker = Taker()

    def test_at_once(self) -> None:
        """Bytes in the same read as the request go to the protocol, after the response."""
        answered: list[bytes] = []
        self.taker.begin = lambda taker: answered.append(taker.transport.value())
        client = MemoryServer(Upgrading(self.taker)).connect()
        client.send(REQUEST + b"early")
        client.send(b" late")
        self.assertEqual(answered, [SWITCHED])
        self.assertEqual(b"".join(self.taker.received), b"early late")

    def test_later(self) -> None:
        """Bytes that arrive before the handler takes over go to the protocol too."""
        when: Deferred[None] = Deferred()
        client = MemoryServer(Upgrading(self.taker, when)).connect()
        for part in (REQUEST + b"e", b"ar", b"ly"):
            client.send(part)
        self.assertEqual(client.received(), b"")
        when.callback(None)
        client.send(b" late")
        self.assertEqual(b"".join(self.taker.received), b"early late")

    def test_every_split(self) -> None:
        """Wherever the bytes are split, none is lost or read twice."""
        data = REQUEST + b"early\r\n\r\nGET / HTTP/1.1\r\n\r\n"
        for later in (False, True):
            for cut in range(1, len(data)):
                taker = Taker()
                when: Deferred[None] = Deferred()
                client = MemoryServer(Upgrading(taker, when if later else None)).connect()
                client.send(data[:cut])
                client.send(data[cut:])
                when.callback(None)
                self.assertEqual(b"".join(taker.received), data[len(REQUEST) :])

    def test_more_than_web_buffers(self) -> None:
        """twisted.web pauses the socket beyond 16 KiB; afterwards it reads again."""
        when: Deferred[None] = Deferred()
        client = MemoryServer(Upgrading(self.taker, when)).connect()
        client.send(REQUEST + b"x" * 20000)
        self.assertEqual(client.transport.producerState, "paused")
        when.callback(None)
        self.assertEqual(client.transport.producerState, "producing")
        self.assertEqual(self.taker.size, 20000)

    def test_protocol_pauses(self) -> None:
        """A protocol that pauses its transport at once stays paused."""
        self.taker.begin = lambda taker: taker.transport.pauseProducing()
        client = MemoryServer(Upgrading(self.taker)).connect()
        client.send(REQUEST + b"x")
        self.assertEqual(client.transport.producerState, "paused")

    def test_producer(self) -> None:
        """The protocol can register a producer of its own."""
        producer = RecordingProducer()
        self.taker.begin = lambda taker: taker.transport.registerProducer(producer, True)
        client = MemoryServer(Upgrading(self.taker)).connect()
        client.send(REQUEST)
        self.assertIs(client.transport.producer, producer)

    def test_no_deadline(self) -> None:
        """After the take-over the site neither times nor counts the connection."""
        server = MemoryServer(Upgrading(self.taker))
        client = server.connect()
        client.send(REQUEST)
        self.assertEqual(server.clock.getDelayedCalls(), [])
        self.assertEqual(len(server.site.connections), 0)
        self.assertFalse(client.closed)

    def test_27_consoles_take_no_place(self) -> None:
        """Open consoles do not count towards the site's limit of connections."""
        server = MemoryServer(Upgrading(self.taker), max_connections=2)
        consoles = []
        for _ in range(500):
            consoles.append(server.connect())
            consoles[-1].send(REQUEST)
            self.assertIn(b" 101 ", consoles[-1].received())
        server.clock.advance(3600)
        plain = server.connect()
        plain.send(b"GET / HTTP/1.1\r\n")
        self.assertEqual(len(server.site.connections), 1)
        self.assertFalse(any(client.closed for client in consoles))

    def test_lost(self) -> None:
        """The protocol learns of the connection's end, the request does not."""
        client = MemoryServer(Upgrading(self.taker)).connect()
        client.send(REQUEST)
        client.lose()
        assert self.taker.lost is not None
        self.taker.lost.trap(ConnectionDone)

    def test_client_left(self) -> None:
        """After the client has left, its connection cannot be taken over."""
        upgrading = Upgrading(self.taker, Deferred())
        client = MemoryServer(upgrading).connect()
        client.send(REQUEST)
        client.lose()
        with self.assertRaises(ConnectionDone):
            take_over(upgrading.requests[0], Taker())
        self.assertIsNone(self.taker.transport)

    def test_body(self) -> None:
        """Bytes behind a request's body are early bytes too."""
        client = MemoryServer(Upgrading(self.taker)).connect()
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyearly")
        self.assertEqual(b"".join(self.taker.received), b"early")

    def test_bug_afterwards(self) -> None:
        """An error after the take-over is logged and answered with nothing."""

        class Failing(Upgrading):
            async def dispatch(self, request: Request) -> None:
                await super().dispatch(request)
                raise ZeroDivisionError

        client = MemoryServer(Failing(self.taker)).connect()
        client.send(REQUEST)
        self.assertEqual(client.received(), SWITCHED)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class IsUpgradeTests(SynchronousTestCase):
    """Tests for :func:`requested_protocol` and :func:`header_pairs`."""

    def test_old_version(self) -> None:
        """HTTP/1.0 has no upgrade."""
        upgrading = Upgrading(Taker())
        for version, found in ((b"HTTP/1.1", b"websocket"), (b"HTTP/1.0", b"")):
            head = b"GET / %s\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n"
            MemoryServer(upgrading).connect().send(head % version)
            self.assertEqual(requested_protocol(upgrading.requests[-1]), found)

    def test_chunked_body(self) -> None:
        """A request with a chunked body has no upgrade: nothing says where early bytes begin."""
        upgrading = Upgrading(Taker())
        head = REQUEST.replace(b"echo", b"websocket").replace(b"GET", b"POST").removesuffix(b"\r\n")
        MemoryServer(upgrading).connect().send(
            head + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
        )
        self.assertEqual(requested_protocol(upgrading.requests[-1]), b"")

    def test_pairs(self) -> None:
        """Repeated headers stay repeated."""
        headers = Headers({b"a": [b"1", b"2"], b"b": [b"3"]})
        self.assertEqual(sorted(header_pairs(headers)), [(b"A", b"1"), (b"A", b"2"), (b"B", b"3")])


class SocketTests(PlacesTestCase):
    """Taking over, on real sockets."""

    async def upgraded(self, kind: str, later: bool, early: int) -> None:
        """Send a request with ``early`` bytes behind it; all must arrive."""
        taker = Taker()
        when: Deferred[None] | None = Deferred() if later else None
        endpoint = await self.listen(kind, Site(Upgrading(taker, when), reactor))
        client: Any = await connectProtocol(endpoint, Taker())
        client.transport.write(REQUEST + b"x" * early)
        if when is not None:
            for _ in range(20):
                await turn()
            when.callback(None)
        await self.until(lambda: taker.transport and taker.size >= early)
        taker.transport.write(b"back")
        await self.until(lambda: client.size == len(SWITCHED) + 4)
        self.assertEqual(taker.size, early)
        client.transport.loseConnection()
        await self.until(lambda: client.lost and taker.lost)
        self.assertEqual(taker.half_closed, kind != "tls")


def _matrix() -> None:
    for kind in KINDS:
        for later in (False, True):
            for early in (0, 5, 1 << 20):

                def test(
                    self: SocketTests, kind: str = kind, later: bool = later, early: int = early
                ) -> Deferred[None]:
                    return Deferred.fromCoroutine(self.upgraded(kind, later, early))

                name = f"test_{kind}_{'later' if later else 'at_once'}_{early}"
                test.__doc__ = f"Over {kind}, {early} bytes behind the request arrive."
                test.__name__ = name
                setattr(SocketTests, name, test)


_matrix()
