"""
Tests for :mod:`twisted_exec.screens.rendering` and :mod:`twisted_exec.screens.svg`.
"""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.screens.test_emulator import PIECES
from tests.wire.terminal_model import answered
from tests.wire.test_escape_sequences_queries import all_cases
from twisted_exec.screens import svg
from twisted_exec.screens.emulator import MAX_COLUMNS, MAX_ROWS, AvtScreen
from twisted_exec.screens.interfaces import Job
from twisted_exec.screens.process import render
from twisted_exec.screens.rendering import RENDERERS, as_ansi, as_json, as_text
from twisted_exec.screens.screen import Screen, line_text
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


MODES = (
    *(b"\x1b[?1h", b"\x1b[?1l", b"\x1b[?6h", b"\x1b[?7l", b"\x1b[4h", b"\x1b[?2004h"),
    *(b"\x1b[?1002;1006h", b"\x1b=", b"\x1b[>4;2m", b"\x1b[38;5;200m", b"\x1bH", b"\x1b[3g"),
    *(b"\x1b[48;2;1;2;3m", b"full of text, and more of it than one row"),
)


def state_of(output: bytes, columns: int = 20, rows: int = 4, **more: Any) -> dict[str, Any]:
    """Return the answer in the form state."""
    job = Job(columns, rows, "", output, (), "state", {"offset": len(output)}, **more)
    value: dict[str, Any] = json.loads(render(job).body)
    return value


def shown(terminal: AvtScreen) -> Any:
    """Return all that a user sees, and the modes."""
    return terminal.screen(), terminal._modes.reports()


def seen(output: str, size: tuple[int, int]) -> list[str]:
    """Return the rows of a terminal that got this output."""
    terminal = AvtScreen(*size)
    terminal.feed(output)
    return seen_of(terminal, size)


def seen_of(terminal: AvtScreen, size: tuple[int, int]) -> list[str]:
    """Return what a terminal of some size has room for."""
    columns, rows = size
    lines = [line_text(each)[:columns].rstrip() for each in terminal.screen().lines[:rows]]
    return lines + [""] * (rows - len(lines))


class StateTests(SynchronousTestCase):
    """The form state."""

    def test_fields(self) -> None:
        """It says the size, and behind which output it is: before a character that is incomplete."""
        state = state_of(b"h\xc3\xa9\xc3")
        self.assertEqual(state, {"offset": 3, "columns": 20, "rows": 4, "output": state["output"]})

    def test_plain(self) -> None:
        """Rows are text without blanks at the end, and the cursor follows them."""
        self.assertEqual(
            state_of(b"one\r\n  two")["output"], "one\r\n  two\r\n\x1b[m\x1b[2;6H\x1b[0m"
        )

    def test_no_queries(self) -> None:
        """
        A terminal that begins with a state, and goes on with output of a session behind it, answers nothing.
        """
        for query, harmless in all_cases():
            for at in range(len(query) + 1):
                state = state_of(b"text " + query[:at])
                rest = harmless[max(0, state["offset"] - 5) :]
                self.assertEqual(answered(state["output"].encode() + rest), [], (query, at))

    def test_blank_rows(self) -> None:
        """A line that was wrapped into blank rows of the screen takes as many rows."""
        for blanks in (16, 20, 36, 60):
            for text in ("", "text"):
                output = f"{text}{' ' * blanks}\nend"
                whole, user = AvtScreen(20, 4), AvtScreen(20, 4)
                whole.feed(output)
                user.feed(state_of(output.encode())["output"])
                self.assertEqual(shown(user), shown(whole), (blanks, text))

    def test_sequences(self) -> None:
        """There are no sequences that many terminals lack, and blanks with a background remain."""
        output = state_of(b"\x1b[41m" + b"x" * 9 + b"  \x1b[m\r\n\x1b[2;3r\x1b[?1049hy")["output"]
        self.assertNotRegex(output, "[\x80-\x9f]|\x1b\\[[0-9]+b")
        self.assertIn("xxxxxxxxx  ", output)

    def test_editor(self) -> None:
        """The state of an editor has the terminal save its cursor as most editors restore it."""
        output = state_of(b"# vi\x1b[?1049h\x1b[H\x1b[2Jtext")["output"]
        self.assertIn("\x1b[1;5H\x1b[0m\x1b[?1049h\x1b[m\x1b[2J", output)

    def test_size(self) -> None:
        """Rows are wrapped anew for a terminal of another size, up to a limit."""
        state = state_of(b"a row of text", shown_size=(8, 3))
        self.assertEqual((state["columns"], state["rows"]), (8, 3))
        user = AvtScreen(8, 3)
        user.feed(state["output"])
        self.assertEqual(
            [line_text(each) for each in user.screen().lines], ["a row of", " text", ""]
        )
        state = state_of(b"", shown_size=(9999, 9999))
        self.assertEqual((state["columns"], state["rows"]), (MAX_COLUMNS, MAX_ROWS))

    def test_size_of_editor(self) -> None:
        """
        A full-screen program has drawn for its own size: a larger terminal shows that picture at the
        top left, and scrolls as much of it; a smaller one shows the part that fits.
        """
        begin = "# vi\x1b[?1049h\x1b[2;3H\x1b7\x1b[H\x1b[2Ja long \x1b[31mline\x1b[m of 24 columns.\r\nend"
        modes = (
            "",
            "\x1b[2;4r\x1b[3;2H",
            "\x1b[33m\x1b[?7l\x1b[4h\x1b[2;4r\x1b[?6h",
            "\x1b)0\x0e\x1b[?25l",
        )
        more = ("", "x\r\n\n\n\nlast\x1b8y", "\x1b[4;1Hbottom\nnext", "\x1b[?1049l$ ")
        for first, then in product(modes, more):
            whole = AvtScreen(20, 4)
            whole.feed(begin + first)
            for size in ((12, 4), (20, 3), (12, 3), (12, 10), (30, 3)):
                state = state_of((begin + first).encode(), shown_size=size)
                self.assertEqual((state["columns"], state["rows"]), size)
                self.assertEqual(seen(state["output"], size), seen_of(whole, size), (first, size))
            whole.feed(then)
            for size in ((30, 4), (20, 10), (30, 10)):
                output = state_of((begin + first).encode(), shown_size=size)["output"] + then
                self.assertEqual(seen(output, size), seen_of(whole, size), (first, then, size))

    def test_size_of_key_frame(self) -> None:
        """The size of a terminal that shows a screen changes nothing for the next ones."""
        job = Job(20, 4, "", b"a row of text", (), "text", {}, (8, 3))
        rendered = render(job)
        self.assertEqual(rendered.body, b"a row of\n text\n")
        self.assertEqual((rendered.columns, rendered.rows), (20, 4))
        again = render(Job(20, 4, rendered.key_frame, b"", (), "text"))
        self.assertEqual(again.body, b"a row of text\n")

    def test_modes_over_key_frames(self) -> None:
        """Modes that an emulator does not show are part of its key frame."""
        frame = render(Job(20, 4, "", b"\x1b[?2004h\x1b[?100", (), "text")).key_frame
        output = json.loads(render(Job(20, 4, frame, b"2h", (), "state")).body)["output"]
        self.assertTrue(output.startswith("\x1b[?1002h\x1b[?2004h"), output)

    @given(st.lists(st.sampled_from([*PIECES, *MODES]), max_size=60), st.integers(0, 900))
    def test_exact(self, pieces: list[bytes], split: int) -> None:
        """A terminal with a state and the output behind it is the same as one with all output."""
        output = b"".join(pieces)
        state = state_of(output[:split])
        user, whole = AvtScreen(20, 4), AvtScreen(20, 4)
        user.feed(state["output"])
        user.feed(output[state["offset"] :].decode("utf-8", "replace"))
        whole.feed(output.decode("utf-8", "replace"))
        self.assertEqual(shown(user), shown(whole))
