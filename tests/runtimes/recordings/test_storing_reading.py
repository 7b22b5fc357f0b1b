"""
Tests for :mod:`twisted_exec.runtimes.recordings.storing`.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.recordings.storing import TextReader

TEXT = bytes(range(256)) * 4


def pieces() -> Iterator[bytes]:
    for at in range(0, len(TEXT), 100):
        yield b""
        yield TEXT[at : at + 100]


class TextReaderTests(SynchronousTestCase):
    """Tests for :class:`TextReader`."""

    @given(st.lists(st.tuples(st.integers(0, 1100), st.integers(1, 500)), max_size=8))
    def test_any_order(self, reads: list[tuple[int, int]]) -> None:
        """An offset has the same bytes however it is reached."""
        read = TextReader(pieces, Clock())
        for offset, limit in reads:
            found = self.successResultOf(read(offset, limit))
            self.assertEqual(found, TEXT[offset : offset + limit])

    def test_failure(self) -> None:
        """After a failure the text is rendered anew: what was rendered so far is not the whole."""
        problems = [OSError(5, "Input/output error")]

        def failing() -> Iterator[bytes]:
            yield TEXT[:100]
            if problems:
                raise problems.pop()
            yield TEXT[100:]

        read = TextReader(failing, Clock())
        self.failureResultOf(read(0, 2000), OSError)
        self.assertEqual(self.successResultOf(read(0, 2000)), TEXT)
