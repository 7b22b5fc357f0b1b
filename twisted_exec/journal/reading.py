"""
Reading the segments of a journal: bytes, lines, times and events.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import Any, TypeVar, cast

from twisted_exec.journal.blocks import Block
from twisted_exec.journal.file_access import is_passing
from twisted_exec.journal.files import JournalFiles
from twisted_exec.journal.interfaces import Boot, Event, EventKind, of_kind
from twisted_exec.journal.records import Damaged
from twisted_exec.journal.segments import Segment
from twisted_exec.journal.tail import after_newline

_NEWLINE = b"\n"
_MAX_BOOTS = 1000
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _uses_files(method: _Method) -> _Method:
    """
    Run a method in the thread for files; it raises :class:`OSError` if they cannot be read at
    present.
    """

    @wraps(method)
    def call(self: Reading, *arguments: Any) -> Any:
        return self._call(partial(method, self, *arguments))

    return cast("_Method", call)


class Reading:
    """The output of the segments of a journal."""

    def __init__(self, files: JournalFiles, call: Callable[[Callable[[], Any]], Any]) -> None:
        self._files, self._call = files, call
        self._cached: tuple[tuple[int, int], Block] | None = None
        self._boots: list[Boot] | None = None

    @property
    def is_awake(self) -> bool:
        return self._cached is not None

    def rest(self) -> None:
        self._cached = self._boots = None

    # Bytes.

    def read(self, offset: int, limit: int) -> bytes:
        try:
            block = self._cached_at(offset) or self._read_block_at(offset)
        except OSError:
            return b""
        if block is None:
            return b""
        at = offset - block.first
        return block.data[at : at + limit]

    def _cached_at(self, offset: int) -> Block | None:
        cached = self._cached
        if cached is not None and cached[1].first <= offset < cached[1].last:
            return cached[1]
        return None

    @_uses_files
    def _read_block_at(self, offset: int) -> Block | None:
        return self._block_at(offset)

    def _block_at(self, offset: int) -> Block | None:
        if (block := self._cached_at(offset)) is not None:
            return block
        files = self._files
        segment = files.at(offset)
        if segment is None or not segment.first <= offset < segment.end:
            return None
        block = self._block(segment, max(0, bisect_right(segment.firsts, offset) - 1))
        return block if block is not None and offset < block.last else None

    def _block(self, segment: Segment, number: int) -> Block | None:
        if number >= len(segment.firsts):
            return None
        first = segment.firsts[number]
        if self._cached is not None and self._cached[0] == (first, segment.end):
            return self._cached[1]
        try:
            block = segment.block(number)
        except Damaged:
            return None
        except OSError as error:
            if is_passing(error):
                raise
            return None
        self._cached = (first, segment.end), block
        return block

    def next_available(self, offset: int) -> int:
        offset = max(self._files.start, offset)
        if self._cached_at(offset) is not None:
            return offset
        try:
            return self._next_available(offset)
        except OSError:
            return offset

    @_uses_files
    def _next_available(self, offset: int) -> int:
        files = self._files
        try:
            while offset < files.end and self._block_at(offset) is None:
                begin, end = self._hole(offset)
                files.holes[begin] = end
                offset = end
        except OSError:
            pass  # not readable at present
        return min(offset, files.end)

    def _hole(self, offset: int) -> tuple[int, int]:
        files = self._files
        segment = files.at(offset)
        number = files.number(offset)
        if segment is not None and offset < segment.end:
            at = bisect_right(segment.firsts, offset)
            block = self._block(segment, at - 1) if at else None
            begin = segment.firsts[at - 1] if at else segment.first
            end = segment.firsts[at] if at < len(segment.firsts) else segment.end
            return begin if block is None else block.last, end
        begin = files.firsts[number] if segment is None else segment.end
        return begin, files.firsts[number + 1] if number + 1 < len(files.firsts) else files.end

    @_uses_files
    def last_bytes(self, count: int, end: int) -> int:
        """Return the offset of the last ``count`` bytes of the segments before ``end``."""
        files = self._files
        for first in files.firsts[files.number(max(0, end - 1)) :: -1]:
            segment = files.segment(first)
            size = 0 if segment is None else max(0, min(end, segment.end) - first)
            if size >= count:
                return first + size - count
            count -= size
        return files.start

    # Lines.

    @_uses_files
    def ends_line(self, end: int) -> bool:
        """Return whether the byte before an offset is a newline; false if it is missing."""
        block = self._block_at(end - 1)
        return block is not None and block.data[end - 1 - block.first :].startswith(_NEWLINE)

    @_uses_files
    def after_newline(self, count: int, end: int) -> int | None:
        """Return the offset after newline ``count`` (from 1), counted back from ``end``."""
        for segment, number, newlines in self._blocks_before(end):
            if newlines is not None and newlines < count:
                count -= newlines
                continue
            block = self._block(segment, number)
            if block is None:
                continue
            data = block.data[: max(0, end - block.first)]
            newlines = data.count(_NEWLINE)
            if newlines >= count:
                return block.first + after_newline(data, newlines - count + 1)
            count -= newlines
        return None

    def _blocks_before(self, end: int) -> Iterator[tuple[Segment, int, int | None]]:
        files = self._files
        for at in range(files.number(max(0, end - 1)), -1, -1):
            segment = files.segment(files.firsts[at])
            if segment is None:
                continue
            firsts = segment.firsts
            last, until = min(end, segment.end), segment.newlines
            for number in range(bisect_left(firsts, last) - 1, -1, -1):
                following = firsts[number + 1] if number + 1 < len(firsts) else segment.end
                before = segment.newlines_until(number)
                after = segment.newlines_until(number + 1) if number + 1 < len(firsts) else until
                yield segment, number, None if following > end else after - before

    # Times.

    def time_at(self, offset: int) -> int:
        """Return the time of a byte; of the byte after a gap, if the byte is missing."""
        # The time of a byte that was just read is in memory, and a log asks for that of each line.
        block = self._cached_at(offset)
        return self._read_time(offset) if block is None else block.times.at(offset - block.first)

    @_uses_files
    def _read_time(self, offset: int) -> int:
        offset = self.next_available(offset)
        block = self._block_at(offset)
        return self._files.open.last_time if block is None else block.times.at(offset - block.first)

    @_uses_files
    def since(self, moment: int) -> int | None:
        files = self._files

        def began(number: int) -> int:
            header = files.header(files.firsts[number])
            return 0 if header is None else header.time_ns

        at = max(0, bisect_left(range(len(files.firsts)), moment, key=began) - 1)
        for first in files.firsts[at:]:
            segment = files.segment(first)
            if segment is not None and segment.last_time >= moment:
                offset = self._since(segment, moment)
                if offset is not None:
                    return offset
        return None

    def _since(self, segment: Segment, moment: int) -> int | None:
        blocks = range(len(segment.firsts))
        at = max(0, bisect_left(blocks, moment, key=segment.first_time) - 1)
        for number in blocks[at:]:
            block = self._block(segment, number)
            if block is not None and (offset := block.times.since(moment)) is not None:
                return block.first + offset
        return None

    # Events.

    @_uses_files
    def events(self, first: int, last: int, kind: EventKind | None = None) -> Sequence[Event]:
        """See :meth:`.IReadableJournal.events`; includes gaps that earlier reads discovered."""
        files = self._files
        events: list[Event] = []
        for begin in files.firsts[files.number(first) :]:
            events += files.events(begin, kind)
            if begin > last + 1:
                break  # this segment may begin with a gap
        recorded = [(each.offset, each.data["end"]) for each in of_kind(events, EventKind.GAP)]
        for begin, end in list(files.holes.items()) if kind in (None, EventKind.GAP) else ():
            if not any(gap <= begin and end <= behind for gap, behind in recorded):
                time_ns = self.time_at(end)
                events.append(
                    Event(begin, time_ns, EventKind.GAP, {"bytes": end - begin, "end": end})
                )
        events = [each for each in events if first <= each.offset <= last]
        return sorted(events, key=lambda each: each.offset)

    @property
    def has_boots(self) -> bool:
        return self._boots is not None

    def boots(self) -> list[Boot]:
        if self._boots is None:
            self._boots = self._read_boots()
        return self._boots

    @_uses_files
    def _read_boots(self) -> list[Boot]:
        files = self._files
        boots: list[Boot] = []
        newest = files.open.boots
        for first in files.firsts[::-1]:
            header = files.header(first)
            if header is not None and header.boots != newest:
                events = files.events(first, EventKind.BOOT)
                boots[:0] = [
                    Boot(each.data["number"], each.offset, each.time_ns) for each in events
                ]
                newest = header.boots
            if len(boots) > _MAX_BOOTS:
                break
        oldest = files.header(files.start)
        if oldest is not None and oldest.boots and (not boots or boots[0].number > oldest.boots):
            # Its record is in a segment that was removed.
            boots.insert(0, Boot(oldest.boots, files.start, oldest.time_ns))
        return boots[-_MAX_BOOTS:]
