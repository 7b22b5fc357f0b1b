"""
The newest output of a console, in memory.

A mark is an offset with a time: output from this offset on was printed at that time. Output within
a short interval shares a mark, so a time may be too early by the interval. Too many marks double
the interval.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import pairwise

_SEGMENT_BYTES = 64 << 10
_MAX_MARKS = 8192
_LINE_START_NANOSECONDS = 10_000_000
_MID_LINE_NANOSECONDS = 1_000_000_000
_NEWLINE = b"\n"


class Tail:
    """
    The newest bytes of one console.

    :param segment_bytes: the unit in which memory is freed.
    :param mid_line_ns: nanoseconds within which output within a line shares a time.
    """

    __slots__ = ("_marks", "_segment_bytes", "_segments", "end", "start")

    def __init__(
        self,
        start: int = 0,
        segment_bytes: int = _SEGMENT_BYTES,
        mid_line_ns: int = _MID_LINE_NANOSECONDS,
    ) -> None:
        self.start = self.end = start
        self._segments: deque[bytearray] = deque()
        self._segment_bytes = segment_bytes
        self._marks = _Marks(mid_line_ns)

    def append(self, data: bytes, now: int) -> None:
        """
        Add output.

        :param now: nanoseconds since the epoch; never decreases.
        """
        begins_line = not self._segments or self._segments[-1].endswith(_NEWLINE)
        self._marks.add(self.end, now, begins_line or _NEWLINE in data)
        last = self._segments[-1] if self._segments else None
        if last is None or len(last) + len(data) > self._segment_bytes:
            # Lines often print single bytes, and a Python object for each would need fifty times
            # the memory.
            last = bytearray()
            self._segments.append(last)
        last += data
        self.end += len(data)

    def read(self, offset: int, limit: int) -> bytes:
        """Return output from ``offset``: 1 to ``limit`` bytes, none only at the end."""
        if not self.start <= offset <= self.end:
            raise ValueError(f"offset {offset} is not within {self.start} to {self.end}")
        # Backwards, because most readers are near the end.
        segment_start = self.end
        for segment in reversed(self._segments):
            segment_start -= len(segment)
            if segment_start <= offset:
                at = offset - segment_start
                return bytes(memoryview(segment)[at : at + limit])
        return b""

    def discard_before(self, offset: int) -> None:
        while self._segments and self.start + len(self._segments[0]) <= offset:
            self.start += len(self._segments.popleft())
        self._marks.discard_before(self.start)

    def after_newline(self, count: int, end: int) -> tuple[int | None, int]:
        """
        Find the ``count``-th newline (from 1) before offset ``end``, searching backwards.

        :return: the offset after it, or ``None`` if there are fewer; and the number of counted
            newlines.
        """
        total = 0
        segment_start = self.end
        for segment in reversed(self._segments):
            segment_start -= len(segment)
            limit = max(0, min(len(segment), end - segment_start))
            newlines = segment.count(_NEWLINE, 0, limit)
            if total + newlines >= count:
                number = newlines - (count - total) + 1
                return segment_start + after_newline(segment, number), count
            total += newlines
        return None, total

    def time_at(self, offset: int) -> int:
        return self._marks.time_at(offset)

    def since(self, moment: int) -> int | None:
        """Return the first offset with output at ``moment`` or later; ``None`` if there is none."""
        offset = self._marks.since(moment)
        return None if offset is None else max(self.start, offset)

    def runs(self, first: int) -> Iterator[tuple[int, int, int]]:
        """Iterate over the output from ``first`` on by time: begin, end, and time."""
        for begin, end, time_ns in self._marks.runs(self.end):
            if end > first:
                yield max(begin, first), end, time_ns


def after_newline(data: bytes | bytearray, number: int) -> int:
    """Return the index after newline ``number`` (from 1)."""
    return bisect_left(
        range(len(data) + 1), number, key=lambda length: data.count(_NEWLINE, 0, length)
    )


class _Marks:
    __slots__ = ("_interval_factor", "_last", "_mid_line_ns", "_offsets", "_times")

    def __init__(self, mid_line_ns: int) -> None:
        self._mid_line_ns = mid_line_ns
        self._offsets, self._times = array("q"), array("q")
        self._last = 0
        self._interval_factor = 1

    def add(self, offset: int, now: int, has_line: bool) -> None:
        self._last = now
        interval = _LINE_START_NANOSECONDS if has_line else self._mid_line_ns
        interval *= self._interval_factor
        if self._times and 0 <= now - self._times[-1] < interval:
            return
        if len(self._times) >= _MAX_MARKS:
            del self._offsets[1::2], self._times[1::2]
            self._interval_factor *= 2
        self._offsets.append(offset)
        self._times.append(now)

    def discard_before(self, start: int) -> None:
        count = bisect_right(self._offsets, start) - 1
        if count > 0:
            del self._offsets[:count], self._times[:count]
        if len(self._times) < _MAX_MARKS // 4:
            self._interval_factor = max(1, self._interval_factor // 2)

    def time_at(self, offset: int) -> int:
        at = bisect_right(self._offsets, offset) - 1
        return self._times[at] if at >= 0 else 0

    def since(self, moment: int) -> int | None:
        at = bisect_left(self._times, moment)
        if at < len(self._times):
            return self._offsets[at]
        # The last output may be newer than the mark that it shares.
        return self._offsets[-1] if self._times and self._last >= moment else None

    def runs(self, last: int) -> Iterator[tuple[int, int, int]]:
        offsets = [*self._offsets, last]
        for (begin, end), time_ns in zip(pairwise(offsets), list(self._times), strict=True):
            yield begin, end, time_ns
