"""
Tiles in a terminal, sans I/O: their places, and the escape sequences that draw them.

A screen's text comes from a machine.  So each row is cut to its tile, and each character that a
terminal does not simply show is replaced.  Each row begins with its place: if the terminal gives a
character another width, only that row is wrong.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True)
class ScreenText:
    """The text of a machine's screen, and its cursor, from 0."""

    position: tuple[str, int]
    lines: Sequence[str]
    row: int
    column: int
    has_cursor: bool

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
            return cls(position, lines, row, column, cursor["visible"] is True)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the server's answer is not a screen: {error!r}") from None


def fitted(text: str, width: int) -> str:
    """Return text that takes exactly this many columns, without control characters."""
    if text.isascii() and text.isprintable():
        return text[:width].ljust(width)
    characters, used = [], 0
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
        characters.append(character)
        used += columns
    return "".join(characters) + " " * (width - used)


def draw_tile(
    place: tuple[int, int], grid: Grid, title: str, screen: ScreenText | None, message: str
) -> str:
    """
    Return the sequences that draw a tile.

    :param screen: ``None`` if there is none yet.
    :param message: shown instead of the last rows; may be empty.
    """
    width, height = max(1, grid.width - 1), grid.height - 1
    rows = _visible_rows(screen, height) if screen is not None else []
    parts = [_at(place, 0) + f"\x1b[7m{fitted(title, width)}\x1b[m "]
    for index in range(height):
        text = (
            fitted(screen.lines[rows[index]], width)
            if screen and index < len(rows)
            else " " * width
        )
        if screen is not None and index < len(rows) and screen.has_cursor:
            text = _with_cursor(text, screen, rows[index], width)
        parts.append(_at(place, index + 1) + text + " ")
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


def _with_cursor(text: str, screen: ScreenText, row: int, width: int) -> str:
    column = screen.column
    # Beside a wide character the place in the text is not the column: no cursor is better than a wrong one.
    if row != screen.row or column >= width or len(text) != width:
        return text
    return f"{text[:column]}\x1b[7m{text[column]}\x1b[m{text[column + 1 :]}"


def _folded(message: str, width: int, height: int) -> Sequence[str]:
    """Return the lines of a message, the last one first."""
    lines = [message[at : at + width] for at in range(0, len(message), width)][:height]
    return lines[::-1]
