"""
Tests for L{twisted_exec.wire.escape_sequences}.
"""

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.escape_sequences import Stripper, strip

CASES = [
    (b"plain\r\n\ttext", b"plain\r\n\ttext"),
    (b"\x1b[31mKer\x1b[0mnel\x1b[m", b"Kernel"),
    (b"\x1b[?2004l\x1b[1;31;48:5:1mx", b"x"),
    (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b]8;;\x1b\\", b"ab"),
    (b"\x1bPq#0;2\x1b\\c", b"c"),
    (b"\x1b(B\x1b)0\x1b=\x1b>\x1bcd", b"d"),
    (b"a\x08\x00\x07b\x7f", b"ab"),
    (b"\x1b]0;no end\nvisible", b"\nvisible"),
    (b"\x1b[12\nvisible", b"\nvisible"),
    (b"caf\xc3\xa9 \xff", b"caf\xc3\xa9 \xff"),
    (b"\x1b", b""),
    (b"\x1b\x1b[1mx", b"x"),
]


class StripTests(SynchronousTestCase):
    def test_cases(self) -> None:
        """
        Sequences and control characters disappear; text, tabs and line ends stay.
        """
        for text, plain in CASES:
            self.assertEqual(strip(text), plain, text)

    def test_byte_by_byte(self) -> None:
        """
        A stream gives the same text when every byte arrives alone.
        """
        for text, plain in CASES:
            stripper = Stripper()
            pieces = [stripper.feed(text[at : at + 1]) for at in range(len(text))]
            self.assertEqual(b"".join(pieces), plain, text)

    def test_held_back_bytes_are_bounded(self) -> None:
        """
        A title without end neither fills memory nor hides the next line.
        """
        stripper = Stripper()
        stripper.feed(b"\x1b]0;")
        for _ in range(100):
            self.assertEqual(stripper.feed(b"x" * 10_000), b"")
        self.assertLess(len(stripper._held), 300)
        self.assertEqual(stripper.feed(b"\nKernel panic"), b"\nKernel panic")

    def test_hostile_text_costs_linear_time(self) -> None:
        """
        A megabyte of unfinished sequences takes well below a second.
        """
        for piece in (b"\x1b", b"\x1b]", b"\x1b[", b"\x1b[1;", b"\x1b]\x1b", b"\x1b "):
            text = piece * ((1 << 20) // len(piece))
            began = time.process_time()
            strip(text)
            self.assertLess(time.process_time() - began, 2.0, piece)


class AnySplitTests(SynchronousTestCase):
    @given(
        st.lists(
            st.sampled_from([b"\x1b", b"[", b"]", b"0;", b"m", b"\x07", b"\\", b"\n", b"xy", b" "])
        ),
        st.lists(st.integers(0, 40)),
    )
    def test_any_split(self, pieces: list[bytes], cuts: list[int]) -> None:
        """
        However a stream is split, its text is that of the whole.
        """
        text = b"".join(pieces)
        stripper = Stripper()
        bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
        split = [stripper.feed(text[a:b]) for a, b in itertools.pairwise(bounds)]
        self.assertEqual(b"".join(split), strip(text))
