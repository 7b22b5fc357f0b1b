"""Tests for :mod:`twisted_exec.streaming.http.responses`."""

from __future__ import annotations

import gc
import time
from email.utils import parsedate_to_datetime

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.http.echo import Echo
from twisted_exec.streaming.http.responses import Dispatcher, respond_text
from twisted_exec.streaming.http.site import Request
from twisted_exec.testing.network import MemoryServer


class AnswerTests(SynchronousTestCase):
    """Responses of a :class:`Dispatcher`."""

    def setUp(self) -> None:
        self.server = MemoryServer(Echo())

    def test_refused_without_the_collector(self) -> None:
        """A refusal leaves no cycle of error, traceback and request: that holds a connection."""
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        client = self.server.connect()
        client.send(b"GET /refused HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(client.responses()[0].code, 404)
        client.lose()
        left = [each for each in gc.get_objects(generation=0) if isinstance(each, Request)]
        self.assertEqual([each.path for each in left if each.path == b"/refused"], [])

    def test_json(self) -> None:
        """An answer is JSON of a known length, and the connection stays."""
        client = self.server.connect()
        for _ in range(2):
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
            (answer,) = client.responses()
            self.assertEqual((answer.code, answer.json()), (200, {"body": "hi"}))
            self.assertEqual(answer.headers["content-type"], "application/json")
        self.assertFalse(client.closed)

    def test_date(self) -> None:
        """Each answer has the server's time of day, with which clients compare their clocks."""
        client, before = self.server.connect(), int(time.time())
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        (answer,) = client.responses()
        date = parsedate_to_datetime(answer.headers["date"]).timestamp()
        self.assertTrue(before <= date <= time.time())

    def test_api_error(self) -> None:
        """An APIError becomes its Status."""
        answer = self.server.request("GET", "/missing")
        self.assertEqual(answer.code, 404)
        self.assertEqual(answer.json()["kind"], "Status")
        self.assertEqual(answer.json()["message"], 'machines "x" not found')

    def test_retry_after(self) -> None:
        """A temporary error has a Retry-After header."""
        answer = self.server.request("GET", "/full")
        self.assertEqual((answer.code, answer.headers["retry-after"]), (429, "7"))
        self.assertEqual(answer.json()["details"]["retryAfterSeconds"], 7)

    def test_bug(self) -> None:
        """A bug is logged once, and its text does not reach the client."""
        answer = self.server.request("GET", "/bug")
        self.assertEqual((answer.code, answer.json()["reason"]), (500, "InternalError"))
        self.assertNotIn(b"secret", answer.body)
        self.assertNotIn(b"Traceback", answer.body)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_head(self) -> None:
        """HEAD gets the headers of GET and no body."""
        answer = self.server.request("HEAD", "/text")
        self.assertEqual((answer.code, answer.headers["content-length"]), (200, "2"))

    def test_error_after_the_answer_began(self) -> None:
        """After half a response only closing can report an error."""
        client = self.server.connect()
        client.send(b"GET /begun HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertTrue(client.closed)
        self.assertNotIn(b"Status", client.received())

    def test_client_leaves(self) -> None:
        """A client that leaves cancels its request, and nothing is logged."""
        echo = Echo()
        client = MemoryServer(echo).connect()
        client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        client.lose()
        self.assertTrue(echo.waiting[0].called)

    def test_answer_to_nobody(self) -> None:
        """An answer for a client that has left is dropped."""

        class Stubborn(Dispatcher):
            requests: list[Request] = []

            async def dispatch(self, request: Request) -> None:
                self.requests.append(request)
                await Deferred()

        client = MemoryServer(Stubborn()).connect()
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        client.lose()
        respond_text(Stubborn.requests[0], 200, "too late")
        self.assertEqual(client.received(), b"")

    def test_cancelled_by_ourselves(self) -> None:
        """A request whose work was cancelled, its client still there, is answered."""
        echo = Echo()
        client = MemoryServer(echo).connect()
        client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        echo.waiting[0].cancel()
        self.assertEqual(client.responses()[0].code, 500)
