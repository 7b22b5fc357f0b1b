"""The state of a screen as output that brings a terminal to it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from twisted_exec.wire.escape_sequences import QueryFilter

FORM = "state"
"""The form of :func:`as_state`."""

_REPEATED = re.compile(r"(?s)(.)\x1b\[([0-9]+)b")
_COLOURS = re.compile(r"\x1b\[([0-9;:]*)m")
_ALTERNATE = re.compile(r"(?P<saved>\x1b7\x1b\[m)?\x1b\[\?1047h")


def as_state(key_frame: str, columns: int, rows: int, facts: Mapping[str, object]) -> bytes:
    """
    Return an object with the output that brings a new terminal of this size to the state.

    :param key_frame: see :meth:`.AvtScreen.key_frame`.
    :param facts: further keys.
    """
    value = {**facts, "columns": columns, "rows": rows, "output": for_terminals(key_frame, columns)}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def for_terminals(key_frame: str, columns: int) -> str:
    """Return a key frame in sequences that most terminals know."""
    # Many terminals cannot repeat a character, and clear and set tab stops by other sequences.
    text = _REPEATED.sub(lambda match: match[1] * (1 + int(match[2])), key_frame)
    text = text.replace("\x1b[5W", "\x1b[3g").replace("`\x1b[W", "G\x1bH")
    rows, is_plain = [], True
    for row in text.split("\r\n"):
        if colours := _COLOURS.findall(row):
            is_plain = colours[-1] in ("", "0")
        rows.append(_without_blanks(row, columns) if is_plain else row)
    # Clear the alternate screen: it may still show the output of another program. tmux restores, for
    # an editor that leaves by mode 1049, only a cursor that this mode has saved.
    text = _ALTERNATE.sub(
        lambda match: ("\x1b[?1049h\x1b[m" if match["saved"] else match[0]) + "\x1b[2J",
        "\r\n".join(rows),
    )
    # The incomplete sequence at the end may be the first half of a query.
    return QueryFilter().feed(text.encode("utf-8")).decode("utf-8")


def _without_blanks(row: str, columns: int) -> str:
    """
    Return a row without the blanks at its end, except those that make a terminal wrap the row.
    """
    text = row.rstrip(" ")
    blanks = len(row) - len(text)
    blank_rows = blanks // columns if text else blanks // columns - 1
    return text + " " * (blanks - columns + 1) if blank_rows > 0 else text
