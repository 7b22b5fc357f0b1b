"""Tests for :mod:`twisted_exec.testing.network`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.site import Request
from twisted_exec.testing.network import MemoryServer


class Slow(Dispatcher):
    """Answers when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: Deferred[None] = Deferred()

    async def dispatch(self, request: Request) -> None:
        if request.path == b"/slow":
            await self.waiting
        body = request.content.read().decode()
        respond_json(request, 200, [request.method.decode(), request.getHeader("a"), body])


class MemoryServerTests(SynchronousTestCase):
    """Tests for :class:`MemoryServer`."""

    def setUp(self) -> None:
        self.resource = Slow()
        self.server = MemoryServer(self.resource)

    def test_request(self) -> None:
        """One request, one answer."""
        answer = self.server.request("PUT", "/x", b"body", headers=[("A", "b")])
        self.assertEqual((answer.code, answer.json()), (200, ["PUT", "b", "body"]))
        self.assertEqual(answer.headers["content-type"], "application/json")

    def test_unanswered(self) -> None:
        """A request that waits is no answer."""
        with self.assertRaises(AssertionError):
            self.server.request("GET", "/slow")

    def test_later(self) -> None:
        """A connection of one's own shows answers as they come."""
        client = self.server.connect()
        client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(client.responses(), [])
        self.resource.waiting.callback(None)
        self.assertEqual([answer.code for answer in client.responses()], [200])
        self.assertEqual(client.responses(), [])
        self.assertFalse(client.closed)

    def test_limits(self) -> None:
        """Limits are the site's."""
        client = MemoryServer(self.resource, header_seconds=1).connect()
        self.assertFalse(client.aborted)
        server = MemoryServer(self.resource, header_seconds=1)
        client = server.connect()
        server.clock.advance(1)
        self.assertTrue(client.closed)
