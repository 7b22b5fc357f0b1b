"""Tests for :mod:`twisted_exec.streaming.text.download`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.streaming.http.test_upgrade_client import OneConnection
from twisted_exec.api.status import APIError, BadGateway, GatewayTimeout
from twisted_exec.streaming.http.upgrade_client import (
    MAX_ERROR_BYTES,
    UpgradeRefused,
    UpgradeRequest,
    ask,
    connect_first,
)
from twisted_exec.streaming.text.download import ANY_DOWNLOADS, DOWNLOADS, Download

HEAD = UpgradeRequest(b"GET", b"/log/T?follow=true", b"server:1", [(b"X-Remote-User", b"ann")])
TEXT = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = TEXT + b"Transfer-Encoding: chunked\r\n\r\n"

PIECES = st.lists(st.binary(min_size=1, max_size=30), max_size=8)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Taker:
    """Takes a body; keeps it."""

    def __init__(self) -> None:
        self.got = b""
        self.ended: list[bool] = []

    def data(self, data: bytes) -> None:
        assert data, "a piece of nothing"
        self.got += data


class FetchCase(SynchronousTestCase):
    """A request that was sent to an endpoint in memory."""

    factory = DOWNLOADS

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint: Any = self.place()
        self.fetching = Deferred.fromCoroutine(self.fetch())
        self.taker = Taker()

    def place(self) -> Any:
        """The request's target."""
        return OneConnection()

    async def fetch(self) -> Download:
        _, connection = await connect_first(
            [("there", self.endpoint)], clock=self.clock, timeout_seconds=5, factory=self.factory
        )
        download: Download = await ask(connection, HEAD, clock=self.clock, timeout_seconds=10)
        return download

    def answer(self, data: bytes) -> None:
        self.endpoint.protocol.dataReceived(data)

    def lose(self, reason: Exception | None = None) -> None:
        self.endpoint.protocol.connectionLost(Failure(reason or ConnectionDone()))

    @property
    def transport(self) -> Any:
        return self.endpoint.transport

    def timed(self) -> list[Any]:
        """Pending timed calls."""
        return list(self.clock.getDelayedCalls())

    def deliver(self) -> Download:
        download = self.successResultOf(self.fetching)
        download.deliver(self.taker.data, self.taker.ended.append)
        return download


class BodyTests(FetchCase):
    """A body that comes."""

    def test_request(self) -> None:
        """The request is a plain GET with the given headers."""
        self.assertEqual(
            self.transport.value(),
            b"GET /log/T?follow=true HTTP/1.1\r\nHost: server:1\r\nX-Remote-User: ann\r\n\r\n",
        )

    @given(PIECES, st.data())
    def test_any_split(self, pieces: list[bytes], data: st.DataObject) -> None:
        """However the body is chunked and split, the same bytes arrive, and then the end."""
        self.check_split(pieces, data)

    def check_split(self, pieces: list[bytes], data: st.DataObject) -> None:
        self.setUp()
        raw = CHUNKED + b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
        taken = False
        while raw:
            at = data.draw(st.integers(1, len(raw)))
            self.answer(raw[:at])
            raw = raw[at:]
            if not taken and self.fetching.called and data.draw(st.booleans()):
                self.deliver()
                taken = True
        if not taken:
            self.deliver()
        self.assertEqual((self.taker.got, self.taker.ended), (b"".join(pieces), [True]))
        self.assertTrue(self.transport.aborted)

    def test_as_it_comes(self) -> None:
        """A piece is delivered as soon as it arrives."""
        self.answer(CHUNKED)
        self.deliver()
        self.answer(chunk(b"one"))
        self.assertEqual((self.taker.got, self.taker.ended), (b"one", []))

    def test_length(self) -> None:
        """A body ends at its Content-Length."""
        self.answer(TEXT + b"Content-Length: 3\r\n\r\nabcdef")
        self.deliver()
        self.assertEqual((self.taker.got, self.taker.ended), (b"abc", [True]))

    def test_waits(self) -> None:
        """Nothing is read until the body is taken; early bytes are kept."""
        self.answer(CHUNKED + chunk(b"one"))
        self.assertEqual(self.transport.producerState, "paused")
        self.answer(chunk(b"two"))
        self.deliver()
        self.assertEqual(self.taker.got, b"onetwo")
        self.assertEqual(self.transport.producerState, "producing")

    def test_lost_while_waiting(self) -> None:
        """Early bytes and the loss of the connection are kept until the body is taken."""
        self.answer(CHUNKED + chunk(b"one"))
        self.lose()
        self.deliver()
        self.assertEqual((self.taker.got, self.taker.ended), (b"one", [False]))

    def test_pause(self) -> None:
        """The receiver sets the pace, from the first piece on."""
        self.answer(CHUNKED + chunk(b"one") + chunk(b"two"))
        download = self.successResultOf(self.fetching)

        def enough(data: bytes) -> None:
            self.taker.data(data)
            download.pause()

        download.deliver(enough, self.taker.ended.append)
        self.assertEqual(self.transport.producerState, "paused")
        download.resume()
        self.assertEqual(self.transport.producerState, "producing")

    def test_incomplete(self) -> None:
        """A connection that is lost before the end, or goes on with nonsense, is no end."""
        for data in (b"", b"9\r\nabc", b"zz\r\n", b"\r\n"):
            self.setUp()
            self.answer(CHUNKED)
            self.deliver()
            if data:
                self.answer(data)
            self.lose(ConnectionLost())
            self.assertEqual(self.taker.ended, [False], data)

    def test_abort(self) -> None:
        """After ``abort`` nothing is delivered."""
        self.answer(CHUNKED)
        download = self.deliver()
        download.abort()
        download.abort()
        download.resume()
        self.answer(chunk(b"more"))
        self.lose()
        self.assertEqual((self.taker.got, self.taker.ended), (b"", []))
        self.assertTrue(self.transport.aborted)


class AnyTypeTests(FetchCase):
    """Texts from servers with guessed content types, such as kubelets."""

    factory = ANY_DOWNLOADS

    def test_guessed(self) -> None:
        """A guessed content type such as application/octet-stream is accepted."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
        self.answer(head + b"Content-Length: 2\r\n\r\nhi")
        self.deliver()
        self.assertEqual((self.taker.got, self.taker.ended), (b"hi", [True]))

    def test_refused(self) -> None:
        """A response other than 200 is a refusal."""
        self.answer(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")
        refused = self.failureResultOf(self.fetching, UpgradeRefused).value
        self.assertEqual((refused.code, refused.body), (404, b"no"))


class RefusalTests(FetchCase):
    """Responses other than the text."""

    def refusal(self) -> UpgradeRefused:
        refused: UpgradeRefused = self.failureResultOf(self.fetching, UpgradeRefused).value
        self.assertTrue(self.transport.aborted)
        self.assertEqual(self.timed(), [])
        return refused

    def test_codes(self) -> None:
        """Redirects are not followed, another type is no log, a Status is one."""
        for head in (
            b"HTTP/1.1 302 Found\r\nLocation: https://elsewhere/\r\nContent-Type: text/plain\r\n",
            b"HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\n",
            b"HTTP/1.1 206 Partial\r\nContent-Type: text/plain\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Type: text/html\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 404 X\r\n",
        ):
            self.setUp()
            self.answer(head + b"Content-Length: 0\r\n\r\n")
            self.assertEqual(self.refusal().code, int(head.split()[1]), head)

    def test_large(self) -> None:
        """The body of a refusal is read up to a limit."""
        self.answer(b"HTTP/1.1 500 X\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 200_000)
        self.assertEqual(len(self.refusal().body), MAX_ERROR_BYTES)

    def broken(self, kind: type[APIError]) -> str:
        error: APIError = self.failureResultOf(self.fetching, kind).value
        return error.message

    def test_no_answer(self) -> None:
        """A late, missing or malformed response is an error."""
        self.clock.advance(10)
        self.assertEqual(self.broken(GatewayTimeout), "no answer to the request within 10 s")
        self.setUp()
        self.lose()
        self.assertIn("before the request was answered", self.broken(BadGateway))
        self.setUp()
        self.answer(b"SSH-2.0-OpenSSH\r\n\r\n")
        self.assertIn("is not HTTP", self.broken(BadGateway))
        self.setUp()
        self.answer(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        self.assertTrue(self.broken(BadGateway))

    def test_endless_head(self) -> None:
        """A head that does not end is not collected."""
        self.answer(TEXT + b"X: " + b"x" * 100_000)
        self.assertIn("is not HTTP", self.broken(BadGateway))
