"""
Tests for :mod:`twisted_exec.screens.state`: terminals that take over from a console's.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.screens.test_emulator import PIECES
from tests.wire.terminal_model import answered
from tests.wire.test_escape_sequences_queries import all_cases
from twisted_exec.screens.emulator import MAX_COLUMNS, MAX_ROWS, AvtScreen
from twisted_exec.screens.interfaces import Job
from twisted_exec.screens.process import render
from twisted_exec.screens.screen import line_text

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
