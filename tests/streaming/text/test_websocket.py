"""Tests for :mod:`twisted_exec.streaming.text.websocket`, through a relay."""

from __future__ import annotations

import base64

import wsproto
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure
from wsproto.connection import ConnectionType

from tests.streaming.frames import BytesMessage, CloseConnection, Peer, TextMessage, handshake
from tests.streaming.text.test_download import CHUNKED, chunk
from tests.streaming.text.test_relay import RelayCase
from twisted_exec.streaming.interfaces import REVOKED, Ending
from twisted_exec.testing.network import MemoryClient

TOKEN = b"base64url.bearer.authorization.k8s.io.c2VjcmV0"


class Page(Peer):
    """A client whose 101 has come by now."""

    def __init__(self, client: MemoryClient) -> None:
        self.client = client
        self.frames = wsproto.Connection(ConnectionType.CLIENT)
        self.head, found, rest = client.received().partition(b"\r\n\r\n")
        assert found, "no answer"
        self.frames.receive_data(rest)


class SocketCase(RelayCase):
    """A page that reads a log."""

    def open(self, protocols: bytes = b"binary.k8s.io") -> Page:
        """A WebSocket; the backend has answered with one line."""
        client = self.server.connect()
        client.send(handshake(protocols=protocols))
        self.answer(CHUNKED + chunk(b"one\n"))
        return Page(client)

    def close(self, page: Page) -> CloseConnection:
        """Return the Close, which must be the only event received."""
        (close,) = page.events()
        self.assertIsInstance(close, CloseConnection)
        return close


class ProtocolTests(SocketCase):
    """Negotiation of the subprotocol."""

    def test_request(self) -> None:
        """The next hop gets a plain GET without WebSocket headers."""
        self.open()
        self.assertEqual(
            self.backend.transport.value(),
            b"GET /log/T?follow=true HTTP/1.1\r\nHost: backend:1\r\n"
            b"X-Remote-User: ann\r\nAudit-Id: s-1\r\n\r\n",
        )

    def test_binary(self) -> None:
        """The binary protocol sends bytes unchanged after an empty message; it is the default."""
        for protocols in (b"binary.k8s.io", b"", b"v9, binary.k8s.io, base64.binary.k8s.io"):
            self.setUp()
            page = self.open(protocols)
            named = b"Sec-WebSocket-Protocol: binary.k8s.io" in page.head
            self.assertEqual(named, bool(protocols))
            self.assertIn(b"Audit-Id: s-1", page.head)
            self.assertEqual(page.messages(), [b"", b"one\n"])

    def test_base64(self) -> None:
        """Each message of text by itself; a token is no protocol, and is not told back."""
        page = self.open(TOKEN + b", base64.binary.k8s.io")
        self.assertIn(b"Sec-WebSocket-Protocol: base64.binary.k8s.io", page.head)
        self.assertNotIn(b"c2VjcmV0", page.head)
        self.answer(chunk(b"\xff" * 70_000))
        first, second, *rest = page.events()
        self.assertEqual([type(each) for each in (first, second)], [TextMessage, TextMessage])
        self.assertEqual((first.data, base64.b64decode(second.data)), ("", b"one\n"))
        told = [base64.b64decode(each.data) for each in rest]
        self.assertEqual(b"".join(told), b"\xff" * 70_000)
        self.assertLessEqual(max(map(len, told)), 32 << 10)

    def test_refused(self) -> None:
        """Other protocols and malformed handshakes are refused before the next hop is contacted."""
        for request, code in (
            (handshake(protocols=b"v5.channel.k8s.io"), 403),
            (handshake().replace(b"Version: 13", b"Version: 12"), 400),
            (handshake().replace(b"Sec-WebSocket-Key", b"X-Key"), 400),
        ):
            self.setUp()
            client = self.server.connect()
            client.send(request)
            (answer,) = client.responses()
            self.assertEqual((answer.code, answer.json()["code"]), (code, code))
            self.assertEqual(self.end()["code"], code)
            self.assertIsNone(self.backend.protocol)


class TrafficTests(SocketCase):
    """Traffic and endings."""

    def test_as_it_comes(self) -> None:
        """Each piece is a message; messages from the page are ignored."""
        page = self.open()
        page.messages()
        page.send(b"hello")
        self.answer(chunk(b"two\n"))
        self.assertEqual(page.messages(), [b"two\n"])
        self.assertEqual(len(self.sessions), 1)

    def test_complete(self) -> None:
        """A complete text ends with Close 1000."""
        page = self.open()
        page.messages()
        self.answer(b"0\r\n\r\n")
        self.assertEqual(self.close(page).code, 1000)
        end = self.end()
        self.assertEqual((end["reason"], end["bytes_to_user"]), ("backend closed", 4))

    def test_broken_off(self) -> None:
        """An incomplete text ends with 1011, and with a reason if there is one."""
        page = self.open()
        page.messages()
        self.backend.protocol.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(self.close(page).code, 1011)
        self.assertEqual(self.end()["reason"], "backend lost")
        self.setUp()
        page = self.open()
        page.messages()
        self.sessions.end(lambda _: True, Ending(REVOKED, "ann may not"))
        mark, close = page.events()
        self.assertIsInstance(mark, BytesMessage)
        self.assertIn(b"AuthorizationWithdrawn: ann may not", mark.data)
        self.assertEqual(close.code, 1011)
        self.assertEqual(self.end()["reason"], REVOKED)

    def test_cut(self) -> None:
        """A page that does not close is cut."""
        page = self.open()
        for session in self.sessions.live():
            session.cut()
        self.assertTrue(page.client.aborted)
        self.assertEqual(self.end()["reason"], "cut")

    def test_slow_page(self) -> None:
        """A slow page pauses the next hop."""
        page = self.open()
        page.client.transport.producer.pauseProducing()
        self.assertEqual(self.backend.transport.producerState, "paused")
        page.client.transport.producer.resumeProducing()
        self.assertEqual(self.backend.transport.producerState, "producing")

    def test_leaves(self) -> None:
        """A page that closes is answered, one that is lost is not; both end it behind us."""
        page = self.open()
        page.messages()
        page.say(CloseConnection(1000))
        self.assertEqual(self.close(page).code, 1000)
        self.assertEqual(self.end()["reason"], "client closed")
        self.assertTrue(self.backend.transport.aborted)
        self.setUp()
        self.open().client.lose()
        self.assertEqual(self.end()["reason"], "client lost")
        self.assertTrue(self.backend.transport.aborted)
