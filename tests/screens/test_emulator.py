"""
Tests for :mod:`twisted_exec.screens.emulator` and :mod:`twisted_exec.screens.process`, in this process.
"""

from __future__ import annotations

import re
from itertools import permutations
from typing import Any

import avt
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.screens.emulator import MAX_COLUMNS, MAX_ROWS, AvtScreen
from twisted_exec.screens.interfaces import Job, Rendered, Resize
from twisted_exec.screens.process import render
from twisted_exec.screens.screen import CellRun, Cursor, Style, line_text

PIECES = (
    *(b"text ", b"\r\n", b"\n", b"\r", b"\t", b"\x1b[31m", b"\x1b[0m", b"\x1b[2J", b"\x1b[H"),
    *(b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[5;9r", b"\x1b[3L", b"\x1b(0", b"\x1b(B", b"\x1b7"),
    *(
        b"\x1b8",
        b"\x1b[7m",
        b"\x1b[4;7H",
        b"\xc3\xa9",
        b"\xe6\xbc\xa2",
        b"\xff",
        b"\x1b[",
        b"\x1b]0;",
    ),
    *(
        b"\x07",
        b"\x18",
        b"\x1b[K",
        b"\x1b[2P",
        b"\x1b[4@",
        b"\x1b[?25l",
        b"\x1bM",
        b"\x1bc",
        b"\x1b[20b",
    ),
)

RESIZED: tuple[str | tuple[int, int], ...] = (
    *((20, 4), (12, 6), (30, 3), "\x1b[?1049h", "\x1b[?1049l", "\r\n", "$ ", "a line of text "),
    *("\x1b[H", "\x1b[2J", "\x1b[2;3r", "\x1b[3;5H", "\x1b[31m", "\x1b7", "\x1b8"),
)
"""Output, and sizes."""


def drawn(output: bytes, columns: int = 20, rows: int = 4, **more: Any) -> Rendered:
    """Return the result of a job with the form text."""
    job = Job(columns, rows, more.pop("key_frame", ""), output, more.pop("resizes", ()), "text")
    return render(job)


class OneColumnLess:
    """An emulator that panics at a width of two columns, with wide characters: it has one column less."""

    def __init__(self, columns: int, rows: int, scrollback: int) -> None:
        self._terminal = avt.Vt(columns - 1, rows, scrollback)
        self.feed_str, self.dump, self.view = (
            self._terminal.feed_str,
            self._terminal.dump,
            self._terminal.view,
        )

    def resize(self, columns: int, rows: int) -> None:
        self._terminal.resize(columns - 1, rows)

    @property
    def cursor(self) -> Any:
        return self._terminal.cursor


class ScreenTests(SynchronousTestCase):
    """An emulator."""

    def test_content(self) -> None:
        """Rows have runs of characters with the same style and width; blanks at the end are left out."""
        emulator = AvtScreen(20, 3)
        emulator.feed("a\x1b[1;31mred\x1b[m  漢字\x1b[48;2;1;2;3m \x1b[m\r\n\x1b[38;5;200;7mY")
        screen = emulator.screen()
        self.assertEqual((screen.columns, screen.rows), (20, 3))
        self.assertEqual(screen.cursor, Cursor(1, 1))
        self.assertEqual(
            screen.lines,
            [
                [
                    CellRun(0, "a"),
                    CellRun(1, "red", Style(foreground=1, bold=True)),
                    CellRun(4, "  "),
                    CellRun(6, "漢字", width=2),
                    CellRun(10, " ", Style(background="#010203")),
                ],
                [CellRun(0, "Y", Style(foreground=200, inverse=True))],
                [],
            ],
        )
        self.assertEqual([line_text(line) for line in screen.lines], ["ared  漢字 ", "Y", ""])

    def test_combining(self) -> None:
        """A character in two parts takes one column."""
        emulator = AvtScreen(20, 3)
        emulator.feed("e\N{COMBINING ACUTE ACCENT}x")
        self.assertEqual(emulator.screen().lines[0], [CellRun(0, "éx")])

    def test_cursor(self) -> None:
        """The cursor behind a full row is on the screen; it may be invisible."""
        emulator = AvtScreen(4, 2)
        emulator.feed("abcd\x1b[?25l")
        self.assertEqual(emulator.screen().cursor, Cursor(0, 3, is_visible=False))

    def test_resized(self) -> None:
        """Text is wrapped anew for fewer columns; blank rows make place for it, and then rows go at the top."""
        emulator = AvtScreen(20, 4)
        emulator.feed("a row of text\r\n$ ")
        emulator.resize(8, 3)
        self.assertEqual(
            [line_text(each) for each in emulator.screen().lines], ["a row of", " text", "$"]
        )
        self.assertEqual(emulator.screen().cursor, Cursor(2, 2))
        emulator.resize(8, 2)
        self.assertEqual([line_text(each) for each in emulator.screen().lines], [" text", "$"])

    def test_resized_behind_editor(self) -> None:
        """The lines behind a full-screen program are wrapped as without it, also in a key frame."""
        lines = "".join(f"{number}: a line of text\r\n" for number in range(6))
        sizes = ((20, 4), (12, 6), (30, 3), (30, 12), (9, 9))
        for before, after in permutations(sizes, 2):
            for count in (0, 3, len(lines)):
                plain, edited = AvtScreen(*before), AvtScreen(*before)
                for screen in (plain, edited):
                    screen.feed(f"{lines[:count]}$ vi")
                edited.feed("\x1b[?1049h\x1b[H\x1b[2J~\r\n\x1b[31m~")
                for screen in (plain, edited):
                    screen.resize(*after)
                again = AvtScreen(*after)
                again.feed(edited.key_frame())
                for screen in (edited, again):
                    self.assertEqual(line_text(screen.screen().lines[1]), "~")
                    screen.feed("\x1b[2J\x1b[Hend\x1b[?1049l")
                    self.assertEqual(screen.screen(), plain.screen(), (before, after, count))

    def test_tab_stops(self) -> None:
        """A wider terminal has the usual tab stops, unless a program has set others."""
        set_stops = "\x1b[5W" + "".join(f"\x1b[{column}`\x1b[W" for column in (5, 89, 97))
        for output, stops in (("", ""), ("\x1b[3g\x1b[5G\x1bH", set_stops)):
            emulator = AvtScreen(80, 24)
            emulator.feed(output)
            emulator.resize(100, 24)
            self.assertEqual("".join(re.findall(r"\x1b\[5W.*W", emulator.key_frame())), stops)

    def test_narrow(self) -> None:
        """A terminal of one column, or of none, is shown with two, also with wide characters on it."""
        for before, after in (((80, 24), (1, 24)), ((2, 2), (0, 0)), ((1, 1), (1, 1))):
            emulator = AvtScreen(*before)
            emulator.feed("\u6f22\u5b57 abc\r\nxyz")
            emulator.resize(*after)
            self.assertEqual(emulator.screen().columns, 2)
            emulator.feed("\x1b[H\u6f22")
            self.assertTrue(emulator.key_frame())
            emulator.resize(80, 24)
            emulator.feed("\x1b[2J\x1b[Hend")
            self.assertEqual(line_text(emulator.screen().lines[0]), "end")

    def test_panic(self) -> None:
        """After a fault of the emulator the screen is empty, and shows what follows."""
        emulator = AvtScreen(20, 4, make=OneColumnLess)
        emulator.feed("\u6f22\u5b57")
        emulator.resize(2, 4)
        self.assertEqual(list(map(line_text, emulator.screen().lines)), [""] * 4)
        emulator.resize(20, 4)
        emulator.feed("text")
        self.assertEqual(line_text(emulator.screen().lines[0]), "text")
        again = AvtScreen(20, 4, make=OneColumnLess)
        again.feed(emulator.key_frame())
        self.assertEqual(again.screen(), emulator.screen())

    def test_no_panic(self) -> None:
        """Any other problem remains one."""

        def make(columns: int, rows: int, scrollback: int) -> Any:
            raise MemoryError

        self.assertRaises(MemoryError, AvtScreen, 80, 24, make)

    def test_unprintable(self) -> None:
        """A screen has no character that would be a control or is not valid in XML."""
        emulator = AvtScreen(20, 3)
        emulator.feed("a\ufffeb\uffffc\U0010ffffd")
        emulator.feed("\x7fe")
        self.assertEqual(line_text(emulator.screen().lines[0]).replace("\ufffd", ""), "abcde")


class JobTests(SynchronousTestCase):
    """A job."""

    def test_no_utf8(self) -> None:
        """Bytes that are not UTF-8 become replacement characters; an incomplete character waits."""
        result = drawn(b"h\xc3\xa9llo \xff\x9b|\xc3")
        self.assertEqual(result.body.decode(), "héllo \ufffd\ufffd|\n")
        self.assertEqual(result.pending, 1)
        behind = drawn(b"\xc3\xa9", key_frame=result.key_frame)
        self.assertEqual(behind.body.decode(), "héllo \ufffd\ufffd|é\n")

    def test_sizes(self) -> None:
        """The size changes where it was changed; one that is too large or nothing is limited."""
        result = drawn(b"ab" + b"x" * 6, resizes=[Resize(2, 4, 3)])
        self.assertEqual((result.body, result.columns, result.rows), (b"abxx\nxxxx\n", 4, 3))
        huge = drawn(b"x", 10_000, 10_000)
        self.assertEqual((huge.columns, huge.rows), (MAX_COLUMNS, MAX_ROWS))
        self.assertEqual((drawn(b"", 0, 0).columns, drawn(b"", 0, 0).rows), (2, 1))

    def test_resized_by_output(self) -> None:
        """Output cannot resize the screen."""
        self.assertEqual(drawn(b"\x1b[8;100;3tabcdef").body, b"abcdef\n")

    @given(st.lists(st.sampled_from(PIECES), max_size=60), st.integers(0, 60))
    def test_key_frame(self, pieces: list[bytes], middle: int) -> None:
        """A screen is the same with and without a key frame before it."""
        first, second = b"".join(pieces[:middle]), b"".join(pieces[middle:])
        whole = drawn(first + second)
        half = drawn(first)
        output = first[len(first) - half.pending :] + second
        self.assertEqual(drawn(output, key_frame=half.key_frame).body, whole.body)

    @given(st.lists(st.sampled_from(RESIZED), max_size=30), st.integers(0, 30))
    def test_key_frame_of_sizes(self, steps: list[Any], middle: int) -> None:
        """The same holds for a screen whose size has changed, also while an editor had it."""
        whole = half = AvtScreen(20, 4)
        for number, step in enumerate(steps):
            if number == middle:
                half = AvtScreen(*whole.size)
                half.feed(whole.key_frame())
            for screen in {whole, half}:
                if isinstance(step, str):
                    screen.feed(step)
                else:
                    screen.resize(*step)
                    screen.key_frame()  # resizes the screen behind an editor
        self.assertEqual(half.screen(), whole.screen())

    @given(st.binary(max_size=400))
    def test_any_bytes(self, output: bytes) -> None:
        """Any output has a screen in each form."""
        for form in ("text", "json", "svg", "ansi", "state"):
            render(Job(20, 4, "", output, (), form))
