"""
Escape sequences and control characters: :mod:`twisted_exec.wire.plain_text`.
"""

from __future__ import annotations

from unittest import TestCase

from hypothesis import given
from hypothesis import strategies as st

from twisted_exec.wire.plain_text import PlainText, plain

_CASES = [
    ("text", b"login: \xc3\xa4\n", b"login: \xc3\xa4\n"),
    ("colours", b"\x1b[1;31mpanic\x1b[0m\n", b"panic\n"),
    ("a private mode", b"\x1b[?2004h# ", b"# "),
    ("letters with sequences between them", b"p\x1b[ma\x1b[mn\x1b(Bi\x1b=c", b"panic"),
    ("a title", b"\x1b]0;root@vm\x07$ ", b"$ "),
    ("a title that ends with ST", b"\x1b]0;root@vm\x1b\\$ ", b"$ "),
    ("a device control string", b"\x1bP1$r0m\x1b\\ok", b"ok"),
    ("a sequence in a sequence", b"\x1b[3\x1b[1mok", b"ok"),
    ("a cancelled string", b"\x1b]0;a\x18ok", b"ok"),
    ("carriage returns and bells", b"10%\r20%\r\n\x07\x00ok\x7f", b"10%20%\nok"),
    ("tabs", b"a\tb", b"a\tb"),
    ("a string that never ends", b"\x1b]0;title\nlogin:", b"\nlogin:"),
    ("an unfinished sequence", b"ok\x1b[1", b"ok"),
    ("an escape at the end", b"ok\x1b", b"ok"),
    ("control characters of eight bits", b"\xc2\x9bok", b"ok"),
    ("a long string", b"\x1b]" + b"x" * 5000, b"x" * 904),
]


class PlainTests(TestCase):
    """Whole texts."""

    def test_cases(self) -> None:
        """Sequences and control characters are removed; everything else remains."""
        for name, text, expected in _CASES:
            with self.subTest(name):
                self.assertEqual(plain(text), expected)

    def test_is_final(self) -> None:
        """The result has nothing left to remove, so a terminal shows it as it is."""
        for name, _, expected in _CASES:
            with self.subTest(name):
                self.assertEqual(plain(expected), expected)


class PlainTextTests(TestCase):
    """Streams."""

    def test_byte_by_byte(self) -> None:
        """A sequence may be split anywhere."""
        for name, text, expected in _CASES:
            with self.subTest(name):
                stream = PlainText()
                pieces = [stream.feed(text[at : at + 1]) for at in range(len(text))]
                self.assertEqual(b"".join(pieces), expected)

    @given(
        st.lists(st.sampled_from([b"\x1b", b"[", b"]", b"\\", b"\x07", b"1", b"m", b"\n", b"\xc2"]))
    )
    def test_lines_are_independent(self, parts: list[bytes]) -> None:
        """A stream, its lines, and its whole text give the same result."""
        text = b"".join(parts) + b"\n"
        stream = PlainText()
        by_line = b"".join(map(plain, text.splitlines(keepends=True)))
        self.assertEqual(b"".join(map(stream.feed, [*parts, b"\n"])), by_line)
        self.assertEqual(plain(text), by_line)
