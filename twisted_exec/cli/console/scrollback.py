"""
The last output of a session, as lines to read, to search and to save.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import cycle

from twisted_exec.wire.escape_sequences import PlainLines

LEAST_BYTES = 1 << 20
"""Bytes of output that are kept at least; at most twice as many are."""
_LONGEST_LINE = 512
_COLOURS = re.compile(rb"(\x1b\[[\d;:]*m)")
_CLEARED = re.compile(rb"\x1b\[H\x1b\[2?J(?:\x1b\[3J)?")
_CLEARED_BYTES = len(b"\x1b[H\x1b[2J\x1b[3J")
_MOVES = re.compile(rb"\x1b\[[\d;]*[@-JLMPSTXdfr]|\x1b[78DEM]|\x08")
"""Sequences of programs that draw a screen, or edit a line."""
_PLACED = re.compile(
    rb"\x1b\[0*(?:[2-9]|[1-9]\d+)(?:;\d*)?[Hdf]|(?P<home>\x1b\[[01]?(?:;[01]?)?[Hf])"
)
"""CUP, VPA and HVP."""
_CLEARS = re.compile(rb"(?:\x1b\[[\d;?]{0,20}[a-z]){0,4}\x1b\[[02]?J")
"""ED behind CUP: a shell clears the screen so, and some programs before they draw."""
_LEFT = re.compile(rb"\x1b\[\?(?:1049|1047|47)l|\x1bc")
"""The end of an alternate screen, where others have placed the cursor, and RIS."""
_ENTERED = re.compile(rb"(?:\x1b7)?\x1b\[\?(?:1049|1047|47)h")
_PUT_BACK = re.compile(rb"\x1b\[\?(?:1049l|(?:1047|47)l(?:\x1b8|\x1b\[\?1048l))")
"""The begin of an alternate screen, and its end with the cursor where it was before."""
_DRAWN_BYTES = 32 << 10
"""More than a program draws at a time."""


class Scrollback:
    """The last output of a session."""

    def __init__(self) -> None:
        self._output = bytearray()

    def add(self, output: bytes) -> None:
        self._output += output
        if len(self._output) > 2 * LEAST_BYTES:
            del self._output[:-LEAST_BYTES]

    def last_line(self) -> bytes:
        """
        Return the line that the machine has not ended yet, such as a prompt, with its colours.

        The result is empty for a line that is longer than a prompt, or on which a program draws.
        """
        # No more than decides: the line may be as long as all output that is kept.
        line = bytes(self._output[-_LONGEST_LINE - _CLEARED_BYTES - 1 :]).rpartition(b"\n")[2]
        if _PUT_BACK.search(line):
            line = self._line_without_programs()
        line = _CLEARED.split(line)[-1]
        if len(line) > _LONGEST_LINE or _MOVES.search(line):
            return b""
        plain = PlainLines()
        parts = [
            part if is_colour else plain.feed(part)
            for is_colour, part in zip(cycle((False, True)), _COLOURS.split(line), strict=False)
        ]
        return b"".join(parts).rpartition(b"\n")[2]

    def _line_without_programs(self) -> bytes:
        *drawn, last = _PUT_BACK.split(bytes(self._output[-_DRAWN_BYTES:]))
        # What precedes a program that has drawn more is unknown: usually the end of a line.
        before = [part[: entry.start()] for part in drawn if (entry := _ENTERED.search(part))]
        return b"".join([*before, last]).rpartition(b"\n")[2]

    def draws_rows(self, rows: int) -> bool:
        """
        Return whether a program draws on the screen of lines, such as ``top`` or a firmware's menu.

        It has placed the cursor and not put it back (DECRC).  Since then it has printed no line
        feed, or fewer than the screen has rows if it began at the first one.  Unlike a shell,
        a program that has cleared the screen hides the cursor.
        """
        drawn = _LEFT.split(bytes(self._output[-_DRAWN_BYTES:]))[-1]
        parts = drawn.replace(b"\x1b[s", b"\x1b7").replace(b"\x1b[u", b"\x1b8").split(b"\x1b8")
        restored, last = parts[:-1], parts[-1]
        drawn = b"".join([*(part.partition(b"\x1b7")[0] for part in restored), last])
        newest = deque(_PLACED.finditer(drawn), maxlen=1)
        if not newest:
            return False
        placed = newest.pop()
        line_feeds = drawn.count(b"\n", placed.end())
        if not placed["home"]:
            return not line_feeds
        clears = drawn.endswith(b"J", 0, placed.start()) or _CLEARS.match(drawn, placed.end())
        is_hidden = drawn.rfind(b"\x1b[?25l") > drawn.rfind(b"\x1b[?25h")
        return line_feeds < rows and (is_hidden or not clears)

    def lines(self) -> list[str]:
        text = PlainLines().feed(bytes(self._output)).decode("utf-8", "replace")
        lines = [_printable(line) for line in text.split("\n")]
        return lines if lines[-1] else lines[:-1]


def _printable(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char for char in line.expandtabs() if char.isprintable())
