"""Tests for :mod:`twisted_exec.streaming.http.site`."""

from __future__ import annotations

import gc
import json
import resource
import time
from email.utils import parsedate_to_datetime
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import NotFound, TooManyRequests
from twisted_exec.streaming.http.site import (
    MAX_CHUNKS,
    MAX_HEAD_BYTES,
    Dispatcher,
    Request,
    respond_json,
    respond_text,
)
from twisted_exec.testing.http import MemoryServer


class Echo(Dispatcher):
    """Returns the request."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Deferred[None]] = []
        self.asked: list[bytes] = []

    async def dispatch(self, request: Request) -> None:
        self.asked.append(request.path)
        if request.path == b"/refused":
            try:
                await fail(NotFound("machines", "y"))
            except NotFound as error:
                raise NotFound("machines", error.message) from None
        if request.path == b"/missing":
            raise NotFound("machines", "x")
        if request.path == b"/full":
            raise TooManyRequests("come back", 7)
        if request.path == b"/bug":
            raise ZeroDivisionError("the secret of the universe")
        if request.path == b"/slow":
            self.waiting.append(Deferred())
            await self.waiting[-1]
        if request.path == b"/begun":
            request.write(b"half")
            raise NotFound("machines", "x")
        if request.path == b"/text":
            respond_text(request, 200, "ok")
            return
        respond_json(request, 200, {"body": request.content.read().decode()})


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
        left = [each for each in gc.get_objects() if isinstance(each, Request)]
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
    """Limits on clients."""

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
            b"nonsense",
            b"GET / HTTP/1.1\r\nno colon",
            b"GET / HTTP/1.1\r\nContent-Length: -1",
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
            b"GET / HTTP/2.0",
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

    def test_wind_down(self) -> None:
        """A site that winds down answers one more request on each connection, unless it resumes."""
        echo = Echo()
        server = MemoryServer(echo)
        idle, busy, unused = (server.connect() for _ in range(3))
        busy.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        server.site.wind_down()
        self.assertEqual(server.site.requests(), 1)
        echo.waiting[0].callback(None)
        self.assertFalse(busy.closed)
        for each in (idle, busy):
            each.send(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertEqual(each.responses()[-1].headers["connection"], "close")
            self.assertTrue(each.closed)
        server.site.resume()
        unused.send(b"GET /text HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertNotIn("connection", unused.responses()[0].headers)
        self.assertFalse(unused.closed)
        self.assertEqual(server.site.requests(), 0)

    def test_no_http2(self) -> None:
        """HTTP/2 has no upgrade, so it is not offered."""
        self.assertEqual(self.server.site.acceptableProtocols(), [b"http/1.1"])


class SubjectTests(SynchronousTestCase):
    """The subject of a request."""

    def test_session_ids(self) -> None:
        """Every request has an id of its own."""

        class Tell(Dispatcher):
            async def dispatch(self, request: Request) -> None:
                respond_json(request, 200, request.subject.session)

        server = MemoryServer(Tell())
        told = {json.loads(server.request("GET", "/").body) for _ in range(3)}
        self.assertEqual(len(told), 3)
