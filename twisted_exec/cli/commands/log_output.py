"""
The output of ``twisted-exec logs``.

Lines are searched without timestamps and escape sequences: colours must not hide a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from twisted_exec.api.patterns import Search
from twisted_exec.cli.messages import Colour
from twisted_exec.wire.escape_sequences import strip

_STAMP_BYTES = len("2026-11-20T05:00:00.123456789Z ")
_STAMPS = re.compile(rb"^[^\n]{%d}" % _STAMP_BYTES, re.MULTILINE)
_NEWLINE = b"\n"
_LINE_BYTES = 64 << 10
"""A longer line is searched in parts."""


class LogOutput:
    """
    Prints a log whose pieces may end anywhere.

    :param search: print matching lines only.
    :param has_colours: highlight matches in lines without escape sequences, and dim timestamps.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        search: Search | None = None,
        *,
        has_timestamps: bool = False,
        has_colours: bool = False,
    ) -> None:
        self._write, self._search = write, search
        self._has_timestamps, self._has_colours = has_timestamps, has_colours
        self._stamp_bytes = _STAMP_BYTES if has_timestamps else 0
        self._held = b""
        self._mid_line = False
        self.matches = 0

    def feed(self, data: bytes) -> None:
        if self._search is not None:
            self._feed_lines(data)
        elif self._has_timestamps and self._has_colours:
            self._feed_stamped(data)
        else:
            self._write(data)

    def finish(self) -> None:
        held, self._held = self._held, b""
        if held and self._search is not None:
            self._print(held)
        elif held:
            self._write(held)

    def _feed_lines(self, data: bytes) -> None:
        data = self._held + data
        end = data.rfind(_NEWLINE) + 1
        block, rest = data[:end], data[end:]
        if end and self._may_match(block):
            for line in _lines(block):
                self._print(line)
        while len(rest) > _LINE_BYTES:
            self._print(rest[:_LINE_BYTES])
            rest = rest[_LINE_BYTES:]
        self._held = rest

    def _may_match(self, block: bytes) -> bool:
        assert self._search is not None
        if not self._search.finds_in_blocks or b"\r\r" in block or self._mid_line:
            return True
        if self._has_timestamps:
            block = _STAMPS.sub(b"", block)
        return self._search.end_in(strip(block).replace(b"\r\n", _NEWLINE)) >= 0

    def _print(self, line: bytes) -> None:
        assert self._search is not None
        size = 0 if self._mid_line else self._stamp_bytes
        stamp, text = line[:size], line[size:]
        self._mid_line = not line.endswith(_NEWLINE)
        body = text.rstrip(b"\r\n")
        plain = strip(body)
        spans = list(self._search.spans(plain))
        if not spans:
            return
        self.matches += 1
        # The positions are those of the text without sequences.
        if self._has_colours and plain == body:
            text = _highlighted(body, spans) + text[len(body) :]
        # Each match is a line, also the last one that has no end yet.
        end = b"" if text.endswith(_NEWLINE) else _NEWLINE
        self._write(self._dim(stamp) + text + end)

    def _feed_stamped(self, data: bytes) -> None:
        data, self._held = self._held + data, b""
        parts: list[bytes] = []
        for line in _lines(data):
            if self._mid_line:
                parts.append(line)
            elif len(line) < _STAMP_BYTES:  # the last one: its timestamp is incomplete
                self._held = line
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
