"""
The commands on pages of the documentation, with what they print.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

_BLOCK = re.compile(r"\.\. code-block:: console\n\n((?:   .*\n|\n(?=   ))+)")
_COMMAND = re.compile(
    r"((?:.*\\\n)*.*<<(?P<end>EOF|END)\n(?s:.*?)^(?P=end)|(?:.*\\\n)*.*)\n?((?s:.*))", re.MULTILINE
)
"""A command with its further lines or its here-document, and what it prints."""
_AGE = re.compile(r"\b(?:\d+[dhms])+\b")
# UIDs, journals, and objects whose names the server has completed.
_GENERATED = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{16}\b|(?<=demo-shell-)[a-z0-9]{5}\b"
)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """
    Yield each command of the source of a page, with what it prints.

    A busy machine may wait longer than the page says.
    """
    for block in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", textwrap.dedent(block), flags=re.MULTILINE)[1:]:
            line, _, told = _COMMAND.fullmatch(part).groups()  # type: ignore[union-attr]
            yield re.sub(r"--timeout=\d+s", "--timeout=600s", line), told


def missing(documented: str, printed: str) -> list[str]:
    """
    Return the documented lines that were not printed, in this order.

    Figures, ages and widths of columns may differ, and ``...`` stands for any lines.
    """
    lines, absent = iter(map(_comparable, printed.splitlines())), []
    for line in map(_comparable, documented.splitlines()):
        if line not in ("", "...") and line not in lines:
            absent.append(line)
    return absent


def says(documented: str, printed: str) -> bool:
    """Return whether a text was printed, wherever its lines break; figures, ages and generated names may differ."""
    return _comparable(documented) in _comparable(printed)


def _comparable(text: str) -> str:
    text = _AGE.sub("0s", _GENERATED.sub("NAME", text))  # parts of a UID may look like an age
    return " ".join(re.sub(r"\d+", "0", text).split())
