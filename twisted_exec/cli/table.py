"""
Tables that our commands print, in the format of kubectl.

Texts of servers become one line without control characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twisted_exec.cli.messages import one_line

NONE = "<none>"
"""What an empty cell shows."""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return columns in kubectl's format."""
    lines = [list(headings), *([one_line(cell) or NONE for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )
