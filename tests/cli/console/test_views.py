"""Tests for :mod:`twisted_exec.cli.console.views`."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.console.views import Key, first_key, fitted


def keys(data: bytes) -> list[Key | str]:
    """Return the keys of some input, without those that have no meaning here."""
    pressed = []
    while data:
        key, length = first_key(data)
        data = data[length:]
        if key is not None:
            pressed.append(key)
    return pressed


class KeysTests(SynchronousTestCase):
    """Tests for :func:`first_key`."""

    def test_keys(self) -> None:
        """Characters, keys with a name in both of the terminal's modes, and no others."""
        self.assertEqual(
            keys(b"a \x1b[A\x1bOB\x1b[C\x1b[D\x1b[5~\x1b[6~\x1b[H\x1b[4~\r\x1d\x03"),
            [
                "a",
                " ",
                Key.UP,
                Key.DOWN,
                Key.RIGHT,
                Key.LEFT,
                Key.PAGE_UP,
                Key.PAGE_DOWN,
                Key.HOME,
                Key.END,
                Key.ENTER,
                Key.LEAVE,
                "\x03",
            ],
        )
        self.assertEqual(keys(b"\x1b[15~\x1b[1;5P\xc3\xa9"), [])


class FittedTests(SynchronousTestCase):
    """Tests for :func:`fitted`."""

    def test_texts(self) -> None:
        """Text takes exactly the width; a wide character that does not fit is left out."""
        for text, width, shown in (
            ("abc", 5, "abc  "),
            ("abcdef", 5, "abcde"),
            ("中文", 3, "中 "),
            ("e\u0301a", 3, "ea "),
            ("\u202ea\x1b[2J", 8, "a\ufffd[2J   "),
            ("\u05d0\u0627", 3, "\ufffd\ufffd "),
        ):
            self.assertEqual(fitted(text, width), shown)

    @given(st.text(max_size=30), st.integers(0, 20), st.integers(0, 20))
    def test_any(self, text: str, width: int, skip: int) -> None:
        """Whatever the text, nothing but visible characters of that width is left."""
        shown = fitted(text, width, skip)
        wide = sum(unicodedata.east_asian_width(each) in "WF" for each in shown)
        self.assertEqual(len(shown) + wide, width)
        self.assertEqual({unicodedata.category(each)[0] for each in shown} & {"C", "M"}, set())
