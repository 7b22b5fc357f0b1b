"""The terminal emulator: pyavt, with limits."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import avt

from twisted_exec.screens.rendering import as_ansi
from twisted_exec.screens.screen import PLAIN, CellRun, Cursor, Screen, Style
from twisted_exec.wire.terminal_modes import Modes

MAX_COLUMNS, MAX_ROWS = 400, 150
"""A larger terminal is shown with this size."""
MIN_COLUMNS = 2
"""A narrower terminal is shown with this width: in one column a wide character makes avt 0.17 panic."""

_CHUNK = 2048
"""Characters of one call: the emulator keeps what scrolls off until a call ends."""

_SPARE_ROWS = 150

_CONTROLS = re.compile("[\x80-\x9f]")
_STOP = re.compile("\x1b\\[([0-9]+)`")
_TAB_STOPS = re.compile("\x1b\\[5W(?:\x1b\\[[0-9]+`\x1b\\[W)*")
"""The tab stops in a key frame."""
_SWITCH = "\x1b[?1047h"
"""What precedes the alternate screen in a key frame."""
_RAW_SWITCH = "\x9b?1047h"
"""The same in a dump of the emulator."""
_ROWS = re.compile("\x1b\\[1;1H(?:[^\x1b]|\x1b\\[[0-9;:]*[mb])*")
"""The rows of a screen in a key frame; cursor and modes follow."""
_PLAIN_MODES = "\x1b[?6l\x1b[?7h\x1b[4l\x1b(B\x0f"
"""DECOM, DECAWM, IRM and the character set, as :func:`.as_ansi` needs them."""
_UNSHOWN = ("Cc", "Cs")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_PANIC = "PanicException"
"""The exception of pyo3, which has no name that can be imported."""
_FLAGS = ("bold", "faint", "italic", "underline", "strikethrough", "blink", "inverse")


class AvtScreen:
    """
    A terminal emulator without scrollback.

    Its input comes from an untrusted machine, so servers run it in other processes.

    If the emulator panics, an empty one takes its place, so a fault costs what was on the screen.

    :param make: makes the emulator: columns, rows, and rows of scrollback.
    :ivar size: columns and rows, within the limits.
    """

    def __init__(
        self, columns: int, rows: int, make: Callable[[int, int, int], Any] = avt.Vt
    ) -> None:
        self.size = _within_limits(columns, rows)
        self._make = make
        self._terminal = make(*self.size, 0)
        self._modes = Modes()  # the emulator ignores those that it does not show
        self._is_resized = False

    def feed(self, text: str) -> None:
        """Handle output, split anywhere."""
        text = text.replace("\x7f", "")  # DEL: terminals ignore it, and the emulator prints it
        if not text.isascii():
            # The emulator gives a combining character a column of its own.
            text = unicodedata.normalize("NFC", text)
        self._modes.feed(text.encode())
        for at in range(0, len(text), _CHUNK):
            with self._replaced_after_panic():
                self._terminal.feed_str(text[at : at + _CHUNK])

    def resize(self, columns: int, rows: int) -> None:
        """Change the size; limits apply."""
        self.size = _within_limits(columns, rows)
        with self._replaced_after_panic():
            self._add_spare_rows()
            self._terminal.resize(*self.size)
        self._is_resized = True

    def _add_spare_rows(self) -> None:
        # Rows that are wrapped anew push others off the top, although the rows below the cursor are
        # blank.  So the emulator gets spare rows first.
        columns, rows = self.size
        self._terminal.resize(columns, max(rows, _SPARE_ROWS))

    def show_at(self, columns: int, rows: int) -> None:
        """
        Become a terminal of another size that shows this one.

        Lines are wrapped anew.  A full-screen program has drawn for this size: its rows remain as
        they are, at the top left, and no other rows scroll.
        """
        drawn, (_, rows_before) = self.screen(), self.size
        _, switch, alternate = self.key_frame().rpartition(_SWITCH)
        self.resize(columns, rows)
        if not (switch and self._modes.full_screen):
            return
        rest = _ROWS.sub("", alternate, count=1)
        columns, rows = self.size
        lines = [_cropped(runs, columns) for runs in drawn.lines[:rows]]
        margins = f"\x1b[1;{rows_before}r" if rows > rows_before else ""
        picture = as_ansi(replace(drawn, lines=lines), {}).decode()
        with self._replaced_after_panic():
            self._terminal.feed_str(f"{_PLAIN_MODES}{picture}{margins}{rest}")

    @contextmanager
    def _replaced_after_panic(self) -> Iterator[None]:
        try:
            yield
        except BaseException as problem:
            if type(problem).__name__ != _PANIC:
                raise
            self._terminal = self._make(*self.size, 0)

    def key_frame(self) -> str:
        """Return output that brings a new emulator of the same size to the present state."""
        with self._replaced_after_panic():
            return self._dump()
        return self._dump()

    def _dump(self) -> str:
        if self._is_resized and self._modes.full_screen:
            self._resize_usual_screen()
        # Few terminals, and no modes here, know control characters above U+007F.
        frame = _CONTROLS.sub(
            lambda match: "\x1b" + chr(ord(match[0]) - 0x40), self._terminal.dump()
        )
        if self._is_resized:
            # An emulator that was widened lacks one of the usual tab stops, at each eighth column.
            frame = _TAB_STOPS.sub(_without_usual_stops, frame)
        # The modes go first, because the frame may end with an incomplete sequence.
        return self._modes.reports().decode() + frame

    def _resize_usual_screen(self) -> None:
        """
        Give the usual screen behind a full-screen program the present size.

        The emulator leaves it in the earlier size until the program ends, and so does its dump,
        which is for a terminal of the present size.
        """
        _, switch, alternate = self._terminal.dump().rpartition(_RAW_SWITCH)
        if switch:
            self._add_spare_rows()
            self._terminal.feed_str("\x18\x1b[?1049l")
            self._terminal.resize(*self.size)
            self._terminal.feed_str(f"\x1b7{_PLAIN_MODES}\x1b[r\x1b[m{switch}{alternate}")

    def screen(self) -> Screen:
        with self._replaced_after_panic():
            return self._content()
        return self._content()

    def _content(self) -> Screen:
        columns, rows = self.size
        cursor = self._terminal.cursor
        return Screen(
            columns,
            rows,
            # After the last column is written, the emulator's cursor is one column beyond the screen.
            Cursor(cursor.row, min(cursor.col, columns - 1), cursor.visible),
            [_runs(line.cells) for line in self._terminal.view()],
        )


def _within_limits(columns: int, rows: int) -> tuple[int, int]:
    return max(MIN_COLUMNS, min(columns, MAX_COLUMNS)), max(1, min(rows, MAX_ROWS))


def _cropped(runs: Sequence[CellRun], columns: int) -> Sequence[CellRun]:
    """Return the part of a row that a narrower terminal has room for."""
    rooms = ((run, max(0, columns - run.column) // run.width) for run in runs)
    return [replace(run, text=run.text[:room]) for run, room in rooms if room]


def _without_usual_stops(stops: re.Match[str]) -> str:
    columns = [int(column) for column in _STOP.findall(stops[0])]
    return "" if columns and all(column % 8 == 1 for column in columns) else stops[0]


def _runs(cells: Sequence[Any]) -> Sequence[CellRun]:
    runs: list[CellRun] = []
    pen: Any = None
    width = begin = 0
    characters: list[str] = []
    for column, cell in enumerate(cells):
        if not cell.width:
            continue  # the second half of a wide character
        if cell.width != width or cell.pen != pen:
            if characters:
                runs.append(CellRun(begin, "".join(characters), _style(pen), width))
            pen, width, begin, characters = cell.pen, cell.width, column, []
        character = cell.char
        characters.append(character if " " <= character <= "~" else _shown(character))
    text, style = "".join(characters), PLAIN if pen is None else _style(pen)
    if style == PLAIN:
        text = text.rstrip(" ")
    return [*runs, CellRun(begin, text, style, width)] if text else runs


def _shown(character: str) -> str:
    is_noncharacter = ord(character) & 0xFFFE == 0xFFFE  # not valid in XML
    if is_noncharacter or unicodedata.category(character) in _UNSHOWN:
        return _REPLACEMENT
    return character


def _style(pen: Any) -> Style:
    if pen.is_default():
        return PLAIN
    flags = {name: True for name in _FLAGS if getattr(pen, name)}
    return Style(_colour(pen.foreground), _colour(pen.background), **flags)


def _colour(colour: Any) -> int | str | None:
    if colour is None:
        return None
    if isinstance(colour, avt.Color.Indexed):
        return int(colour[0])
    return f"#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"
