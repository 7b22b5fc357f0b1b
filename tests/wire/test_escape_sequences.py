"""
Tests for L{twisted_exec.wire.escape_sequences}.
"""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from tests.retained import weight
from twisted_exec.wire.escape_sequences import PlainLines, Stripper, edited, line_starts, strip

CASES = [
    (b"plain\r\n\ttext", b"plain\r\n\ttext"),
    (b"\x1b[31mKer\x1b[0mnel\x1b[m", b"Kernel"),
    (b"\x1b[?2004l\x1b[1;31;48:5:1mx", b"x"),
    (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b]8;;\x1b\\", b"ab"),
    (b"\x1bPq#0;2\x1b\\c", b"c"),
    (b"\x1b(B\x1b)0\x1b=\x1b>\x1bcd", b"d"),
    (b"a\x00\x07b\x0b\x7f", b"ab"),
    (b"\x1b]0;no end\nvisible", b"\nvisible"),
    (b"\x1b[12\nvisible", b"\nvisible"),
    (b"caf\xc3\xa9 \xff", b"caf\xc3\xa9 \xff"),
    (b"\xc2\x9bok \xc2\xa9", b"ok \xc2\xa9"),
    (b"\xc2\x1b[m\x9b31m", b"\x9b31m"),
    (b"\xc2\xc2\x9b\x9bok", b"\x9bok"),
    (b"\xc2\x07\x9bok", b"\x9bok"),
    (b"\x1b]0;a\x18ok", b"ok"),
    (b"\x1b", b""),
    (b"\x1b\x1b[1mx", b"x"),
]

EDITED = [
    ("a line discipline", b"# passwrod\b \b\b \b\b \bord x\r\n", b"# password x\r\n"),
    ("all erased", b"=> hv\b \b\b \b", b"=> "),
    ("bash", b"ls x\b\x1b[K\b\x1b[K\r\n", b"ls\r\n"),
    ("busybox", b"$ ls x\b\x1b[J\b\x1b[0J\r\n", b"$ ls\r\n"),
    ("less wraps a line", b"the same direct \bory:\r\n", b"the same directory:\r\n"),
    ("text before the cursor", b"ab\b\bXab\b\b\r\n", b"Xab\r\n"),
    ("a spinner", b"wait |\b/\b-\b\\\b\r\n", b"wait \\\r\n"),
    ("bold text", b"b\bbo\bo_\bx\n", b"box\n"),
    ("the line's start", b"one\n\b\b\b\btwo\rx\b\bthree", b"one\ntwo\rthree"),
    ("characters", b"caf\xc3\xa9\b \b\xff\b\xe2\x82\xac\n", b"caf\xe2\x82\xac\n"),
    ("EL elsewhere", b"ab\b\x1b[m\x1b[Kc\x1b[K\x0b\n", b"ac\n"),
    ("a begun EL", b"ab\b\x1b[0", b"ab"),
]
"""Lines that were edited, and what a terminal shows of them."""


class StripTests(SynchronousTestCase):
    def test_cases(self) -> None:
        """
        Sequences and control characters disappear; text, tabs and line ends stay.
        """
        for text, plain in CASES:
            self.assertEqual(strip(text), plain, text)

    def test_edited(self) -> None:
        """
        Backspaces are carried out, also when every byte of the stream arrives alone.
        """
        for name, text, shown in EDITED:
            self.assertEqual(strip(text), shown, name)
            stripper = Stripper()
            pieces = [stripper.feed(text[at : at + 1]) for at in range(len(text))]
            self.assertEqual(edited(b"".join(pieces)), shown, name)

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
        self.assertLess(weight(stripper), 300)
        self.assertEqual(stripper.feed(b"\nKernel panic"), b"\nKernel panic")

    def test_hostile_text_costs_linear_time(self) -> None:
        """
        Unfinished sequences take linear time.
        """
        edits = (b"\b", b"a\b", b"ab\b\x1b[K", b"\b\x1b[", b"a" * 99 + b"\b" * 99)
        for piece in (b"\x1b", b"\x1b]", b"\x1b[", b"\x1b[1;", b"\x1b]\x1b", b"\x1b ", *edits):
            assert_linear(
                lambda size, piece=piece: strip(piece * size), (8 << 10) // len(piece), piece
            )


class AnySplitTests(SynchronousTestCase):
    @given(
        st.lists(
            st.sampled_from(
                [b"\x1b", b"[", b"]", b"0;", b"m", b"K", b"\x07", b"\b", b"\\", b"\n", b"xy", b" "]
            )
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
        self.assertEqual(edited(b"".join(split)), strip(text))


_LINES = [
    ("lines of a terminal", b"a\r\nb\r\n", b"a\nb\n"),
    ("many carriage returns", b"a\r\r\r\nb", b"a\nb"),
    ("a countdown", b"\r 3 \r 2 \r 1 \r\nboot", b" 3 \n 2 \n 1 \nboot"),
    ("a line that is erased", b"50%\r\x1b[K100%\r\x1b[K\n", b"50%\n100%\n"),
    ("an overwritten line", b"evil\rgood\n", b"evil\ngood\n"),
    ("carriage returns without text", b"\r\r\n\r\n\ra", b"\n\na"),
    ("a carriage return at the end", b"ok\r", b"ok"),
    ("a carriage return behind the newline", b"a\n\rb", b"a\nb"),
]


class LineStartTests(SynchronousTestCase):
    """Where lines begin."""

    def test_cases(self) -> None:
        """Behind newlines, and behind carriage returns after text."""
        for output, starts in (
            (b"", []),
            (b"a\r\nb\n\nc", [3, 5, 6]),
            (b"10%\r20%\r\r30%\r\n$ ", [4, 9, 14]),
            (b"\r\x1b[?2004l\rA2B\r\r\n", [16]),
            (b"10%\r\x1b[K\n\r20%", [8]),
            (b"a\r", [2]),
        ):
            self.assertEqual(line_starts(output), starts, output)

    @given(st.lists(st.sampled_from([b"a", b"\b", b"\r", b"\n", b"\x1b[m", b"\r\n"])).map(b"".join))
    def test_plain_lines(self, output: bytes) -> None:
        """There are as many as plain text has."""
        plain = PlainLines().feed(output + b"a")
        self.assertEqual(len(line_starts(output)), plain.count(b"\n"))


class PlainLinesTests(SynchronousTestCase):
    """Lines of a console."""

    def test_cases(self) -> None:
        """Each state of a line that is redrawn is a line; all lines end with a newline alone."""
        for name, text, expected in _LINES:
            self.assertEqual(PlainLines().feed(text), expected, name)
            stream = PlainLines()
            pieces = [stream.feed(text[at : at + 1]) for at in range(len(text))]
            self.assertEqual(b"".join(pieces), expected, name)

    def test_edited(self) -> None:
        """Backspaces are carried out; a line that is edited after it was given follows anew."""
        for name, text, shown in EDITED:
            plain = shown.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            self.assertEqual(PlainLines().feed(text), plain, name)
        stream = PlainLines()
        pieces = (
            b"# passwrod",
            b"\b \b",
            b"\b \b\b \b",
            b"or",
            b"d\r\n# ls x",
            b"\b \b\b \b",
            b"\r\n",
        )
        self.assertEqual(
            [stream.feed(piece) for piece in pieces],
            [b"# passwrod", b"", b"", b"\n# passwor", b"d\n# ls x", b"", b"\n# ls\n"],
        )

    @given(
        st.lists(st.sampled_from([b"a", b"b", b" ", b"\b", b"\x1b[K", b"\n"])).map(b"".join),
        st.lists(st.integers(0, 40)),
    )
    def test_edited_in_parts(self, text: bytes, cuts: list[int]) -> None:
        """However a stream is split, each line's last state is that of the whole."""
        stream = PlainLines()
        bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
        lines = iter(
            (b"".join(stream.feed(text[a:b]) for a, b in itertools.pairwise(bounds)) + b"\n").split(
                b"\n"
            )
        )
        whole = PlainLines().feed(text)
        for line in whole.split(b"\n")[:-1]:
            self.assertIn(line, lines)

    @given(
        st.lists(
            st.sampled_from([b"\x1b", b"[", b"]", b"m", b"\r", b"\n", b"\xc2", b"\x9b", b"x" * 300])
        ),
        st.integers(0, 20),
    )
    def test_continues(self, parts: list[bytes], at: int) -> None:
        """With its state, a text continues anywhere behind the bytes that are not held."""
        whole = b"".join(parts)
        first = PlainLines()
        text = first.feed(whole[:at])
        second = PlainLines(first.mid_line, first.returned)
        text += second.feed(whole[len(whole[:at]) - first.undecided :])
        self.assertEqual(text, PlainLines().feed(whole))
        self.assertNotIn(b"\x1b", text)
        self.assertNotIn(b"\xc2\x9b", text)

    def test_hostile(self) -> None:
        """Text made to be slow takes linear time, and little is held."""
        for hostile in (
            b"\r",
            b"\x1b",
            b"\x1b[",
            b"\x1b]",
            b"\xc2",
            b"\x1b]x",
            b"\x1b[1;",
            b"\r\x1b[m",
            b"a",
            b"\b",
            b"ab\b",
            b"ab\b\x1b[K",
        ):

            def feed(size: int, hostile: bytes = hostile) -> None:
                stream = PlainLines()
                for _ in range(8):
                    stream.feed(hostile * size)
                self.assertLess(weight(stream), 5000)

            assert_linear(feed, (4 << 10) // len(hostile), hostile)
