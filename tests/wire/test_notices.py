"""Tests for :mod:`twisted_exec.wire.notices`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.notices import (
    decode_notice,
    encode_gap,
    encode_notice,
    is_gap,
    wrapped,
    wrapped_and_cut,
    wrapped_notice,
)


class NoticeTests(SynchronousTestCase):
    """Tests for :func:`encode_notice` and :func:`encode_gap`."""

    def test_is_gap(self) -> None:
        """A notice in place of missing output is told from others."""
        for text, expected in (
            ("7 bytes skipped", True),
            ("output is missing here", True),
            ("the line is lost", False),
        ):
            self.assertEqual(is_gap(text), expected, text)

    def test_text(self) -> None:
        """A notice is a line of its own; a gap is one with the number of bytes, if it is known."""
        for notice, text in (
            (encode_notice("ada has left"), b"ada has left"),
            (encode_notice("Zo\u00eb  \U0001f600 [x]"), "Zo\u00eb  \U0001f600 [x]".encode()),
            (encode_gap(7), b"7 bytes skipped"),
            (encode_gap(None), b"output is missing here"),
        ):
            self.assertEqual(notice, b"\r\n[twisted-exec: " + text + b"]\r\n")
            self.assertEqual(decode_notice(notice), text.decode())

    def test_wrapped(self) -> None:
        """For a terminal, a long message is broken at blanks; it reads back as it was."""
        short = encode_notice("ada has left")
        self.assertEqual(wrapped_notice(short), short)
        self.assertEqual(wrapped("  short", 78), ["  short"])
        text = "the writer of this console is ada; you are an observer (~f or --force takes over)"
        notice = wrapped_notice(encode_notice(text))
        rows = notice.decode().split("\r\n")
        self.assertEqual(len(rows), 4)
        self.assertLessEqual(max(map(len, rows)), 78)
        self.assertEqual(decode_notice(notice), text)

    def test_wrapped_and_cut(self) -> None:
        """A word that is longer than a row is cut."""
        for line, rows in (
            ("a bb ccc", ["a bb", "  cc", "c"]),
            ("abcdef", ["abcd", "ef"]),
            ("", [""]),
        ):
            self.assertEqual(wrapped_and_cut(line, 4), rows)

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        """A terminal shows all of a notice, whatever name or reason is in it, and does nothing else."""
        shown = decode_notice(encode_notice(text))
        self.assertTrue(shown.isprintable())
        if text.isprintable():
            self.assertEqual(shown, text)

    def test_escapes(self) -> None:
        """Line breaks become spaces, and other control characters question marks."""
        for text, shown in (
            ("x\x1b]0;title\x07y", "x?]0;title?y"),
            ("a\r\nb\tc", "a b c"),
            ("\x9b2J\x7f\x00", "?2J??"),
            ("\u202eevil\u2066", "?evil?"),
            ("\ud800", "?"),
        ):
            self.assertEqual(decode_notice(encode_notice(text)), shown)

    def test_unwrapped(self) -> None:
        """A text that nobody has wrapped is the notice itself."""
        self.assertEqual(decode_notice(b"ada has left"), "ada has left")
