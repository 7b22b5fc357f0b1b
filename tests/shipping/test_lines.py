"""
Lines of journals: :mod:`twisted_exec.shipping.lines`.
"""

from __future__ import annotations

from unittest import TestCase

from hypothesis import given
from hypothesis import strategies as st

from twisted_exec.journal.journal import Journal
from twisted_exec.shipping.interfaces import ShippedLine
from twisted_exec.shipping.lines import read_lines

_SECOND = 1_000_000_000


class LinesTests(TestCase):
    """One journal."""

    def setUp(self) -> None:
        self.now = 5 * _SECOND
        self.journal = Journal(lambda: self.now)

    def read(self, offset: int = 0, line_bytes: int = 100, **options: bool) -> list[ShippedLine]:
        return list(read_lines(self.journal, offset, 1 << 20, line_bytes, **options))

    def texts(self, **options: bool) -> list[bytes]:
        return [line.text for line in self.read(**options)]

    def test_lines(self) -> None:
        """Each line has its offset, its time, and its text without the line's end."""
        self.journal.append(b"one\r\n\n")
        self.now += _SECOND
        self.journal.append(b"two\nthr")
        expected = [
            ShippedLine(0, 5, 5 * _SECOND, 0, b"one"),
            ShippedLine(5, 6, 5 * _SECOND, 0, b""),
            ShippedLine(6, 10, 6 * _SECOND, 0, b"two"),
        ]
        self.assertEqual(self.read(), expected)
        self.assertEqual(self.read(5), expected[1:])

    def test_unfinished(self) -> None:
        """Text without a newline is a line if the caller says so, or nothing can follow."""
        self.journal.append(b"one\nlogin: ")
        self.assertEqual(self.texts(), [b"one"])
        self.assertEqual(self.texts(unfinished=True), [b"one", b"login: "])
        self.journal.close()
        self.assertEqual(self.texts(), [b"one", b"login: "])

    def test_boots(self) -> None:
        """A boot ends a line; lines have the number of their boot."""
        self.journal.append(b"early\n")
        self.journal.booted("Started")
        self.journal.append(b"one\ncut")
        self.journal.booted("Reset")
        self.journal.append(b"two\n")
        found = [(line.boot, line.text) for line in self.read()]
        self.assertEqual(found, [(0, b"early"), (1, b"one"), (1, b"cut"), (2, b"two")])

    def test_long_lines(self) -> None:
        """Long lines are split, but not within a character; a line that just fits is whole."""
        self.journal.append(b"a" * 99 + "ä".encode() + b"b" * 150 + b"\n" + b"c" * 100 + b"\r\n")
        lines = self.read()
        self.assertEqual(
            [line.text for line in lines],
            [b"a" * 99, "ä".encode() + b"b" * 98, b"b" * 52, b"c" * 100],
        )
        self.assertEqual(lines[-1].end, self.journal.end)
        self.assertEqual([a.end for a in lines[:-1]], [b.offset for b in lines[1:]])

    def test_gap(self) -> None:
        """Output that the journal has discarded is a gap of its own."""
        for _ in range(3):
            self.journal.append(b"x" * 65535 + b"\n")
        self.journal.discard_before(65536)
        first, second, *_ = self.read(10, line_bytes=1 << 20)
        self.assertEqual((first.offset, first.end, first.missing), (10, 65536, 65526))
        self.assertEqual(first.gap_text(), b"[twisted-exec: 65526 bytes are missing]")
        self.assertEqual((second.offset, second.is_gap), (65536, False))

    @given(st.lists(st.binary(max_size=9), max_size=20), st.integers(1, 12))
    def test_nothing_is_lost(self, parts: list[bytes], line_bytes: int) -> None:
        """Whatever a console prints, each byte is in one line, or ends one."""
        journal = Journal(lambda: 1)
        for part in filter(None, parts):
            journal.append(part)
        journal.close()
        output = b"".join(parts)
        at = 0
        for line in read_lines(journal, 0, 1 << 20, line_bytes):
            self.assertEqual(line.offset, at)
            rest = output[line.offset + len(line.text) : line.end]
            self.assertIn(rest, (b"", b"\n", b"\r\n", b"\r"))
            self.assertEqual(output[line.offset : line.end], line.text + rest)
            self.assertLessEqual(len(line.text), line_bytes)
            at = line.end
        self.assertEqual(at, len(output))
