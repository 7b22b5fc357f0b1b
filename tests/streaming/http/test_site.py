"""Tests for :mod:`twisted_exec.streaming.http.site`."""

from __future__ import annotations

import resource
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.http.echo import Echo
from twisted_exec.testing.network import MemoryServer

reactor: Any = _reactor


class SiteTests(SynchronousTestCase):
    """Limits on all clients together, and the end of serving."""

    def test_connections(self) -> None:
        """A connection beyond the limit replaces the oldest without a complete request."""
        server = MemoryServer(Echo(), max_connections=2)
        silent, slow, third = (server.connect() for _ in range(3))
        self.assertTrue(silent.aborted)
        slow.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
        third.send(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(third.responses()[0].code, 200)
        self.assertFalse(server.connect().closed)
        self.assertEqual((slow.aborted, third.closed), (True, False))
        self.assertEqual(len(server.site.connections), 2)

    def test_busy_connections(self) -> None:
        """If every connection has a handler at work, a new one is closed until another ends."""
        server = MemoryServer(Echo(), max_connections=1)
        busy = server.connect()
        busy.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertTrue(server.connect().closed)
        self.assertFalse(busy.closed)
        busy.lose()
        self.assertFalse(server.connect().closed)

    def test_descriptors(self) -> None:
        """The limit of connections is at most half of the process's descriptors."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        self.assertEqual(MemoryServer(Echo()).site.max_connections, 512)

    def test_fitting(self) -> None:
        """If the limit shrinks, the oldest idle connections are aborted."""
        places = [3]
        server = MemoryServer(Echo(), fitting=lambda: places[0])
        clients = [server.connect() for _ in range(3)]
        places[0] = 2
        server.connect()
        self.assertEqual([client.aborted for client in clients], [True, True, False])
        self.assertEqual(len(server.site.connections), 2)

    def test_many_slow_bodies(self) -> None:
        """Incomplete bodies share a limit; beyond it the oldest request gets a 503."""
        server = MemoryServer(Echo(), receiving_bytes=1500, max_body_bytes=1000)
        first, second = server.connect(), server.connect()
        for client in (first, second):
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 750)
        self.assertEqual(server.request("POST", "/", b"x").json(), {"body": "x"})
        (answer,) = first.responses()
        self.assertEqual((answer.code, answer.json()["reason"]), (503, "ServiceUnavailable"))
        second.send(b"x" * 250)
        self.assertEqual(second.responses()[0].code, 200)
        self.assertEqual(len(server.site.receiving), 0)

    def test_many_unread_answers(self) -> None:
        """Unread responses share a limit: the oldest connection is cut."""
        server = MemoryServer(Echo(), unread_bytes=30)
        first, second, third = (server.connect() for _ in range(3))
        for client in (first, second, third):
            client.protocol.pauseProducing()  # its buffer is full
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
        self.assertEqual([first.aborted, second.aborted, third.aborted], [True, False, False])
        second.protocol.resumeProducing()
        third.lose()
        self.assertEqual(len(server.site.unread), 0)

    def test_drain(self) -> None:
        """A site that drains closes idle connections, and others after their answer."""
        echo = Echo()
        server = MemoryServer(echo)
        idle, busy, fresh, begun = (server.connect() for _ in range(4))
        begun.send(b"GET /text HTTP/1.1\r\n")
        busy.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        fresh.send(b"GET /te")
        server.site.drain()
        self.assertTrue(idle.closed)
        self.assertFalse(busy.closed)
        echo.waiting[0].callback(None)
        self.assertEqual(busy.responses()[0].code, 200)
        self.assertTrue(busy.closed)
        begun.send(b"Host: x\r\n\r\n")
        self.assertEqual(begun.responses()[0].headers["connection"], "close")
        self.assertTrue(begun.closed)

    def test_drain_of_spare_connections(self) -> None:
        """
        Clients with spare connections learn that no request was handled on an unused one.

        A request that they have sent meanwhile is not carried out.
        """
        server = MemoryServer(Echo(), spare_seconds=lambda _: 60.0)
        unused, used, shaking = (server.connect() for _ in range(3))
        shaking.transport.is_shaking = True
        used.send(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(used.responses()[0].code, 200)
        server.site.drain()
        unused.send(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\n")
        (answer,) = unused.responses()
        self.assertEqual((answer.code, answer.json()["reason"]), (421, "MisdirectedRequest"))
        self.assertEqual(answer.headers["connection"], "close")
        self.assertEqual((used.received(), shaking.received()), (b"", b""))
        server.clock.advance(10)
        self.assertEqual((unused.closed, used.closed, shaking.closed), (True, True, True))
        self.assertEqual(len(server.site.connections), 0)

    def test_spare_connections_count(self) -> None:
        """Unused connections of known clients make room for others, too."""
        server = MemoryServer(Echo(), max_connections=2, spare_seconds=lambda _: 60.0)
        clients = [server.connect() for _ in range(3)]
        self.assertEqual([client.aborted for client in clients], [True, False, False])

    def test_no_http2(self) -> None:
        """HTTP/2 has no upgrade, so it is not offered."""
        self.assertEqual(MemoryServer(Echo()).site.acceptableProtocols(), [b"http/1.1"])
