"""
The journal of one console.

If the disk fails, the journal continues in memory. When the disk works again, the journal writes
the output that memory still has; older output becomes a gap.
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
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from zope.interface import implementer

from twisted_exec.api.display import reason_of
from twisted_exec.journal.cursors import FileCursor, MemoryCursor
from twisted_exec.journal.files import UNSYNCED_BYTES, JournalFiles, ahead_of_all
from twisted_exec.journal.front import Unwritten
from twisted_exec.journal.interfaces import (
    Boot,
    Event,
    EventKind,
    ICursor,
    IJournal,
    of_kind,
    recent_offset,
)
from twisted_exec.journal.reading import Reading
from twisted_exec.journal.records import NewerFormat
from twisted_exec.journal.tail import Tail
from twisted_exec.journal.write_batch import WriteBatch
from twisted_exec.program.disk_thread import Files as DiskFiles
from twisted_exec.program.disk_thread import Unanswered
from twisted_exec.wire.terminal_modes import LOOK_BACK_BYTES, undo_behind

_MAX_EVENTS = 1000
_MAX_BOOTS = 1000
_MAX_NAME = 1000
_MARK_NANOSECONDS = 10_000_000
_TAIL_BYTES, _TAIL_SEGMENT_BYTES = 24 << 10, 8 << 10
_LAGGING_TAIL_BYTES = 1 << 20
_FAILING_TAIL_BYTES = 192 << 10


_CURSOR = re.compile(r"[a-z0-9-]{1,63}")
_OFFSET = attrgetter("offset")


class JournalDisk(Protocol):
    """The place of a journal in a store."""

    thread: DiskFiles

    @property
    def most_bytes(self) -> int:
        """Output that a journal may have in memory because it is not in files."""

    def open(self, journal: Journal) -> JournalFiles:
        """:raises OSError: the files cannot be used."""

    def left(self, files: JournalFiles) -> Sequence[Unwritten]:
        """Return what an earlier run has left to be written, once."""

    def printed(self, epoch: bytes, offset: int, time_ns: int, data: bytes) -> None:
        """Retain output until it is in the files."""

    def happened(self, epoch: bytes, event: Event) -> None:
        """Retain an event until it is in the files."""

    def behind(self, journal: Journal) -> None:
        """
        Handle the first output or event that the files lack; :meth:`Journal.next_batch` comes later.
        """

    def settle(self, journal: Journal) -> bool:
        """Write what the files lack now; return whether they lack nothing."""

    def try_again(self, journal: Journal) -> None:
        """Write to a disk that has failed now, and not only when its next try is due."""

    def refused(self, journal: Journal) -> None:
        """Handle that a reader waits because the disk does not answer."""

    def changed(self, journal: Journal) -> None:
        """Handle the first write since :attr:`Journal.is_dirty` became false."""

    def failed(self, journal: Journal, reason: str) -> None:
        """Handle that the disk failed; :meth:`Journal.open_again` comes later."""


@implementer(IJournal)
class Journal:
    """
    One journal; without a disk, it ends with the process.

    :param now_nanoseconds: returns the time of day, in nanoseconds since the epoch.
    :ivar is_behind: there is output, or an event, that the files lack; false while the disk fails.
    :ivar is_dirty: the files were written since the last sync began.
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
        "is_behind",
        "is_dirty",
        "memory_epoch",
        "now",
        "used_at",
    )

    def __init__(
        self, now_nanoseconds: Callable[[], int] = time.time_ns, disk: JournalDisk | None = None
    ) -> None:
        self.now = now_nanoseconds
        self.memory_epoch = secrets.token_hex(8)
        self.closed = False
        self.is_behind = self.is_dirty = False
        self.used_at = 0
        self.failure = ""
        self._disk = disk
        self._files: JournalFiles | None = None
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

    def open_files(self) -> JournalFiles | None:
        """Open the segments, if they are not open; return ``None`` without a disk, and while that fails."""
        if self._files is None and self._disk is not None and not self.failure:
            try:
                files, failure = self._disk.thread.call(self._open, is_long=True)
            except (OSError, NewerFormat) as error:
                self._start_unread(error)
            else:
                self._use(files)
                files.tell_full()
                if failure is not None:
                    self.fail(failure)
        return self._files

    def _open(self) -> tuple[JournalFiles, OSError | None]:
        assert self._disk is not None
        files = self._disk.open(self)
        try:
            files.begin()
        except OSError as error:
            if not files.reserve(files.end + UNSYNCED_BYTES):
                # Another run may have had this problem, and used the next offsets.
                files.go_ahead(ahead_of_all(self.now()), self.now())
            return files, error
        return files, None

    def _start_unread(self, error: Exception) -> None:
        self._unread = ahead_of_all(self.now())
        self._tail = _tail(self._unread)
        self.fail(error)
        self.missed()

    def _use(self, files: JournalFiles) -> None:
        self._files, self._reading = files, Reading(files, self._call)
        if not self._tail.end:
            self._tail = _tail(files.end)
            self._take_over(files)
        self._last_time = max(self._last_time, files.open.last_time)

    def _take_over(self, files: JournalFiles) -> None:
        assert self._disk is not None
        left = self._disk.left(files)
        written = {
            (each.kind, each.offset, each.time_ns)
            for each in (files.events(files.open.first) if left else ())
        }
        for each in left:
            self._last_time = max(self._last_time, each.time_ns)
            if isinstance(each.entry, Event):
                if (each.entry.kind, each.offset, each.time_ns) not in written:
                    self._retain(each.entry)
                continue
            if self._tail.end < each.offset:
                self._tail = _tail(each.offset)  # the bytes between them are a gap
            data = each.entry[max(0, self._tail.end - each.offset) :]
            if data:
                self._tail.append(data, each.time_ns)
        if self._is_behind(files):
            self._be_behind()

    def _call(self, function: Callable[[], Any]) -> Any:
        assert self._disk is not None
        try:
            return self._disk.thread.call(function)
        except Unanswered:
            self._disk.refused(self)
            raise

    @property
    def is_awake(self) -> bool:
        return self._files is not None and (
            self._tail.start < self._tail.end
            or self._files.is_awake
            or (self._reading is not None and self._reading.is_awake)
        )

    @property
    def has_descriptor(self) -> bool:
        return self._files is not None and self._files.open.is_active

    def close_descriptor(self) -> None:
        if self._files is not None and self._disk is not None:
            self._run(self._files.open.close)

    def shrink(self, limit_bytes: int) -> None:
        if self._files is not None:
            sizes = self._files.sizes()
            excess = sum(size for _, size in sizes) - limit_bytes
            for first, size in sizes[:-1]:
                if excess <= 0:
                    break
                with suppress(Unanswered):  # then the next full segment tries again
                    self.drop(first)
                excess -= size

    def drop(self, first: int) -> None:
        """Remove the oldest segment, if it is still the one that begins at ``first``."""
        files = self.open_files()
        if files is not None and self._reading is not None:
            may_roll = first == files.open.first and not self.failure

            def drop() -> None:
                if may_roll:
                    files.roll()
                files.drop(first)

            self._call(drop)
            files.tell_full()
            self._reading.rest()

    def _run(self, function: Callable[[], Any]) -> None:
        """Use the files without waiting for it; an error shows at the next use."""
        assert self._disk is not None
        self._disk.thread.run(function).addErrback(lambda failure: failure.trap(OSError))

    def fail(self, error: Exception) -> None:
        assert self._disk is not None
        self.failure = reason_of(error)
        self.is_behind = False
        self._reserve()
        self._disk.failed(self, self.failure)

    def _reserve(self) -> None:
        self._reserved = self.end + UNSYNCED_BYTES
        if self._files is not None and self._disk is not None:
            self._run(partial(self._files.reserve, self._reserved))

    def next_batch(self, *, is_again: bool = False) -> WriteBatch | None:
        """Return the next batch to write; call :meth:`wrote` after it has run.  ``None`` if there is none."""
        files, tail = self._files, self._tail
        if files is None or not (is_again or self._is_behind(files)):
            return None
        return WriteBatch(files, tail, self._events or (), is_again=is_again)

    def wrote(self, batch: WriteBatch) -> None:
        for event in batch.recorded:
            if self._events and self._events[0] is event:
                self._events.popleft()
        batch.files.tell_full()
        self._changed()
        if batch.error is not None and not self.failure:
            self.fail(batch.error)
        elif batch.error is not None:
            self._still_failing(batch.error)
        else:
            self._trim()

    def still_behind(self) -> bool:
        self.is_behind = bool(self._files and not self.failure and self._is_behind(self._files))
        return self.is_behind

    def _is_behind(self, files: JournalFiles) -> bool:
        return bool(self._tail.end > files.end or self._events)

    def _be_behind(self) -> None:
        if not self.is_behind and self._disk is not None:
            self.is_behind = True
            self._disk.behind(self)

    def open_again(self) -> bool:
        """
        Open the files after the disk failed, and return whether that worked; :meth:`next_batch`
        follows.
        """
        if self._files is None:
            try:
                self._adopt(self._call(self._open_ahead))
            except (OSError, NewerFormat) as error:
                self._still_failing(error)
                return False
        return True

    def _open_ahead(self) -> JournalFiles:
        assert self._disk is not None
        files = self._disk.open(self)
        files.go_ahead(self._unread, self.now())
        if files.end != self._unread:
            raise OSError(errno.EEXIST, "its offsets are in use", files.place.path)
        return files

    def _still_failing(self, error: Exception) -> None:
        if not isinstance(error, Unanswered):  # a full disk may be slow, too
            self.failure = reason_of(error)
            self._reserve()

    def works_again(self) -> None:
        """Handle that the files lack nothing, after the disk failed."""
        assert self._disk is not None
        self.failure, self._reserved = "", 0
        if self._files is not None:
            self._run(partial(self._files.reserve, 0))
        if self._reading is not None:
            self._reading.rest()  # the boots may be more
        self._trim()

    def _adopt(self, files: JournalFiles) -> None:
        missed = EventKind.GAP, self._unread  # a record of the files now says this
        events = [each for each in self._events or () if (each.kind, each.offset) != missed]
        self._events = deque(_after(files.open.boots, events), maxlen=_MAX_EVENTS)
        self._use(files)
        self._notify()

    def _changed(self) -> None:
        if not self.is_dirty and self._disk is not None:
            self.is_dirty = True
            self._disk.changed(self)

    def rest(self) -> None:
        if self._files is None or self._reading is None or self.failure or self.is_behind:
            return
        if self._disk is not None:
            self._run(self._files.rest)
            self._reading.rest()
            self._tail = _tail(self._files.end)

    # Output.

    @property
    def epoch(self) -> str:
        files = self.open_files()
        return self.memory_epoch if files is None else files.epoch.hex()

    @property
    def start(self) -> int:
        files = self.open_files()
        return self._tail.start if files is None else files.start

    @property
    def end(self) -> int:
        if self._files is None:
            self.open_files()  # the tail begins behind their output
        return self._tail.end

    @property
    def last_time(self) -> int:
        """The time of the newest entry; other entries may have the same time."""
        return self._last_time

    def append(self, data: bytes) -> None:
        if self.closed:
            return
        files = self._files or self.open_files()
        now = self._last_time = self.used_at = max(self._last_time, self.now())
        # Output within 10 ms shares a time: a time for each byte would need more memory than the
        # bytes.
        if now - self._mark < _MARK_NANOSECONDS:
            now = self._mark
        else:
            self._mark = now
        offset = self._tail.end
        self._tail.append(data, now)
        if self._disk is not None:
            if files is not None:
                self._disk.printed(files.epoch, offset, now, data)
                if not (self.is_behind or self.failure):
                    self._be_behind()
            self._trim()
        self._notify()

    def _trim(self) -> None:
        tail = self._tail
        if not self.failure:
            if tail.end - tail.start > _TAIL_BYTES + _TAIL_SEGMENT_BYTES:
                needed = tail.end - _TAIL_BYTES
                if self._slowest is not None and self._slowest < needed:
                    needed = max(self._slowest, tail.end - _LAGGING_TAIL_BYTES)
                if self.is_behind and self._files is not None and self._files.end < needed:
                    needed = max(self._files.end, tail.end - self._most_bytes)
                tail.discard_before(needed)
            return
        tail.discard_before(tail.end - self._most_bytes)
        if self._reserved and tail.end > self._reserved - UNSYNCED_BYTES // 2:
            self._reserve()

    @property
    def _most_bytes(self) -> int:
        return _FAILING_TAIL_BYTES if self._disk is None else self._disk.most_bytes

    def _time(self) -> int:
        self._last_time = max(self._last_time, self.now())
        return self._last_time

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._notify()

    def reopen(self) -> None:
        self.closed = False

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers[changed] = None

    def unwatch(self, changed: Callable[[], None]) -> None:
        self._watchers.pop(changed, None)

    def became_readable(self) -> None:
        self._notify()

    def _notify(self) -> None:
        for changed in list(self._watchers):
            changed()

    def read(self, offset: int, limit: int) -> bytes:
        if not self.start <= offset <= self.end:
            raise ValueError(f"offset {offset} is not within {self.start} to {self.end}")
        boots = self._boots_for_now()
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

    def last_bytes(self, count: int, end: int | None = None) -> int:
        start, end = self.start, self.end if end is None else end
        older = count - max(0, end - self._tail.start)
        if older <= 0 or self._reading is None or self._files is None:
            return max(start, end - count)
        end = min(end, self._tail.start, self._files.end)
        return self.next_available(self._reading.last_bytes(older, end))

    def last_lines(self, count: int, end: int | None = None) -> int:
        start, end = self.start, self.end if end is None else end
        if count == 0 or end <= start:
            return end
        return self._after_newline(count + self._ends_line(end), end)

    def _ends_line(self, end: int) -> bool:
        if end > self._tail.start or self._reading is None:
            return self._tail.read(end - 1, 1) == b"\n"
        return self._reading.ends_line(end)

    def line_start(self, offset: int) -> int:
        return self._after_newline(1, offset)

    def _after_newline(self, count: int, end: int) -> int:
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
        if self.open_files() is not None and self._reading is not None:
            is_new = not self._reading.has_boots
            boots = self._reading.boots()
            if is_new:
                newest = boots[-1].number if boots else 0
                boots += [each for each in self._unwritten_boots() if each.number > newest]
            return boots
        if self._boots is None:
            self._boots = []
        return self._boots

    def _boots_for_now(self) -> list[Boot]:
        """Return the boots, without those on disk if the disk cannot be read."""
        try:
            return self._boot_list()
        except OSError:
            return list(self._unwritten_boots())

    def _unwritten_boots(self) -> Iterator[Boot]:
        for each in self._events or ():
            if each.kind == EventKind.BOOT:
                yield Boot(each.data["number"], each.offset, each.time_ns)

    def booted(self, reason: str) -> None:
        boots = self._boots_for_now()
        if boots:
            number = boots[-1].number + 1
        else:
            number = 1 if self._files is None else self._files.open.boots + 1
        undo = self._undo()
        resets: dict[str, Any] = {"reset_bytes": len(undo)} if undo else {}
        event = self._record(EventKind.BOOT, number=number, reason=reason, **resets)
        boots.append(Boot(number, event.offset, event.time_ns))
        del boots[:-_MAX_BOOTS]
        if undo:
            self.append(undo)

    def _undo(self) -> bytes:
        """Return what resets the modes that the programs of the newest boot have set."""
        boots = self._boots_for_now()
        first = max(boots[-1].offset if boots else 0, recent_offset(self, LOOK_BACK_BYTES))
        pieces = []
        while (first := self.next_available(first)) < self.end:
            if data := self.read(first, self.end - first):
                pieces.append(data)
                first += len(data)
            else:  # the disk does not answer, or this part is damaged
                first = max(first + 1, self._tail.start)
        return undo_behind(b"".join(pieces))

    def lost(self) -> None:
        try:
            if not self._has_lost():
                self._skip()
        except OSError:  # the disk does not answer
            self.missed()

    def _has_lost(self) -> bool:
        end = self.end
        gaps = self.events(max(0, end - 1), end, EventKind.GAP)
        return any(each.data["bytes"] is None and each.data["end"] == end for each in gaps)

    def _skip(self) -> None:
        """
        Leave out an offset.

        :raises OSError: the disk fails; the files may lack the gap.
        """
        files = self._files
        if files is None or self._disk is None or self.failure or not self.end:
            self.missed()
            return
        self._disk.settle(self)
        if self._is_behind(files):
            self.missed()
            return
        end = self.end + 1
        # First, because a disk that answers late goes on from there.
        self._tail, self._mark = _tail(end), -_MARK_NANOSECONDS
        self._call(partial(files.skip, end, None))
        files.tell_full()
        self._changed()
        self._notify()

    def missed(self) -> None:
        self._record(EventKind.GAP, bytes=None, end=self.end)

    def resized(self, rows: int, columns: int) -> None:
        self._record(EventKind.SIZE, rows=rows, columns=columns)

    def joined(self, session: str, user: str, role: str) -> None:
        self._record(EventKind.JOIN, session=session[:_MAX_NAME], user=user[:_MAX_NAME], role=role)

    def left(self, session: str, user: str) -> None:
        self._record(EventKind.LEAVE, session=session[:_MAX_NAME], user=user[:_MAX_NAME])

    def role_changed(self, session: str, user: str, role: str) -> None:
        self._record(EventKind.ROLE, session=session[:_MAX_NAME], user=user[:_MAX_NAME], role=role)

    def typed(self, session: str, data: bytes, *, echoed: bool) -> bool:
        files = self.open_files()
        if self.closed or files is None or self.failure or self._disk is None:
            return False
        if not files.takes_events or len(self._events or ()) >= _MAX_EVENTS // 2:
            self._disk.settle(self)
        if self.failure or not files.takes_events or len(self._events or ()) >= _MAX_EVENTS:
            return False
        text = b64encode(data).decode("ascii")
        event = self._record(EventKind.INPUT, session=session, data=text, echoed=echoed)
        self._disk.settle(self)
        if self.failure and self._events and self._events[-1] is event:
            self._events.pop()  # the caller does not let the machine have it
        return not self.failure

    def write_missing(self) -> bool:
        """
        Write what the files lack, and check that they are in their place; a disk that failed gets
        another try.

        :return: false if the disk fails; a disk that does not answer fails a second later.
        """
        files = self.open_files()
        if self._disk is None:
            return False
        if self.failure:
            self._disk.try_again(self)
        elif files is not None and self.is_behind:
            self._disk.settle(self)
        elif files is not None:
            try:
                self._call(files.require_name)
            except Unanswered:
                pass
            except OSError as error:
                self.fail(error)
        return not self.failure

    def _record(self, kind: EventKind, **data: Any) -> Event:
        event = Event(self.end, self._time(), kind, data)
        # Output behind an event does not share the time of the output before it.
        self._mark = -_MARK_NANOSECONDS
        self._retain(event)
        if self._files is not None and self._disk is not None:
            self._disk.happened(self._files.epoch, event)
            if not self.failure:
                self._be_behind()
        return event

    def _retain(self, event: Event) -> None:
        if self._events is None:
            self._events = deque(maxlen=_MAX_EVENTS)
        self._events.append(event)

    def events(self, first: int, last: int, kind: EventKind | None = None) -> Iterator[Event]:
        events: list[Event] = []
        if self.open_files() is not None and self._reading is not None:
            events += self._reading.events(first, last, kind)
            begin, end = self._files.end if self._files else 0, self._tail.start
            if kind in (None, EventKind.GAP) and first <= begin <= last and begin < end:
                data = {"bytes": end - begin, "end": end}
                events.append(Event(begin, self._tail.time_at(end), EventKind.GAP, data))
        recent = of_kind(self._events or (), kind)
        events += [each for each in recent if first <= each.offset <= last]
        return iter(events)

    def cursor(self, name: str) -> ICursor:
        if not _CURSOR.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of a cursor, such as syslog-1")
        files = self.open_files()
        if files is not None:
            path = os.path.join(files.place.path, f"cursor.{name}")
            return FileCursor(files.place.layer, path, self.epoch, self._call)
        if self._cursors is None:
            self._cursors = {}
        return self._cursors.setdefault(name, MemoryCursor())


def _tail(start: int) -> Tail:
    return Tail(start, _TAIL_SEGMENT_BYTES, _MARK_NANOSECONDS)


def _after(boots: int, events: Iterable[Event]) -> Iterator[Event]:
    for event in events:
        if event.kind == EventKind.BOOT:
            event = replace(event, data={**event.data, "number": event.data["number"] + boots})
        yield event
