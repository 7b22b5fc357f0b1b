"""
The last output of a session, as lines to read, to search and to save.
"""

from __future__ import annotations

from twisted_exec.wire.escape_sequences import PlainLines

LEAST_BYTES = 1 << 20
"""Output that is kept at least; at most twice as much."""


class Scrollback:
    """The last output of a session."""

    def __init__(self) -> None:
        self._output = bytearray()

    def add(self, output: bytes) -> None:
        """Keep output; the oldest is dropped."""
        self._output += output
        if len(self._output) > 2 * LEAST_BYTES:
            del self._output[:-LEAST_BYTES]

    def lines(self) -> list[str]:
        """Return the lines, without escape sequences and control characters."""
        text = PlainLines().feed(bytes(self._output)).decode("utf-8", "replace")
        lines = [_printable(line) for line in text.split("\n")]
        return lines if lines[-1] else lines[:-1]


def _printable(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char for char in line.expandtabs() if char.isprintable())
