"""
Tests for :mod:`twisted_exec.screens.rendering`.
"""

from __future__ import annotations

import json
from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.screens.process import AvtScreen
from twisted_exec.screens.rendering import RENDERERS, Screen, as_ansi, as_json, as_svg, as_text

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
