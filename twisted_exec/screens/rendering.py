"""The forms of a screen: text, JSON, SVG and output for terminals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from twisted_exec.screens.screen import PLAIN, CellRun, Facts, Screen, Style, line_text
from twisted_exec.screens.svg import as_svg
from twisted_exec.wire.escape_sequences import QueryFilter

_ATTRIBUTES = [field.name for field in fields(Style)]
_CODES = {
    "bold": 1,
    "faint": 2,
    "italic": 3,
    "underline": 4,
    "blink": 5,
    "inverse": 7,
    "strikethrough": 9,
}


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


def as_text(screen: Screen, facts: Facts) -> bytes:
    """Return the rows without blanks at their end, and without empty rows at the end."""
    lines = [line_text(runs).rstrip() for runs in screen.lines]
    text = "\n".join(lines).rstrip("\n")
    return f"{text}\n".encode() if text else b""


def as_json(screen: Screen, facts: Facts) -> bytes:
    """Return a JSON object with the facts and the screen."""
    value = {
        **facts,
        "columns": screen.columns,
        "rows": screen.rows,
        "cursor": {
            "row": screen.cursor.row,
            "column": screen.cursor.column,
            "visible": screen.cursor.is_visible,
        },
        "lines": [_line(runs) for runs in screen.lines],
    }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _line(runs: Sequence[CellRun]) -> dict[str, object]:
    line: dict[str, object] = {"text": line_text(runs)}
    styled = [
        {"column": run.column, "columns": run.columns, "text": run.text, **_attributes(run.style)}
        for run in runs
        if run.style != PLAIN
    ]
    return {**line, "runs": styled} if styled else line


def _attributes(style: Style) -> dict[str, object]:
    values = ((name, getattr(style, name)) for name in _ATTRIBUTES)
    return {name: value for name, value in values if value is not None and value is not False}


def as_ansi(screen: Screen, facts: Facts) -> bytes:
    """Return output that clears a terminal and draws the screen."""
    text = "\x1b[m\x1b[H\x1b[2J"
    for row, runs in enumerate(screen.lines):
        for run in runs:
            start = f"\x1b[{row + 1};{run.column + 1}H"
            if run.style == PLAIN:
                text += start + run.text
            else:
                text += f"{start}\x1b[{_sgr(run.style)}m{run.text}\x1b[m"
    cursor = screen.cursor
    visibility = "h" if cursor.is_visible else "l"
    return f"{text}\x1b[{cursor.row + 1};{cursor.column + 1}H\x1b[?25{visibility}".encode()


def _sgr(style: Style) -> str:
    codes = [str(code) for name, code in _CODES.items() if getattr(style, name)]
    for first, colour in ((38, style.foreground), (48, style.background)):
        if isinstance(colour, int):
            codes.append(f"{first};5;{colour}")
        elif colour is not None:
            red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
            codes.append(f"{first};2;{red};{green};{blue}")
    return ";".join(codes)


RENDERERS: Mapping[str, Callable[[Screen, Facts], bytes]] = {
    "text": as_text,
    "json": as_json,
    "svg": as_svg,
    "ansi": as_ansi,
}
"""By the names of the forms."""
