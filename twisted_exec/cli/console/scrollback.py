"""
The last output of a session, as lines to read, to search and to save.
"""

from __future__ import annotations

import re
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
        line = _CLEARED.split(line)[-1]
        if len(line) > _LONGEST_LINE or _MOVES.search(line):
            return b""
        plain = PlainLines()
        parts = [
            part if is_colour else plain.feed(part)
            for is_colour, part in zip(cycle((False, True)), _COLOURS.split(line), strict=False)
        ]
        return b"".join(parts).rpartition(b"\n")[2]

    def lines(self) -> list[str]:
        text = PlainLines().feed(bytes(self._output)).decode("utf-8", "replace")
        lines = [_printable(line) for line in text.split("\n")]
        return lines if lines[-1] else lines[:-1]


def _printable(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char for char in line.expandtabs() if char.isprintable())
