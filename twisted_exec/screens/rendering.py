"""The content of a screen and its forms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from html import escape

from twisted_exec.wire.escape_sequences import QueryFilter


@dataclass(frozen=True)
class Style:
    """
    The attributes of characters.

    :param foreground: the number of a colour, 0 to 255; ``#rrggbb``; or ``None`` for the default.
    :param background: as ``foreground``.
    """

    foreground: int | str | None = None
    background: int | str | None = None
    bold: bool = False
    faint: bool = False
    italic: bool = False
    underline: bool = False
    strikethrough: bool = False
    blink: bool = False
    inverse: bool = False


PLAIN = Style()


@dataclass(frozen=True)
class CellRun:
    """
    Neighbouring characters of one row with the same style and width.

    :param column: of the first character, from 0.
    :param width: of each character, in columns: 2 for Chinese characters and many symbols.
    """

    column: int
    text: str
    style: Style = PLAIN
    width: int = 1

    @property
    def columns(self) -> int:
        return len(self.text) * self.width


@dataclass(frozen=True)
class Cursor:
    """The position of the cursor, from 0; always on the screen."""

    row: int
    column: int
    is_visible: bool = True


@dataclass(frozen=True)
class Screen:
    """
    The content of a screen.

    :param lines: one for each row; blanks at the end of a row are left out, unless they have a
        style.
    """

    columns: int
    rows: int
    cursor: Cursor
    lines: Sequence[Sequence[CellRun]]


def line_text(runs: Sequence[CellRun]) -> str:
    """Return the text of a row."""
    text, column = "", 0
    for run in runs:
        text += " " * (run.column - column) + run.text
        column = run.column + run.columns
    return text


Facts = Mapping[str, object]

_FONT = 14
_CELL_WIDTH, _CELL_HEIGHT, _BASELINE = 8.4, 17, 13.0
_MARGIN = 8
_FOREGROUND, _BACKGROUND = "#cccccc", "#121314"
_BASE = [
    "#000000",
    "#cd0000",
    "#00cd00",
    "#cdcd00",
    "#0000ee",
    "#cd00cd",
    "#00cdcd",
    "#e5e5e5",
    "#7f7f7f",
    "#ff0000",
    "#00ff00",
    "#ffff00",
    "#5c5cff",
    "#ff00ff",
    "#00ffff",
    "#ffffff",
]
"""xterm's first 16 colours."""
_LEVELS = (0, 95, 135, 175, 215, 255)
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


def as_svg(screen: Screen, facts: Facts) -> bytes:
    """Return a picture; it refers to nothing outside, and has no script."""
    parts = [_opening(screen.columns, screen.rows)]
    for row, runs in enumerate(screen.lines):
        parts += [part for run in runs for part in _drawn(run, row)]
    if screen.cursor.is_visible:
        parts.append(_drawn_cursor(screen.cursor.column, screen.cursor.row))
    return "".join([*parts, "</svg>\n"]).encode()


def _opening(columns: int, rows: int) -> str:
    width = columns * _CELL_WIDTH + 2 * _MARGIN
    height = rows * _CELL_HEIGHT + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="ui-monospace,Menlo,Consolas,'
        f'\'DejaVu Sans Mono\',monospace" font-size="{_FONT}">\n'
        f'<rect width="100%" height="100%" fill="{_BACKGROUND}"/>\n'
    )


def _drawn_cursor(column: int, row: int) -> str:
    x, y = _place(column, row)
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{_CELL_WIDTH}" height="{_CELL_HEIGHT}" '
        f'fill="{_FOREGROUND}" fill-opacity="0.5"/>\n'
    )


def _place(column: int, row: int) -> tuple[float, float]:
    return _MARGIN + column * _CELL_WIDTH, _MARGIN + row * _CELL_HEIGHT


def _drawn(run: CellRun, row: int) -> Iterator[str]:
    style = run.style
    front, back = _shade(style.foreground, _FOREGROUND), _shade(style.background, _BACKGROUND)
    if style.inverse:
        front, back = back, front
    (x, y), width = _place(run.column, row), run.columns * _CELL_WIDTH
    if back != _BACKGROUND:
        yield f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{_CELL_HEIGHT}" fill="{back}"/>\n'
    if not run.text.strip():
        return
    more = ""
    if style.bold:
        more += ' font-weight="bold"'
    if style.italic:
        more += ' font-style="italic"'
    if style.faint:
        more += ' fill-opacity="0.6"'
    lines = [("underline", style.underline), ("line-through", style.strikethrough)]
    if decoration := " ".join(name for name, is_set in lines if is_set):
        more += f' text-decoration="{decoration}"'
    # Chromium 156 does not inherit xml:space, and joins blanks without it.
    yield (
        f'<text x="{x:g}" y="{y + _BASELINE:g}" fill="{front}"{more} textLength="{width:g}" '
        f'lengthAdjust="spacingAndGlyphs" xml:space="preserve">{escape(run.text, quote=False)}'
        "</text>\n"
    )


@lru_cache(maxsize=512)
def _shade(colour: int | str | None, default: str) -> str:
    if colour is None:
        return default
    if isinstance(colour, str):
        return colour
    if colour < len(_BASE):
        return _BASE[colour]
    if colour >= 232:
        return "#" + f"{8 + 10 * (colour - 232):02x}" * 3
    cube = colour - len(_BASE)
    return "#" + "".join(f"{_LEVELS[cube // by % 6]:02x}" for by in (36, 6, 1))


MAX_SCREENS = 2000
MAX_ANIMATION_BYTES = 8 << 20
_STEP_BYTES = 50


class AnimationTooLarge(Exception):
    """An animation would exceed a limit."""


class Animation:
    """
    An SVG that shows screens one after the other, again and again.

    For readers who prefer reduced motion it shows the last screen.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._screens: dict[str, int] = {}
        self._steps: list[tuple[int, int]] = []
        self._columns = self._lines = 1
        self._bytes = 0

    def show(self, time: int, screen: Screen) -> None:
        """
        Show a screen from a time on.

        :param time: in milliseconds; 0 for the first screen, and then never less than before.
        :raises AnimationTooLarge: there are too many screens or bytes.
        """
        self._columns = max(self._columns, screen.columns)
        self._lines = max(self._lines, screen.rows)
        uses = [
            self._use("".join(part for run in runs for part in _drawn(run, 0)), row)
            for row, runs in enumerate(screen.lines)
            if runs
        ]
        if screen.cursor.is_visible:
            uses.append(self._use(_drawn_cursor(screen.cursor.column, 0), screen.cursor.row))
        number = self._number(self._screens, "".join(uses))
        if self._steps and self._steps[-1][1] == number:
            return
        if len(self._steps) == MAX_SCREENS:
            raise AnimationTooLarge(f"more than {MAX_SCREENS} screens")
        self._steps.append((time, number))
        self._bytes += _STEP_BYTES
        if self._bytes > MAX_ANIMATION_BYTES:
            raise AnimationTooLarge(f"more than {MAX_ANIMATION_BYTES >> 20} MiB")

    def _use(self, drawn: str, row: int) -> str:
        number = self._number(self._rows, drawn)
        return f'<use href="#r{number}" y="{row * _CELL_HEIGHT}"/>'

    def _number(self, known: dict[str, int], text: str) -> int:
        if text not in known:
            self._bytes += len(text.encode())
        return known.setdefault(text, len(known))

    def svg(self, end: int) -> bytes:
        """
        Return the picture; it refers to nothing outside, and has no script.

        :param end: when it begins again, in milliseconds, after the time of the last screen.
        """
        height = self._lines * _CELL_HEIGHT + 2 * _MARGIN
        steps = "".join(
            f"{100 * time / end:.6g}%{{transform:translateY({-number * height}px)}}\n"
            for time, number in self._steps
        )
        rows = "".join(f'<g id="r{number}">{row}</g>\n' for row, number in self._rows.items())
        screens = "".join(
            f'<g transform="translate(0 {number * height})">{uses}</g>\n'
            for uses, number in self._screens.items()
        )
        return (
            f"{_opening(self._columns, self._lines)}"
            f"<style>#s{{animation:s {end}ms step-end infinite}}\n@keyframes s{{\n{steps}}}\n"
            "@media (prefers-reduced-motion:reduce){#s{animation:none}}</style>\n"
            f"<defs>\n{rows}</defs>\n"
            f'<g id="s" transform="translate(0 {-self._steps[-1][1] * height})">\n{screens}</g>\n'
            "</svg>\n"
        ).encode()


RENDERERS: Mapping[str, Callable[[Screen, Facts], bytes]] = {
    "text": as_text,
    "json": as_json,
    "svg": as_svg,
    "ansi": as_ansi,
}
"""By the names of the forms."""


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
