"""
Tests for :mod:`twisted_exec.runtimes.last_lines`.
"""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import ManualDisk, close_segments
from twisted_exec.journal.journal import Journal
from twisted_exec.runtimes.last_lines import MOST_CHARACTERS, LastLines, last_line

SECOND = 10**9


class LastLineTests(SynchronousTestCase):
    """The last line of a console."""

    def line(self, *output: bytes) -> str:
        journal = Journal(lambda: 0)
        for each in output:
            journal.append(each)
        return last_line(journal)

    def test_lines(self) -> None:
        """It is the last one that is not blank, complete or not, without escape sequences."""
        for output, line in (
            (b"", ""),
            (b"\r\n  \r\n", ""),
            (b"one\r\ntwo", "two"),
            (b"one\r\ntwo\r\n\r\n", "two"),
            (b"login: \x1b[1;31mroot\x1b[m\x07 \r\n", "login: root"),
            (b"10 %\r50 %\r", "50 %"),
            (b"a\tb  c\xff", "a b c\ufffd"),
            (b"abc\x1b[", "abc"),
        ):
            self.assertEqual(self.line(output), line, output)

    def test_long(self) -> None:
        """A long line is cut; only the end of the output is read."""
        self.assertEqual(self.line(b"x" * 200), "x" * MOST_CHARACTERS)
        self.assertEqual(
            self.line(b"y\r\n" * 3000 + b"\x1b]0;" + b"x" * 4096), "x" * MOST_CHARACTERS
        )
        self.assertEqual(self.line(b"\x1b]0;" + b"x" * 4090 + b"\r\nz"), "z")

    def test_parts(self) -> None:
        """Output behind a burst, or of a boot that has printed little, counts."""
        burst = b"burst\r\n" * 20_000
        self.assertEqual(self.line(burst, b"login: "), "login:")
        self.assertEqual(self.line(burst, b"log", b"in: "), "login:")
        journal = Journal(lambda: 0)
        for each in (burst, b"The system is going down\r\n", b"Booting\r\n"):
            journal.booted("PoweredOn")
            journal.append(each)
        self.assertEqual(last_line(journal), "Booting")

    def test_power_cut(self) -> None:
        """The line from before a power cut counts until there is a newer one."""
        self.addCleanup(close_segments)
        path = self.mktemp()
        Journal(lambda: 0, ManualDisk(path)).append(b"login: ")
        journal = Journal(lambda: 0, ManualDisk(path, run=2, cut=1))
        self.assertEqual(last_line(journal), "login:")

    def test_direction(self) -> None:
        """Characters that change the direction of the text, or take no place, are removed."""
        self.assertEqual(self.line("a\u202eb\u2066c\u200bd\u2028e".encode()), "abcd e")

    @given(st.binary(max_size=300))
    def test_printable(self, output: bytes) -> None:
        """Whatever a machine prints, the line is printable."""
        line = self.line(output)
        self.assertTrue(line.isprintable() and len(line) <= MOST_CHARACTERS)
        self.assertFalse([each for each in line if unicodedata.category(each) == "Cf"])


class ConditionTests(SynchronousTestCase):
    """The condition of a machine."""

    def setUp(self) -> None:
        self.now, self.journal = 0, Journal(lambda: 0)

    def lines(self, seconds: int) -> LastLines:
        return LastLines(seconds, lambda: self.now)

    def test_off(self) -> None:
        """Without an interval, and without a line, there is none."""
        self.assertIsNone(self.lines(30).condition("m", self.journal))
        self.journal.append(b"login: ")
        self.assertIsNone(self.lines(0).condition("m", self.journal))

    def test_interval(self) -> None:
        """The line changes after the interval, and when the clock was set back."""
        lines = self.lines(30)
        for passed, printed, line in (
            (0, b"one\r\n", "one"),
            (29, b"two\r\n", "one"),
            (1, b"", "two"),
            (40, b"", "two"),
            (0, b"three\r\n", "three"),
            (-100, b"four\r\n", "four"),
        ):
            self.now += passed * SECOND
            if printed:
                self.journal.append(printed)
            self.assertEqual(lines.condition("m", self.journal), ("True", "LastLine", line))
        other = Journal(lambda: 0)
        self.assertIsNone(lines.condition("other", other))
        lines.forget("m")
        self.assertIsNone(lines.condition("m", other))
