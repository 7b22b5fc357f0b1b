"""
The tiles of a page, and the state that keys change, sans I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil

from twisted_exec.api.display import listed
from twisted_exec.cli.console.type_ahead import TYPE_AHEAD_BYTES
from twisted_exec.cli.console.views import Key

LEAST_COLUMNS, LEAST_ROWS = 40, 8
"""Size of the smallest tile, if the terminal is large enough for one."""


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


class TilesModel:
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
        self._reached = ""
        """Number of the machines that get keys, or would."""
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
        # Narrow terminals cut the row: the meaning of the keys comes first.
        if self.mode is Mode.TYPING:
            recorded = f", {len(self.recorded)} recorded" if self.recorded else ""
            return self._behind(f"TYPING to {self._reached}{recorded}; Ctrl-] stops")
        if self.mode is Mode.CONFIRM:
            return self._behind(f"type to {self._reached}? y or n")
        if self.mode is Mode.OPENING:
            return f"opening {self._reached}; Ctrl-] cancels"
        capacity = self.grid.capacity
        pages = -(-len(self._labels) // capacity)
        number = self.selected // capacity + 1
        facts = [_machines(len(self._labels)), f"page {number} of {pages}"]
        facts += [f"{len(self.marked)} marked"] * bool(self.marked)
        return self._behind(", ".join(facts), "? lists the keys")

    def _behind(self, text: str, otherwise: str = "") -> str:
        message = self.message or otherwise
        return f"{text} | {message}" if message else text

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
        self._reached = _machines(len(self.marked))
        self.message = listed([self._labels[index] for index in sorted(self.marked)], 5)

    def _confirmed(self, key: Key | str | None, is_hasty: bool) -> TileRequest | None:
        # While the consoles opened the user may have begun to type a word with a y.
        if key not in ("y", "Y") or (self._is_open and is_hasty):
            typed_ahead = self._is_open and key not in ("n", "N", *_CANCEL)
            return None if typed_ahead else self._give_up()
        if self._is_open:
            self.mode = Mode.TYPING
            return TileRequest.TYPE
        self.mode = Mode.OPENING
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
        self._reached = _machines(count)
        if self._ahead and (problem or len(self._ahead) > TYPE_AHEAD_BYTES):
            # A part of a command, or a command to other machines, is not what the user has confirmed.
            self._ahead, not_sent = bytearray(), _NOT_SENT
        if not problem:
            self.mode, self.message = Mode.TYPING, not_sent
            return TileRequest.TYPE
        self.message = f"{problem} ({not_sent})" if not_sent else problem
        if not count:
            self.mode = Mode.BROWSE
            return TileRequest.GIVE_UP
        self.mode, self._is_open = Mode.CONFIRM, True
        self._reached = f"the other {_machines(count)}"
        return None

    def take_ahead(self) -> bytes:
        """Return what was typed before the consoles were open."""
        ahead, self._ahead = self._ahead, bytearray()
        return bytes(ahead)

    def typing(self, count: int, problem: str = "") -> None:
        """Note to how many machines the user types now."""
        self._reached, self.message = _machines(count), problem
        if not count:
            self.mode = Mode.BROWSE

    def stopped(self) -> None:
        """The user has stopped typing."""
        self.mode, self.message = Mode.BROWSE, ""


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"
