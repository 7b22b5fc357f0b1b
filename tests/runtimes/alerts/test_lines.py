"""
Tests for :mod:`twisted_exec.runtimes.alerts.lines`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.linear import assert_linear
from twisted_exec.api.patterns import Pattern, PatternSet
from twisted_exec.journal.journal import Journal
from twisted_exec.runtimes.alerts.lines import MOST_LINE_BYTES, LineReader, matching_lines


class Everything(PatternSet):
    """Patterns that match each line."""

    def __init__(self) -> None:
        super().__init__([])

    def search(self, line: bytes) -> list[int]:
        return [0]

    def within(self, lines: bytes) -> Callable[[bytes], list[int]]:
        return self.search


EVERYTHING = Everything()


def read(reader: LineReader, patterns: PatternSet) -> list[tuple[int, bytes, list[int]]]:
    return [line for piece in reader.read() for line in matching_lines(piece, patterns)]


def all_lines(reader: LineReader) -> list[tuple[int, bytes]]:
    lines = []
    while not reader.at_end:
        lines += [(offset, text) for offset, text, _ in read(reader, EVERYTHING)]
    return lines


class LineReaderTests(SynchronousTestCase):
    """Reads what a machine prints."""

    def setUp(self) -> None:
        self.journal = Journal()

    def lines(self, *pieces: bytes) -> list[tuple[int, bytes]]:
        reader = self.reader = LineReader(self.journal, 0)
        lines = []
        for piece in pieces:
            self.journal.append(piece)
            lines += all_lines(reader)
        return lines

    def test_lines(self) -> None:
        """
        Lines come with the offsets at which they begin, without their ends.
        """
        lines = self.lines(b"one\r\n\r\ntwo\nthr", b"ee\rfour")
        self.assertEqual(lines, [(0, b"one"), (7, b"two"), (11, b"three")])
        self.assertEqual((self.reader.line_start, self.reader.incomplete), (17, b"four"))

    def test_escape_sequences(self) -> None:
        """
        Sequences between the letters, also over several pieces, do not appear.
        """
        lines = self.lines(b"Ker\x1b[3", b"1mnel\x1b[0m pa\x00nic\n", b"\x1b[1mx\x1b]0;t\x07y\n")
        self.assertEqual([text for _, text in lines], [b"Kernel panic", b"xy"])

    def test_backspaces(self) -> None:
        """
        Text that was erased is not searched, in whole output and over several pieces.
        """
        edited = b"passwrod\b \b\b \b\b \bord"
        lines = self.lines(b"x\n" + edited + b"\r\nx", b"y\bz\n", edited[:10], edited[10:] + b"\n")
        self.assertEqual([text for _, text in lines], [b"x", b"password", b"xz", b"password"])

    def test_long_line(self) -> None:
        """
        Only the first 4 KiB of a line are searched.
        """
        lines = self.lines(*[b"x" * (1 << 16)] * 16, b"\nnext\n")
        self.assertEqual([len(text) for _, text in lines], [MOST_LINE_BYTES, 4])
        self.assertEqual(lines[1][0], (1 << 20) + 1)
        self.assertEqual(self.lines(b"\x1b[1m" * 50_000 + b"late\n")[-1][1], b"late")

    def test_cost_of_a_long_line(self) -> None:
        """
        The rest of a long line costs no more than its bytes, with escape sequences or without.
        """
        for piece in (b"x" * (1 << 16), b"\x1b[1mx" * (1 << 13)):

            def read(pieces: int, piece: bytes = piece) -> None:
                self.journal = Journal()
                self.lines(*[piece] * pieces, b"\n")

            assert_linear(read, 32)

    def test_discarded_output(self) -> None:
        """
        Output that the journal has discarded is skipped; the line before ends there.
        """
        reader = LineReader(self.journal, 0)
        self.journal.append(b"begin")
        reader.read()
        for _ in range(4):
            self.journal.append(b"y" * (64 << 10))
        self.journal.append(b"\nend\n")
        self.journal.discard_before(self.journal.end - 100)
        lines = all_lines(reader)
        self.assertEqual((lines[0], lines[-1][1]), ((0, b"begin"), b"end"))

    def test_consumed(self) -> None:
        """
        A prompt that was searched is not part of the next line.
        """
        self.lines(b"a\ngrub rescue> ")
        self.reader.consume()
        self.assertEqual(self.reader.line_start, self.journal.end)
        self.journal.append(b"ls\n")
        self.assertEqual(all_lines(self.reader), [(15, b"ls")])

    def test_only_matches(self) -> None:
        """
        Lines that do not match are passed over, also the first and the last of a piece.
        """
        found = PatternSet([Pattern("b")])
        reader = LineReader(self.journal, 0)
        for piece, expected in (
            (b"a\nab\nc\n", [(2, b"ab", [0])]),
            (b"x", []),
            (b"b\r\na\r\nb", [(7, b"xb", [0])]),
            (b"\n", [(14, b"b", [0])]),
            (b"\x1b[1ma\r\x1b[1mb\r", [(22, b"b", [0])]),
        ):
            self.journal.append(piece)
            self.assertEqual(read(reader, found), expected, piece)

    @given(
        st.lists(
            st.sampled_from([b"\x1b[1m", b"\x1b", b"[", b"ab", b"\n", b"\r\n", b"\r", b"\x00"])
        ),
        st.lists(st.integers(0, 60)),
    )
    def test_any_split(self, pieces: list[bytes], cuts: list[int]) -> None:
        """
        The same lines come however the output is split, with offsets of their own lines.
        """
        text = b"".join(pieces) + b"\n"
        whole, split = Journal(), Journal()
        whole.append(text)
        reader = LineReader(split, 0)
        lines = []
        bounds = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
        for first, last in itertools.pairwise(bounds):
            split.append(text[first:last])
            lines += all_lines(reader)
        self.assertEqual(lines, all_lines(LineReader(whole, 0)))
        for offset, _ in lines:
            self.assertTrue(offset == 0 or text[offset - 1 : offset] in (b"\n", b"\r"))
