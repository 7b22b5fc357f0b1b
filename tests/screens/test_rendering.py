"""
Tests for :mod:`twisted_exec.screens.rendering` and :mod:`twisted_exec.screens.svg`.
"""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.screens import svg
from twisted_exec.screens.emulator import AvtScreen
from twisted_exec.screens.rendering import RENDERERS, as_ansi, as_json, as_text
from twisted_exec.screens.screen import Screen
from twisted_exec.screens.svg import MAX_SCREENS, Animation, AnimationTooLarge, as_svg

SVG = "{http://www.w3.org/2000/svg}"
XML = "{http://www.w3.org/XML/1998/namespace}"


def screen(output: str) -> Screen:
    """Return a screen of 20 columns and 4 rows."""
    emulator = AvtScreen(20, 4)
    emulator.feed(output)
    return emulator.screen()


class FormTests(SynchronousTestCase):
    """The forms of a screen."""

    def test_text(self) -> None:
        """Rows without blanks at their end, and without empty rows at the end."""
        self.assertEqual(as_text(screen("a  \x1b[2;3Hb"), {}), b"a\n  b\n")
        self.assertEqual(as_text(screen(""), {}), b"")

    def test_json(self) -> None:
        """The facts, the cursor, the text of all rows, and runs where there is a style."""
        value = json.loads(as_json(screen('"a\x1b[30;1mb\r\n'), {"offset": 7}))
        self.assertEqual(
            value,
            {
                "offset": 7,
                "columns": 20,
                "rows": 4,
                "cursor": {"row": 1, "column": 0, "visible": True},
                "lines": [
                    {
                        "text": '"ab',
                        "runs": [
                            {"column": 2, "columns": 1, "text": "b", "foreground": 0, "bold": True}
                        ],
                    },
                    {"text": ""},
                    {"text": ""},
                    {"text": ""},
                ],
            },
        )

    def test_ansi(self) -> None:
        """A terminal that gets the text shows the same screen."""
        shown = screen(
            "a\x1b[1;31;44mred\x1b[m \x1b[2;5H\x1b[38;2;1;2;3;7m漢\x1b[m\x1b[9mx\x1b[4;2H\x1b[?25l"
        )
        self.assertEqual(screen(as_ansi(shown, {}).decode()), shown)

    def test_svg(self) -> None:
        """A picture with the text, its colours, and nothing that a browser would execute or fetch."""
        picture = as_svg(
            screen("<script>&\x1b[31mred\x1b[42m \x1b[m\x1b[38;5;232mx\x1b[38;5;21my"), {}
        )
        root = ElementTree.fromstring(picture)
        self.assertEqual(
            [(each.text, each.get("fill")) for each in root.iter(f"{SVG}text")],
            [("<script>&", "#cccccc"), ("red", "#cd0000"), ("x", "#080808"), ("y", "#0000ff")],
        )
        self.assertEqual(
            {each.tag for each in root.iter()} - {f"{SVG}svg"}, {f"{SVG}rect", f"{SVG}text"}
        )
        self.assertIn("#00cd00", [each.get("fill") for each in root.iter(f"{SVG}rect")])

    def test_svg_blanks(self) -> None:
        """Browsers keep the blanks between words: each text asks for it, as Chromium needs."""
        texts = list(
            ElementTree.fromstring(as_svg(screen("CPU:   x\r\n  y"), {})).iter(f"{SVG}text")
        )
        self.assertEqual([each.text for each in texts], ["CPU:   x", "  y"])
        self.assertEqual({each.get(f"{XML}space") for each in texts}, {"preserve"})

    def test_names(self) -> None:
        """Each form that a request can name has a renderer."""
        self.assertEqual(sorted(RENDERERS), ["ansi", "json", "svg", "text"])


def animated(*outputs: str, size: tuple[int, int] = (20, 4)) -> bytes:
    """Return the animation of a screen that gets an output each second."""
    emulator, animation = AvtScreen(*size), Animation()
    for number, output in enumerate(outputs):
        emulator.feed(output)
        animation.show(number * 1000, emulator.screen())
    return animation.svg(len(outputs) * 1000)


def played(picture: bytes) -> list[tuple[float, list[str]]]:
    """Return when each screen appears, in percent, and the text of its rows."""
    root = ElementTree.fromstring(picture)
    style = root.findtext(f"{SVG}style") or ""
    rows = {each.get("id"): each for each in root.iter(f"{SVG}g") if each.get("id") != "s"}
    texts = {f"#{name}": "".join(row.itertext()).strip() for name, row in rows.items()}
    (column,) = (each for each in root.iter(f"{SVG}g") if each.get("id") == "s")
    screens = {}
    for each in column:
        y = re.fullmatch(r"translate\(0 (\d+)\)", each.get("transform") or "")
        assert y is not None
        screens[int(y[1])] = [texts[use.get("href") or ""] for use in each]
    steps = re.findall(r"([\d.]+)%\{transform:translateY\(-?(\d+)px\)\}", style)
    return [(float(percent), screens[int(y)]) for percent, y in steps]


class AnimationTests(SynchronousTestCase):
    """Screens one after the other."""

    def test_screens(self) -> None:
        """Each screen has its rows and its cursor, and appears at its time."""
        picture = animated("\x1b[?25la", "b\r\n", "c", "")
        self.assertEqual(played(picture), [(0, ["a"]), (25, ["ab"]), (50, ["ab", "c"])])
        self.assertIn(b"animation:s 4000ms step-end infinite", picture)
        self.assertEqual(played(animated("a\r\nb"))[0][1], ["a", "b", ""])

    def test_once(self) -> None:
        """A row or a screen that comes again is not drawn again."""
        picture = animated("\x1b[?25lone", "\r\ntwo", "\x1b[H\x1b[Jone")
        self.assertEqual(picture.count(b">one<"), 1)
        self.assertEqual(ElementTree.fromstring(picture).findall(f"{SVG}g/{SVG}g")[2:], [])

    def test_without_animation(self) -> None:
        """The last screen is the one that a program shows that animates nothing."""
        column = ElementTree.fromstring(animated("a", "b", "c")).findall(f"{SVG}g")[0]
        self.assertEqual(column.get("transform"), f"translate(0 {-2 * (4 * 17 + 16)})")
        self.assertIn(b"prefers-reduced-motion", animated("a"))

    def test_hostile(self) -> None:
        """Output of a machine is text: nothing in the picture is executed or fetched."""
        text = "</style><script>alert(1)</script>&\x00\ufffe"
        picture = animated(text, "\r\n<image href='http://x/'/>", size=(60, 4))
        self.assertIn("</style><script>", played(picture)[0][1][0])
        tags = {each.tag.removeprefix(SVG) for each in ElementTree.fromstring(picture).iter()}
        self.assertEqual(tags, {"svg", "rect", "style", "defs", "g", "use", "text"})

    def test_limits(self) -> None:
        """Neither the screens nor the bytes exceed a limit."""
        emulator, animation = AvtScreen(20, 4), Animation()
        for number in range(MAX_SCREENS):
            emulator.feed(f"\r{number}")
            animation.show(number, emulator.screen())
        animation.show(MAX_SCREENS, emulator.screen())
        emulator.feed("more")
        self.assertRaises(AnimationTooLarge, animation.show, MAX_SCREENS, emulator.screen())
        self.patch(svg, "MAX_ANIMATION_BYTES", 1 << 20)
        emulator, animation = AvtScreen(400, 150), Animation()
        with self.assertRaises(AnimationTooLarge):
            for number in range(MAX_SCREENS):
                emulator.feed("\x1b[H" + "".join(f"{number}.{word} " for word in range(9000)))
                animation.show(number, emulator.screen())
