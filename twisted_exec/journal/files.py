"""
The directory of one journal: its epoch and its segments.

Segments are named by the offset of their first byte. An offset of an epoch is never used twice.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from twisted_exec.journal.cursors import FileCursor
from twisted_exec.journal.file_access import (
    ForeignFile,
    check_directory,
    is_passing,
    opened,
    read_output,
    replace_file,
    sync_directory,
)
from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.journal.records import (
    HEADER_BYTES,
    OPEN_MAGIC,
    SEALED_MAGIC,
    Damaged,
    Header,
    NewerFormat,
    decode_header,
)
from twisted_exec.journal.segments import OpenSegment, SealedSegment, Segment

UNSYNCED_BYTES = 64 << 20
"""While more bytes than these are not forced to the disk, no output is written."""
_JUMP_BYTES = 128 << 20
_MINUTE, _AHEAD_BYTES = 60 * 10**9, 64 << 20
_AHEAD_SINCE = 1_767_225_600 * 10**9  # 2026-01-01T00:00:00Z
_MAX_DISTANCE = 1 << 40
_EPOCH = re.compile(rb"([0-9a-f]{16})\n")
_NAME = re.compile(r"([0-3][0-9a-f]{15})\.(open|sealed)")
_MAX_SEALED = 4


@dataclass(frozen=True)
class JournalPlace:
    """
    The directory of a journal, and the circumstances of its use.

    :param begin: called before anything is written; raises :class:`OSError` if that cannot begin.
    :param is_given_up: returns whether the next process may own the files.
    """

    layer: Any
    path: str
    run: int = 1
    cut: int = 0
    removing: Callable[[str], None] = lambda path: None
    begin: Callable[[], None] = lambda: None
    is_given_up: Callable[[], bool] = lambda: False


def ahead_of_all(now: int) -> int:
    """
    Return an offset beyond those that earlier runs used without a note on the disk.

    :param now: nanoseconds since the epoch.
    """
    return max(0, now - _AHEAD_SINCE) // _MINUTE * _AHEAD_BYTES


class JournalFiles:
    """
    The segments of one journal.

    :meth:`begin` comes before anything is written, except by :meth:`reserve`. Methods that use
    files may run in a thread, one at a time.

    :param now: the time, in nanoseconds since the epoch.
    :ivar pending: full segments that are not sealed yet, by first offset.
    :ivar unsynced: full segments that are not known to be on the disk, by first offset.
    :raises OSError: the directory cannot be read.
    :raises ForeignFile: the path is no directory, or the directory is open to others or of another
        user.
    """

    def __init__(
        self, place: JournalPlace, now: int, full: Callable[[JournalFiles], None], epoch: str = ""
    ) -> None:
        self.place, self._layer = place, place.layer
        self._full, self._newly_full = full, 0
        self.firsts: list[int] = []
        self.pending: dict[int, OpenSegment] = {}
        self._sealed: OrderedDict[int, SealedSegment | None] = OrderedDict()
        self._headers: dict[int, Header | None] = {}
        self._sizes: dict[int, int] = {}
        self.holes: dict[int, int] = {}
        self.unsynced: dict[int, OpenSegment] = {}
        self.has_new_names = True
        self._leftovers: list[str] = []
        self._has_begun = self._is_created = False
        self._gap: Event | None = None
        self._newest: OpenSegment | None = None
        found = self._look()
        read = self._read_epoch()
        self._has_epoch = read is not None
        self._new_epoch = bytes.fromhex(epoch) or secrets.token_bytes(8)
        self.epoch = read or self._epoch_of(found) or self._new_epoch
        self._recover(found, now)

    # Names.

    def path(self, first: int, kind: str) -> str:
        return os.path.join(self.place.path, f"{first:016x}.{kind}")

    def _file(self, name: str) -> str:
        return os.path.join(self.place.path, name)

    def _look(self) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        try:
            check_directory(self._layer, self.place.path)
        except FileNotFoundError:
            self._layer.stat(os.path.dirname(self.place.path) or os.curdir)
            return found  # a new journal
        for name in self._layer.listdir(self.place.path):
            if match := _NAME.fullmatch(name):
                found.setdefault(int(match[1], 16), set()).add(match[2])
            elif name.endswith(".new"):
                self._leftovers.append(self._file(name))
        return found

    def _read_epoch(self) -> bytes | None:
        try:
            with opened(self._layer, self._file("epoch")) as descriptor:
                match = _EPOCH.fullmatch(read_output(self._layer, descriptor, 100, 0))
        except (Damaged, FileNotFoundError, ForeignFile):
            return None
        return None if match is None else bytes.fromhex(match[1].decode())

    def _write_epoch(self) -> None:
        replace_file(self._layer, self._file("epoch"), self.epoch.hex().encode() + b"\n")
        self._has_epoch = True

    def _epoch_of(self, found: dict[int, set[str]]) -> bytes | None:
        for first in sorted(found, reverse=True):
            for kind in found[first]:
                magic = OPEN_MAGIC if kind == "open" else SEALED_MAGIC
                try:
                    return self._header_in(self.path(first, kind), magic).epoch
                except (Damaged, FileNotFoundError, ForeignFile):
                    continue
        return None

    def _header_in(self, path: str, magic: bytes) -> Header:
        with opened(self._layer, path) as descriptor:
            return decode_header(read_output(self._layer, descriptor, HEADER_BYTES, 0), magic)

    @property
    def _mark(self) -> FileCursor:
        return FileCursor(self._layer, self._file("newest"), self.epoch.hex())

    # Start.

    def _recover(self, found: dict[int, set[str]], now: int) -> None:
        self.firsts = sorted(found)
        damaged = {
            first
            for first in self.firsts
            if "open" in found[first] and self._recover_open(first, "sealed" in found[first])
        }
        last = self._last()
        mark = self._mark.load()
        if last is not None and last.first in self.pending and last.first >= (mark or 0):
            # Else a newer segment is missing: a segment is sealed after the next was begun.
            newest = self.pending[last.first]
            if last.first not in damaged and newest.header.run > self.place.cut:
                self._newest, self._is_created = self.pending.pop(last.first), True
                return
        if not self.firsts and mark is None:
            self._start_new(now)
            return
        end = max(self._end(last), mark or 0)
        reserved = max((each.reserved for each in self.pending.values()), default=0)
        self._continue_at(max(_beyond(end), -(-reserved // _JUMP_BYTES) * _JUMP_BYTES), last, now)

    def _recover_open(self, first: int, is_sealed: bool) -> bool:
        # A sealed file is complete, because it got its name last; unless a disk lies.
        if is_sealed and self._sealed_segment(first) is not None:
            self._leftovers.append(self.path(first, "open"))
            return False
        self._sealed.pop(first, None)
        try:
            segment, is_damaged = OpenSegment.recover(
                self._layer, self.path(first, "open"), first, self.epoch
            )
        except Damaged:
            return True
        except OSError as error:
            if is_passing(error):
                raise
            return True
        segment.close()
        self.pending[first] = segment
        return is_damaged

    def _last(self) -> Segment | None:
        while self.firsts:
            first = self.firsts[-1]
            segment = self.segment(first)
            before = self.firsts[-2] if len(self.firsts) > 1 else 0
            if segment is not None:
                return segment
            if self.firsts[-1] == first:
                if first - before <= _MAX_DISTANCE:
                    return None
                self.firsts.pop()
        return None

    def _end(self, last: Segment | None) -> int:
        if last is not None:
            return last.end
        return self.firsts[-1] if self.firsts else 0

    def _start_new(self, now: int) -> None:
        if self._has_epoch:
            self.epoch, self._has_epoch = self._new_epoch, False
            self._gap = Event(0, now, EventKind.GAP, {"bytes": None, "end": 0})
        self._plan(0, now, 0)

    def _continue_at(self, new: int, last: Segment | None, now: int) -> None:
        """Continue at an offset that no viewer has seen, after a gap of unknown size."""
        if last is not None:
            last_time, boots = last.last_time, last.boots
        else:
            headers = [header for first in self.firsts if (header := self.header(first))]
            last_time = max((each.time_ns for each in headers), default=now)
            boots = max((each.boots for each in headers), default=0)
        begin = self._end(last) if self.firsts else new
        self._gap = Event(begin, max(now, last_time), EventKind.GAP, {"bytes": None, "end": new})
        self._plan(new, last_time, boots)

    def _plan(self, first: int, now: int, boots: int) -> None:
        header = Header(OPEN_MAGIC, self.epoch, first, now, self.place.run, boots)
        self._newest, self._is_created = (
            OpenSegment(self._layer, self.path(first, "open"), header),
            False,
        )
        self.firsts.append(first)

    def begin(self) -> None:
        if self._has_begun:
            return
        self.place.begin()
        _make(self._layer, self.place.path)
        while self._leftovers:
            with suppress(FileNotFoundError, IsADirectoryError):
                self._layer.unlink(self._leftovers[-1])
            self._leftovers.pop()
        newest = self.open
        if self._is_created:
            newest.truncate()
        else:
            self._newest = self._create(newest.first, newest.last_time, newest.boots, self._gap)
            self._is_created, self._gap = True, None
        self.open.close()
        if not self._has_epoch:
            self._write_epoch()  # last: an epoch without a segment says that output was lost
        self._has_begun = True
        self._newly_full += len(self.pending)

    @property
    def has_begun(self) -> bool:
        return self._has_begun

    def reserve(self, until: int) -> bool:
        """
        Note that viewers may have seen offsets below ``until``, although they are not on disk.

        :return: whether it is noted, or need not be.
        """
        if not self._is_created and not self.open.first:
            return True
        newest = self.open if self._is_created else self.pending.get(max(self.pending, default=-1))
        if newest is None or self.place.is_given_up():
            return False
        try:
            newest.reserve(until)
        except OSError:
            return False
        return True

    def go_ahead(self, offset: int, now: int) -> None:
        """
        Continue at a later offset, after a gap of unknown size.

        Only before :meth:`begin` has succeeded.
        """
        newest = self.open
        if self._is_created:
            self.pending[newest.first] = newest
        else:
            self.firsts.pop()
        self._newest = None
        self._continue_at(max(offset, _beyond(newest.end)), self._last(), now)

    def _create(self, first: int, now: int, boots: int, gap: Event | None = None) -> OpenSegment:
        header = Header(OPEN_MAGIC, self.epoch, first, now, self.place.run, boots)
        segment = OpenSegment.create(self._layer, self.path(first, "open"), header, gap)
        self.has_new_names = True
        if first not in self.firsts:
            self.firsts.append(first)
        with suppress(OSError):
            self._mark.save(first)
        return segment

    # Segments.

    @property
    def open(self) -> OpenSegment:
        assert self._newest is not None
        return self._newest

    @property
    def start(self) -> int:
        return self.firsts[0]

    @property
    def end(self) -> int:
        return self.open.end

    def segment(self, first: int) -> Segment | None:
        if first in self.pending:
            return self.pending[first]
        if self._newest is not None and first == self._newest.first:
            return self._newest
        segment = self._sealed_segment(first)
        if segment is None and self._is_within_another(first):
            self.firsts.remove(first)  # a file that is not of this place hides nothing
        return segment

    def _sealed_segment(self, first: int) -> SealedSegment | None:
        if first in self._sealed:
            self._sealed.move_to_end(first)
            return self._sealed[first]
        segment: SealedSegment | None = None
        try:
            segment = SealedSegment(self._layer, self.path(first, "sealed"), first, self.epoch)
        except (Damaged, NewerFormat):
            pass  # a gap
        except OSError as error:
            if is_passing(error):
                raise
        self._sealed[first] = segment
        if len(self._sealed) > _MAX_SEALED:
            self._sealed.popitem(last=False)
        return segment

    def _is_within_another(self, first: int) -> bool:
        number = bisect_left(self.firsts, first)
        if self.firsts[number : number + 1] != [first]:
            return False
        for before in reversed(self.firsts[:number]):
            segment: Segment | None = self.pending.get(before) or self._sealed_segment(before)
            if segment is not None:
                return segment.end > first
        return False

    def at(self, offset: int) -> Segment | None:
        while True:
            first = self.firsts[self.number(offset)]
            segment = self.segment(first)
            if segment is not None or self.firsts[self.number(offset)] == first:
                return segment

    def events(self, first: int, kind: EventKind | None = None) -> list[Event]:
        """Return the events of the segment that begins at an offset."""
        segment = self.segment(first)
        events = [] if segment is None else list(segment.events(kind))
        if self._gap is not None and first == self.open.first and kind in (None, EventKind.GAP):
            events.append(self._gap)
        return events

    def header(self, first: int) -> Header | None:
        """Return the header of a segment; ``None`` if it is lost or cannot be decoded."""
        segment = self.pending.get(first, self._newest)
        if segment is not None and segment.first == first:
            return segment.header
        if first not in self._headers:
            header: Header | None = None
            try:
                header = self._header_in(self.path(first, "sealed"), SEALED_MAGIC)
            except (Damaged, NewerFormat):
                pass
            except OSError as error:
                if is_passing(error):
                    raise
            self._headers[first] = header
        return self._headers[first]

    def number(self, offset: int) -> int:
        return max(0, bisect_right(self.firsts, offset) - 1)

    # Writing.

    def append(self, data: bytes, now: int) -> None:
        if self.open.is_full:
            self.roll()
        if self.unsynced_bytes > UNSYNCED_BYTES:
            raise OSError(errno.ETIMEDOUT, "the disk is too slow", self.place.path)
        self.open.append(data, now)

    def record(self, event: Event) -> None:
        if self.open.is_full:
            self.roll()
        self.open.record(event)

    @property
    def takes_events(self) -> bool:
        return self.open.is_full or self.open.takes_events

    def require_name(self) -> None:
        """:raises OSError: the newest segment was removed or renamed."""
        if self._is_created:
            self.open.require_name()

    def roll(self) -> None:
        """Begin another segment, unless the newest is empty."""
        old = self.open
        if old.end == old.first:
            return
        self._newest = self._create(old.end, old.last_time, old.boots)
        self._retire(old)

    def _retire(self, old: OpenSegment) -> None:
        self.pending[old.first] = self.unsynced[old.first] = old
        old.close()
        self._newly_full += 1

    def tell_full(self) -> None:
        """Report the segments that became full; in the thread of the reactor."""
        count, self._newly_full = self._newly_full, 0
        for _ in range(count):
            self._full(self)

    @property
    def unsynced_bytes(self) -> int:
        # Without the gaps between segments, which may be as large as offsets are.
        return sum(each.end - each.synced[1] for each in (*self.unsynced.values(), self.open))

    def synchronized(self, segment: OpenSegment) -> None:
        if segment is not self._newest:
            self.unsynced.pop(segment.first, None)

    def skip(self, offset: int, missing: int | None) -> None:
        """
        Continue at a later offset, after a gap.

        :param missing: bytes of the gap, or ``None`` if unknown.
        """
        old = self.open
        gap = Event(old.end, old.last_time, EventKind.GAP, {"bytes": missing, "end": offset})
        self._newest = self._create(offset, old.last_time, old.boots, gap)
        self._retire(old)

    def sealed(self, first: int) -> str | None:
        """
        Use the sealed file of a segment from now on; return the path of the open file, which the
        caller removes.
        """
        segment = self.pending.pop(first, None)
        if segment is None:
            return None
        segment.close()
        self.unsynced.pop(first, None)
        self._sealed.pop(first, None)
        return segment.path

    def drop(self, first: int) -> None:
        """Remove the oldest segment, if it still begins at ``first`` and is not the only one."""
        if len(self.firsts) < 2 or self.firsts[0] != first:
            return
        for kind in ("open", "sealed"):
            self.place.removing(self.path(first, kind))
            with suppress(FileNotFoundError, IsADirectoryError):
                self._layer.unlink(self.path(first, kind))
        pending = self.pending.pop(first, None)
        if pending is not None:
            pending.close()
        self.unsynced.pop(first, None)
        self._sealed.pop(first, None)
        self._headers.pop(first, None)
        self._sizes.pop(first, None)
        del self.firsts[0]
        for begin in [each for each in self.holes if each < self.start]:
            del self.holes[begin]

    def sizes(self) -> list[tuple[int, int]]:
        return [(first, self._size(first)) for first in self.firsts]

    def _size(self, first: int) -> int:
        segment = self.pending.get(first, self.open)
        if segment.first == first:
            return segment.position
        if first not in self._sizes:
            try:
                self._sizes[first] = self._layer.stat(self.path(first, "sealed")).st_size
            except FileNotFoundError:
                self._sizes[first] = 0
        return self._sizes[first]

    def sync_directory(self) -> None:
        sync_directory(self._layer, self.place.path)

    @property
    def is_awake(self) -> bool:
        return self.open.is_active or bool(self._sealed or self._headers)

    def rest(self) -> None:
        """Close the descriptors, and free the memory for reading."""
        self.open.close()
        for segment in self.pending.values():
            segment.close()
        self._sealed.clear()
        self._headers.clear()
        self._sizes.clear()


def _beyond(end: int) -> int:
    """Return an offset that no viewer has seen, if at most :data:`UNSYNCED_BYTES` are missing."""
    return -(-(end + UNSYNCED_BYTES) // _JUMP_BYTES) * _JUMP_BYTES


def _make(layer: Any, path: str) -> None:
    try:
        layer.mkdir(path, 0o700)
    except FileExistsError:
        check_directory(layer, path)
