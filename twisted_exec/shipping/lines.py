"""
Lines of a journal for shipping.

A line ends with a newline, or where no more of it can follow, such as at a boot or a gap.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from twisted_exec.journal.interfaces import IReadableJournal, missing_bytes
from twisted_exec.shipping.interfaces import ShippedLine

PARTIAL_SECONDS = 10.0
"""Text without a newline counts as a line after this time without output."""

_READ_BYTES = 32 << 10
_NEWLINE = b"\n"
_LINE_END_BYTES = 2
_PARTIAL_CHARACTER = re.compile(
    rb"(?:[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})\Z"
)


def read_lines(
    journal: IReadableJournal,
    offset: int,
    budget: int,
    line_bytes: int,
    *,
    unfinished: bool = False,
) -> Iterator[ShippedLine]:
    """
    Read lines from a journal without changing it.

    :raises OSError: the journal cannot be read at present; maybe after some lines.
    :param budget: stop after about this many bytes.
    :param line_bytes: most bytes of a line.
    :param unfinished: also return text at the end that has no newline yet.
    """
    boots = journal.boots()
    last = offset + budget
    while offset < min(last, journal.end):
        index = bisect_right(boots, offset, key=lambda boot: boot.offset)
        boot = boots[index - 1].number if index else 0
        available = journal.next_available(offset)
        if available > offset:
            time = journal.time_at(available) or journal.now()
            is_unknown = missing_bytes(journal, offset, available) is None
            missing = None if is_unknown else available - offset
            yield ShippedLine(offset, available, time, boot, b"", missing)
            offset = available
            continue
        limit = boots[index].offset if index < len(boots) else journal.end
        data, is_cut = _read(journal, offset, limit, line_bytes)
        consumed = 0
        for start, end, after in _split(data, line_bytes, is_cut or unfinished):
            text = data[start:end].removesuffix(b"\r")
            time = journal.time_at(offset + max(start, after - 1))
            yield ShippedLine(offset + start, offset + after, time, boot, text)
            consumed = after
        if not consumed:
            return
        offset += consumed


def _read(
    journal: IReadableJournal, offset: int, limit: int, line_bytes: int
) -> tuple[bytes, bool]:
    """
    Read at least one line, if there is a whole one.

    :param limit: offset of the next boot, or of the end.
    :return: the data, and whether no more can follow it directly.
    """
    data = journal.read(offset, min(_READ_BYTES, limit - offset))
    while _NEWLINE not in data and len(data) < line_bytes + _LINE_END_BYTES:
        position = offset + len(data)
        if position >= limit:
            return data, limit < journal.end or journal.closed
        more = journal.read(position, min(_READ_BYTES, limit - position))
        if not more:  # a gap, or the disk does not answer
            return data, journal.next_available(position) > position
        data += more
    return data, False


def _split(data: bytes, line_bytes: int, is_complete: bool) -> Iterator[tuple[int, int, int]]:
    """
    Split data into lines.

    :param is_complete: return the rest after the last newline, too.
    :return: start and end of each text, and the start of the next.
    """
    at = 0
    while at < len(data):
        newline = data.find(_NEWLINE, at)
        end = len(data) if newline < 0 else newline
        if end - at > line_bytes and data[at:end].removesuffix(b"\r")[line_bytes:]:
            cut = at + _whole_characters(data[at : at + line_bytes])
            yield at, cut, cut
            at = cut
        elif newline >= 0:
            yield at, newline, newline + 1
            at = newline + 1
        elif is_complete:
            yield at, end, end
            at = end
        else:
            return


def _whole_characters(text: bytes) -> int:
    partial = _PARTIAL_CHARACTER.search(text, max(0, len(text) - 3))
    return (partial.start() if partial else 0) or len(text)
