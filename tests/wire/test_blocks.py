"""Tests for :mod:`twisted_exec.wire.blocks`."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.blocks import LONGEST, BlockReader, Mark, behind, head
from twisted_exec.wire.errors import RemoteProtocolError

END, READY = Mark.END.value, Mark.READY.value

HOSTILE = (
    END,
    READY,
    END + b"GET /exec HTTP/1.1\r\n\r\n",
    b"\0",
    b"\0\0",
    b"\xff" * 7,
    head(5) + b"hello",
    head(1),
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
)
"""Bytes of a session that look like the frames around it."""


def blocks(*pieces: bytes) -> bytes:
    """Encode the blocks of one session, without a mark."""
    return b"".join(head(len(each)) + each for each in pieces)


class BlockTests(SynchronousTestCase):
    """The bytes of one session, however they are divided."""

    def read(self, *received: bytes) -> tuple[bytes, Mark | None]:
        """Read what arrives in these pieces."""
        reader = BlockReader()
        return b"".join(map(reader.read, received)), reader.mark

    def test_one_read(self) -> None:
        """A block that arrives alone is the session's bytes."""
        self.assertEqual(self.read(blocks(b"hello")), (b"hello", None))

    def test_lengths(self) -> None:
        """The length is three bytes, the most significant first."""
        self.assertEqual(
            (head(1), head(0x010203), head(LONGEST)), (b"\0\0\1", b"\1\2\3", b"\xff\xff\xfd")
        )

    def test_every_division(self) -> None:
        """Bytes that look like frames, and the mark, are the same wherever reads are cut."""
        for mark in (Mark.END, Mark.READY):
            for payload in HOSTILE:
                sent = blocks(b"a", payload, b"b") + mark.value
                for first in range(len(sent) + 1):
                    for second in range(first, len(sent) + 1):
                        pieces = sent[:first], sent[first:second], sent[second:]
                        self.assertEqual(self.read(*pieces), (b"a" + payload + b"b", mark))

    def test_plain(self) -> None:
        """Behind the mark that no block follows, bytes are the session's whatever they look like."""
        for payload in HOSTILE:
            sent = blocks(b"a") + Mark.PLAIN.value + payload
            for first in range(len(sent) + 1):
                for second in range(first, len(sent) + 1):
                    pieces = sent[:first], sent[first:second], sent[second:]
                    self.assertEqual(self.read(*pieces), (b"a" + payload, None))

    def test_at_random(self) -> None:
        """Many blocks in many reads are the bytes in their order."""
        chance = random.Random(67)
        for _ in range(200):
            written = [chance.choice(HOSTILE) * chance.randrange(1, 90) for _ in range(20)]
            sent, received = blocks(*written) + END, []
            while sent:
                size = chance.choice((1, 2, 3, 4, 5, 64, 1000, 5000))
                received.append(sent[:size])
                sent = sent[size:]
            self.assertEqual(self.read(*received), (b"".join(written), Mark.END))

    def test_longest(self) -> None:
        """The longest block is none of the marks."""
        payload = bytes(LONGEST)
        self.assertEqual(self.read(blocks(payload)), (payload, None))
        self.assertEqual(self.read(blocks(payload)[:-1], b"\0" + END), (payload, Mark.END))

    def test_behind(self) -> None:
        """Records of one block are read together; one in which several begin is the last."""
        for expected, record, result in (
            (0, head(100) + bytes(100), 0),
            (0, head(100) + bytes(30), 70),
            (70, bytes(70), 0),
            (70, bytes(30), 40),
            (70, bytes(70) + head(5), 5),
            (70, bytes(70) + head(5) + bytes(5), 0),
            (70, bytes(70) + head(5) + bytes(5) + b"\0", -1),
            (70, bytes(70) + head(1) + b"x" + head(1) + b"x", -1),
            (70, bytes(70) + b"\0\0", -1),
            (0, END, 0),
            (-1, bytes(5), -1),
        ):
            self.assertEqual(behind(expected, record), result)
        reader = BlockReader()
        self.assertEqual(reader.expected, 0)
        reader.read(head(9) + b"x")
        self.assertEqual(reader.expected, 8)
        reader.read(bytes(8) + b"\0")
        self.assertEqual(reader.expected, -1)

    def test_no_copy(self) -> None:
        """A read within a block is passed on as it is."""
        data = bytes(1000)
        reader = BlockReader()
        reader.read(head(2000))
        self.assertIs(reader.read(data), data)

    def test_incomplete(self) -> None:
        """A part of a length, or of a block, is no mark."""
        for part in (b"", b"\0", b"\0\0", b"\xff\xff", head(2), head(2) + b"\0"):
            self.assertIsNone(self.read(part)[1])

    def test_behind_a_mark(self) -> None:
        """One byte behind a mark is an error, in the same read or later."""
        for mark in (Mark.END, Mark.READY):
            for sent in (mark.value, blocks(b"last") + mark.value):
                for more in (
                    b"\0",
                    b"\xff",
                    END,
                    READY + b"\0",
                    b"GET / HTTP/1.1\r\n\r\n",
                    bytes(100),
                ):
                    whole = sent + more
                    for first in range(len(whole)):
                        with self.assertRaises(RemoteProtocolError):
                            self.read(whole[:first], whole[first:])

    def test_ready_behind_the_end(self) -> None:
        """A server that has ended and then got the client's mark is ready: both may arrive at once."""
        for sent in (b"", blocks(b"last")):
            payload = sent[3:]
            self.assertEqual(self.read(sent + END + READY), (payload, Mark.READY))
            self.assertEqual(self.read(sent, END + READY), (payload, Mark.READY))
        for first, second in ((END, READY), (END + READY[:1], READY[1:]), (READY, READY)):
            with self.assertRaises(RemoteProtocolError):
                self.read(first, second)
