"""
Tests for :mod:`twisted_exec.journal.tail`.
"""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.journal.tail import Tail


class TailTests(SynchronousTestCase):
    """Tests for :class:`Tail`."""

    @given(st.lists(st.binary(min_size=1, max_size=100_000), max_size=8), st.data())
    def test_reads_what_was_written(self, chunks: list[bytes], data: st.DataObject) -> None:
        """From any offset that is kept the same bytes come, however they were split."""
        tail = Tail()
        for chunk in chunks:
            tail.append(chunk, 0)
        whole = b"".join(chunks)
        self.assertEqual((tail.start, tail.end), (0, len(whole)))
        tail.discard_before(data.draw(st.integers(0, len(whole))))
        at = data.draw(st.integers(tail.start, tail.end))
        read = bytearray()
        while more := tail.read(at + len(read), data.draw(st.integers(1, 70_000))):
            read += more
        self.assertEqual(bytes(read), whole[at:])

    def test_keeps_what_is_asked(self) -> None:
        """Forgetting never takes a byte from the given offset on."""
        tail = Tail()
        for _ in range(100):
            tail.append(bytes(10_000), 0)
        tail.discard_before(500_000)
        self.assertLessEqual(tail.start, 500_000)
        self.assertGreater(tail.start, 400_000)
        self.assertEqual(tail.end, 1_000_000)

    def test_outside(self) -> None:
        """Offsets that are gone or yet to come are mistakes of the caller."""
        tail = Tail()
        tail.append(bytes(200_000), 0)
        tail.append(b"x", 0)
        tail.discard_before(200_000)
        for offset in (0, 200_002):
            with self.assertRaises(ValueError):
                tail.read(offset, 1)
        self.assertEqual(tail.read(200_001, 1), b"")

    def test_single_bytes_weigh_little(self) -> None:
        """A line that prints byte by byte costs about its bytes."""
        tail = Tail()
        for _ in range(300_000):
            tail.append(b"x", 0)
        weight = sum(sys.getsizeof(segment) for segment in tail._segments)
        self.assertLess(weight, 450_000)


class LineTests(SynchronousTestCase):
    """Starts of lines."""

    @given(
        st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"bc\n", b"x" * 40_000]), max_size=30),
        st.integers(0, 12),
        st.integers(0, 10**6),
    )
    def test_last_lines(self, chunks: list[bytes], count: int, at: int) -> None:
        """Lines are counted as by ``tail``: text after the last newline is a line."""
        tail = Tail()
        for chunk in chunks:
            tail.append(chunk, 0)
        whole = b"".join(chunks)
        lines = whole.split(b"\n")
        ended = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        last = b"".join(ended[len(ended) - count :] if count < len(ended) else ended)
        self.assertEqual(whole[tail.last_lines(count) :], last if count else b"")
        at %= len(whole) + 1
        self.assertEqual(tail.line_start(at), whole.rfind(b"\n", 0, at) + 1)

    def test_many_lines(self) -> None:
        """A huge number of lines is found without a step for each."""
        tail = Tail()
        for _ in range(20):
            tail.append(b"\n" * 60_000, 0)
        self.assertEqual(tail.last_lines(1_100_000), 100_000)
        self.assertEqual(tail.last_lines(10**15), 0)

    def test_not_kept(self) -> None:
        """Lines whose beginning is gone begin where the tail does."""
        tail = Tail()
        tail.append(b"x" * 60_000, 0)
        tail.append(b"y" * 60_000, 0)
        tail.discard_before(60_000)
        self.assertEqual(tail.last_lines(5), 60_000)
        self.assertEqual(tail.line_start(70_000), 60_000)


MILLISECOND = 1_000_000
SECOND = 1000 * MILLISECOND


class TimeTests(SynchronousTestCase):
    """Times of output."""

    def setUp(self) -> None:
        self.tail = Tail()

    def at(self, moment: int, data: bytes) -> None:
        self.tail.append(data, moment)

    def since(self, moment: int) -> int:
        return self.tail.printed_since(moment)

    def test_lines(self) -> None:
        """Each line has the time of its first byte; simultaneous lines share a mark."""
        self.at(1 * SECOND, b"one\r\ntwo\r\n")
        self.at(2 * SECOND, b"th")
        self.at(5 * SECOND, b"ree\r\nfour\r\n")
        self.at(5 * SECOND + 5 * MILLISECOND, b"five\r\n")
        times = [self.tail.time_at(offset) // SECOND for offset in (0, 5, 10, 17, 23)]
        self.assertEqual(times, [1, 1, 2, 5, 5])

    def test_since(self) -> None:
        """A line counts as printed while any of it was."""
        self.at(10 * SECOND, b"one\r\n")
        self.at(20 * SECOND, b"login: ")
        self.assertEqual(self.since(0), 0)
        self.assertEqual(self.since(10 * SECOND), 0)
        self.assertEqual(self.since(15 * SECOND), 5)
        self.assertEqual(self.since(21 * SECOND), 12)
        self.at(30 * SECOND, b"root\r\n")
        self.assertEqual(self.since(25 * SECOND), 5)
        self.assertEqual(self.since(31 * SECOND), 18)

    def test_within_a_mark(self) -> None:
        """Output slightly later than its mark is found."""
        self.at(10 * SECOND, b"working")
        self.at(10 * SECOND + 500 * MILLISECOND, b".")
        self.assertEqual(self.since(10 * SECOND + 300 * MILLISECOND), 0)
        self.assertEqual(self.since(11 * SECOND), 8)

    def test_nothing(self) -> None:
        """Of an empty tail nothing was printed at any time."""
        self.assertEqual((self.since(0), self.tail.time_at(0)), (0, 0))

    def test_bounded(self) -> None:
        """However a line prints, times weigh less than the bytes, and still tell old from new."""
        for index in range(200_000):
            self.at(index * SECOND, b"\n")
            self.tail.discard_before(self.tail.end - (256 << 10))
        marks = self.tail._marks
        self.assertLessEqual(len(marks._times), 8192)
        for index in (0, 100_000, 199_999):
            off = index - self.tail.time_at(index) // SECOND
            self.assertGreaterEqual(off, 0)
            self.assertLess(off, 200)

    def test_forgets(self) -> None:
        """Times of bytes that are gone go with them; the oldest byte keeps its own."""
        for index in range(100):
            self.at(index * SECOND, b"x" * 9_999 + b"\n")
        self.tail.discard_before(500_000)
        start = self.tail.start
        self.assertEqual(self.tail.time_at(start) // SECOND, start // 10_000)
        self.assertLess(len(self.tail._marks._times), 60)
        self.assertEqual(self.since(0), start)
