"""
Tests for :mod:`twisted_exec.cli.messages`.
"""

from __future__ import annotations

import io

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.messages import Colour, painter


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


class PainterTests(SynchronousTestCase):
    """Tests for :func:`painter`."""

    def test_terminal(self) -> None:
        """On a terminal a text has its colour, and the default colour follows."""
        paint = painter(Terminal(), {"TERM": "xterm"})
        self.assertEqual(paint("x", Colour.RED), "\x1b[31mx\x1b[m")
        self.assertEqual(paint("x", Colour.NONE), "x")
        paint = painter(Terminal(), {"TERM": "xterm", "NO_COLOR": ""})
        self.assertEqual(paint("x", Colour.GREEN), "\x1b[32mx\x1b[m")

    def test_no_colours(self) -> None:
        """There are none in files, with NO_COLOR, and on terminals that have none."""
        for stream, environ in (
            (io.StringIO(), {"TERM": "xterm"}),
            (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}),
            (Terminal(), {"TERM": "dumb"}),
            (Terminal(), {}),
        ):
            self.assertEqual(painter(stream, environ)("x", Colour.RED), "x")
