"""Tests for :mod:`twisted_exec.streaming.remotecommand.resumable`."""

from __future__ import annotations

import json
from typing import Any

from tests.streaming.frames import BytesMessage, CloseConnection, Peer, Ping, Pong, masked
from tests.streaming.remotecommand.test_resumable import EPOCH, ResumableCase
from twisted_exec.streaming.interfaces import COMPLETED, Ending
from twisted_exec.streaming.remotecommand.resumable import GIVEN_UP, PageServer
from twisted_exec.testing.console import RecordingProducer
from twisted_exec.wire.resume import Position
from twisted_exec.wire.session_terms import Terms

CREDIT = 64 << 10
PIECE = b"x" * (16 << 10)


class PageCase(ResumableCase):
    """A session of a page."""

    def setUp(self) -> None:
        super().setUp()
        self.serving.resumption = self.resumption(credit=CREDIT)

    def open(self, query: bytes = b"", **resumption: Any) -> Peer:
        if resumption:
            resumption["credit"] = CREDIT
        peer = super().open(query, **resumption)
        self.assertIsInstance(self.attachment.transport, PageServer)
        return peer

    def told(self, peer: Peer) -> list[object]:
        """Return the marks that the page has got since the last call, and whether there was a ping."""
        marks = list[object]()
        for event in peer.events():
            if isinstance(event, Ping):
                marks.append("ping")
            elif isinstance(event, BytesMessage) and event.data[:1] == b"\4":
                marks += map(json.loads, bytes(event.data[1:]).splitlines())
        return marks

    def report(self, peer: Peer, **report: object) -> None:
        peer.send(b"\4" + json.dumps(report).encode() + b"\n")


class CreditTests(PageCase):
    """Output that a page has not taken is bounded."""

    def setUp(self) -> None:
        super().setUp()
        self.peer = self.open()
        self.producer = RecordingProducer()
        self.stream = self.attachment.transport
        self.stream.registerProducer(self.producer, True)

    def print_all(self) -> int:
        """Print pieces until the stream accepts no more; return their number."""
        for count in range(100):
            if self.producer.paused:
                return count
            self.stream.write(PIECE)
        raise AssertionError("the stream accepts everything")

    def test_limit(self) -> None:
        """It stops before another write could exceed the credit, and goes on when the page has taken enough."""
        self.assertEqual(self.print_all(), 3)  # a fourth and a fifth might come in one
        self.report(self.peer, Taken=len(PIECE))
        self.assertFalse(self.producer.paused)
        self.assertEqual(self.print_all(), 1)
        self.report(self.peer, Taken=len(PIECE))
        self.assertTrue(self.producer.paused)
        self.report(self.peer, Taken=4 * len(PIECE))
        self.assertEqual(self.print_all(), 3)

    def test_blocked(self) -> None:
        """Neither the credit nor the room of the connection is enough by itself."""
        flow: Any = self.peer.client.transport.producer
        self.print_all()
        flow.pauseProducing()
        flow.resumeProducing()
        self.assertTrue(self.producer.paused)
        flow.pauseProducing()
        self.report(self.peer, Taken=len(PIECE))
        self.assertTrue(self.producer.paused)
        flow.resumeProducing()
        self.assertFalse(self.producer.paused)

    def test_later_producer(self) -> None:
        """A producer that registers when the credit is spent is paused; one that has left is not called."""
        self.stream.unregisterProducer()
        for _ in range(3):
            self.stream.write(PIECE)
        self.stream.registerProducer(self.producer, True)
        self.assertTrue(self.producer.paused)
        self.stream.unregisterProducer()
        self.report(self.peer, Taken=len(PIECE))
        self.assertTrue(self.producer.paused)

    def test_wrong_counts(self) -> None:
        """A page that has taken more than was sent, or less than before, breaks the protocol."""
        for count in (len(PIECE) + 1, -1, len(PIECE) // 2 - 1):
            self.setUp()
            self.stream.write(PIECE)
            self.report(self.peer, Taken=len(PIECE) // 2)
            self.peer.events()
            self.report(self.peer, Taken=count)
            status, *_ = self.peer.events()
            document = json.loads(bytes(status.data[1:]))
            self.assertIn("the client broke the protocol: ", document["message"])
            self.assertEqual(document["code"], 500)
            self.peer.raw(masked(b'\4{"Taken":1}'))  # nobody listens any more

    def test_new_connection(self) -> None:
        """Each connection counts from 0."""
        self.print_all()
        self.peer.client.lose()
        peer = self.open(position=Position(EPOCH, 0), settled=0)
        producer = RecordingProducer()
        self.attachment.transport.registerProducer(producer, True)
        self.attachment.transport.write(PIECE)
        self.assertFalse(producer.paused)
        self.report(peer, Taken=len(PIECE))


class EndTests(PageCase):
    """A page that goes away may be back in a moment."""

    def lose(self, code: int) -> None:
        """Close a connection, without the end of its session."""
        peer = self.open()
        peer.events()
        peer.say(CloseConnection(code))
        self.assertEqual([each for each in self.attachment.events if each != "heard"], ["away"])
        self.assertEqual(self.attachment.detached_with, [])
        self.assertEqual(peer.events(), [])

    def test_reload(self) -> None:
        """The browser closes with 1001: no Close is sent back, and the user is away."""
        self.lose(1001)

    def test_given_up(self) -> None:
        """A connection that was silent too long is closed with 4001, which may arrive late: it is lost, too."""
        self.lose(GIVEN_UP)

    def test_leave(self) -> None:
        """A page that leaves the session says so, with 1000."""
        peer = self.open()
        peer.say(CloseConnection(1000))
        self.assertEqual(self.attachment.detached_with, ["client closed"])

    def test_status_before(self) -> None:
        """A session that has ended is over, however the page is closed."""
        peer = self.open()
        self.attachment.transport.end(Ending(COMPLETED))
        peer.say(CloseConnection(1001))
        self.assertEqual(len(self.attachment.detached_with), 1)


class PingTests(PageCase):
    """Signs of the page, and not of its browser."""

    def test_browser(self) -> None:
        """The pong of a browser shows nothing: the page may not have seen what came before."""
        peer = self.open(position=Position(EPOCH, 0), settled=0)
        self.assertEqual(self.told(peer)[:3], [{"Ack": 0}, "ping", {"Ping": 1}])
        peer.say(Pong(b""))
        self.report(peer, Pong=7)
        self.assertEqual(self.attachment.events, ["resumed", "heard"])
        self.report(peer, Pong=1)
        self.assertEqual(self.attachment.events, ["resumed", "heard", "answered"])

    def test_page(self) -> None:
        """A page finds out that the server is there, once it has room to answer."""
        peer = self.open()
        self.told(peer)
        self.report(peer, Ping=5)
        self.assertEqual(self.told(peer), [{"Pong": 5}])
        flow: Any = peer.client.transport.producer
        flow.pauseProducing()
        for number in (6, 7):
            self.report(peer, Ping=number)
        self.clock.advance(30)
        self.assertEqual(self.told(peer), [])
        flow.resumeProducing()
        self.assertEqual(self.told(peer), [{"Pong": 7}])

    def test_other_messages(self) -> None:
        """Sizes and requests pass as ever, and reports are no input."""
        peer = self.open()
        self.report(peer, Ping=1)
        peer.send(b'\4{"Width":80,"Height":24}\n')
        peer.send(b'\4{"Width":80,"Height":24,"Break":250}\n')
        peer.send(b"\0ls")
        self.assertEqual(len(self.attachment.sizes), 1)
        self.assertEqual(len(self.attachment.wishes), 1)
        self.assertEqual(self.attachment.transport.settled, 3)

    def test_idle(self) -> None:
        """A page that only watches is idle, whatever it reports."""
        terms = Terms(idle_seconds=60)
        peer = self.open()
        self.attachment.transport.hold_to(terms)
        for _ in range(6):
            self.clock.advance(10)
            self.report(peer, Ping=1)
        *_, status, _close = peer.events()
        self.assertIn(b"Idle", bytes(status.data))
