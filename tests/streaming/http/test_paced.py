"""
Tests for :mod:`twisted_exec.streaming.http.paced`.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.turns import SHARED_TURN_SECONDS
from twisted_exec.streaming.http.paced import LONGEST_SECONDS, STALLED_SECONDS, respond_pieces
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.testing.network import MemoryClient, MemoryServer

PIECE = b"x" * (64 << 10)


class _Pieces(Dispatcher):
    """Answers with a JSON string of so many pieces."""

    count = 100
    made = 0
    ended = 0
    broken = False
    piece = PIECE
    gzip = False
    clock: Clock
    seconds = 0.0
    """How long a piece takes to make."""

    async def dispatch(self, request: Request) -> None:
        try:
            await respond_pieces(request, 200, self.pieces(), gzip=self.gzip)
        finally:
            self.ended += 1

    def pieces(self) -> Iterator[bytes]:
        for number in range(self.count):
            self.made += 1
            if self.broken and number == 2:
                raise ZeroDivisionError
            self.clock.rightNow += self.seconds
            yield (b'"' if not number else b"") + self.piece + (b'"' * (number == self.count - 1))


class PacedTests(SynchronousTestCase):
    """Tests for :func:`respond_pieces`."""

    def setUp(self) -> None:
        self.clock, self.resource = Clock(), _Pieces()
        self.resource.clock = self.clock
        self.server = MemoryServer(self.resource, self.clock)

    def ask(self) -> MemoryClient:
        client = self.server.connect()
        client.send(b"GET / HTTP/1.1\r\nHost: server\r\n\r\n")
        return client

    def turn(self) -> None:
        """The reactor's next turn."""
        self.clock.advance(0)

    def left_over(self) -> int:
        """Timers and counted bytes that remain after the response."""
        return len(self.server.site.unread) + len(self.clock.getDelayedCalls())

    def test_one_piece(self) -> None:
        """One piece is an answer like any other, of a known length."""
        self.resource.count = 1
        (response,) = self.ask().responses()
        self.assertEqual(len(response.json()), len(PIECE))
        self.assertEqual(response.headers["content-length"], str(len(PIECE) + 2))

    def test_many(self) -> None:
        """Many pieces are one document, and the connection serves another request."""
        client = self.ask()
        self.turn()
        (response,) = client.responses()
        self.assertEqual(response.headers["content-type"], "application/json")
        self.assertEqual(len(json.loads(response.body)), 100 * len(PIECE))
        self.resource.count = 1
        client.send(b"GET / HTTP/1.1\r\nHost: server\r\n\r\n")
        self.assertEqual(len(client.responses()), 1)
        client.lose()
        self.assertEqual(self.left_over(), 0)

    def test_others_have_their_turn(self) -> None:
        """A response to a fast reader is spread over several turns of the reactor."""
        client = self.ask()
        first = len(client.received())
        self.assertLess(first, 1 << 20)
        self.assertLess(self.resource.made, 20)
        self.turn()
        self.assertEqual(self.resource.made, 100)
        client.lose()

    def test_small_pieces(self) -> None:
        """A turn has a few pieces, however small, because each takes time to make."""
        self.resource.piece = b"x"
        client = self.ask()
        self.assertLess(self.resource.made, 10)
        for _ in range(30):
            self.turn()
        self.assertEqual(self.resource.made, 100)
        client.lose()

    def test_slow_pieces(self) -> None:
        """Pieces that take long to make have a turn of the reactor each, those of all responses together."""
        for is_gzip in (False, True):
            self.resource.gzip, self.resource.seconds = is_gzip, 2 * SHARED_TURN_SECONDS
            self.resource.count, self.resource.made = 10, 0
            clients = [self.server.connect() for _ in range(3)]
            for client in clients:
                client.send(b"GET / HTTP/1.1\r\nHost: server\r\n\r\n")
            self.assertEqual(self.resource.made, 3)
            made = []
            while calls := [each for each in self.clock.calls if each.time <= self.clock.rightNow]:
                before = self.resource.made
                self.clock.calls.remove(calls[0])
                calls[0].called = 1
                calls[0].func(*calls[0].args, **calls[0].kw)
                made.append(self.resource.made - before)
            self.assertEqual((max(made), self.resource.made), (1, 30))
            for client in clients:
                self.assertEqual(len(client.responses()), 1)
                client.lose()

    def compressed(self) -> MemoryClient:
        """A client whose response is compressed."""
        self.resource.gzip = True
        client = self.ask()
        self.turn()
        return client

    def test_compressed(self) -> None:
        """A long response is compressed piece by piece, and says so."""
        (response,) = self.compressed().responses()
        self.assertEqual(response.headers["content-encoding"], "gzip")
        self.assertEqual(response.headers["vary"], "Accept-Encoding")
        self.assertNotIn("content-length", response.headers)
        self.assertLess(len(response.body), len(PIECE))
        self.assertEqual(len(json.loads(gzip.decompress(response.body))), 100 * len(PIECE))

    def test_compressed_from(self) -> None:
        """A response of less than 128 KiB is not compressed, one of 128 KiB is."""
        for count, coding in ((1, None), (127, None), (128, "gzip")):
            self.resource.count, self.resource.piece = count, b"x" * 1024
            (response,) = self.compressed().responses()
            self.assertEqual(response.headers.get("content-encoding"), coding, count)

    def test_compressed_in_turns(self) -> None:
        """A large piece is compressed in slices, of which a turn has a few."""
        self.resource.count, self.resource.gzip = 1, True
        self.resource.piece = os.urandom(4 << 20).hex().encode()
        client = self.ask()
        first = len(client.received())
        self.assertTrue(0 < first < 512 << 10, first)
        self.turn()
        self.assertGreater(len(client.received()), 3 << 20)

    def test_compressed_for_a_stopped_reader(self) -> None:
        """The memory of a compressor counts while its client does not read."""
        self.resource.gzip = True
        client = self.ask()
        client.protocol.pauseProducing()
        self.assertGreaterEqual(len(self.server.site.unread), 256 << 10)
        client.lose()
        self.assertEqual(self.left_over(), 0)

    def test_left_while_it_began(self) -> None:
        """A client may leave before it is known whether its response is compressed."""
        self.resource.gzip, self.resource.piece = True, b"x"
        client = self.ask()
        client.lose()
        self.assertEqual((self.resource.ended, self.left_over()), (1, 0))

    def test_stopped_reader(self) -> None:
        """For a client that does not read no pieces are made until it reads again."""
        client = self.ask()
        client.protocol.pauseProducing()
        made = self.resource.made
        for _ in range(5):
            self.turn()
        self.assertEqual(self.resource.made, made)
        self.assertLessEqual(len(self.server.site.unread), 2 * len(PIECE))
        client.protocol.resumeProducing()
        self.assertGreater(self.resource.made, made)
        client.lose()
        self.assertEqual(self.left_over(), 0)

    def test_cut(self) -> None:
        """A client that stops reading for long is cut, without the end of the response."""
        client = self.ask()
        client.protocol.pauseProducing()
        self.clock.advance(STALLED_SECONDS - 1)
        self.assertFalse(client.closed)
        self.clock.advance(1)
        self.assertTrue(client.aborted)
        self.assertNotIn(b"\r\n0\r\n\r\n", client.received())
        self.assertEqual((self.resource.ended, self.left_over()), (1, 0))

    def test_too_slow(self) -> None:
        """A client that takes a little now and then is cut when it takes too long in all."""
        self.resource.count = 1000
        client = self.ask()
        for _ in range(int(LONGEST_SECONDS / 20)):
            client.protocol.pauseProducing()
            self.clock.advance(20)
            if not client.closed:
                client.protocol.resumeProducing()
        self.assertTrue(client.aborted)
        self.assertEqual((self.resource.ended, self.left_over()), (1, 0))

    def test_gives_place(self) -> None:
        """Beyond the limit, a connection that does not read its response is closed first."""
        self.server = MemoryServer(self.resource, self.clock, max_connections=2)
        stopped = self.ask()
        stopped.protocol.pauseProducing()
        reading = self.ask()
        self.resource.count = 1
        self.assertEqual(len(self.ask().responses()), 1)
        self.assertEqual((stopped.aborted, reading.aborted), (True, False))
        reading.lose()

    def test_breaks(self) -> None:
        """An answer that cannot be made to its end is cut, not ended."""
        self.resource.broken = True
        client = self.ask()
        self.assertTrue(client.aborted)
        self.assertNotIn(b"\r\n0\r\n\r\n", client.received())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.left_over(), 0)

    def test_leaves(self) -> None:
        """A client that leaves in the middle ends the answer."""
        for stopped in (False, True):
            client = self.ask()
            if stopped:
                client.protocol.pauseProducing()
            client.lose()
            self.turn()
            self.assertEqual(self.left_over(), 0)
        self.assertEqual(self.resource.ended, 2)
