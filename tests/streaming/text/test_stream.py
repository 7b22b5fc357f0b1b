"""Tests for :mod:`twisted_exec.streaming.text.stream`."""

from __future__ import annotations

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import REVOKED, SHUTTING_DOWN, Ending
from twisted_exec.streaming.text.stream import TextAnswer, ending_mark
from twisted_exec.testing.network import MemoryServer


class Answering(Dispatcher):
    """Answers with a text that the test writes."""

    def __init__(self) -> None:
        super().__init__()
        self.flows: list[str] = []
        self.outcome = ""

    async def dispatch(self, request: Request) -> None:
        request.learn(session="s-1")
        self.text = TextAnswer(
            request, lambda: self.flows.append("pause"), lambda: self.flows.append("resume")
        )
        self.text.begin()
        try:
            self.outcome = await self.text.done
        except CancelledError:
            self.outcome = "cancelled"
            raise


class TextAnswerTests(SynchronousTestCase):
    """Tests for :class:`TextAnswer`."""

    def setUp(self) -> None:
        self.answering = Answering()
        self.server = MemoryServer(self.answering)
        self.client = self.server.connect()
        self.client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.text = self.answering.text

    def test_begins_at_once(self) -> None:
        """The client has the head before there is any text."""
        head = self.client.received().split(b"\r\n")
        self.assertEqual(head[0], b"HTTP/1.1 200 OK")
        for line in (
            b"Content-Type: text/plain",
            b"Transfer-Encoding: chunked",
            b"Cache-Control: no-cache, private",
            b"Audit-Id: s-1",
            b"X-Content-Type-Options: nosniff",  # no browser runs it as a script
        ):
            self.assertIn(line, head)

    def test_as_it_comes(self) -> None:
        """Each write is sent at once, and is counted."""
        self.client.received()
        self.text.write(b"one\n")
        self.assertEqual(self.client.received(), b"4\r\none\n\r\n")
        self.assertEqual(self.text.sent, 4)

    def test_complete(self) -> None:
        """A complete text ends as an HTTP body does, and the connection can be used again."""
        self.text.write(b"one\n")
        self.text.finish("backend closed")
        (answer,) = self.client.responses()
        self.assertEqual((answer.code, answer.body), (200, b"one\n"))
        self.assertEqual(self.answering.outcome, "backend closed")
        self.client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertIn(b"200 OK", self.client.received())

    def test_broken_off(self) -> None:
        """An incomplete text has no such end: behind the reason the connection is closed."""
        self.client.received()
        self.text.write(b"login: ")
        self.text.break_off(REVOKED, Ending(REVOKED, "ann may not"))
        self.assertEqual(
            self.client.received(),
            b"7\r\nlogin: \r\n"
            b"37\r\n\r\n[twisted-exec: AuthorizationWithdrawn: ann may not]\r\n\r\n",
        )
        self.assertTrue(self.client.closed)
        self.assertEqual(self.answering.outcome, REVOKED)

    def test_cut(self) -> None:
        """A cut aborts the client's connection."""
        self.text.cut("cut")
        self.assertTrue(self.client.aborted)
        self.assertEqual(self.answering.outcome, "cut")

    def test_first_end(self) -> None:
        """Only the first end counts, and nothing is written behind it."""
        self.text.finish("first")
        self.client.received()
        self.text.write(b"more")
        self.text.finish("second")
        self.text.break_off("third", Ending(SHUTTING_DOWN))
        self.text.cut("fourth")
        self.assertEqual(self.client.received(), b"")
        self.assertFalse(self.client.closed)
        self.assertEqual(self.answering.outcome, "first")

    def test_client_leaves(self) -> None:
        """The waiter is notified, and nothing more is written."""
        self.client.lose()
        self.assertEqual(self.answering.outcome, "cancelled")
        self.text.write(b"more")
        self.text.finish("late")
        self.assertEqual(self.text.sent, 0)

    def test_slow_client(self) -> None:
        """A client that takes no more pauses the source, until it does."""
        producer = self.client.transport.producer
        producer.pauseProducing()
        producer.resumeProducing()
        self.assertEqual(self.answering.flows, ["pause", "resume"])

    def test_mark(self) -> None:
        """The reason has a line of its own."""
        self.assertEqual(
            ending_mark(Ending(SHUTTING_DOWN), begins_line=True),
            b"[twisted-exec: ShuttingDown]\r\n",
        )
