"""Tests for :mod:`twisted_exec.cli.mcp.keys`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.mcp.keys import typed


class KeyTests(SynchronousTestCase):
    """What is typed."""

    def test_typed(self) -> None:
        """A newline is the key enter, and keys follow the text."""
        for text, keys, expected in (
            ("ls\n", [], b"ls\r"),
            ("a\r\nb", ["ctrl-c"], b"a\rb\x03"),
            ("", ["f1", "f5", "up", "ctrl-]"], b"\x1bOP\x1b[15~\x1b[A\x1d"),
            ("größe\t", ["enter"], "größe\t\r".encode()),
        ):
            self.assertEqual(typed(text, keys), expected)

    def test_refused(self) -> None:
        """A control character needs its name, so that people read what an agent types."""
        for text in ("\x03", "a\x1b[2J", "\u202ex", ""):
            self.assertRaises(ValueError, typed, text, [])
