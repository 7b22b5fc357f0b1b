"""
The state of a console's terminal, for a terminal that takes over from there.

A picture of the screen is not enough for that: it lacks the screen behind the alternate one, the
attributes of the next characters, scroll regions, modes, and the beginning of an incomplete escape
sequence.  The key frame of the emulator has them, but in sequences that not every terminal knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from twisted_exec.wire.terminal_queries import QueryFilter

FORM = "state"
"""Its name among the forms."""

_REPEATED = re.compile(r"(?s)(.)\x1b\[([0-9]+)b")
_COLOURS = re.compile(r"\x1b\[([0-9;:]*)m")
_ALTERNATE = "\x1b[?1047h"


def as_state(key_frame: str, columns: int, rows: int, facts: Mapping[str, object]) -> bytes:
    """
    Return an object with the output that brings a new terminal of this size to the state.

    :param key_frame: see :meth:`.IScreen.key_frame`.
    :param facts: further keys.
    """
    value = {**facts, "columns": columns, "rows": rows, "output": for_terminals(key_frame, columns)}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def for_terminals(key_frame: str, columns: int) -> str:
    """Return a key frame in sequences that all terminals know, without blanks at the end of rows."""
    # Many terminals cannot repeat a character, and clear and set tab stops by other sequences.
    text = _REPEATED.sub(lambda match: match[1] * (1 + int(match[2])), key_frame)
    text = text.replace("\x1b[5W", "\x1b[3g").replace("`\x1b[W", "G\x1bH")
    rows, is_plain = [], True
    for row in text.split("\r\n"):
        if colours := _COLOURS.findall(row):
            is_plain = colours[-1] in ("", "0")
        rows.append(_without_blanks(row, columns) if is_plain else row)
    # Clear the alternate screen: it may still show the output of another program.
    text = "\r\n".join(rows).replace(_ALTERNATE, _ALTERNATE + "\x1b[2J")
    # The incomplete sequence at the end may be the first half of a query.
    return QueryFilter().feed(text.encode("utf-8")).decode("utf-8")


def _without_blanks(row: str, columns: int) -> str:
    """
    Return a row without the blanks at its end.

    A row that is wrapped may end with rows of the screen that are blank, and these remain: the
    first blank of the last one makes the terminal wrap.
    """
    text = row.rstrip(" ")
    blanks = len(row) - len(text)
    blank_rows = blanks // columns if text else blanks // columns - 1
    return text + " " * (blanks - columns + 1) if blank_rows > 0 else text
