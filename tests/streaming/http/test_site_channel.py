"""Tests for :mod:`twisted_exec.streaming.http.site`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.http.echo import Echo
from twisted_exec.streaming.http.site import MAX_CHUNKS, MAX_HEAD_BYTES, HTTPChannel
from twisted_exec.testing.network import MemoryServer

UNPARSABLE = (
    b"nonsense",
    b"GET / HTTP/1.1\r\nno colon",
    b"GET / HTTP/1.1\r\nContent-Length: -1",
    b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
    b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
    b"GET / HTTP/2.0",
)
"""Heads that twisted.web refuses itself."""


class OrderTests(SynchronousTestCase):
    """Requests and responses of one connection."""

    def setUp(self) -> None:
        self.server = MemoryServer(Echo())

    def test_one_write(self) -> None:
        """Head and body go out together; a long body is not copied for that."""
        client = self.server.connect()
        (channel,) = self.server.site.connections
        count = 0

        def counted(write: Any) -> Any:
            def one(data: Any) -> None:
                nonlocal count
                count += 1
                write(data)

            return one

        for name in ("write", "writeSequence"):
            self.patch(channel.transport, name, counted(getattr(channel.transport, name)))
        for size, writes in ((2, 1), (70_000, 2)):
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
            client.send(b"x" * size)
            (answer,) = client.responses()
            self.assertEqual(answer.json(), {"body": "x" * size})
            self.assertEqual(count, writes)
            count = 0

    def test_pipelined(self) -> None:
        """Requests sent at once are answered in order, one after the other."""
        echo = Echo()
        client = MemoryServer(echo).connect()
        client.send(
            b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
            b"GET /missing HTTP/1.1\r\nHost: x\r\n\r\nGET /text HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        self.assertEqual(client.received(), b"")
        echo.waiting[0].callback(None)
        self.assertEqual([answer.code for answer in client.responses()], [200, 404, 200])

    def test_http_1_0(self) -> None:
        """Probes of old load balancers are answered and closed."""
        client = self.server.connect()
        client.send(b"GET /text HTTP/1.0\r\n\r\n")
        self.assertEqual(client.responses()[0].body, b"ok")
        self.assertTrue(client.closed)


class LimitTests(SynchronousTestCase):
    """Limits on one client."""

    def setUp(self) -> None:
        self.server = MemoryServer(
            Echo(), header_seconds=5, body_seconds=7, idle_seconds=60, max_body_bytes=1000
        )
        self.client = self.server.connect()

    def refused(self, code: int) -> None:
        """The one answer is a Status with ``code``, and the connection ends."""
        (answer,) = self.client.responses()
        self.assertEqual((answer.code, answer.json()["code"]), (code, code))
        self.assertEqual(answer.headers["connection"], "close")
        self.client.send(b"more of it, unread")
        self.server.clock.advance(10)
        self.assertTrue(self.client.closed)
        self.assertEqual(len(self.server.site.connections), 0)

    def test_silence(self) -> None:
        """A silent client is disconnected without a response."""
        self.server.clock.advance(5)
        self.assertTrue(self.client.closed)
        self.assertEqual(self.client.received(), b"")

    def test_spare_connections(self) -> None:
        """
        A known client may be silent for longer before its first request, but not before later ones.

        In the end it learns that no request was handled; so does an unknown one, after the usual time.
        """
        known: list[object] = []
        server = MemoryServer(
            Echo(),
            header_seconds=5,
            idle_seconds=7,
            spare_seconds=lambda transport: 60.0 if transport in known else 0.0,
        )
        spare, used, slow, unknown = (server.connect() for _ in range(4))
        known += [each.transport for each in (spare, used, slow)]
        server.clock.advance(5)
        self.assertEqual([each.code for each in unknown.responses()], [421])
        server.clock.advance(50)
        self.assertFalse(spare.closed)
        used.send(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual([each.code for each in used.responses()], [200])
        slow.send(b"GET /te")
        server.clock.advance(5)
        self.assertEqual([each.code for each in slow.responses()], [408])
        server.clock.advance(2)
        self.assertEqual((used.closed, used.received()), (True, b""))
        server.clock.advance(3)
        self.assertEqual([each.code for each in spare.responses()], [421])
        server.clock.advance(10)
        self.assertEqual(len(server.site.connections), 0)

    def test_handshake(self) -> None:
        """While the TLS handshake is under way, only its own limit counts; then the one of the headers."""
        self.client.transport.is_shaking = True
        self.server.clock.pump([5, 5])
        self.assertFalse(self.client.closed)
        self.client.transport.is_shaking = False
        self.server.clock.advance(5)
        self.assertTrue(self.client.closed)

    def test_stopped(self) -> None:
        """A request that arrived while this process did not run is read before the limit counts."""
        self.client.send(b"GET /text HTTP/1.1\r\n")
        self.server.clock.advance(60)
        self.client.send(b"Host: x\r\n\r\n")
        self.assertEqual(self.client.responses()[0].code, 200)

    def test_25_slow_headers(self) -> None:
        """A byte now and then does not prolong the time for the headers."""
        for byte in b"GET /":
            self.client.send(bytes([byte]))
            self.server.clock.advance(1)
        self.refused(408)

    def test_slow_body(self) -> None:
        """Sending a byte now and then does not prolong the time for the body."""
        self.client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        for _ in range(7):
            self.client.send(b"x")
            self.server.clock.advance(1)
        self.refused(408)

    def test_slow_second_request(self) -> None:
        """Each request of a connection has the same time, from its first byte."""
        self.client.send(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(self.client.responses()[0].code, 200)
        self.server.clock.advance(59)
        self.client.send(b"G")
        self.server.clock.advance(4)
        self.assertFalse(self.client.closed)
        self.server.clock.advance(1)
        self.refused(408)

    def test_slow_pipelined_request(self) -> None:
        """The time also applies to a request that began in the previous request's read."""
        self.client.send(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\nGET /text HTTP/1.1\r\nHo")
        self.assertEqual(self.client.responses()[0].code, 200)
        self.server.clock.advance(5)
        self.refused(408)

    def test_idle(self) -> None:
        """A connection may stay idle between requests, up to a time limit."""
        self.client.send(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\n")
        self.client.received()
        self.server.clock.advance(59)
        self.assertFalse(self.client.closed)
        self.server.clock.advance(1)
        self.assertTrue(self.client.closed)
        self.assertEqual(self.client.received(), b"")

    def test_slow_handler(self) -> None:
        """Handlers have no time limit."""
        self.client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        self.server.clock.advance(3600)
        self.assertFalse(self.client.closed)
        self.client.lose()

    def test_large_body(self) -> None:
        """A body whose Content-Length is too large is refused at once."""
        self.client.send(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n"
        )
        self.refused(413)

    def test_large_chunked_body(self) -> None:
        """A body of unknown length is cut where it becomes too large."""
        self.client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.client.send((b"1f4\r\n" + b"x" * 500 + b"\r\n") * 2)
        self.assertEqual(self.client.received(), b"")
        self.client.send(b"1\r\nx\r\n1\r\nx\r\n0\r\n\r\n")
        self.refused(413)

    def test_largest_body(self) -> None:
        """The limit itself is allowed."""
        answer = self.server.request("POST", "/", b"x" * 1000)
        self.assertEqual(answer.json(), {"body": "x" * 1000})

    def test_long_request_line(self) -> None:
        """A request line without end is refused."""
        self.client.send(b"GET /" + b"x" * (MAX_HEAD_BYTES + 2))
        self.refused(431)

    def test_many_headers(self) -> None:
        """Headers that are too large together are refused."""
        self.client.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
        for index in range(MAX_HEAD_BYTES // 1000 + 1):
            self.client.send(b"X-%d: %s\r\n" % (index, b"x" * 1000))
        self.refused(431)

    def test_large_headers(self) -> None:
        """Headers below the limit pass, though twisted.web's own is lower."""
        headers = [(f"X-{index}", "x" * 1000) for index in range(60)]
        self.assertEqual(self.server.request("GET", "/text", headers=headers).code, 200)

    def test_too_many_headers(self) -> None:
        """The number of headers is limited too."""
        self.client.send(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 501 + b"\r\n")
        self.refused(400)

    def test_malformed(self) -> None:
        """Malformed HTTP gets a Status, not a page."""
        for line in (
            *UNPARSABLE,
            b"GET / HTTP/1.1\r\nX: a\x0bb",
            b"GET / HTTP/1.1\r\nX: a\x1b[31mb\r\nY: z",
            b"GET / HTTP/1.1\r\nX: a\x7fb",
            b"GET / HTTP/1.1\r\nX: a\r\n \x0cb",
            b"GET / HTTP/1.1\r\nX: a\r\n b",
            b"GET / HTTP/1.1\r\nX: a\r\n\tb",
            b"GET / HTTP/1.1\r\n X: a",
            b" GET / HTTP/1.1",
            b"GET /a\x0bb HTTP/1.1",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: identity",
            b"POST / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: identity",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked",
            b"GET / HTTP/1.1\r\nHost: y",
            b"GET / HTTP/1.0\r\nHost: y",
        ):
            with self.subTest(line=line):
                self.client = self.server.connect()
                self.client.send(line + b"\r\nHost: x\r\n\r\n")
                self.client.send(b"\r\n")
                (answer,) = self.client.responses()
                self.assertEqual((answer.code, answer.json()["reason"]), (400, "BadRequest"))

    def test_stock_refusals(self) -> None:
        """If twisted.web answers itself, its answer is the only one, and nothing behind it is read."""
        name = "_respondToBadRequestAndDisconnect"  # without ours, twisted.web's is called
        self.addCleanup(setattr, HTTPChannel, name, getattr(HTTPChannel, name))
        delattr(HTTPChannel, name)
        chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz"
        for line in (*UNPARSABLE, chunked):
            sent = line + b"\r\nHost: x\r\n\r\nGET /text HTTP/1.1\r\nHost: x\r\n\r\n"
            for size in (1, len(sent)):
                with self.subTest(line=line, size=size):
                    client = self.server.connect()
                    for start in range(0, len(sent), size):
                        client.send(sent[start : start + size])
                    self.assertEqual(client.received(), b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    self.assertTrue(client.closed)

    def test_hosts(self) -> None:
        """HTTP/1.1 needs one Host, HTTP/1.0 may have one; it is a host with or without a port."""
        for line, code in (
            (b"GET /text HTTP/1.1\r\n", 400),
            (b"GET /text HTTP/1.0\r\n", 200),
            (b"GET /text HTTP/1.0\r\nHost: a\r\n", 200),
            (b"GET /text HTTP/1.1\r\nHost: a\r\nhost: a\r\n", 400),
            (b"GET /text HTTP/1.1\r\nHost:\r\n", 200),
            (b"GET /text HTTP/1.1\r\nHost: [::1]:6443\r\n", 200),
            (b"GET /text HTTP/1.1\r\nHost: exec_1.example.:80\r\n", 200),
            (b"GET /text HTTP/1.1\r\nHost: a b\r\n", 400),
            (b"GET /text HTTP/1.1\r\nHost: a/b\r\n", 400),
            (b"GET /text HTTP/1.1\r\nHost: u@a\r\n", 400),
        ):
            with self.subTest(line=line):
                client = self.server.connect()
                client.send(line + b"\r\n")
                self.assertEqual([answer.code for answer in client.responses()], [code])

    def test_bare_line_feed(self) -> None:
        """A line that ends without a carriage return is refused at once, wherever it is."""
        for head in (
            b"\n",
            b"GET / HTTP/1.1\n",
            b"GET / HTTP/1.1\nHost: x\n\n",
            b"GET / HTTP/1.1\r\nHost: x\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nX: y\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\n\n",
        ):
            for size in (1, len(head)):
                with self.subTest(head=head, size=size):
                    client = self.server.connect()
                    for start in range(0, len(head), size):
                        client.send(head[start : start + size])
                    self.assertEqual([answer.code for answer in client.responses()], [400])

    def test_line_feeds_of_bodies(self) -> None:
        """Bodies and pipelined requests contain line feeds."""
        request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\na\n\nb"
        for size in (1, 7, len(request) * 3):
            client, sent = self.server.connect(), request * 3
            for start in range(0, len(sent), size):
                client.send(sent[start : start + size])
            self.assertEqual([answer.code for answer in client.responses()], [200] * 3)

    def test_pipelined_behind_chunks(self) -> None:
        """Requests with chunked bodies can be pipelined, wherever the bytes are split."""
        head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        sent = (head + b"2\r\na\n\r\n1;x=y\r\nb\r\n0\r\nX: y\r\n\r\n") * 3
        for size in (1, 7, len(sent)):
            client = self.server.connect()
            for start in range(0, len(sent), size):
                client.send(sent[start : start + size])
            self.assertEqual(
                [answer.json() for answer in client.responses()], [{"body": "a\nb"}] * 3
            )

    def test_unusual_headers(self) -> None:
        """Tabs and bytes beyond ASCII are no control characters."""
        headers = [("X", "a\tb"), ("Y", "\u00fc"), ("Z", "")]
        self.assertEqual(self.server.request("GET", "/text", headers=headers).code, 200)

    def test_malformed_chunk(self) -> None:
        """A malformed chunk is refused."""
        self.client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        self.refused(400)

    def test_many_chunks(self) -> None:
        """A body in thousands of tiny chunks is refused."""
        head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        for chunk, code in ((b"1\r\nx\r\n", 400), (b"10\r\n" + b"x" * 16 + b"\r\n", 200)):
            client = MemoryServer(Echo()).connect()
            client.send(head + chunk * (2 * MAX_CHUNKS) + b"0\r\n\r\n")
            (response,) = client.responses()
            self.assertEqual(response.code, code)

    def test_nothing_after_a_refusal_is_read(self) -> None:
        """A request behind a refused one is not answered."""
        self.client.send(b"nonsense\r\n\r\nGET /text HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual([answer.code for answer in self.client.responses()], [400])

    def test_pipelined_behind_an_unread_answer(self) -> None:
        """A pipelined request waits until the previous response is read."""
        echo = Echo()
        client = MemoryServer(echo).connect()
        client.protocol.pauseProducing()
        client.send(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        self.assertEqual(len(echo.asked), 1)
        client.protocol.resumeProducing()
        self.assertEqual(len(echo.asked), 3)
        self.assertEqual([each.code for each in client.responses()], [200] * 3)

    def test_lost_behind_an_unread_answer(self) -> None:
        """A client that leaves without reading leaves nothing behind."""
        echo = Echo()
        server = MemoryServer(echo)
        client = server.connect()
        client.protocol.pauseProducing()
        client.send(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        client.lose()
        self.assertEqual(len(echo.asked), 1)
        self.assertEqual((len(server.site.connections), len(server.site.unread)), (0, 0))

    def test_flood_behind_an_unread_answer(self) -> None:
        """Input during an unread response is not buffered without limit."""
        client = self.server.connect()
        client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        client.protocol.pauseProducing()
        client.send(b"x" * (64 << 10))
        self.assertEqual(client.transport.producerState, "paused")
        client.lose()

    def test_unread_answer(self) -> None:
        """A client that asks to close and never reads the response is cut."""
        client = self.server.connect()
        client.transport.loseConnection = lambda: None  # a socket whose buffer stays full
        client.send(b"GET /text HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        self.assertFalse(client.transport.disconnecting and client.closed)
        aborted: list[bool] = []
        client.transport.abortConnection = lambda: aborted.append(True)
        self.server.clock.advance(10)
        self.assertEqual(aborted, [True])
