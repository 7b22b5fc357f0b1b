"""Tests for :mod:`twisted_exec.streaming.kept_bytes`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.kept_bytes import KeptBytes


class KeptBytesTests(SynchronousTestCase):
    """The last bytes of a direction."""

    def setUp(self) -> None:
        self.kept = KeptBytes(10)

    def test_none(self) -> None:
        """Before the first byte, a stream can begin at its beginning only."""
        self.assertTrue(self.kept.has(0))
        self.assertFalse(self.kept.has(1))
        self.assertEqual(list(self.kept), [])

    def test_limit(self) -> None:
        """At least the limit is kept, and nothing of a piece before it."""
        for _ in range(5):
            self.kept.add(b"abcd")
        self.assertEqual(b"".join(self.kept), b"abcdabcdabcd")
        self.assertEqual((self.kept.first, self.kept.end, len(self.kept)), (8, 20, 12))
        self.assertFalse(self.kept.has(7))
        self.assertTrue(self.kept.has(8))
        self.assertTrue(self.kept.has(20))
        self.assertFalse(self.kept.has(21))

    def test_long_piece(self) -> None:
        """A piece beyond the limit is kept as a whole."""
        self.kept.add(b"ab")
        self.kept.add(b"x" * 100)
        self.assertEqual((self.kept.first, len(self.kept)), (2, 100))

    def test_keys(self) -> None:
        """Thousands of keys take little more memory than their bytes."""
        kept = KeptBytes(10_000)
        for number in range(5_000):
            kept.add(b"%04d" % number)
        self.assertLess(len(list(kept)), 40)
        self.assertGreaterEqual(len(kept), 10_000)
        self.assertEqual(b"".join(kept)[-8:], b"49984999")

    def test_forget(self) -> None:
        """Received bytes are dropped up to the exact byte."""
        self.kept.add(b"abcd")
        self.kept.add(b"efgh")
        self.kept.forget_until(5)
        self.assertEqual(list(self.kept), [b"fgh"])
        self.assertFalse(self.kept.has(4))
        self.kept.forget_until(3)
        self.assertEqual(list(self.kept), [b"fgh"])
        self.kept.forget_until(8)
        self.assertEqual(list(self.kept), [])
        self.assertTrue(self.kept.has(8))

    def test_clear(self) -> None:
        self.kept.add(b"abcd")
        self.kept.clear()
        self.assertEqual(len(self.kept), 0)
        self.assertTrue(self.kept.has(4))
        self.kept.add(b"e")
        self.assertEqual((self.kept.first, self.kept.end), (4, 5))

    @given(st.lists(st.one_of(st.binary(min_size=1, max_size=15), st.integers(0, 60))))
    def test_any_order(self, acts: list[bytes | int]) -> None:
        """The kept bytes are always the end of those sent."""
        kept, sent = KeptBytes(10), b""
        for act in acts:
            if isinstance(act, bytes):
                kept.add(act)
                sent += act
            else:
                kept.forget_until(min(act, len(sent)))
            self.assertEqual(kept.end, len(sent))
            self.assertEqual(b"".join(kept), sent[kept.first :])
