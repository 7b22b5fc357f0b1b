"""
A view of many lines that fills the terminal, sans I/O: to scroll and to search.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from twisted_exec.cli.console.views import Key, fitted
from twisted_exec.wire.resize import TerminalSize

KEYS = "arrows PgUp PgDn g G  / search  n N next  w save  q quit"
_FEW_KEYS = "/ search  n N  w save  q quit"
_QUIT = "q quit"

_STEPS = {Key.UP: -1, "k": -1, Key.DOWN: 1, "j": 1, Key.ENTER: 1}
_PAGES = {Key.PAGE_UP: -1, "b": -1, Key.PAGE_DOWN: 1, " ": 1, "f": 1}
_REVERSED = "\x1b[7m\\g<0>\x1b[27m"
_TOP, _BOTTOM = (Key.HOME, "g"), (Key.END, "G")


def cut(line: str, columns: int) -> list[str]:
    """Return the rows of a line that is broken wherever a row ends, as a terminal does."""
    return [line[at : at + columns] for at in range(0, max(1, len(line)), columns)]


class Pager:
    """
    The view; it begins at the last lines.

    :param lines: without control characters.
    :param rows_of: breaks a line into rows of so many columns.
    :ivar message: shown in the last row until the next key.
    """

    def __init__(
        self,
        lines: Sequence[str],
        size: TerminalSize,
        rows_of: Callable[[str, int], list[str]] = cut,
    ) -> None:
        self.message = ""
        self._rows_of = rows_of
        self._lines = lines
        self._text, self._sought, self._found = "", re.compile(""), -1
        self._size = size
        self._rows = self._wrap()
        self._top = self._last_top

    def resize(self, size: TerminalSize) -> None:
        """Wrap the lines anew; the first line in view stays in view."""
        if size == self._size:
            return
        first = self._rows[self._top][0] if self._rows else 0
        self._size = size
        self._rows = self._wrap()
        self._top = min(self._row_of(first), self._last_top)

    def _wrap(self) -> list[tuple[int, str]]:
        return [
            (number, row)
            for number, line in enumerate(self._lines)
            for row in self._rows_of(line, _width(line, self._size.columns))
        ]

    @property
    def _height(self) -> int:
        return max(1, self._size.rows - 1)

    @property
    def _last_top(self) -> int:
        return max(0, len(self._rows) - self._height)

    def press(self, key: Key | str) -> None:
        self.message = ""
        if key in _TOP or key in _BOTTOM:
            self._go_to(0 if key in _TOP else self._last_top)
        elif key in _STEPS or key in _PAGES:
            self._go_to(self._top + _STEPS.get(key, 0) + _PAGES.get(key, 0) * self._height)
        elif key in ("n", "N") and self._text:
            self._seek(-1 if key == "n" else 1)
        elif key in ("n", "N"):
            self.message = "nothing is searched for yet: / searches"

    def search(self, text: str) -> None:
        """Show the last line with this text in any case; ``n`` shows earlier ones."""
        self.message = ""
        self._sought, self._found = re.compile(re.escape(text), re.IGNORECASE), len(self._lines)
        self._text = text
        if text:
            self._seek(-1)

    def frame(self) -> str:
        columns = self._size.columns
        parts = []
        for index in range(self._height):
            number, row = (
                self._rows[self._top + index] if self._top + index < len(self._rows) else (-1, "")
            )
            parts.append(f"\x1b[{index + 1};1H{self._styled(number, fitted(row, columns))}")
        # Not the last column of the last row, after which some terminals scroll.
        parts.append(f"\x1b[{self._size.rows};1H\x1b[7m{fitted(self._status(), columns - 1)}\x1b[m")
        return "".join(parts)

    def _styled(self, number: int, row: str) -> str:
        if number != self._found:
            return row
        return f"\x1b[1m{self._sought.sub(_REVERSED, row)}\x1b[m"

    def _status(self) -> str:
        if self.message:
            return f"{self.message[: max(0, self._size.columns - 9)]}  {_QUIT}"
        where = "no lines"
        if self._rows:
            end = self._rows[min(self._top + self._height, len(self._rows)) - 1][0] + 1
            where = f"{self._rows[self._top][0] + 1}-{end} of {len(self._lines)}"
        width = self._size.columns - len(where) - 3
        keys = next((each for each in (KEYS, _FEW_KEYS) if len(each) <= width), _QUIT)
        return f"{where}  {keys}"

    def _seek(self, step: int) -> None:
        number = self._found + step
        while 0 <= number < len(self._lines):
            if self._sought.search(self._lines[number]):
                self._found = number
                self._go_to(self._row_of(number) - self._height // 2)
                return
            number += step
        where = "earlier" if step < 0 else "later"
        self.message = f'no {where} line has "{self._text}"'

    def _go_to(self, top: int) -> None:
        self._top = min(max(0, top), self._last_top)

    def _row_of(self, number: int) -> int:
        return next((row for row, (line, _) in enumerate(self._rows) if line >= number), 0)


def _width(line: str, columns: int) -> int:
    """Return how many characters of a line fit into a row."""
    return columns if line.isascii() else max(1, columns // 2)
