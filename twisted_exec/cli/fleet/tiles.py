"""
The tiles, sans I/O.

A screen's text comes from a machine.  So each row is cut to its tile, and each character that a
terminal does not simply show is replaced or left out.  Each row begins with its place: if the
terminal gives a character another width, only that row is wrong.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil
from typing import Any

from twisted_exec.api.display import listed
from twisted_exec.cli.console.type_ahead import TYPE_AHEAD_BYTES
from twisted_exec.cli.console.views import Key, fitted

LEAST_COLUMNS, LEAST_ROWS = 40, 8
"""Size of the smallest tile, if the terminal is large enough for one."""

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

HELP = (
    "arrows, hjkl   select a machine          PgUp, PgDn  turn the page",
    "Space          mark it, or not           a           mark all on this page",
    "A              mark all machines         u           mark none",
    "Enter          enlarge it, or not        t           type to the marked machines",
    "< >            show columns further left, or right",
    "?              this list                 q           leave",
)

_MOST_COLUMNS = 400
_NOT_SENT = "what you have typed is not sent"
_CANCEL = ("\x03", "\x1b", Key.LEAVE)


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

    :param note: why the screen has no text.
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


class Mode(Enum):
    """The meaning of keys."""

    BROWSE = "browse"
    CONFIRM = "confirm"
    """The next key decides whether the user types to the marked machines."""
    OPENING = "opening"
    TYPING = "typing"
    HELP = "help"


class TileRequest(Enum):
    """A request to the program."""

    OPEN = "open"
    """Open the consoles of the marked machines.  The user may type ahead."""
    TYPE = "type"
    """Type to the open consoles, first what was typed ahead."""
    GIVE_UP = "give up"
    """Close the open consoles."""
    LEAVE = "leave"


class Model:
    """
    The state of the tiles.

    :param labels: names of the machines.
    :param may_type: the user may type to machines.
    :ivar selected: index of the selected machine.
    :ivar marked: indices of the marked machines.
    :ivar message: a line for the user.
    :ivar recorded: for whom consoles are recorded, and which input, by index.
    :ivar skip: columns that are left out at the left of each screen.
    """

    def __init__(
        self, labels: Sequence[str], columns: int, rows: int, *, may_type: bool = True
    ) -> None:
        self._labels, self._may_type = labels, may_type
        self.mode = Mode.BROWSE
        self.selected = 0
        self.marked: set[int] = set()
        self.is_zoomed = False
        self.message = ""
        self.recorded: Mapping[int, str] = {}
        self.skip = 0
        self._is_open = False
        self._ahead = bytearray()
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        """Note the size of the terminal."""
        self.size = columns, rows

    @property
    def grid(self) -> Grid:
        """Places of the tiles."""
        return grid_for(*self.size, 1 if self.is_zoomed else len(self._labels))

    @property
    def page(self) -> range:
        """Indices of the shown machines."""
        capacity = self.grid.capacity
        first = self.selected // capacity * capacity
        return range(first, min(first + capacity, len(self._labels)))

    @property
    def status(self) -> str:
        """The last row."""
        if self.mode is Mode.TYPING:
            recorded = f", {len(self.recorded)} recorded" if self.recorded else ""
            return f"TYPING to {self.message}{recorded}; Ctrl-] stops"
        if self.mode in (Mode.CONFIRM, Mode.OPENING):
            return self.message
        capacity = self.grid.capacity
        pages = -(-len(self._labels) // capacity)
        number = self.selected // capacity + 1
        facts = [_machines(len(self._labels)), f"page {number} of {pages}"]
        facts += [f"{len(self.marked)} marked"] * bool(self.marked)
        return ", ".join(facts) + (f" | {self.message}" if self.message else " | ? lists the keys")

    def title(self, index: int) -> str:
        """Title of a tile."""
        mark = "*" if index in self.marked else " "
        pointer = ">" if index == self.selected else " "
        recorded = f" | {self.recorded[index]}" if index in self.recorded else ""
        return f"{pointer}{mark}{self._labels[index]}{recorded}"

    def key(
        self, key: Key | str | None, typed: bytes, *, is_hasty: bool = False
    ) -> TileRequest | None:
        """
        Handle a key; not in the mode TYPING, where keys go to machines.

        :param key: ``None`` for a key without a meaning here.
        :param is_hasty: it follows the key before at once.
        """
        if self.mode is Mode.CONFIRM:
            return self._confirmed(key, is_hasty)
        if self.mode is Mode.HELP:
            self.mode = Mode.BROWSE
            return None
        if self.mode is Mode.OPENING:
            if key in _CANCEL:
                return self._give_up()
            if len(self._ahead) <= TYPE_AHEAD_BYTES:  # more than that says that there was too much
                self._ahead += typed
            return None
        self.message = ""
        if key in ("q", "\x03", Key.LEAVE):
            return TileRequest.LEAVE
        if key == "?":
            self.mode = Mode.HELP
        elif key == "t":
            self._ask()
        elif key == " ":
            self.marked ^= {self.selected}
        elif key == "a":
            page = set(self.page)
            self.marked = self.marked - page if page <= self.marked else self.marked | page
        elif key == "A":
            self.marked = set(range(len(self._labels)))
        elif key == "u":
            self.marked = set()
        elif key in ("<", ">"):
            step = self.grid.width // 2
            self.skip = min(max(0, self.skip + (step if key == ">" else -step)), _MOST_COLUMNS)
        elif key is Key.ENTER:
            self.is_zoomed = not self.is_zoomed
        else:
            self._move(key)
        return None

    def _move(self, key: Key | str | None) -> None:
        grid = self.grid
        steps: dict[Key | str | None, int] = {
            Key.LEFT: -1,
            "h": -1,
            Key.RIGHT: 1,
            "l": 1,
            Key.UP: -grid.columns,
            "k": -grid.columns,
            Key.DOWN: grid.columns,
            "j": grid.columns,
            Key.PAGE_UP: -grid.capacity,
            Key.PAGE_DOWN: grid.capacity,
            Key.HOME: -len(self._labels),
            Key.END: len(self._labels),
        }
        last = len(self._labels) - 1
        self.selected = min(last, max(0, self.selected + steps.get(key, 0)))

    def _ask(self) -> None:
        if not self._may_type:
            self.message = "start without --read-only to type"
            return
        if not self.marked:
            self.message = "mark machines with Space before you type"
            return
        self._is_open = False
        self.mode = Mode.CONFIRM
        names = listed([self._labels[index] for index in sorted(self.marked)], 5)
        self.message = f"type to {_machines(len(self.marked))} ({names})? y or n"

    def _confirmed(self, key: Key | str | None, is_hasty: bool) -> TileRequest | None:
        # While the consoles opened the user may have begun to type a word with a y.
        if key not in ("y", "Y") or (self._is_open and is_hasty):
            typed_ahead = self._is_open and key not in ("n", "N", *_CANCEL)
            return None if typed_ahead else self._give_up()
        if self._is_open:
            self.mode = Mode.TYPING
            return TileRequest.TYPE
        self.mode, self.message = (
            Mode.OPENING,
            f"opening {_machines(len(self.marked))}; Ctrl-] cancels",
        )
        return TileRequest.OPEN

    def _give_up(self) -> TileRequest:
        self.mode, self.message, self._ahead = Mode.BROWSE, "", bytearray()
        return TileRequest.GIVE_UP

    # From the program.

    def opened(self, count: int, problem: str) -> TileRequest | None:
        """
        Handle the end of the opening.

        :param problem: why some are not; empty if all are.
        """
        not_sent = ""
        if self._ahead and (problem or len(self._ahead) > TYPE_AHEAD_BYTES):
            # A part of a command, or a command to other machines, is not what the user has confirmed.
            self._ahead, not_sent = bytearray(), f" ({_NOT_SENT})"
        if not problem:
            self.mode, self.message = Mode.TYPING, f"{_machines(count)}{not_sent}"
            return TileRequest.TYPE
        if not count:
            self.mode, self.message = Mode.BROWSE, f"{problem}{not_sent}"
            return TileRequest.GIVE_UP
        self.mode, self._is_open = Mode.CONFIRM, True
        self.message = f"{problem}; type to the other {_machines(count)}? y or n{not_sent}"
        return None

    def take_ahead(self) -> bytes:
        """Return what was typed before the consoles were open."""
        ahead, self._ahead = self._ahead, bytearray()
        return bytes(ahead)

    def typing(self, count: int, problem: str = "") -> None:
        """Note to how many machines the user types now."""
        if count:
            self.message = _machines(count) + (f" ({problem})" if problem else "")
        else:
            self.mode, self.message = Mode.BROWSE, problem

    def stopped(self) -> None:
        """The user has stopped typing."""
        self.mode, self.message = Mode.BROWSE, ""


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"
