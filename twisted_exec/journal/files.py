"""
The directory of one journal: its epoch, its segments and its cursors.

Segments are named by the offset of their first byte.  Between two segments there may be a gap: output
that could not be written, or whose fate a power cut leaves open.  An offset is never used twice:
after a power cut, offsets jump ahead of everything that viewers may have seen.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .interfaces import Event, Kind
from .layer import Refused, opened, sync_directory
from .open_segment import OpenSegment
from .records import (
    FIRST_RECORD,
    HEADER_BYTES,
    OPEN_MAGIC,
    SEALED_MAGIC,
    Damaged,
    Header,
    NewerFormat,
    decode_header,
)
from .sealed_segment import SealedSegment, Segment

UNSYNCED_BYTES = 64 << 20
"""At most so many bytes are written without being forced to the disk."""
_JUMP_BYTES = 128 << 20
_EPOCH = re.compile(rb"([0-9a-f]{16})\n")
_NAME = re.compile(r"([0-9a-f]{16})\.(open|sealed)")
_MAX_SEALED = 4


@dataclass(frozen=True)
class Place:
    """
    The directory of a journal, and the circumstances of its use.

    :param layer: the module ``os``, or a stand-in.
    :param path: the directory; created if missing.
    :param run: number of this run of the program.
    :param cut: number of the last run that a power cut ended; 0 if there was none.
    :param removing: called with the path of a segment before it is removed, because it is too old or the
        journal is too large.
    """

    layer: Any
    path: str
    run: int = 1
    cut: int = 0
    removing: Callable[[str], None] = lambda path: None


class Files:
    """
    The segments of one journal.

    :param now: the time, in nanoseconds since the epoch.
    :param epoch: that of a new journal.
    :param full: called with this object when a segment is full and can be sealed.
    :ivar firsts: the offsets at which the segments begin.
    :ivar unsynced: those of them that are not known to be on the disk.
    :ivar has_new_names: the directory has names that are not forced to the disk.
    :ivar pending: full segments that are not sealed yet, by first offset.
    :raises OSError: the directory cannot be read or written.
    :raises Refused: the directory or a file is a symbolic link, or of another user.
    :raises NewerFormat: a segment is of a later release.
    """

    def __init__(
        self, place: Place, now: int, full: Callable[[Files], None], epoch: str = ""
    ) -> None:
        self.place, self._layer = place, place.layer
        self._full = full
        self.firsts: list[int] = []
        self.pending: dict[int, OpenSegment] = {}
        self._sealed: OrderedDict[int, SealedSegment | None] = OrderedDict()
        self._headers: dict[int, Header | None] = {}
        self._sizes: dict[int, int] = {}
        self.holes: dict[int, int] = {}
        self.unsynced: dict[int, OpenSegment] = {}
        self.has_new_names = True
        _make(self._layer, place.path)
        self.epoch = self._read_epoch() or self._make_epoch(bytes.fromhex(epoch))
        self._newest: OpenSegment | None = None
        self._newest = self._recover(now)
        for _ in self.pending:
            full(self)

    # Names.

    def path(self, first: int, kind: str) -> str:
        """Return the path of a segment; ``kind`` is ``open`` or ``sealed``."""
        return os.path.join(self.place.path, f"{first:016x}.{kind}")

    def _read_epoch(self) -> bytes | None:
        try:
            with opened(self._layer, self._file("epoch")) as descriptor:
                match = _EPOCH.fullmatch(self._layer.pread(descriptor, 100, 0))
        except FileNotFoundError:
            return None
        return None if match is None else bytes.fromhex(match[1].decode())

    def _make_epoch(self, new: bytes) -> bytes:
        """Create the file ``epoch``: with that of the segments, if the file was lost."""
        epoch = self._epoch_of_segments() or new or secrets.token_bytes(8)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with opened(self._layer, self._file("epoch.new"), flags) as descriptor:
            self._layer.write(descriptor, epoch.hex().encode() + b"\n")
        self._layer.rename(self._file("epoch.new"), self._file("epoch"))
        return epoch

    def _epoch_of_segments(self) -> bytes | None:
        for name in sorted(self._layer.listdir(self.place.path), reverse=True):
            if match := _NAME.fullmatch(name):
                magic = OPEN_MAGIC if match[2] == "open" else SEALED_MAGIC
                try:
                    return self._header_in(self._file(name), magic).epoch
                except Damaged:
                    continue
        return None

    def _file(self, name: str) -> str:
        return os.path.join(self.place.path, name)

    def _header_in(self, path: str, magic: bytes) -> Header:
        with opened(self._layer, path) as descriptor:
            return decode_header(self._layer.pread(descriptor, HEADER_BYTES, 0), magic)

    # Start.

    def _recover(self, now: int) -> OpenSegment:
        """Find the segments, and continue the newest."""
        kinds: dict[int, set[str]] = {}
        for name in self._layer.listdir(self.place.path):
            if match := _NAME.fullmatch(name):
                kinds.setdefault(int(match[1], 16), set()).add(match[2])
            elif name.endswith(".new"):
                self._layer.unlink(self._file(name))
        if not self.place.cut:
            self._remove_incomplete(kinds)
        self.firsts = sorted(kinds)
        for first in self.firsts:
            if kinds[first] == {"open", "sealed"}:
                # The sealed file is complete, because it got its name last; unless a disk lies.
                is_whole = self.segment(first) is not None
                self._layer.unlink(self.path(first, "open" if is_whole else "sealed"))
                self._sealed.pop(first, None)
                kinds[first] = {"sealed"} if is_whole else {"open"}
        unsealed = [first for first in self.firsts if kinds[first] == {"open"}]
        newest: OpenSegment | None = None
        is_missing = False
        for first in unsealed:
            try:
                newest, missing = OpenSegment.recover(
                    self._layer, self.path(first, "open"), first, self.epoch
                )
            except Damaged:
                self._layer.rename(self.path(first, "open"), self.path(first, "sealed"))
                self._sealed[first] = None
                is_missing = is_missing or first == self.firsts[-1]
                continue
            self.pending[first] = newest
            newest.close()
            is_missing = is_missing or missing
        if not self.firsts:
            return self._create(0, now, 0)
        return self._continue(now, is_missing)

    def _remove_incomplete(self, kinds: dict[int, set[str]]) -> None:
        """Remove the newest segment if the process died while it created the file."""
        if not kinds or kinds[newest := max(kinds)] != {"open"}:
            return
        path = self.path(newest, "open")
        with opened(self._layer, path) as descriptor:
            size = self._layer.fstat(descriptor).st_size
        if size < FIRST_RECORD:
            self._layer.unlink(path)
            del kinds[newest]

    def _continue(self, now: int, is_missing: bool) -> OpenSegment:
        last = self.firsts[-1]
        segment = self.segment(last)
        header = None if segment is None else self.header(last)
        end = last if segment is None else segment.end
        is_cut = header is None or header.run <= self.place.cut
        if is_missing or is_cut:
            return self._jump(end, segment, now)
        newest = self.pending.pop(last, None)
        if newest is None:
            assert segment is not None
            return self._create(end, segment.last_time, segment.boots)
        return newest

    def _jump(self, end: int, segment: Segment | None, now: int) -> OpenSegment:
        """Continue at an offset that no viewer has seen, after a gap of unknown size."""
        new = -(-(end + UNSYNCED_BYTES) // _JUMP_BYTES) * _JUMP_BYTES
        if segment is not None:
            last_time, boots = segment.last_time, segment.boots
        else:
            headers = [header for first in self.firsts if (header := self.header(first))]
            last_time = max((each.time_ns for each in headers), default=now)
            boots = max((each.boots for each in headers), default=0)
        newest = self._create(new, last_time, boots)
        now = max(now, last_time)
        newest.record(Event(end, now, Kind.GAP, {"bytes": None, "end": new}))
        return newest

    def _create(self, first: int, now: int, boots: int) -> OpenSegment:
        header = Header(OPEN_MAGIC, self.epoch, first, now, self.place.run, boots)
        segment = OpenSegment.create(self._layer, self.path(first, "open"), header)
        self.has_new_names = True
        if first not in self.firsts:
            self.firsts.append(first)
        return segment

    # Segments.

    @property
    def open(self) -> OpenSegment:
        """The newest segment."""
        assert self._newest is not None
        return self._newest

    @property
    def start(self) -> int:
        """Offset of the oldest byte."""
        return self.firsts[0]

    @property
    def end(self) -> int:
        """Offset of the next byte."""
        return self.open.end

    def segment(self, first: int) -> Segment | None:
        """Return the segment that begins at an offset; ``None`` if it cannot be read."""
        if first in self.pending:
            return self.pending[first]
        if self._newest is not None and first == self._newest.first:
            return self._newest
        if first in self._sealed:
            self._sealed.move_to_end(first)
            return self._sealed[first]
        segment: SealedSegment | None = None
        try:
            segment = SealedSegment(self._layer, self.path(first, "sealed"), first, self.epoch)
        except (Damaged, FileNotFoundError, NewerFormat, Refused):
            pass  # a gap
        self._sealed[first] = segment
        if len(self._sealed) > _MAX_SEALED:
            self._sealed.popitem(last=False)
        return segment

    def header(self, first: int) -> Header | None:
        """Return the header of a segment; ``None`` if it cannot be read."""
        segment = self.pending.get(first, self._newest)
        if segment is not None and segment.first == first:
            return segment.header
        if first not in self._headers:
            header: Header | None = None
            try:
                header = self._header_in(self.path(first, "sealed"), SEALED_MAGIC)
            except (Damaged, FileNotFoundError, NewerFormat, Refused):
                pass
            self._headers[first] = header
        return self._headers[first]

    def number(self, offset: int) -> int:
        """Return the number of the segment in which an offset is, or behind which it is."""
        return max(0, bisect_right(self.firsts, offset) - 1)

    # Writing.

    def append(self, data: bytes, now: int) -> None:
        """:raises OSError: the disk is full, or not writable; then nothing changed."""
        if self.open.is_full:
            self.roll()
        if self.unsynced_bytes > UNSYNCED_BYTES:
            raise OSError(errno.ETIMEDOUT, "the disk is too slow", self.place.path)
        self.open.append(data, now)

    def record(self, event: Event) -> None:
        """:raises OSError: the disk is full, or not writable; then nothing changed."""
        if self.open.is_full:
            self.roll()
        self.open.record(event)

    @property
    def takes_events(self) -> bool:
        """False if there are too many events without output in between."""
        return self.open.is_full or self.open.takes_events

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
        self._full(self)

    @property
    def unsynced_bytes(self) -> int:
        """The number of bytes that are not known to be on the disk."""
        oldest = next(iter(self.unsynced.values())) if self.unsynced else self.open
        return self.open.end - oldest.synced[1]

    def synchronized(self, segment: OpenSegment) -> None:
        """Take over that a full segment is on the disk."""
        if segment is not self._newest:
            self.unsynced.pop(segment.first, None)

    def skip(self, offset: int, missing: int | None) -> None:
        """
        Continue at a later offset, after a gap.

        :param missing: bytes of the gap, or ``None`` if unknown.
        """
        old = self.open
        new = self._create(offset, old.last_time, old.boots)
        new.record(Event(old.end, new.last_time, Kind.GAP, {"bytes": missing, "end": offset}))
        self._newest = new
        self._retire(old)

    def sealed(self, first: int) -> None:
        """Use the sealed file of a segment from now on, and remove the open one."""
        segment = self.pending.pop(first, None)
        if segment is not None:
            segment.close()
            self.unsynced.pop(first, None)
            self._sealed.pop(first, None)
            self._layer.unlink(segment.path)

    def drop(self, first: int) -> None:
        """Remove the oldest segment, if it is still the one that begins at ``first``."""
        if len(self.firsts) < 2 or self.firsts[0] != first:
            return
        pending = self.pending.pop(first, None)
        if pending is not None:
            pending.close()
        self.unsynced.pop(first, None)
        self._sealed.pop(first, None)
        self._headers.pop(first, None)
        self._sizes.pop(first, None)
        del self.firsts[0]
        for kind in ("open", "sealed"):
            self.place.removing(self.path(first, kind))
            try:
                self._layer.unlink(self.path(first, kind))
            except FileNotFoundError:
                pass
        for begin in [each for each in self.holes if each < self.start]:
            del self.holes[begin]

    def sizes(self) -> list[tuple[int, int]]:
        """Return offset and length of each segment, the oldest first."""
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
        """Force the names of the files to the disk; for another thread."""
        sync_directory(self._layer, self.place.path)

    @property
    def is_awake(self) -> bool:
        """True if there is an open descriptor, or memory for reading."""
        return self.open.is_active or bool(self._sealed or self._headers)

    def rest(self) -> None:
        """Close every descriptor, and free the memory for reading."""
        self.open.close()
        for segment in self.pending.values():
            segment.close()
        self._sealed.clear()
        self._headers.clear()
        self._sizes.clear()


def _make(layer: Any, path: str) -> None:
    """
    Create a private directory, unless it exists.

    :raises Refused: it is a symbolic link, not a directory, open to others, or not ours.
    """
    try:
        layer.mkdir(path, 0o700)
    except FileExistsError:
        entry = layer.lstat(path)
        if not stat.S_ISDIR(entry.st_mode):
            raise Refused(errno.ENOTDIR, "it is not a directory", path) from None
        if entry.st_uid != os.geteuid() or stat.S_IMODE(entry.st_mode) & 0o077:
            raise Refused(
                errno.EPERM, "it is not a private directory of this program's user", path
            ) from None
