"""Tests for :mod:`twisted_exec.cli.fleet.prefixed_lines`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.fleet.prefixed_lines import LONGEST_LINE_BYTES, PrefixedLines, cut


class PrefixedLinesTests(SynchronousTestCase):
    """Lines with the name of their machine."""

    def test_lines(self) -> None:
        """Each line begins with the name, also an empty one."""
        self.assertEqual(PrefixedLines("a").feed(b"x\r\n\r\ny\n"), b"a | x\na | \na | y\n")

    def test_without_end(self) -> None:
        """What follows a line that was printed in part is marked as the rest of it."""
        lines = PrefixedLines("a")
        self.assertEqual(lines.feed(b"login: "), b"a | login: \n")
        self.assertEqual(lines.feed(b"ada\nPassword: "), b"a + ada\na | Password: \n")
        self.assertEqual(lines.feed(b"\r\nhello\n"), b"a | hello\n")
        self.assertFalse(lines.inside_line)

    def test_continued(self) -> None:
        """A later run can continue a line."""
        self.assertEqual(PrefixedLines("a", inside_line=True).feed(b"b\n"), b"a + b\n")
        self.assertEqual(PrefixedLines("a", inside_line=True).feed(b"\r\nb\n"), b"a | b\n")

    def test_redrawn(self) -> None:
        """A line that a program redraws, such as a progress bar, is a line in each state."""
        lines = PrefixedLines("a")
        self.assertEqual(lines.feed(b"10 %\r"), b"a | 10 %\n")
        self.assertEqual(lines.undecided, 1)
        self.assertEqual(lines.feed(b"20 %\r\n"), b"a | 20 %\n")

    def test_sequences(self) -> None:
        """No escape sequence and no control character is printed, also not one in two parts."""
        lines = PrefixedLines("a")
        self.assertEqual(
            lines.feed(b"\x1b[31mred\x1b[m \x1b]0;title\x07\x1b[2J\x07y\x08x\n"), b"a | red x\n"
        )
        self.assertEqual(lines.feed(b"y\x1b[3"), b"a | y\n")
        self.assertEqual(lines.undecided, 3)
        self.assertEqual(lines.feed(b"1mz\n"), b"a + z\n")

    def test_colours(self) -> None:
        """Colours can stay.  They end with their line, and nothing else stays."""
        lines = PrefixedLines("a", keeps_colours=True)
        self.assertEqual(
            lines.feed(b"\x1b[1;31mred\x1b[2J\x1b]0;t\x07\nplain\n"),
            b"a | \x1b[1;31mred\x1b[m\na | plain\n",
        )

    def test_direction(self) -> None:
        """Characters that change the direction of text cannot reorder the name."""
        text = "\u202eabc\u2066\u2028".encode()
        self.assertEqual(
            PrefixedLines("a").feed(text + b"\n").decode(), "a | \ufffdabc\ufffd\ufffd\n"
        )

    def test_not_utf8(self) -> None:
        """Other bytes stay for a pipe; a terminal gets replacement characters."""
        self.assertEqual(PrefixedLines("a").feed(b"\xff\xe9\n"), b"a | \xff\xe9\n")
        text = PrefixedLines("a", for_terminal=True).feed(b"\xff\x9b31m\n")
        self.assertEqual(text.decode(), "a | \ufffd\ufffd31m\n")

    @given(st.lists(st.binary(max_size=40), max_size=8))
    def test_any_bytes(self, pieces: list[bytes]) -> None:
        """Whatever a machine prints, there is no other control character, and each line has the name."""
        lines = PrefixedLines("web", for_terminal=True)
        printed = b"".join(map(lines.feed, pieces))
        self.assertEqual(set(printed) & {*range(0x09), *range(0x0B, 0x20), 0x7F}, set())
        for line in printed.decode().split("\n")[:-1]:
            self.assertTrue(line.startswith(("web | ", "web + ")), line)
            self.assertFalse(set(line) & set("\u202a\u202e\u2066\u2069\x85\x9b"))


class CutTests(SynchronousTestCase):
    """Tests for :func:`cut`."""

    def test_lines(self) -> None:
        """Output is cut behind a line."""
        self.assertEqual(cut(b"one\ntwo", 100), 4)
        self.assertEqual(cut(b"one\ntwo\n", 5), 4)
        self.assertEqual(cut(b"one", 100), 0)

    def test_long(self) -> None:
        """A line that is too long is cut, but not within a character."""
        limit = LONGEST_LINE_BYTES
        self.assertEqual(cut(b"x" * limit, limit), limit)
        for text in ("é", "€", "😀"):
            data = ("x" * (limit - 1) + text).encode()
            self.assertEqual(cut(data, limit), limit - 1)
            self.assertEqual(cut(data[: limit + 1], limit), limit - 1)
        self.assertEqual(cut(b"\xbf" * limit, limit), limit)
