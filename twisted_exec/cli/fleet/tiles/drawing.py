"""
Tiles in a terminal, sans I/O: their places, and the escape sequences that draw them.

A screen's text comes from a machine.  So each row is cut to its tile, and each character that a
terminal does not simply show is replaced.  Each row begins with its place: if the terminal gives a
character another width, only that row is wrong.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

LEAST_COLUMNS, LEAST_ROWS = 40, 8
"""Size of the smallest tile, if the terminal is large enough for one."""

_WIDE = ("W", "F")
_INVISIBLE = ("Mn", "Me", "Cf")
_REPLACED = ("Cc", "Cs", "Co", "Cn", "Zl", "Zp")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Grid:
    """
    The places of the tiles of one page; the last row of the terminal is free.

    :param columns: number of tiles side by side.
    :param rows: number of tiles one below the other.
    :param width: columns of the terminal for each tile, with an empty one at its right.
    :param height: rows of the terminal for each tile, with its title.
    """

    columns: int
    rows: int
    width: int
    height: int

    @property
    def capacity(self) -> int:
        """Number of tiles."""
        return self.columns * self.rows

    def place(self, index: int) -> tuple[int, int]:
        """Return column and row of a tile, from 1."""
        row, column = divmod(index, self.columns)
        return 1 + column * self.width, 1 + row * self.height


def grid_for(columns: int, rows: int, count: int) -> Grid:
    """
    Return the grid with the largest tiles that shows all machines, or as many as are possible.

    :param columns: of the terminal.
    :param count: number of machines, at least 1.
    """
    space = max(1, rows - 1)
    most_across = max(1, columns // LEAST_COLUMNS)
    most_down = max(1, space // LEAST_ROWS)
    grids = []
    for across in range(1, most_across + 1):
        down = min(most_down, ceil(count / across))
        grids.append(Grid(across, down, columns // across, space // down))

    def merit(grid: Grid) -> tuple[int, int, int]:
        # Most screens have 80 columns and 24 rows, so a larger tile shows no more.
        return min(count, grid.capacity), min(grid.width, 81) * min(grid.height, 25), grid.width

    return max(grids, key=merit)


_ATTRIBUTES = {
    "bold": 1,
    "faint": 2,
    "italic": 3,
    "underline": 4,
    "inverse": 7,
    "strikethrough": 9,
}
"""Parameters of SGR.  Nothing blinks: one tile would draw the eye from all others."""
_RGB = re.compile(r"#([0-9a-fA-F]{2})([0-9a-fA-F]{2})([0-9a-fA-F]{2})")


@dataclass(frozen=True)
class Run:
    """
    A part of a row with a style.

    :param column: the first one, from 0.
    :param style: the sequence that sets it.
    """

    column: int
    columns: int
    text: str
    style: str

    @classmethod
    def parse(cls, run: Mapping[str, Any]) -> Run:
        """:raises ValueError: a colour is none."""
        parameters = [str(number) for name, number in _ATTRIBUTES.items() if run.get(name) is True]
        for name, number in (("foreground", 38), ("background", 48)):
            if name in run:
                parameters.append(f"{number};{_colour(run[name])}")
        style = f"\x1b[{';'.join(parameters)}m"
        return cls(int(run["column"]), int(run["columns"]), str(run["text"]), style)


def _colour(value: object) -> str:
    # From a server, and goes to the terminal: nothing but numbers.
    if isinstance(value, int) and 0 <= value <= 255:
        return f"5;{int(value)}"
    match = _RGB.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("a colour is a number from 0 to 255, or #rrggbb")
    return "2;" + ";".join(str(int(part, 16)) for part in match.groups())


@dataclass(frozen=True)
class ScreenText:
    """The text of a machine's screen, the parts with a style, and its cursor, from 0."""

    position: tuple[str, int]
    lines: Sequence[str]
    row: int
    column: int
    has_cursor: bool
    runs: Sequence[Sequence[Run]] = ()

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> ScreenText:
        """
        Read a screen as JSON.

        :raises ValueError: the document is no screen.
        """
        try:
            cursor = document["cursor"]
            lines = [str(line["text"]) for line in document["lines"]]
            position = str(document["epoch"]), int(document["offset"])
            row, column = int(cursor["row"]), int(cursor["column"])
            runs = [[Run.parse(run) for run in line.get("runs", ())] for line in document["lines"]]
            return cls(position, lines, row, column, cursor["visible"] is True, runs)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the server's answer is not a screen: {error!r}") from None


def fitted(text: str, width: int, skip: int = 0) -> str:
    """
    Return text that takes exactly this many columns, without control characters.

    :param skip: columns that are left out at the beginning.
    """
    if text.isascii() and text.isprintable():
        return text[skip : skip + width].ljust(width)
    characters, used = [], -skip
    for character in text:
        category = unicodedata.category(character)
        if category in _INVISIBLE:
            continue
        if category in _REPLACED or unicodedata.bidirectional(character) in ("R", "AL", "AN"):
            # A right-to-left letter would reorder what is beside the tile in some terminals.
            character = _REPLACEMENT
        columns = 2 if unicodedata.east_asian_width(character) in _WIDE else 1
        if used + columns > width:
            break
        used += columns
        if used > 0:
            # Half of a wide character is blank.
            characters.append(character if used >= columns else " " * used)
    used = max(used, 0)
    return "".join(characters) + " " * (width - used)


def draw_tile(
    place: tuple[int, int],
    grid: Grid,
    title: str,
    screen: ScreenText | None,
    message: str,
    skip: int = 0,
) -> str:
    """
    Return the sequences that draw a tile.

    :param screen: ``None`` if there is none yet.
    :param message: shown instead of the last rows; may be empty.
    :param skip: columns that are left out at the left of the screen.
    """
    width, height = max(1, grid.width - 1), grid.height - 1
    rows = _visible_rows(screen, height) if screen is not None else []
    parts = [_at(place, 0) + f"\x1b[7m{fitted(title, width)}\x1b[m "]
    for index in range(height):
        here = _at(place, index + 1)
        if screen is None or index >= len(rows):
            parts.append(f"{here}{' ' * width} ")
            continue
        row = rows[index]
        text = fitted(screen.lines[row], width, skip)
        parts.append(f"{here}{text} ")
        if row < len(screen.runs):
            parts += _styled((place[0], place[1] + index + 1), screen.runs[row], width, skip)
        column = screen.column - skip
        # Beside a wide character the place in the text is not the column: no cursor is better than a wrong one.
        is_here = screen.has_cursor and row == screen.row and 0 <= column < width
        if is_here and len(text) == width:
            parts.append(
                f"{_at((place[0] + column, place[1]), index + 1)}\x1b[7m{text[column]}\x1b[m"
            )
    for index, line in enumerate(_folded(message, width, height)):
        parts.append(_at(place, height - index) + f"\x1b[1m{fitted(line, width)}\x1b[m")
    return "".join(parts)


def _at(place: tuple[int, int], row: int) -> str:
    return f"\x1b[{place[1] + row};{place[0]}H"


def _visible_rows(screen: ScreenText, height: int) -> range:
    """Return the rows of the screen that fit: the last ones that are in use."""
    used = [index for index, line in enumerate(screen.lines) if line.strip()]
    last = max([*used[-1:], min(screen.row, len(screen.lines) - 1)], default=0)
    first = max(0, last + 1 - height)
    return range(first, min(len(screen.lines), first + height))


def _styled(place: tuple[int, int], runs: Sequence[Run], width: int, skip: int) -> Iterator[str]:
    """Draw the parts of a row that have a style, over its text."""
    for run in runs:
        first, end = max(run.column - skip, 0), min(run.column + run.columns - skip, width)
        if first < end:
            text = fitted(run.text, end - first, max(skip - run.column, 0))
            yield f"{_at((place[0] + first, place[1]), 0)}{run.style}{text}\x1b[m"


def _folded(message: str, width: int, height: int) -> Sequence[str]:
    """Return the lines of a message, the last one first."""
    lines = [message[at : at + width] for at in range(0, len(message), width)][:height]
    return lines[::-1]
