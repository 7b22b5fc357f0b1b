"""
Tests for :mod:`twisted_exec.api.display`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.display import display_name, listed


class DisplayTests(SynchronousTestCase):
    """Text that is safe and short enough for a terminal."""

    def test_display_name(self) -> None:
        """The name of a user, as shown, is printable and at most 64 characters long."""
        self.assertEqual(display_name("a\x1b[2Jb\n"), "a?[2Jb?")
        self.assertEqual(len(display_name("x" * 1000)), 64)
        self.assertEqual(display_name("x" * 64), "x" * 64)
        self.assertEqual(display_name("j\u00f6rg"), "j\u00f6rg")
        self.assertEqual(display_name(""), "somebody")

    def test_listed(self) -> None:
        """The number of the others takes the place of two names or more."""
        self.assertEqual(listed("abcd", 3), "a, b, c, d")
        self.assertEqual(listed("abcde", 3), "a, b, c and 2 more")
        self.assertEqual(listed("abcd", 2, "; "), "a; b and 2 more")
        self.assertEqual(listed([], 3), "")
