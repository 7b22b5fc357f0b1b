"""Tests for :mod:`twisted_exec.cli.console.pager`."""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.console.pager import KEYS, Pager
from twisted_exec.cli.console.views import Key
from twisted_exec.wire.notices import wrapped_and_cut
from twisted_exec.wire.resize import TerminalSize

SIZE = TerminalSize(80, 4)


def rows(pager: Pager) -> list[str]:
    """Return the rows of the view without the blanks at their ends; the last one is the status."""
    shown = re.split(r"\x1b\[\d+;1H", pager.frame())[1:]
    return [re.sub(r"\x1b\[\d*m", "", row).rstrip() for row in shown]


class PagerTests(SynchronousTestCase):
    """A view of three rows and the status."""

    def setUp(self) -> None:
        self.pager = Pager([f"line {number}" for number in range(1, 10)], SIZE)

    def shown(self) -> list[str]:
        return [row.removeprefix("line ") for row in rows(self.pager)[:-1]]

    def test_keys(self) -> None:
        """Keys move the view, and not beyond the lines; others do nothing."""
        self.assertEqual(rows(self.pager)[-1], f"7-9 of 9  {KEYS}")
        for keys, first in (
            ([Key.DOWN], 7),
            ([Key.UP], 6),
            (["k", "j"], 6),
            ([Key.PAGE_UP], 3),
            (["b", "b"], 1),
            ([" "], 4),
            ([Key.END], 7),
            (["g", "x", Key.LEFT], 1),
            (["G"], 7),
        ):
            for key in keys:
                self.pager.press(key)
            self.assertEqual(self.shown()[0], str(first), keys)

    def test_width(self) -> None:
        """A view fits into 80 columns, and never draws the last one of the last row."""
        for row in re.split(r"\x1b\[\d+;1H", Pager(["x" * 200], SIZE).frame())[1:]:
            self.assertLessEqual(len(re.sub(r"\x1b\[\d*m", "", row)), 80)
        self.assertLess(len(rows(self.pager)[-1]), 80)

    def test_wrapped(self) -> None:
        """Long lines take several rows, and go on in view when the size changes."""
        pager = Pager(["a" * 7, "", "b" * 4], TerminalSize(4, 5))
        self.assertEqual(rows(pager)[:-1], ["aaaa", "aaa", "", "bbbb"])
        pager.resize(TerminalSize(3, 3))
        self.assertEqual(rows(pager)[:-1], ["aaa", "aaa"])

    def test_words(self) -> None:
        """Sentences are broken at blanks, and inside words that are longer than a row."""
        lines = ["  ~b  sends a BREAK", "", "incomprehensible"]
        pager = Pager(lines, TerminalSize(12, 9), wrapped_and_cut)
        shown = ["  ~b  sends", "    a BREAK", "", "incomprehens", "ible"]
        self.assertEqual(rows(pager)[:5], shown)

    def test_search(self) -> None:
        """The last match is found first, in any case; n and N go to earlier and later ones."""
        lines = ["Error a", *["x"] * 9, "error b", *["x"] * 9]
        pager = Pager(lines, SIZE)
        pager.search("ERROR")
        self.assertIn("\x1b[1m\x1b[7merror\x1b[27m b", pager.frame())
        pager.press("n")
        self.assertIn("\x1b[1m\x1b[7mError\x1b[27m a", pager.frame())
        pager.press("n")
        self.assertEqual(rows(pager)[-1], 'no earlier line has "ERROR"  q quit')
        pager.press("N")
        self.assertIn("\x1b[1m\x1b[7merror\x1b[27m b", pager.frame())
        pager.press("N")
        self.assertEqual(rows(pager)[-1], 'no later line has "ERROR"  q quit')
        pager.search("")
        self.assertIn(KEYS, rows(pager)[-1])

    def test_next_without_search(self) -> None:
        """The keys for the next match say that nothing is searched for yet."""
        for key in ("n", "N"):
            self.pager.press(key)
            self.assertIn("nothing is searched for yet: / searches", rows(self.pager)[-1])

    def test_narrow(self) -> None:
        """A narrow window still says how to leave."""
        pager = Pager(["a"] * 100, TerminalSize(30, 24))
        self.assertEqual(rows(pager)[-1], "78-100 of 100  q quit")
        pager = Pager(["a"] * 100, TerminalSize(60, 24))
        self.assertEqual(rows(pager)[-1], "78-100 of 100  / search  n N  w save  q quit")

    def test_nothing(self) -> None:
        """Without lines the view is empty."""
        pager = Pager([], SIZE)
        pager.press(Key.UP)
        pager.search("a")
        self.assertEqual(rows(pager), ["", "", "", 'no earlier line has "a"  q quit'])
        pager.press("q")
        self.assertEqual(rows(pager)[-1], f"no lines  {KEYS}")
