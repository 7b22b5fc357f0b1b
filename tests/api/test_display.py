"""
Tests for :mod:`twisted_exec.api.display`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.display import banner_lines, display_name, listed, shortened


class DisplayTests(SynchronousTestCase):
    """Text that is safe and short enough for a terminal."""

    def test_banner(self) -> None:
        """A banner has at most four lines of 80 printable characters; empty lines do not count."""
        self.assertEqual(banner_lines(" ask\t\x1b[2Jops \r\n\n\x07\n2"), ["ask[2Jops", "2"])
        self.assertEqual(banner_lines("x" * 100 + "\n2\n3\n4\n5"), ["x" * 80, "2", "3", "4"])
        self.assertEqual(banner_lines("\x07\n"), [])

    def test_shortened(self) -> None:
        """A text that is cut says so, within the limit."""
        self.assertEqual(shortened("abc", 3), "abc")
        self.assertEqual(shortened("abcd", 3), "ab\N{HORIZONTAL ELLIPSIS}")
        self.assertEqual(shortened("a bcd", 3), "a\N{HORIZONTAL ELLIPSIS}")

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
