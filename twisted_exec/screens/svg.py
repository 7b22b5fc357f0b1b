"""Pictures of screens: SVG, also animated."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from html import escape

from twisted_exec.screens.screen import CellRun, Facts, Screen

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

MAX_SCREENS = 2000
MAX_ANIMATION_BYTES = 8 << 20
_STEP_BYTES = 50


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
