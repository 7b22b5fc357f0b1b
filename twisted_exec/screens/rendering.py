"""The forms of a screen: text, JSON, SVG and output for terminals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from twisted_exec.screens.screen import PLAIN, CellRun, Facts, Screen, Style, line_text
from twisted_exec.screens.svg import as_svg

_ATTRIBUTES = [each.name for each in fields(Style)]
_CODES = {
    "bold": 1,
    "faint": 2,
    "italic": 3,
    "underline": 4,
    "blink": 5,
    "inverse": 7,
    "strikethrough": 9,
}


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
