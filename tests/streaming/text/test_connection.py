"""Tests for :mod:`twisted_exec.streaming.text.connection`, by way of a relay."""

from __future__ import annotations

import gc
import weakref

from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from tests.streaming.text.test_download import CHUNKED, chunk
from tests.streaming.text.test_relay import GET, RelayCase
from twisted_exec.streaming.interfaces import MACHINE_DELETED, SHUTTING_DOWN, Ending
from twisted_exec.streaming.text.connection import LINGER_SECONDS, TextConnection
from twisted_exec.streaming.text.stream import TextStream
from twisted_exec.testing.network import MemoryClient


class ConnectionCase(RelayCase):
    """A text on a connection of its own."""

    keeps_connections = False

    def begun(self, *lines: bytes) -> tuple[MemoryClient, bytes]:
        """A client, and what it has got so far."""
        client = self.ask(*lines)
        self.answer(CHUNKED + chunk(b"one\n"))
        return client, client.received()


class TextTests(ConnectionCase):
    """Responses to the client."""

    def test_head(self) -> None:
        """
        The head announces that the connection closes with the text; other headers are as usual.
        """
        _, told = self.begun()
        head, _, body = told.partition(b"\r\n\r\n")
        self.assertEqual(
            head.splitlines(),
            [
                b"HTTP/1.1 200 OK",
                b"Content-Type: text/plain",
                b"X-Content-Type-Options: nosniff",
                b"Cache-Control: no-cache, private",
                b"Transfer-Encoding: chunked",
                b"Connection: close",
                b"Audit-Id: s-1",
            ],
        )
        self.assertEqual(body, b"4\r\none\n\r\n")

    def test_end(self) -> None:
        """A text that is complete ends as such, and the connection behind it."""
        client, _ = self.begun()
        self.answer(chunk(b"two\n") + b"0\r\n\r\n")
        self.assertEqual(client.received(), b"4\r\ntwo\n\r\n0\r\n\r\n")
        self.assertEqual((self.end()["reason"], self.end()["bytes_to_user"]), ("backend closed", 8))
        self.clock.advance(LINGER_SECONDS)
        self.assertTrue(client.closed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_broken_off(self) -> None:
        """An incomplete text ends without its final chunk."""
        client, _ = self.begun()
        self.backend.protocol.connectionLost(Failure(ConnectionLost()))
        self.clock.advance(LINGER_SECONDS)
        self.assertEqual(client.received(), b"")
        self.assertTrue(client.closed)
        self.assertEqual(self.end()["reason"], "backend lost")

    def test_drain(self) -> None:
        """A hop that stops says so, and does not end the text as if it were complete."""
        client, _ = self.begun()
        self.sessions.drain(self.clock, 3, "exec-poollet")
        told = client.received()
        self.assertIn(b"[twisted-exec: ShuttingDown: exec-poollet", told)
        self.assertFalse(told.endswith(b"0\r\n\r\n"))
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.end()["reason"], SHUTTING_DOWN)

    def test_deleted(self) -> None:
        """After the machine's deletion, the rest of its log is still delivered."""
        client, _ = self.begun()
        self.sessions.end(lambda _: True, Ending(MACHINE_DELETED, "it was deleted"))
        self.answer(chunk(b"bye\n") + b"0\r\n\r\n")
        self.assertEqual(client.received(), b"4\r\nbye\n\r\n0\r\n\r\n")

    def test_cut(self) -> None:
        """Cutting the session aborts the client's connection."""
        client, _ = self.begun()
        (session,) = self.sessions.live()
        session.cut()
        self.assertTrue(client.aborted)
        self.assertEqual(self.end()["reason"], "cut")

    def test_old_client(self) -> None:
        """A client that knows no chunks gets a body that ends with the connection."""
        client = self.server.connect()
        client.send(GET.replace(b"1.1", b"1.0") + b"\r\n")
        self.answer(CHUNKED + chunk(b"one\n") + b"0\r\n\r\n")
        self.assertTrue(client.received().endswith(b"\r\n\r\none\n"))
        self.assertTrue(client.closed)


class ReaderTests(ConnectionCase):
    """Behaviour of the client."""

    def test_slow(self) -> None:
        """A slow client pauses the backend."""
        client, _ = self.begun()
        client.transport.producer.pauseProducing()
        self.assertEqual(self.backend.transport.producerState, "paused")
        client.transport.producer.resumeProducing()
        self.assertEqual(self.backend.transport.producerState, "producing")

    def test_leaves(self) -> None:
        """When the client leaves, the backend's connection is closed at once."""
        client, _ = self.begun()
        client.lose()
        self.assertTrue(self.backend.transport.aborted)
        self.assertEqual(self.end()["reason"], "client closed")

    def test_talks(self) -> None:
        """Input of the client, even another request, is ignored."""
        client, _ = self.begun()
        client.send((GET + b"\r\n") * 3)
        self.assertEqual(len(self.sessions), 1)
        self.answer(chunk(b"two\n"))
        self.assertEqual(client.received(), b"4\r\ntwo\n\r\n")

    def test_little_is_held(self) -> None:
        """
        While the text lasts neither request nor channel is kept in memory; after it nothing is.
        """
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        client = self.ask()
        channel = weakref.ref(client.protocol)
        del client.protocol
        self.answer(CHUNKED + chunk(b"one\n"))
        self.assertIsNone(channel())
        self.assertTrue(
            [each for each in gc.get_objects(generation=0) if isinstance(each, TextConnection)]
        )
        client.lose()
        self.assertFalse(
            [each for each in gc.get_objects(generation=0) if isinstance(each, TextStream)]
        )
