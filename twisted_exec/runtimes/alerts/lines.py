"""
The lines of a journal, in which alerts search for their patterns.

A line ends with a newline, at a gap, or with a carriage return.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted_exec.wire.escape_sequences import Stripper, edited, strip

if TYPE_CHECKING:
    from twisted_exec.api.patterns import PatternSet
    from twisted_exec.journal.interfaces import IReadableJournal

MOST_LINE_BYTES = 4 << 10

READ_BYTES = 4 << 10
"""Most bytes of one read."""

_END = re.compile(rb"[\r\n]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class Piece:
    """
    A part of the output.

    :param offset: in the journal, of its first line.
    :param is_line: ``data`` is the text of one line, without escape sequences. Otherwise it is
        whole lines as they were printed.
    """

    offset: int
    data: bytes
    is_line: bool = False


def matching_lines(piece: Piece, patterns: PatternSet) -> Iterator[tuple[int, bytes, list[int]]]:
    """
    Iterate over the lines that match: the offset of the line, its text, and the numbers of the
    patterns.
    """
    data = piece.data
    if piece.is_line:
        if numbers := patterns.search(data):
            yield piece.offset, data, numbers
        return
    has_control = _CONTROL.search(data) is not None
    lines = data.replace(b"\r", b"\n")
    search = patterns.within(strip(lines) if has_control else lines)
    if search is None:
        return
    at = 0
    for end in _END.finditer(data):
        text = data[at : end.start()]
        text = (strip(text) if has_control else text)[:MOST_LINE_BYTES]
        if text and (numbers := search(text)):
            yield piece.offset + at, text, numbers
        at = end.end()


class LineReader:
    """Reads lines from an offset on."""

    def __init__(self, journal: IReadableJournal, offset: int) -> None:
        self._journal = journal
        self.position = self.line_start = journal.next_available(offset)
        self._held = bytearray()
        self._stripper: Stripper | None = None

    @property
    def at_end(self) -> bool:
        return bool(self.position >= self._journal.end)

    @property
    def incomplete(self) -> bytes:
        return edited(bytes(self._held))

    def read(self) -> list[Piece]:
        """Read up to :data:`READ_BYTES`, and return the lines that are complete now."""
        pieces = []
        available = self._journal.next_available(self.position)
        if available != self.position:
            if self._held:  # the line ends at a gap
                pieces.append(Piece(self.line_start, self.incomplete, is_line=True))
            self.consume()
            self.position = self.line_start = available
        data = self._journal.read(self.position, READ_BYTES) if not self.at_end else b""
        if data:
            pieces += self._split(data)
            self.position += len(data)
        return pieces

    def consume(self) -> None:
        """Regard the incomplete line as complete."""
        self._held.clear()
        self._stripper = None
        self.line_start = self.position

    def _split(self, data: bytes) -> Iterator[Piece]:
        at = 0
        first = _END.search(data)
        if first is not None and (self._held or self._stripper is not None):
            self._hold(data[: first.start()])
            if line := self.incomplete:
                yield Piece(self.line_start, line, is_line=True)
            at = self._next_line(first.end())
        last = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if last > at:
            yield Piece(self.position + at, data[at:last])
            at = self._next_line(last)
        if at < len(data):
            self._hold(data[at:])

    def _next_line(self, at: int) -> int:
        self._held.clear()
        self._stripper = None
        self.line_start = self.position + at
        return at

    def _hold(self, part: bytes) -> None:
        room = MOST_LINE_BYTES - len(self._held)
        if room <= 0:
            return
        if self._stripper is None:
            self._stripper = Stripper()
        self._held += self._stripper.feed(part)[:room]
