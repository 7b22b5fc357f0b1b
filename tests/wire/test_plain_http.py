"""
Tests for :mod:`twisted_exec.wire.plain_http`; ``fuzz.targets`` compares it with h11.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire import plain_http

HOST = (b"Host", b"server")


class RequestTests(SynchronousTestCase):
    """Requests."""

    def test_encoded(self) -> None:
        """Names keep their spelling, headers their order; a body gets its length."""
        headers = [HOST, (b"X-User", b"a b"), (b"X-User", b""), (b"x-last", b"1")]
        head = b"POST /p?q HTTP/1.1\r\nHost: server\r\nX-User: a b\r\nX-User: \r\nx-last: 1\r\n"
        self.assertEqual(plain_http.request(b"POST", b"/p?q", headers), head + b"\r\n")
        self.assertEqual(
            plain_http.request(b"POST", b"/p?q", headers, b"{}"),
            head + b"Content-Length: 2\r\n\r\n{}",
        )

    def test_other_requests(self) -> None:
        """Another method, and a target that could end the line, are left to h11."""
        for method, target in (
            (b"CONNECT", b"/"),
            (b"HEAD", b"/"),
            (b"get", b"/"),
            (b"GET", b""),
            (b"GET", b"/a b"),
            (b"GET", b"/\r\nX: y"),
            (b"GET", b"/\xc3\xa4"),
        ):
            self.assertIsNone(plain_http.request(method, target, [HOST]), (method, target))

    def test_other_headers(self) -> None:
        """Headers that are malformed, end a line or change the body are left to h11."""
        for name, value in (
            (b"", b"x"),
            (b"X ", b"x"),
            (b"X: Y", b"x"),
            (b"X\r\nY", b"x"),
            (b"X", b"x\r\nY: z"),
            (b"X", b"x\ny"),
            (b"X", b"x\ry"),
            (b"X", b"x\n"),
            (b"X", b"x\0"),
            (b"X", b"x\ty"),
            (b"X", b" x"),
            (b"X", b"x "),
            (b"X", b"\xe4"),
            (b"host", b"other"),
            (b"Content-Length", b"3"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Expect", b"100-continue"),
        ):
            found = plain_http.request(b"GET", b"/", [HOST, (name, value)])
            self.assertIsNone(found, (name, value))
        self.assertIsNone(plain_http.request(b"GET", b"/", []))


class AnswerTests(SynchronousTestCase):
    """Heads of answers."""

    def test_switch(self) -> None:
        """A 101 has the headers as sent, and what follows belongs to the new protocol."""
        found = plain_http.answer(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUPGRADE:websocket\r\n\r\n\x81\r\n\r\n"
        )
        assert found is not None
        self.assertEqual(found.code, 101)
        self.assertEqual(found.headers, [(b"Connection", b"Upgrade"), (b"UPGRADE", b"websocket")])
        self.assertEqual(found.rest, b"\x81\r\n\r\n")

    def test_length(self) -> None:
        """An answer with a body has its length."""
        found = plain_http.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\r\n\r\n{")
        assert found is not None
        self.assertEqual((found.code, found.length, found.rest), (200, 2, b"{"))
        self.assertFalse(found.closes)

    def test_closes(self) -> None:
        """An answer may close the connection."""
        found = plain_http.answer(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        assert found is not None
        self.assertEqual((found.closes, found.length), (True, None))

    def test_other_answers(self) -> None:
        """Everything else is left to h11, also what is incomplete."""
        for data in (
            b"",
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n",
            b"HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\n\n\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n more\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\nX: y\r\n\r\n".replace(
                b"\r\n\r\n", b"\n\n", 1
            ),
            b"HTTP/1.0 101 Switching Protocols\r\n\r\n",
            b"HTTP/1.1 101\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\n\r\n",
            b"HTTP/1.1 304 Not Modified\r\n\r\n",
            b"HTTP/1.1 600 X\r\n\r\n",
            b"\r\nHTTP/1.1 200 OK\r\n\r\n",
            *(
                b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % lines
                for lines in (
                    b"X : y",
                    b": y",
                    b"X",
                    b"X: y ",
                    b"X:\ty",
                    b"X: \x01",
                    b"X: \xe4",
                    b"X: y\rZ: z",
                    b"X: y\nZ: z",
                    b"Content-Length: 2\r\nContent-Length: 2",
                    b"Content-Length: +2",
                    b"Content-Length: 2, 2",
                    b"Content-Length: 2222222222",
                    b"Transfer-Encoding: chunked",
                )
            ),
            b"HTTP/1.1 101 X\r\nUpgrade: a\r\nupgrade: b\r\n\r\n",
            b"HTTP/1.1 101 X\r\nContent-Length: 0\r\n\r\n",
        ):
            self.assertIsNone(plain_http.answer(data), data)

    def test_limits(self) -> None:
        """A head with many headers or bytes is left to h11."""
        for count, size in ((plain_http.MAX_HEADERS + 1, 1), (1, plain_http.MAX_BYTES)):
            head = b"HTTP/1.1 101 X\r\n" + b"X: %s\r\n" % (b"y" * size) * count + b"\r\n"
            self.assertIsNone(plain_http.answer(head))
        head = b"HTTP/1.1 101 X\r\n" + b"X: y\r\n" * plain_http.MAX_HEADERS + b"\r\n"
        self.assertIsNotNone(plain_http.answer(head))
