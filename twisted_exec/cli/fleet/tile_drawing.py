"""
Draws a machine's screen in its tile, sans I/O.

A screen's text comes from a machine.  So each row is cut to its tile, and each character that a
terminal does not simply show is replaced or left out.  Each row begins with its place: if the
terminal gives a character another width, only that row is wrong.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted_exec.cli.console.views import fitted
from twisted_exec.cli.fleet.tiles import Grid

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
class StyledText:
    """
    A part of a row with a style.

    :param column: its first column, from 0.
    :param style: the sequence that sets it.
    """

    column: int
    columns: int
    text: str
    style: str

    @classmethod
    def parse(cls, run: Mapping[str, Any]) -> StyledText:
        """:raises ValueError: a colour is malformed."""
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
    """
    The text of a machine's screen, the parts with a style, and its cursor, from 0.

    :param note: why the screen has no text, or does not change.
    """

    position: tuple[str, int]
    lines: Sequence[str]
    row: int
    column: int
    has_cursor: bool
    runs: Sequence[Sequence[StyledText]] = ()
    note: str = ""

    @property
    def is_blank(self) -> bool:
        """True if the screen has no text."""
        return not any(map(str.strip, self.lines))

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> ScreenText:
        """
        Read the JSON document of a screen.

        :raises ValueError: the document is no screen.
        """
        try:
            cursor = document["cursor"]
            lines = [str(line["text"]) for line in document["lines"]]
            position = str(document["epoch"]), int(document["offset"])
            row, column = int(cursor["row"]), int(cursor["column"])
            runs = [
                [StyledText.parse(run) for run in line.get("runs", ())]
                for line in document["lines"]
            ]
            return cls(position, lines, row, column, cursor["visible"] is True, runs)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the server's answer is not a screen: {error!r}") from None


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
    used = [index for index, line in enumerate(screen.lines) if line.strip()]
    last = max([*used[-1:], min(screen.row, len(screen.lines) - 1)], default=0)
    first = max(0, last + 1 - height)
    return range(first, min(len(screen.lines), first + height))


def _styled(
    place: tuple[int, int], runs: Sequence[StyledText], width: int, skip: int
) -> Iterator[str]:
    for run in runs:
        first, end = max(run.column - skip, 0), min(run.column + run.columns - skip, width)
        if first < end:
            text = fitted(run.text, end - first, max(skip - run.column, 0))
            yield f"{_at((place[0] + first, place[1]), 0)}{run.style}{text}\x1b[m"


def _folded(message: str, width: int, height: int) -> Sequence[str]:
    return textwrap.wrap(message, width, break_on_hyphens=False)[:height][::-1]
