"""
Tests for :mod:`twisted_exec.console.journal`.
"""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.console.journal import Journal


class JournalTests(SynchronousTestCase):
    """Tests for :class:`Journal`."""

    @given(st.lists(st.binary(min_size=1, max_size=100_000), max_size=8), st.data())
    def test_reads_what_was_written(self, chunks: list[bytes], data: st.DataObject) -> None:
        """From any offset that is kept the same bytes come, however they were split."""
        journal = Journal()
        for chunk in chunks:
            journal.append(chunk)
        whole = b"".join(chunks)
        self.assertEqual((journal.start, journal.end), (0, len(whole)))
        journal.keep_from(data.draw(st.integers(0, len(whole))))
        at = data.draw(st.integers(journal.start, journal.end))
        read = bytearray()
        while more := journal.read(at + len(read), data.draw(st.integers(1, 70_000))):
            read += more
        self.assertEqual(bytes(read), whole[at:])

    def test_keeps_what_is_asked(self) -> None:
        """Forgetting never takes a byte from the given offset on."""
        journal = Journal()
        for _ in range(100):
            journal.append(bytes(10_000))
        journal.keep_from(500_000)
        self.assertLessEqual(journal.start, 500_000)
        self.assertGreater(journal.start, 400_000)
        self.assertEqual(journal.end, 1_000_000)

    def test_outside(self) -> None:
        """Offsets that are gone or yet to come are mistakes of the caller."""
        journal = Journal()
        journal.append(bytes(200_000))
        journal.append(b"x")
        journal.keep_from(200_000)
        for offset in (0, 200_002):
            with self.assertRaises(ValueError):
                journal.read(offset, 1)
        self.assertEqual(journal.read(200_001, 1), b"")

    def test_single_bytes_weigh_little(self) -> None:
        """A line that prints byte by byte costs about its bytes."""
        journal = Journal()
        for _ in range(300_000):
            journal.append(b"x")
        weight = sum(sys.getsizeof(segment) for segment in journal._segments)
        self.assertLess(weight, 450_000)
