"""
The output of ``twisted-exec logs``.

Lines (:data:`~twisted_exec.wire.escape_sequences.LINES`) are searched without timestamps and escape
sequences: colours must not hide a word.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from twisted_exec.api.patterns import Search
from twisted_exec.cli.messages import Colour
from twisted_exec.wire.escape_sequences import LINES, strip

_STAMP_BYTES = len("2026-11-20T05:00:00.123456789Z ")
_STAMPS = re.compile(rb"^[^\n]{%d}" % _STAMP_BYTES, re.MULTILINE)
_NEWLINE = b"\n"
_RETURNS = re.compile(rb"\r*\n|\r+")
_LINE_BYTES = 64 << 10
"""A longer line is searched in parts."""


class LogOutput:
    """
    Prints a log whose pieces may end anywhere.

    :param search: print matching lines only.
    :param last: print only so many of the matching lines before :meth:`release`; ``None`` for all.
    :param has_colours: highlight matches in lines without escape sequences, and dim timestamps.
    :param ends_line: add a newline at the end if the last line has none, as for a terminal.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        search: Search | None = None,
        *,
        last: int | None = None,
        has_timestamps: bool = False,
        has_colours: bool = False,
        ends_line: bool = False,
    ) -> None:
        self._print_raw, self._search = write, search
        self._ends_line, self._last_byte = ends_line, _NEWLINE
        self._has_timestamps, self._has_colours = has_timestamps, has_colours
        self._held = bytearray()
        self._mid_line = False  # behind a timestamp, whose line has no newline yet
        self._stamp = b""
        self._last = None if last is None else deque[bytes](maxlen=last)
        self.matches = 0
        self.is_empty = True  # the server has sent nothing

    def feed(self, data: bytes) -> None:
        self.is_empty = False
        if self._search is not None:
            self._feed_lines(data)
        elif self._has_timestamps and self._has_colours:
            self._feed_stamped(data)
        else:
            self._write(data)

    def _write(self, data: bytes) -> None:
        self._last_byte = data[-1:] or self._last_byte
        self._print_raw(data)

    def release(self) -> None:
        """Print the last matching lines so far, and from now on each one at once."""
        last, self._last = self._last, None
        for line in last or ():
            self._write(line)

    def finish(self) -> None:
        held, self._held = bytes(self._held), bytearray()
        if held and self._search is not None:
            self._print(held)
        elif held:
            self._write(held)
        self.release()
        if self._ends_line and self._last_byte != _NEWLINE:
            self._write(b"\r\n")

    def _feed_lines(self, data: bytes) -> None:
        # A carriage return at the end may belong to a newline that follows.
        is_undecided = self._held.endswith(b"\r")
        self._held += data
        may_end = is_undecided or b"\r" in data or _NEWLINE in data
        if may_end and data.strip(b"\r"):
            last = len(self._held.rstrip(b"\r"))
            end = max(self._held.rfind(_NEWLINE, 0, last), self._held.rfind(b"\r", 0, last)) + 1
            block = bytes(self._held[:end])
            del self._held[:end]
            self._search_lines(block)
        while len(self._held) > _LINE_BYTES:
            self._print(bytes(self._held[:_LINE_BYTES]))
            del self._held[:_LINE_BYTES]

    def _search_lines(self, block: bytes) -> None:
        if self._may_match(block):
            for line in LINES.findall(block):
                self._print(line)
            return
        line = block.rpartition(_NEWLINE)[2]
        if _NEWLINE in block or not self._mid_line:
            self._stamp = line[:_STAMP_BYTES]
        self._mid_line = bool(line)

    def _may_match(self, block: bytes) -> bool:
        assert self._search is not None
        if not self._search.finds_in_blocks or (self._mid_line and self._has_timestamps):
            return True
        if self._has_timestamps:
            block = _STAMPS.sub(b"", block)
        text = strip(block).replace(b"\r\n", _NEWLINE)
        if b"\r" in text:
            text = _RETURNS.sub(_NEWLINE, text)
        return self._search.end_in(text) >= 0

    def _print(self, line: bytes) -> None:
        assert self._search is not None
        text = line
        if self._has_timestamps and not self._mid_line:
            self._stamp, text = line[:_STAMP_BYTES], line[_STAMP_BYTES:]
        self._mid_line = not line.endswith(_NEWLINE)
        body = text.rstrip(b"\r\n")
        plain = strip(body)
        if not plain and line.endswith(b"\r"):
            return
        spans = list(self._search.spans(plain))
        if not spans:
            return
        self.matches += 1
        # The positions are those of the text without sequences.
        if self._has_colours and plain == body:
            text = _highlighted(body, spans) + text[len(body) :]
        # Each match is a line, also the last one that has no end yet.
        end = b"" if text.endswith(_NEWLINE) else _NEWLINE
        stamp = self._stamp if self._has_timestamps else b""
        line = self._dim(stamp) + text + end
        if self._last is None:
            self._write(line)
        else:
            self._last.append(line)

    def _feed_stamped(self, data: bytes) -> None:
        data, self._held = bytes(self._held) + data, bytearray()
        parts: list[bytes] = []
        for line in _lines(data):
            if self._mid_line:
                parts.append(line)
            elif len(line) < _STAMP_BYTES:  # the last one: its timestamp is incomplete
                self._held += line
                break
            else:
                parts += [self._dim(line[:_STAMP_BYTES]), line[_STAMP_BYTES:]]
            self._mid_line = not line.endswith(_NEWLINE)
        if parts:
            self._write(b"".join(parts))

    def _dim(self, stamp: bytes) -> bytes:
        return _painted(stamp, Colour.DIM) if stamp and self._has_colours else stamp


def _lines(data: bytes) -> list[bytes]:
    *lines, rest = data.split(_NEWLINE)
    return [line + _NEWLINE for line in lines] + ([rest] if rest else [])


def _highlighted(text: bytes, spans: list[tuple[int, int]]) -> bytes:
    parts: list[bytes] = []
    at = 0
    for start, end in spans:
        if end > start:
            parts += [text[at:start], _painted(text[start:end], Colour.BOLD_RED)]
            at = end
    return b"".join([*parts, text[at:]])


def _painted(text: bytes, colour: Colour) -> bytes:
    return b"\x1b[%bm%b\x1b[m" % (colour.value.encode("ascii"), text)
