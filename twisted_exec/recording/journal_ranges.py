"""
Ranges of a journal, each read from one position to the next, sans I/O.

A range has the same entries each time, however the journal stores them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.journal.snapshot import PrintedOutput

_PIECE_BYTES = 64 << 10


class MissingOutput(Exception):
    """The journal no longer has a part of the range; the message says which."""


@dataclass(frozen=True, order=True)
class JournalPosition:
    """A place in a journal: after ``events`` of the events with this offset."""

    offset: int
    events: int = 0


class RangeReader:
    """Reads a journal from one position to the next."""

    def __init__(self, entries: Iterator[PrintedOutput | Event], first: JournalPosition) -> None:
        self._entries = _with_numbers(entries)
        self._next: tuple[PrintedOutput | Event, int] | None = None
        self._position = first

    def until(self, last: JournalPosition) -> Iterator[PrintedOutput | Event | None]:
        """
        Iterate over the entries up to a position; ``None`` for each entry that is before the range.

        Each part of the output between two multiples of 64 KiB comes as one entry, if its time is the same, however the
        journal stores it.

        :raises MissingOutput: the journal no longer has all of them.
        """
        joined = _Joined()
        while (item := self._next or next(self._entries, None)) is not None:
            self._next = None
            entry, number = item
            if not isinstance(entry, PrintedOutput):
                at = JournalPosition(entry.offset, number)
                if at > last:
                    self._next = item
                    break
                if at <= self._position:
                    yield None
                    continue
                yield from joined.take()
                yield entry
                is_gap = entry.kind == EventKind.GAP and entry.data["end"] > entry.offset
                self._position = JournalPosition(entry.data["end"]) if is_gap else at
                continue
            if entry.offset >= last.offset:
                self._next = item
                break
            end = entry.offset + len(entry.data)
            if end <= self._position.offset:
                yield None
                continue
            if entry.offset > self._position.offset:
                break
            data = entry.data[self._position.offset - entry.offset :]
            if end > last.offset:
                self._next = item
                data = data[: last.offset - self._position.offset]
            yield from joined.add(self._position.offset, entry.time_ns, data)
            self._position = JournalPosition(self._position.offset + len(data))
            if self._next is not None:
                break
        yield from joined.take()
        if self._position != last:
            raise MissingOutput(
                f"the output from offset {self._position.offset} to {last.offset} is no longer retained"
            )


def _with_numbers(
    entries: Iterator[PrintedOutput | Event],
) -> Iterator[tuple[PrintedOutput | Event, int]]:
    """Iterate over entries, each event with its number among those with its offset."""
    offset, number = -1, 0
    for entry in entries:
        if not isinstance(entry, PrintedOutput):
            number = number + 1 if entry.offset == offset else 1
            offset = entry.offset
        yield entry, number


class _Joined:
    """Joins output of the same time, and cuts it at multiples of 64 KiB."""

    def __init__(self) -> None:
        self._offset = self._time = 0
        self._data = bytearray()

    def add(self, offset: int, time_ns: int, data: bytes) -> Iterator[PrintedOutput]:
        if self._data and (time_ns != self._time or offset != self._offset + len(self._data)):
            yield from self.take()
        if not self._data:
            self._offset, self._time = offset, time_ns
        self._data += data
        while len(self._data) >= (room := _PIECE_BYTES - self._offset % _PIECE_BYTES):
            yield PrintedOutput(self._offset, self._time, bytes(self._data[:room]))
            del self._data[:room]
            self._offset += room

    def take(self) -> Iterator[PrintedOutput]:
        if self._data:
            yield PrintedOutput(self._offset, self._time, bytes(self._data))
            self._data.clear()
