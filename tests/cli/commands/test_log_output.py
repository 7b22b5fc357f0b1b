"""
Tests for :mod:`twisted_exec.cli.commands.log_output`.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.patterns import Pattern, Search
from twisted_exec.cli.commands.log_output import LogOutput

STAMP = b"2026-11-20T05:00:00.123456789Z "


def printed(
    *pieces: bytes, regex: str = "", timestamps: bool = False, colours: bool = False
) -> bytes:
    """Everything that is printed for the pieces of a log."""
    parts: list[bytes] = []
    search = Search(Pattern(regex, is_regex=True)) if regex else None
    output = LogOutput(parts.append, search, has_timestamps=timestamps, has_colours=colours)
    for piece in pieces:
        output.feed(piece)
    output.finish()
    return b"".join(parts)


class LogOutputTests(SynchronousTestCase):
    """Tests for :class:`LogOutput`."""

    def test_unchanged(self) -> None:
        """Without a pattern and without a terminal, the log is printed as it is, at once."""
        self.assertEqual(printed(b"\x1b[1ma\r\n", b"\xffb"), b"\x1b[1ma\r\n\xffb")

    def test_last_line(self) -> None:
        """At a terminal the shell's prompt does not follow the machine's on its line."""
        for pieces, end in (((b"a\r\n", b"$ "), b"\r\n"), ((b"a\r\n", b""), b""), ((), b"")):
            parts: list[bytes] = []
            output = LogOutput(parts.append, ends_line=True)
            for piece in pieces:
                output.feed(piece)
            output.finish()
            self.assertEqual(b"".join(parts), b"".join(pieces) + end)

    def test_grep(self) -> None:
        """Matching lines are printed as they came; the last one may have no end."""
        log = (b"boot\r\nKernel pa", b"nic\r\nok\nlast panic")
        self.assertEqual(printed(*log, regex="panic"), b"Kernel panic\r\nlast panic\n")
        self.assertEqual(printed(*log, regex="^Ker.*ic$"), b"Kernel panic\r\n")
        self.assertEqual(printed(*log, regex="[0-9]"), b"")

    def test_grep_edited(self) -> None:
        """Lines are searched for what a terminal shows of them, also behind a timestamp, and printed as they came."""
        line = b"# echo passwrod\b \b\b \b\b \bord\r\n"
        self.assertEqual(printed(line, regex="echo password$"), line)
        self.assertEqual(printed(line, regex="passwr"), b"")
        stamp = b"2026-11-20T05:00:00.123456789Z "
        line = stamp + b"\b\b\b" + line
        self.assertEqual(printed(line, regex="^# echo password$", timestamps=True), line)

    def test_grep_is_by_line(self) -> None:
        """Anchors are those of a line, and carriage returns before its end do not count."""
        log = (b"one\r\ntwo\r\r\nthree\x1b[m\n", b"two\r\n")
        for regex, lines in (
            ("^two$", b"two\r\r\ntwo\r\n"),
            (r"\Atwo\z", b"two\r\r\ntwo\r\n"),
            ("(?-m)^three$", b"three\x1b[m\n"),
            ("(?i)ONE$", b"one\r\n"),
            (r"e\s*t", b""),
        ):
            self.assertEqual(printed(*log, regex=regex), lines, regex)

    def test_grep_behind_returns(self) -> None:
        """A line begins behind a carriage return, too, and is printed alone, as soon as it is complete."""
        log = b"$ echo A2B\r\n\x1b[?2004l\rA2B\r\n\x1b[?2004h$ "
        self.assertEqual(printed(log, regex="^A2B"), b"A2B\r\n")
        self.assertEqual(printed(b"10%\r\r20%\r", b"\n30%\r", regex="^[23]0%$"), b"20%\r\n30%\r\n")
        self.assertEqual(printed(b"a\r\rb\r", regex="^$"), b"")
        log = STAMP + b"10%\r20%\r30%\r\n" + STAMP + b"40%\r20%\n"
        for size in (len(log), 36, 1):
            pieces = [log[at : at + size] for at in range(0, len(log), size)]
            self.assertEqual(
                printed(*pieces, regex="^20%$", timestamps=True),
                STAMP + b"20%\r\n" + STAMP + b"20%\n",
            )
        parts: list[bytes] = []
        output = LogOutput(parts.append, Search(Pattern("b")))
        output.feed(b"a\rb\rc")
        self.assertEqual(parts, [b"b\r\n"])

    def test_grep_streams(self) -> None:
        """A match is printed as soon as its line is complete."""
        parts: list[bytes] = []
        output = LogOutput(parts.append, Search(Pattern("a")))
        output.feed(b"a\nb")
        self.assertEqual((parts, output.matches), ([b"a\n"], 1))

    def test_hidden_words(self) -> None:
        """Colours within a word do not hide it; such a line is printed as it came."""
        line = b"\x1b[31mpa\x1b[mnic\n"
        self.assertEqual(printed(line, regex="panic", colours=True), line)

    def test_timestamps(self) -> None:
        """Timestamps are not searched, and printed."""
        log = STAMP + b"one\n" + STAMP + b"two\n"
        self.assertEqual(printed(log, regex="2026", timestamps=True), b"")
        self.assertEqual(printed(log, regex="^two", timestamps=True), STAMP + b"two\n")

    def test_colours(self) -> None:
        """Matches are highlighted and timestamps are dim."""
        dim = b"\x1b[2m" + STAMP + b"\x1b[m"
        log = STAMP + b"a panic, a panic\r\n"
        red = b"\x1b[1;31mpanic\x1b[m"
        self.assertEqual(
            printed(log, regex="panic", timestamps=True, colours=True),
            dim + b"a " + red + b", a " + red + b"\r\n",
        )
        self.assertEqual(printed(log, timestamps=True, colours=True), dim + log[len(STAMP) :])
        self.assertEqual(printed(b"x\n", regex="y*", colours=True), b"x\n")

    def test_long_line(self) -> None:
        """A line without end is searched in parts, and not held."""
        parts: list[bytes] = []
        output = LogOutput(parts.append, Search(Pattern("needle")))
        for _ in range(100):
            output.feed(b"x" * 10_000)
        output.feed(b"needle" + b"x" * 70_000)
        self.assertEqual(output.matches, 1)
        self.assertLess(len(b"".join(parts)), 70_000)

    @given(
        st.lists(
            st.sampled_from(
                [STAMP + b"a\n", STAMP + b"b\r\r\n", STAMP + b"\n", STAMP + b"b\ra\r\n"]
            )
        ),
        st.integers(1, 80),
        st.booleans(),
    )
    def test_split(self, lines: list[bytes], size: int, colours: bool) -> None:
        """Pieces may end anywhere."""
        log = b"".join(lines)
        pieces = [log[at : at + size] for at in range(0, len(log), size)]
        for regex in ("", "a"):
            self.assertEqual(
                printed(*pieces, regex=regex, timestamps=True, colours=colours),
                printed(log, regex=regex, timestamps=True, colours=colours),
            )
