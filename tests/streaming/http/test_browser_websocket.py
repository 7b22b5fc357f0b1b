"""Tests for :mod:`twisted_exec.streaming.http.browser_websocket`."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase
from wsproto.connection import Connection, ConnectionType

from tests.streaming.frames import BytesMessage, CloseConnection, Peer, handshake, masked
from twisted_exec.api.status import APIError, Forbidden, TooManyRequests, Unauthorized
from twisted_exec.streaming.http.browser_websocket import PageHandshake, adopt_page
from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.sessions.resume_headers import resume_headers
from twisted_exec.testing.network import MemoryServer
from twisted_exec.wire.marks import encode_session
from twisted_exec.wire.resume import Resumable, RoundTrip
from twisted_exec.wire.upgrade import RESUME_SUBPROTOCOL


def offer(value: bytes, protocol: bytes = b"v5.channel.k8s.io") -> bytes:
    """Return the subprotocols of a page."""
    encoded = base64.urlsafe_b64encode(value).rstrip(b"=")
    return protocol + b", " + RESUME_SUBPROTOCOL + encoded


class Refusing(Dispatcher):
    """Adopts pages, and refuses all requests."""

    def __init__(self, error: APIError | None, allowed: Collection[bytes] = ()) -> None:
        super().__init__()
        self.error, self.allowed = error, allowed
        self.values: list[bytes] = []

    async def dispatch(self, request: Request) -> None:
        adopt_page(request, self.allowed)
        self.values.extend(resume_headers(request))
        if self.error is not None:
            raise self.error
        respond_json(
            request, 200, [str(request.requestHeaders.getRawHeaders("Sec-WebSocket-Protocol"))]
        )


class PageCase(SynchronousTestCase):
    """A server in memory."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.serve(Unauthorized())

    def serve(self, error: APIError | None, allowed: Collection[bytes] = ()) -> None:
        self.resource = Refusing(error, allowed)
        self.server = MemoryServer(self.resource, self.clock)

    def code(self, request: bytes) -> int:
        """Return the code of an ordinary refusal."""
        client = self.server.connect()
        client.send(request)
        (response,) = client.responses()
        return response.code


class AdoptTests(PageCase):
    """The subprotocol of a page is turned into the header of other clients."""

    def test_header(self) -> None:
        """Handlers see the header, and the other subprotocols."""
        self.serve(None)
        client = self.server.connect()
        client.send(handshake(protocols=offer(b"marks; credit=65536")))
        (response,) = client.responses()
        self.assertEqual(self.resource.values, [b"marks; credit=65536"])
        self.assertEqual(response.json(), ["['v5.channel.k8s.io']"])

    def test_others(self) -> None:
        """Other requests are left alone."""
        for request in (
            handshake(),
            handshake(protocols=b""),
            b"GET / HTTP/1.1\r\nHost: x\r\nSec-WebSocket-Protocol: %s\r\n\r\n" % offer(b"marks"),
        ):
            self.assertEqual(self.code(request), 401)
        self.assertEqual(self.resource.values, [])

    def test_twice(self) -> None:
        """A request with both leaves the decision to the reader of the header, which refuses two."""
        Peer(self.server, lines=(b"X-Twisted-Exec-Resume: marks",), protocols=offer(b"marks"))
        self.assertEqual(self.resource.values, [b"marks"] * 2)

    def test_no_page(self) -> None:
        """A handshake to which no message can be sent is refused with 400."""
        for request in (
            handshake(protocols=offer(b"marks", b"v4.channel.k8s.io")),
            handshake(protocols=offer(b"marks")).replace(b"Version: 13", b"Version: 8"),
            handshake(protocols=offer(b"marks")).replace(b"GET", b"POST"),
        ):
            self.assertEqual(self.code(request), 400, request)
        self.assertEqual(self.resource.values, [])


class RefusalTests(PageCase):
    """A page reads why it is refused."""

    def refusal(self, peer: Peer) -> dict[str, object]:
        self.assertIn(b"101 Switching Protocols", peer.head)
        self.assertIn(b"Sec-WebSocket-Protocol: v5.channel.k8s.io", peer.head)
        status, close = peer.events()
        assert isinstance(status, BytesMessage)
        self.assertEqual(bytes(status.data[:1]), b"\3")
        self.assertEqual((type(close), close.code), (CloseConnection, 1000))
        document: dict[str, object] = json.loads(bytes(status.data[1:]))
        return document

    def test_status(self) -> None:
        """It is the Status of an ordinary refusal, behind which the server closes."""
        self.serve(TooManyRequests("too many", retry_after_seconds=7))
        peer = Peer(self.server, protocols=offer(b"marks"))
        document = self.refusal(peer)
        self.assertEqual((document["code"], document["message"]), (429, "too many"))
        self.assertEqual(document["details"], {"retryAfterSeconds": 7})
        peer.say(CloseConnection(1000))
        self.assertTrue(peer.client.closed)
        peer.client.lose()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_invalid_value(self) -> None:
        """A subprotocol that cannot be read is a refusal, too."""
        broken = b"v5.channel.k8s.io, " + RESUME_SUBPROTOCOL + b"="
        document = self.refusal(Peer(self.server, protocols=broken))
        self.assertEqual(document["code"], 400)
        self.assertNotIn("=", str(document["message"]))

    def test_silent_page(self) -> None:
        """A page that does not close is left after a while, whatever it sends."""
        peer = Peer(self.server, protocols=offer(b"marks"))
        self.refusal(peer)
        peer.raw(masked(b"\0x"))
        self.clock.advance(10)
        self.assertTrue(peer.client.closed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_connections(self) -> None:
        """A refused connection counts until it is closed, and makes room for others first."""
        site = self.server.site
        channel, transport = site.buildProtocol(None), StringTransport()
        channel.makeConnection(transport)
        channel.dataReceived(handshake(protocols=offer(b"marks")))
        self.assertIn(b" 101 ", transport.value())
        self.assertTrue(transport.disconnecting)
        self.assertEqual(list(site.connections), [channel])
        self.assertTrue(channel.evictable)
        channel.dataReceived(masked(b"\0x") * 1000)
        self.clock.advance(10)
        self.assertTrue(transport.disconnected)
        channel.connectionLost()
        self.assertEqual(site.connections, {})

    def test_long_status(self) -> None:
        """Its size is that of any message."""
        for size in (100, 1000, 100_000):
            self.serve(Forbidden("x" * size))
            document = self.refusal(Peer(self.server, protocols=offer(b"marks")))
            self.assertEqual(document["message"], "x" * size)

    def test_other_sites(self) -> None:
        """A page of another site learns only that the handshake has failed."""
        foreign, own = b"Origin: http://evil.example", b"Origin: http://server"
        self.assertEqual(self.code(handshake(foreign, protocols=offer(b"marks"))), 401)
        self.refusal(Peer(self.server, lines=(own,), protocols=offer(b"marks")))
        self.serve(Forbidden("no"), [b"http://evil.example"])
        self.refusal(Peer(self.server, lines=(foreign,), protocols=offer(b"marks")))


class GreetingTests(SynchronousTestCase):
    """The first message of a stream."""

    def test_lengths(self) -> None:
        """It is one frame, whatever its length."""
        hops = (RoundTrip("apiserver", 412), RoundTrip("poollet", 96))
        for resumable in (Resumable("k" * 43, 60), Resumable("k" * 128, 60, hops)):
            greeting = PageHandshake(reads_refusals=True).greeting("s" * 36, resumable)
            frames = Connection(ConnectionType.CLIENT)
            frames.receive_data(greeting)
            (message,) = frames.events()
            assert isinstance(message, BytesMessage)
            self.assertEqual(bytes(message.data), b"\4" + encode_session(resumable, "s" * 36))
