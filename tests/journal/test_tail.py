"""
Tests for :mod:`twisted_exec.journal.tail`.
"""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.retained import instances
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

    def test_no_runs(self) -> None:
        """Without output there is none of any time."""
        self.assertEqual(list(Tail(9).runs(0)), [])

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
        sizes = map(sys.getsizeof, instances(tail, object))
        self.assertLess(sum(sizes), 450_000)
