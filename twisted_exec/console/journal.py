"""
What a line printed: bytes under ever-growing offsets, of which the newest are kept, and when.

Every viewer reads the same journal at an offset of its own, so that a byte is kept once however many
look on.  Bytes are collected in segments: a chatty line prints single bytes,
and a Python object for each would weigh fifty times as much.

Times are marks: from this offset on, printed at that time.  A mark for each byte would weigh more than
the bytes, so what comes within a hundredth of a second shares one, within a line what comes within a
second; and when there are very many still, every other one goes, and they are made more rarely.  So
a time may be early by that much; it is exact at the beginning of a line that was printed at leisure.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable

_SEGMENT_BYTES = 64 << 10
_MOST_MARKS = 8192
_LINE_NANOSECONDS = 10_000_000
_PART_NANOSECONDS = 1_000_000_000
_NEWLINE = b"\n"


class Journal:
    """
    The newest bytes of one console.

    ``start`` is the offset of the oldest byte that is kept, ``end`` that of the
    next byte to come.  Offsets never go back, also when a line is opened again.

    :param now_nanoseconds: the time of day, since the epoch; :attr:`now` afterwards.
    :ivar closed: the machine is gone; nothing more will come.
    """

    def __init__(self, now_nanoseconds: Callable[[], int] = time.time_ns) -> None:
        self.start = 0
        self.end = 0
        self.closed = False
        self._segments: deque[bytearray] = deque()
        self.now = now_nanoseconds
        self._marks = _Marks()
        self._watchers: dict[Callable[[], None], None] = {}

    def append(self, data: bytes) -> None:
        """Add what the line printed, 1 byte or more."""
        begins_line = not self._segments or self._segments[-1].endswith(_NEWLINE)
        self._marks.add(self.end, self.now(), begins_line or _NEWLINE in data)
        last = self._segments[-1] if self._segments else None
        if last is None or len(last) + len(data) > _SEGMENT_BYTES:
            last = bytearray()
            self._segments.append(last)
        last += data
        self.end += len(data)
        self._tell()

    def close(self) -> None:
        """Nothing more will come.  Repeated calls do nothing."""
        if not self.closed:
            self.closed = True
            self._tell()

    def watch(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called after each append and when it is closed."""
        self._watchers[changed] = None

    def unwatch(self, changed: Callable[[], None]) -> None:
        """No longer.  Repeated calls do nothing."""
        self._watchers.pop(changed, None)

    def _tell(self) -> None:
        for changed in list(self._watchers):
            changed()

    def read(self, offset: int, limit: int) -> bytes:
        """
        Bytes from ``offset`` on: 1 to ``limit`` of them, none only at the end.

        :param offset: from ``start`` to ``end``; others are :class:`ValueError`.
        """
        if not self.start <= offset <= self.end:
            raise ValueError(f"offset {offset} is not within {self.start} to {self.end}")
        # From the end: those who read are mostly near it.
        segment_start = self.end
        for segment in reversed(self._segments):
            segment_start -= len(segment)
            if segment_start <= offset:
                at = offset - segment_start
                return bytes(memoryview(segment)[at : at + limit])
        return b""

    def keep_from(self, offset: int) -> None:
        """Forget whole segments of bytes before ``offset``."""
        while self._segments and self.start + len(self._segments[0]) <= offset:
            self.start += len(self._segments.popleft())
        self._marks.keep_from(self.start)

    def last_lines(self, count: int) -> int:
        """
        Where the last ``count`` lines begin, or ``start`` when there are not so many.

        A line ends with a newline; what is behind the last one is a line, too.
        """
        if count == 0 or self.start == self.end:
            return self.end
        if not self._segments[-1].endswith(_NEWLINE):
            count -= 1
        # Now it is behind the newline number count + 1, counted from the end.
        segment_start = self.end
        for segment in reversed(self._segments):
            segment_start -= len(segment)
            found = segment.count(_NEWLINE)
            if found > count:
                return segment_start + _behind_newline(segment, found - count)
            count -= found
        return self.start

    def line_start(self, offset: int) -> int:
        """Where the line begins in which ``offset`` is, or ``start`` when that is not kept."""
        segment_start = self.end
        for segment in reversed(self._segments):
            segment_start -= len(segment)
            if segment_start < offset:
                at = segment.rfind(_NEWLINE, 0, offset - segment_start)
                if at >= 0:
                    return segment_start + at + 1
        return self.start

    def time_at(self, offset: int) -> int:
        """When the byte at ``offset`` was printed, in nanoseconds since the epoch; 0 is unknown."""
        return self._marks.time_at(offset)

    def printed_since(self, moment: int) -> int:
        """
        The first line of which anything was printed at ``moment`` or later.

        :param moment: nanoseconds since the epoch.
        :return: where it begins; ``end`` when nothing was.
        """
        offset = self._marks.since(moment)
        return self.end if offset is None else self.line_start(max(self.start, offset))


def _behind_newline(segment: bytearray, number: int) -> int:
    """Behind the newline with this number, from 1: by halves, not by steps."""

    def until(length: int) -> int:
        return segment.count(_NEWLINE, 0, length)

    return bisect_left(range(len(segment) + 1), number, key=until)


class _Marks:
    """Offsets and times, in the order in which they came.  The clock may have been set back."""

    def __init__(self) -> None:
        self._offsets, self._times = array("q"), array("q")
        self._last = 0
        self._rarer = 1

    def add(self, offset: int, now: int, has_line: bool) -> None:
        """What begins at ``offset`` was printed now, and is or holds the beginning of a line."""
        self._last = now
        apart = (_LINE_NANOSECONDS if has_line else _PART_NANOSECONDS) * self._rarer
        if self._times and 0 <= now - self._times[-1] < apart:
            return
        if len(self._times) >= _MOST_MARKS:
            del self._offsets[1::2], self._times[1::2]
            self._rarer *= 2
        self._offsets.append(offset)
        self._times.append(now)

    def keep_from(self, start: int) -> None:
        """Forget what is before ``start``, but for the mark that ``start`` itself has."""
        gone = bisect_right(self._offsets, start) - 1
        if gone > 0:
            del self._offsets[:gone], self._times[:gone]
        if len(self._times) < _MOST_MARKS // 4:
            self._rarer = max(1, self._rarer // 2)

    def time_at(self, offset: int) -> int:
        at = bisect_right(self._offsets, offset) - 1
        return self._times[at] if at >= 0 else 0

    def since(self, moment: int) -> int | None:
        """The first offset that was printed at ``moment`` or later, if any was."""
        for offset, told in zip(self._offsets, self._times, strict=True):
            if told >= moment:
                return offset
        # What came later than its mark.
        return self._offsets[-1] if self._times and self._last >= moment else None
