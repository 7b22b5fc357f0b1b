"""The content of a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Facts = Mapping[str, object]
"""Facts about a screen beside its content, for the forms that are JSON."""


@dataclass(frozen=True)
class Style:
    """
    The attributes of characters.

    :param foreground: the number of a colour, 0 to 255; ``#rrggbb``; or ``None`` for the default.
    :param background: as ``foreground``.
    """

    foreground: int | str | None = None
    background: int | str | None = None
    bold: bool = False
    faint: bool = False
    italic: bool = False
    underline: bool = False
    strikethrough: bool = False
    blink: bool = False
    inverse: bool = False


PLAIN = Style()


@dataclass(frozen=True)
class CellRun:
    """
    Neighbouring characters of one row with the same style and width.

    :param column: of the first character, from 0.
    :param width: of each character, in columns: 2 for Chinese characters and many symbols.
    """

    column: int
    text: str
    style: Style = PLAIN
    width: int = 1

    @property
    def columns(self) -> int:
        return len(self.text) * self.width


@dataclass(frozen=True)
class Cursor:
    """The position of the cursor, from 0; always on the screen."""

    row: int
    column: int
    is_visible: bool = True


@dataclass(frozen=True)
class Screen:
    """
    The content of a screen.

    :param lines: one for each row; blanks at the end of a row are left out, unless they have a
        style.
    """

    columns: int
    rows: int
    cursor: Cursor
    lines: Sequence[Sequence[CellRun]]


def line_text(runs: Sequence[CellRun]) -> str:
    """Return the text of a row."""
    text, column = "", 0
    for run in runs:
        text += " " * (run.column - column) + run.text
        column = run.column + run.columns
    return text
