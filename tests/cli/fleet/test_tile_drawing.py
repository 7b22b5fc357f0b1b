"""Tests for :mod:`twisted_exec.cli.fleet.tile_drawing`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.console.views import fitted
from twisted_exec.cli.fleet.tile_drawing import ScreenText, draw_tile
from twisted_exec.cli.fleet.tiles import Grid

SCREEN = {
    "epoch": "0123456789abcdef",
    "offset": 10,
    "cursor": {"row": 1, "column": 2, "visible": True},
    "lines": [{"text": "one"}, {"text": "two"}, {"text": ""}],
}


class DrawTileTests(SynchronousTestCase):
    """Tests for :func:`draw_tile`."""

    def drawn(self, height: int, message: str = "", screen: ScreenText | None = None) -> list[str]:
        """Return the rows with their places and styles."""
        text = draw_tile((1, 1), Grid(1, 1, 7, height), "a", screen, message)
        return (
            text.replace("\x1b[7m", "<")
            .replace("\x1b[1m", "!")
            .replace("\x1b[m", ">")
            .split("\x1b")[1:]
        )

    def test_screen(self) -> None:
        """The title comes first, then the rows, with the cursor."""
        screen = ScreenText.parse(SCREEN)
        rows = self.drawn(4, screen=screen)
        self.assertEqual(
            rows, ["[1;1H<a     > ", "[2;1Hone    ", "[3;1Htwo    ", "[3;3H<o>", "[4;1H       "]
        )

    def test_colours(self) -> None:
        """Styles are drawn over the text, as far as they are in the tile."""
        run = {"column": 1, "columns": 8, "text": "wo\x1b[2Jxyz", "foreground": 1, "bold": True}
        other = {"column": 0, "columns": 1, "text": "o", "background": "#0a0B0c"}
        lines = [{"text": "one", "runs": [other]}, {"text": "two\x1b[2Jxyz", "runs": [run]}]
        screen = ScreenText.parse({**SCREEN, "lines": lines})
        rows = self.drawn(3, screen=screen)
        self.assertEqual(rows[1:4], ["[2;1Hone    ", "[2;1H", "[48;2;10;11;12mo>"])
        self.assertEqual(
            rows[4:], ["[3;1Htwo\ufffd[2 ", "[3;2H", "[1;38;5;1mwo\ufffd[2>", "[3;3H<o>"]
        )

    def test_skip(self) -> None:
        """Columns at the left can be left out, of the text, its styles and the cursor."""
        run = {"column": 1, "columns": 4, "text": "bc\u6f22", "inverse": True}
        screen = ScreenText.parse({**SCREEN, "lines": [{"text": "abc\u6f22d", "runs": [run]}]})
        text = draw_tile((1, 1), Grid(1, 1, 7, 2), "a", screen, "", 2)
        self.assertIn("\x1b[2;1Hc\u6f22d   ", text)
        self.assertIn("\x1b[7mc\u6f22\x1b[m", text)
        self.assertEqual(fitted("\u6f22b", 4, 1), " b  ")

    def test_last_rows(self) -> None:
        """Of a screen that is higher than the tile the last rows in use are shown."""
        rows = self.drawn(2, screen=ScreenText.parse(SCREEN))
        self.assertEqual(rows, ["[1;1H<a     > ", "[2;1Htwo    ", "[2;3H<o>"])

    def test_message(self) -> None:
        """A message is broken at blanks over the last rows."""
        rows = self.drawn(4, "not there")
        self.assertEqual(rows[-2:], ["[4;1H!there >", "[3;1H!not   >"])

    def test_not_a_screen(self) -> None:
        """Any other answer is refused."""
        for document in (
            {},
            [],
            {**SCREEN, "lines": 3},
            {**SCREEN, "cursor": {}},
            {**SCREEN, "lines": [1]},
            {**SCREEN, "lines": [{"text": "", "runs": [{"column": 0}]}]},
            {
                **SCREEN,
                "lines": [
                    {
                        "text": "",
                        "runs": [{"column": 0, "columns": 1, "text": "", "foreground": "1m"}],
                    }
                ],
            },
        ):
            with self.assertRaises(ValueError):
                ScreenText.parse(document)  # type: ignore[arg-type]
