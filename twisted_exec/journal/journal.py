"""
The journal of one console.

All viewers, logs, alerts and shippers read the same journal, each at its own offset, so output is
stored once for any number of readers.

The newest output is in memory.  With a disk, everything is also in files, and memory has only what
readers are likely to want next; an idle journal has nothing in memory.  If the disk fails, the
journal continues in memory, and writes what is left of that when the disk works again; the rest
becomes a gap.  The line never waits.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from base64 import b64encode
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Protocol

from zope.interface import implementer

from .cursors import FileCursor, MemoryCursor
from .files import UNSYNCED_BYTES, Files, ahead_of_all
from .interfaces import Boot, Event, ICursor, IJournal, Kind, of_kind
from .reading import Reading
from .records import NewerFormat
from .tail import Tail

_MAX_EVENTS = 1000
_MAX_BOOTS = 1000
_MAX_NAME = 1000
_MARK_NANOSECONDS = 10_000_000
_TAIL_BYTES, _TAIL_SEGMENT_BYTES = 24 << 10, 8 << 10
_LAGGING_TAIL_BYTES = 1 << 20
_FAILING_TAIL_BYTES = 192 << 10
_CURSOR = re.compile(r"[a-z0-9-]{1,63}")
_OFFSET = attrgetter("offset")


class Disk(Protocol):
    """The place of a journal in a store."""

    def open(self, journal: Journal) -> Files:
        """:raises OSError: the files cannot be used."""

    def changed(self, journal: Journal) -> None:
        """Handle the first output since :attr:`Journal.is_dirty` became false."""

    def failed(self, journal: Journal, reason: str) -> None:
        """Handle that the disk is full or not writable; :meth:`Journal.retry` comes later."""


@implementer(IJournal)
class Journal:
    """
    One journal; without a disk, it ends with the process.

    :param now_nanoseconds: returns the time of day, in nanoseconds since the epoch.
    :param disk: opened at the first use.
    :ivar memory_epoch: the epoch of a new journal.
    :ivar is_dirty: there is output that is not forced to the disk.
    :ivar used_at: time of the last output.
    :ivar failure: why the disk is not used at present; empty while it is.
    """

    __slots__ = (
        "_boots",
        "_cursors",
        "_disk",
        "_events",
        "_files",
        "_last_time",
        "_mark",
        "_reading",
        "_reserved",
        "_slowest",
        "_tail",
        "_unread",
        "_watchers",
        "closed",
        "failure",
        "is_dirty",
        "memory_epoch",
        "now",
        "used_at",
    )

    def __init__(
        self, now_nanoseconds: Callable[[], int] = time.time_ns, disk: Disk | None = None
    ) -> None:
        self.now = now_nanoseconds
        self.memory_epoch = secrets.token_hex(8)
        self.closed = False
        self.is_dirty = False
        self.used_at = 0
        self.failure = ""
        self._disk = disk
        self._files: Files | None = None
        self._reading: Reading | None = None
        self._tail = Tail()
        self._last_time = self._reserved = 0
        self._slowest: int | None = None
        self._unread = 0
        self._mark = -_MARK_NANOSECONDS
        self._events: deque[Event] | None = None
        self._boots: list[Boot] | None = None
        self._cursors: dict[str, MemoryCursor] | None = None
        self._watchers: dict[Callable[[], None], None] = {}

    # The disk.

    @property
    def files(self) -> Files | None:
        """The segments; ``None`` without a disk, and if they cannot be used."""
        if self._files is None and self._disk is not None and not self.failure:
            try:
                files = self._disk.open(self)
            except (OSError, NewerFormat) as error:
                self._start_unread(error)
            else:
                self._use(files)
                self._begin(files)
        return self._files

    def _begin(self, files: Files) -> None:
        """Prepare the disk for writing, or continue in memory."""
        try:
            files.begin()
        except OSError as error:
            if not files.reserve(files.end + UNSYNCED_BYTES):
                # Another run may have had this problem, and used the next offsets.
                files.go_ahead(ahead_of_all(self.now()), self.now())
                self._tail = Tail(files.end, _TAIL_SEGMENT_BYTES)
            self.fail(error)

    def _start_unread(self, error: Exception) -> None:
        """Continue in memory, at offsets that the disk cannot have, because it cannot be read."""
        self._unread = ahead_of_all(self.now())
        self._tail = Tail(self._unread, _TAIL_SEGMENT_BYTES)
        self.fail(error)
        self.missed()

    def _use(self, files: Files) -> None:
        self._files, self._reading = files, Reading(files)
        if not self._tail.end:
            self._tail = Tail(files.end, _TAIL_SEGMENT_BYTES)
        self._last_time = max(self._last_time, files.open.last_time)

    def reread(self) -> None:
        """Read the files again at the next use: another process may have written them."""
        if self._files is None or self.failure:
            return
        self._files.rest()
        self._files = self._reading = self._boots = None
        self._tail = Tail()
        self._notify()

    @property
    def is_awake(self) -> bool:
        """True if the journal has output in memory, or an open descriptor."""
        return self._files is not None and (
            self._tail.start < self._tail.end
            or self._files.is_awake
            or (self._reading is not None and self._reading.is_awake)
        )

    @property
    def has_descriptor(self) -> bool:
        """True if the journal has an open descriptor."""
        return self._files is not None and self._files.open.is_active

    def close_descriptor(self) -> None:
        """Close the descriptor until the next output."""
        if self._files is not None:
            self._files.open.close()

    def shrink(self, limit_bytes: int) -> None:
        """Remove the oldest segments of a journal that is larger than its limit."""
        if self._files is not None:
            sizes = self._files.sizes()
            excess = sum(size for _, size in sizes) - limit_bytes
            for first, size in sizes[:-1]:
                if excess <= 0:
                    break
                self.drop(first)
                excess -= size

    def drop(self, first: int) -> None:
        """Remove the oldest segment, if it is still the one that begins at ``first``."""
        files = self.files
        if files is not None and self._reading is not None:
            if first == files.open.first and not self.failure:
                files.roll()
            files.drop(first)
            self._reading.rest()

    def fail(self, error: Exception) -> None:
        """Continue in memory, because the disk is full or not writable."""
        assert self._disk is not None
        self.failure = getattr(error, "strerror", None) or str(error)
        self._reserve()
        self._disk.failed(self, self.failure)

    def _reserve(self) -> None:
        """Note on disk that viewers may have seen more; best effort."""
        self._reserved = self.end + UNSYNCED_BYTES
        if self._files is not None:
            self._files.reserve(self._reserved)

    def retry(self) -> int | None:
        """
        Write to the disk again, after it failed.

        :return: the number of lost bytes; ``None`` if the disk still fails.
        """
        assert self._disk is not None
        try:
            if self._files is None:
                self._adopt(self._disk.open(self))
            lost = self._write_back()
        except (OSError, NewerFormat) as error:
            self.failure = getattr(error, "strerror", None) or str(error)
            self._reserve()
            return None
        self.failure, self._reserved = "", 0
        self._trim()
        return lost

    def _adopt(self, files: Files) -> None:
        """Use files that could not be read when the journal began in memory."""
        files.go_ahead(self._unread, self.now())
        if files.end != self._unread:
            raise OSError(errno.EEXIST, "its offsets are in use", files.place.path)
        missed = Kind.GAP, self._unread  # a record of the files now says this
        events = [each for each in self._events or () if (each.kind, each.offset) != missed]
        self._events = deque(_after(files.open.boots, events), maxlen=_MAX_EVENTS)
        self._use(files)
        self._notify()

    def _write_back(self) -> int:
        files, tail = self._files, self._tail
        assert files is not None
        files.begin()
        files.open.truncate()
        lost = max(0, tail.start - files.end)
        if lost:
            files.skip(tail.start, lost)
        for first, last, time_ns in list(tail.runs(files.end)):
            while first < last:
                data = tail.read(first, min(last - first, _TAIL_BYTES))
                files.append(data, max(time_ns, files.open.last_time))
                first += len(data)
        while self._events:
            files.record(self._events[0])
            self._events.popleft()
        files.reserve(0)
        if self._reading is not None:
            self._reading.rest()  # the boots may be more
        self._changed()
        return lost

    def _changed(self) -> None:
        if not self.is_dirty and self._disk is not None:
            self.is_dirty = True
            self._disk.changed(self)

    def rest(self) -> None:
        """Free the memory and the descriptor of an idle journal; the next use takes them again."""
        if self._files is not None and self._reading is not None and not self.failure:
            self._files.rest()
            self._reading.rest()
            self._tail = Tail(self._files.end, _TAIL_SEGMENT_BYTES)

    # Output.

    @property
    def epoch(self) -> str:
        files = self.files
        return self.memory_epoch if files is None else files.epoch.hex()

    @property
    def start(self) -> int:
        files = self.files
        return self._tail.start if files is None else files.start

    @property
    def end(self) -> int:
        if self._files is None:
            self.files  # noqa: B018 - opens them
        return self._tail.end

    @property
    def last_time(self) -> int:
        """The time of the newest entry, which changes with each entry unless two have one time."""
        return self._last_time

    def append(self, data: bytes) -> None:
        if self.closed:
            return
        files = self._files or self.files
        now = self._last_time = self.used_at = max(self._last_time, self.now())
        if now - self._mark < _MARK_NANOSECONDS:
            now = self._mark
        else:
            self._mark = now
        if files is not None and not self.failure:
            try:
                files.append(data, now)
            except OSError as error:
                self.fail(error)
        self._tail.append(data, now)
        if self._disk is not None:
            self._trim()
            if not self.is_dirty:
                self._changed()
        self._notify()

    def _trim(self) -> None:
        tail = self._tail
        if not self.failure:
            if tail.end - tail.start > _TAIL_BYTES + _TAIL_SEGMENT_BYTES:
                needed = tail.end - _TAIL_BYTES
                if self._slowest is not None and self._slowest < needed:
                    needed = max(self._slowest, tail.end - _LAGGING_TAIL_BYTES)
                tail.discard_before(needed)
            return
        tail.discard_before(tail.end - _FAILING_TAIL_BYTES)
        if self._reserved and tail.end > self._reserved - UNSYNCED_BYTES // 2:
            self._reserve()

    def _time(self) -> int:
        """Return the time for the next event: never before that of the last entry."""
        self._last_time = max(self._last_time, self.now())
        return self._last_time

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._notify()

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers[changed] = None

    def unwatch(self, changed: Callable[[], None]) -> None:
        self._watchers.pop(changed, None)

    def _notify(self) -> None:
        for changed in list(self._watchers):
            changed()

    def read(self, offset: int, limit: int) -> bytes:
        if not self.start <= offset <= self.end:
            raise ValueError(f"offset {offset} is not within {self.start} to {self.end}")
        boots = self._boot_list()
        if boots and boots[-1].offset > offset:
            limit = min(limit, boots[bisect_right(boots, offset, key=_OFFSET)].offset - offset)
        if offset >= self._tail.start or self._reading is None:
            return self._tail.read(offset, limit)
        return self._reading.read(offset, limit)

    def next_available(self, offset: int) -> int:
        offset = min(max(self.start, offset), self.end)
        if offset >= self._tail.start or self._reading is None or self._files is None:
            return offset
        available = self._reading.next_available(offset)
        return available if available < self._files.end else max(available, self._tail.start)

    def discard_before(self, offset: int, slowest: int | None = None) -> None:
        if self._disk is not None and (self._files is not None or not self.failure):
            self._slowest = slowest
            return  # the disk has it
        self._tail.discard_before(offset)
        start = self._tail.start
        while self._events and self._events[0].offset < start:
            self._events.popleft()
        while self._boots is not None and len(self._boots) > 1 and self._boots[1].offset <= start:
            del self._boots[0]

    # Lines and times.

    def last_lines(self, count: int, end: int | None = None) -> int:
        start, end = self.start, self.end if end is None else end
        if count == 0 or end <= start:
            return end
        last = self.read(end - 1, 1) if self.next_available(end - 1) < end else b""
        return self._after_newline(count + (last == b"\n"), end)

    def line_start(self, offset: int) -> int:
        return self._after_newline(1, offset)

    def _after_newline(self, count: int, end: int) -> int:
        """Return the offset after a newline, counted back from ``end``; ``start`` if there are fewer."""
        offset, newlines = self._tail.after_newline(count, end)
        if offset is None and self._reading is not None and self._files is not None:
            end = min(end, self._tail.start, self._files.end)
            offset = self._reading.after_newline(count - newlines, end)
        return self.start if offset is None else offset

    def time_at(self, offset: int) -> int:
        if self.start == self.end:
            return 0
        if self._reading is None or self._tail.start <= offset < self._tail.end:
            return self._tail.time_at(offset)
        if offset >= self.end:
            return self._last_time
        return self._reading.time_at(offset)

    def printed_since(self, moment: int) -> int:
        start, end = self.start, self.end
        offset = None if self._reading is None else self._reading.since(moment)
        if offset is None:
            offset = self._tail.since(moment)
        return end if offset is None else self.line_start(max(start, offset))

    # Events.

    def boots(self) -> Sequence[Boot]:
        return tuple(self._boot_list())

    def _boot_list(self) -> list[Boot]:
        if self.files is not None and self._reading is not None:
            return self._reading.boots()
        if self._boots is None:
            self._boots = []
        return self._boots

    def booted(self, reason: str) -> None:
        boots = self._boot_list()
        if boots:
            number = boots[-1].number + 1
        else:
            number = 1 if self._files is None else self._files.open.boots + 1
        event = self._record(Kind.BOOT, number=number, reason=reason)
        boots.append(Boot(number, event.offset, event.time_ns))
        del boots[:-_MAX_BOOTS]

    def missed(self) -> None:
        self._record(Kind.GAP, bytes=None, end=self.end)

    def resized(self, rows: int, columns: int) -> None:
        self._record(Kind.SIZE, rows=rows, columns=columns)

    def joined(self, session: str, user: str, role: str) -> None:
        self._record(Kind.JOIN, session=session[:_MAX_NAME], user=user[:_MAX_NAME], role=role)

    def left(self, session: str, user: str) -> None:
        self._record(Kind.LEAVE, session=session[:_MAX_NAME], user=user[:_MAX_NAME])

    def role_changed(self, session: str, user: str, role: str) -> None:
        self._record(Kind.ROLE, session=session[:_MAX_NAME], user=user[:_MAX_NAME], role=role)

    def typed(self, session: str, data: bytes, *, echoed: bool) -> bool:
        files = self.files
        if self.closed or files is None or self.failure or not files.takes_events:
            return False
        text = b64encode(data).decode("ascii")
        self._record(Kind.INPUT, session=session, data=text, echoed=echoed)
        return not self.failure

    def _record(self, kind: Kind, **data: Any) -> Event:
        event = Event(self.end, self._time(), kind, data)
        self._mark = -_MARK_NANOSECONDS
        if self.files is not None and not self.failure:
            try:
                self.files.record(event)
                self._changed()
                return event
            except OSError as error:
                self.fail(error)
        if self._events is None:
            self._events = deque(maxlen=_MAX_EVENTS)
        self._events.append(event)
        return event

    def events(self, first: int, last: int, kind: Kind | None = None) -> Iterator[Event]:
        events: list[Event] = []
        if self.files is not None and self._reading is not None:
            events += self._reading.events(first, last, kind)
            begin, end = self._files.end if self._files else 0, self._tail.start
            if kind in (None, Kind.GAP) and first <= begin <= last and begin < end:
                data = {"bytes": end - begin, "end": end}
                events.append(Event(begin, self._tail.time_at(end), Kind.GAP, data))
        recent = of_kind(self._events or (), kind)
        events += [each for each in recent if first <= each.offset <= last]
        return iter(events)

    def cursor(self, name: str) -> ICursor:
        if not _CURSOR.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of a cursor, such as syslog-1")
        files = self.files
        if files is not None:
            path = os.path.join(files.place.path, f"cursor.{name}")
            return FileCursor(files.place.layer, path, self.epoch)
        if self._cursors is None:
            self._cursors = {}
        return self._cursors.setdefault(name, MemoryCursor())


def _after(boots: int, events: Iterable[Event]) -> Iterator[Event]:
    """Number the boots among events after those that there were before."""
    for event in events:
        if event.kind == Kind.BOOT:
            event = replace(event, data={**event.data, "number": event.data["number"] + boots})
        yield event
