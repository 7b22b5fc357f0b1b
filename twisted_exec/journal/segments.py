"""
The segments of a journal: the newest, to which output is appended, and the full ones, compressed.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from twisted_exec.journal.blocks import (
    LEVEL,
    TRAILER_BYTES,
    Block,
    Index,
    SegmentEncoder,
    Times,
    decode_block,
    decode_block_index,
    index_place,
)
from twisted_exec.journal.file_access import (
    is_passing,
    open_file,
    opened,
    read_output,
    sync_directory,
)
from twisted_exec.journal.interfaces import Event, EventKind, of_kind
from twisted_exec.journal.records import (
    FIRST_RECORD,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    OPEN_MAGIC,
    SEALED_MAGIC,
    Checkpoint,
    Damaged,
    Header,
    RecordKind,
    decode_checkpoint,
    decode_event,
    decode_header,
    decode_index,
    encode_event,
    encode_index,
    encode_output,
    event_before,
    is_torn,
    open_header,
    records,
)

_BLOCK_BYTES = 64 << 10
_BLOCK_RECORDS = 2048
_SEGMENT_BYTES = 1 << 20
_FILE_BYTES = 4 << 20
_MAX_EVENTS = 1000
_EVENTS_BYTES = 4 << 10
_NEWLINE = b"\n"
_MAX_READ_BYTES = 256 << 20
_PROBE = b"\xff" * 4096
"""After a kill, this looks like the beginning of a long record, which is a torn write."""


def check_segment(header: Header, first: int, epoch: bytes) -> None:
    if header.epoch != epoch:
        raise Damaged("it is a segment of another journal")
    if header.first != first:
        raise Damaged("it begins at another offset than its name says")


class OpenSegment:
    """
    The segment that grows.

    :ivar synced: the position and the offset that count as forced to the disk.
    :ivar reserved: viewers may have seen output below this offset that is not in the file; 0 if
        not.
    """

    def __init__(self, layer: Any, path: str, header: Header, seed: int | None = None) -> None:
        self._layer, self.path, self.header = layer, path, header
        self._seed = header.seed if seed is None else seed
        self.reserved = 0
        self.first = self.end = header.first
        self.last_time = header.time_ns
        self.newlines = 0
        self.boots = header.boots
        self.position = FIRST_RECORD
        self.synced = FIRST_RECORD, header.first
        self._generation = 0
        self._records = 0
        self._events_count = 0
        self._index_position = self._event_position = 0
        self._block_first = header.first
        self._descriptor: int | None = None
        self._is_writable = False
        self._positions: array[int] | None = None
        self._gaps: list[Event] | None = None  # each new viewer needs them

    @classmethod
    def create(cls, layer: Any, path: str, header: Header, gap: Event | None = None) -> OpenSegment:
        """Create the file, which gets its name when it is complete."""
        segment, new = cls(layer, path, header), f"{path}.new"
        segment._descriptor = open_file(layer, new, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        segment._is_writable = True
        try:
            segment._write(header.encode(), 0)
            layer.ftruncate(segment._descriptor, FIRST_RECORD)
            if gap is not None:
                segment.record(gap)
            layer.rename(new, path)
        except OSError:
            segment.close()
            with suppress(OSError):
                layer.unlink(new)
            raise
        segment._reset_index()
        return segment

    @classmethod
    def recover(cls, layer: Any, path: str, first: int, epoch: bytes) -> tuple[OpenSegment, bool]:
        """
        Read the segment of an earlier run; :meth:`truncate` removes what a failed write left.

        :return: the segment; and whether output that viewers have seen may be missing.
        :raises Damaged: the file is not a segment of this journal.
        :raises NewerFormat: the file is of a later release.
        :raises OSError: the file cannot be read.
        """
        descriptor = open_file(layer, path, os.O_RDONLY)
        try:
            size = layer.fstat(descriptor).st_size
            head = read_output(layer, descriptor, FIRST_RECORD, 0)
            if len(head) < FIRST_RECORD:
                raise Damaged("the file was cut")  # it had its name when it was complete
            seed: int | None = None
            try:
                header = decode_header(head, OPEN_MAGIC)
            except Damaged:
                data = read_output(layer, descriptor, FIRST_RECORD + MAX_RECORD_BYTES, 0)
                header, seed = open_header(data, epoch, first)
            check_segment(header, first, epoch)
            segment = cls(layer, path, header, seed)
            segment._descriptor = descriptor
            missing = segment._recover(head, size)
            return segment, missing or seed is not None
        except BaseException:
            layer.close(descriptor)
            raise

    def _recover(self, head: bytes, size: int) -> bool:
        missing = False
        checkpoint = None
        try:
            checkpoint = decode_checkpoint(head, self._seed, size)
        except Damaged:
            missing = True
        if checkpoint is not None:
            self._restore(checkpoint)
            self.reserved = checkpoint.reserved
            missing = checkpoint.reserved > 0
        length = min(max(0, size - self.position), _MAX_READ_BYTES)
        data = read_output(self._layer, self._reading_fd, length, self.position)
        at, begin = 0, self.position
        for kind, time_ns, first, last in records(data, self._seed):
            self._add(kind, time_ns, data[first:last], begin + at)
            at = last
        self.position = begin + at
        if at < len(data):
            missing = missing or not is_torn(data, at)
        return missing

    def _restore(self, checkpoint: Checkpoint) -> None:
        self._generation = checkpoint.generation
        self.position, self.end = checkpoint.position, checkpoint.offset
        self.last_time, self.newlines = checkpoint.time_ns, checkpoint.newlines
        self.boots = checkpoint.boots
        self._index_position, self._event_position = checkpoint.index, checkpoint.event
        self.synced = self.position, self.end
        begin = checkpoint.index or FIRST_RECORD
        # At most so many records are in the block, whose beginning is not read now: each has a head of
        # 16 bytes and a payload.
        self._records = (self.position - begin) // 17
        self._block_first = self.end

    def _add(self, kind: int, time_ns: int, payload: bytes, position: int) -> None:
        self.last_time = max(self.last_time, time_ns)
        if kind == RecordKind.OUTPUT:
            self.end += len(payload)
            self.newlines += payload.count(_NEWLINE)
            self._records += 1
        elif kind == RecordKind.INDEX:
            self._index_position = position
            self._records, self._block_first = 0, self.end
        else:
            self._event_position = position
            self._events_count += 1
            if kind == RecordKind.BOOT:
                event, _ = decode_event(kind, time_ns, payload)
                if event is not None:
                    self.boots = event.data["number"]

    @property
    def _fd(self) -> int:
        if self._descriptor is None or not self._is_writable:
            descriptor = open_file(self._layer, self.path, os.O_RDWR)
            if self._descriptor is not None:
                self._layer.close(self._descriptor)
            self._descriptor, self._is_writable = descriptor, True
        return self._descriptor

    @property
    def _reading_fd(self) -> int:
        if self._descriptor is None:
            self._descriptor = open_file(self._layer, self.path, os.O_RDONLY)
            self._is_writable = False
        return self._descriptor

    @property
    def is_active(self) -> bool:
        return self._descriptor is not None

    @property
    def is_full(self) -> bool:
        """True if the next output should go to another segment."""
        return self.end > self.first and (
            self.end - self.first >= _SEGMENT_BYTES
            or self.position >= _FILE_BYTES
            or self._events_count >= _MAX_EVENTS
        )

    @property
    def takes_events(self) -> bool:
        """False if the segment has too many events."""
        return self._events_count < _MAX_EVENTS * 10

    def close(self) -> None:
        self._positions = None
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._layer.close(descriptor)

    # Writing.

    def append(self, data: bytes, time_ns: int) -> None:
        """:raises OSError: nothing was appended."""
        index = b""
        if self._records >= _BLOCK_RECORDS or self.end - self._block_first >= _BLOCK_BYTES:
            index = self._encode_index(time_ns)
        encoded = index + encode_output(time_ns, data, self._seed)
        self._write(encoded, self.position)
        if index:
            self._indexed(time_ns)
        self.position += len(encoded)
        self.end += len(data)
        self.newlines += data.count(_NEWLINE)
        self.last_time = time_ns
        self._records += 1

    def _encode_index(self, time_ns: int) -> bytes:
        return encode_index(time_ns, self.end, self._index_position, self.newlines, self._seed)

    def _indexed(self, time_ns: int) -> None:
        self._index_position = self.position
        self._records, self._block_first = 0, self.end
        if self._positions is not None:
            self._add_block(self.position, self.end, self.newlines, time_ns)

    def record(self, event: Event) -> None:
        """Append an event, unless the segment has too many."""
        if not self.takes_events:
            return
        encoded = encode_event(event, self._event_position, self._seed)
        self._write(encoded, self.position)
        self._event_position = self.position
        self.position += len(encoded)
        self.last_time = event.time_ns
        self._events_count += 1
        if event.kind == EventKind.BOOT:
            self.boots = event.data["number"]
        elif event.kind == EventKind.GAP and self._gaps is not None:
            self._gaps.append(event)

    def _write(self, data: bytes, position: int) -> None:
        while data:
            written = self._layer.pwrite(self._fd, data, position)
            if written == len(data):
                return
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            data, position = data[written:], position + written

    def truncate(self) -> None:
        self._layer.ftruncate(self._fd, self.position)

    def probe(self) -> None:
        """
        Write as much as a record may need, and remove it and what a failed write left.

        :raises OSError: the disk does not take it.
        """
        self._write(_PROBE, self.position)
        self.truncate()

    def require_name(self) -> None:
        """
        Check that the file is where a reader looks for it: writes to a deleted file succeed, too.

        :raises OSError: it was removed or renamed.
        """
        try:
            named = self._layer.stat(self.path)
        except FileNotFoundError:
            named = None
        if named is not None and (
            self._descriptor is None or os.path.samestat(named, self._layer.fstat(self._descriptor))
        ):
            return
        raise OSError(errno.ENOENT, "the file of its output was removed or renamed", self.path)

    def reserve(self, until: int) -> None:
        self._write_checkpoint(self._fd, self.checkpoint(until))

    def sync(self, checkpoint: Checkpoint) -> None:
        """Force the output up to a checkpoint to the disk; for another thread."""
        with opened(self._layer, self.path, os.O_RDWR) as descriptor:
            # Before the checkpoint, which says that this is on the disk.
            self._layer.fdatasync(descriptor)
            self._write_checkpoint(descriptor, checkpoint)

    def synchronized(self, checkpoint: Checkpoint) -> None:
        self.synced = max(self.synced, (checkpoint.position, checkpoint.offset))

    def _write_checkpoint(self, descriptor: int, checkpoint: Checkpoint) -> None:
        self._layer.pwrite(descriptor, checkpoint.encode(self._seed), checkpoint.slot)

    def checkpoint(self, reserved: int = 0) -> Checkpoint:
        self._generation += 1
        return Checkpoint(
            generation=self._generation,
            position=self.position,
            offset=self.end,
            time_ns=self.last_time,
            index=self._index_position,
            event=self._event_position,
            reserved=reserved,
            newlines=self.newlines,
            boots=self.boots,
        )

    # Reading.

    def _reset_index(self) -> None:
        self._positions, self._firsts = array("Q"), array("Q")
        self._until, self._times = array("Q"), array("Q")
        self._add_block(FIRST_RECORD, self.first, 0, self.header.time_ns)

    def _add_block(self, position: int, first: int, newlines: int, time_ns: int) -> None:
        assert self._positions is not None
        self._positions.append(position)
        self._firsts.append(first)
        self._until.append(newlines)
        self._times.append(time_ns)

    def _load_index(self) -> None:
        if self._positions is not None:
            return
        blocks = []
        position = self._index_position
        while position:
            try:
                _, time_ns, payload = self._record_at(position)
                first, previous, newlines = decode_index(payload)
            except (Damaged, OSError) as error:
                if isinstance(error, OSError) and is_passing(error):
                    raise
                break  # blocks before this block become one large block
            blocks.append((position, first, newlines, time_ns))
            # A damaged record must not lead in a circle.
            position = previous if previous < position else 0
        self._reset_index()
        for block in reversed(blocks):
            self._add_block(*block)

    def _record_at(self, position: int) -> tuple[int, int, bytes]:
        data = read_output(self._layer, self._reading_fd, 4096, position)
        for attempt in (data, None):
            if attempt is None:
                data = read_output(self._layer, self._reading_fd, MAX_RECORD_BYTES, position)
            for kind, time_ns, first, last in records(data, self._seed):
                return kind, time_ns, data[first:last]
        raise Damaged(f"there is no record at {position}")

    @property
    def firsts(self) -> Sequence[int]:
        self._load_index()
        return self._firsts

    def first_time(self, number: int) -> int:
        self._load_index()
        return self._times[number]

    def newlines_until(self, number: int) -> int:
        self._load_index()
        return self._until[number]

    def block(self, number: int) -> Block:
        self._load_index()
        assert self._positions is not None
        position = self._positions[number]
        is_last = number + 1 == len(self._positions)
        limit, last = (
            (self.position, self.end)
            if is_last
            else (self._positions[number + 1], self._firsts[number + 1])
        )
        data = read_output(self._layer, self._reading_fd, limit - position, position)
        parts, times, size = [], Times(), 0
        for kind, time_ns, begin, end in records(data, self._seed):
            if kind == RecordKind.OUTPUT:
                times.add(size, time_ns)
                parts.append(data[begin:end])
                size += end - begin
        first = self._firsts[number]
        if not size and first != last:
            raise Damaged("a block is corrupted")
        return Block(first, b"".join(parts), times)

    def events(self, kind: EventKind | None = None) -> Sequence[Event]:
        if kind is not EventKind.GAP:
            return self._read_events(kind)
        if self._gaps is None:
            self._gaps = self._read_events(kind)
        return list(self._gaps)

    def _read_events(self, kind: EventKind | None) -> list[Event]:
        number = None if kind is None else RecordKind[kind.name]
        events: list[Event] = []
        with suppress(Damaged):
            for record in self._event_records():
                if number in (None, record[0]):
                    event, _ = decode_event(*record)
                    if event is not None:
                        events.append(event)
        return events[::-1]

    def _event_records(self) -> Iterator[tuple[int, int, bytes]]:
        position, start, data = self._event_position, 0, b""
        for _ in range(_MAX_EVENTS * 10 + 1):
            if not position:
                break
            record = self._record_in(data, position - start)
            if record is None:  # most events are close to the previous event
                start = max(FIRST_RECORD, position - _EVENTS_BYTES)
                length = position - start + _EVENTS_BYTES
                data = read_output(self._layer, self._reading_fd, length, start)
                record = self._record_in(data, position - start) or self._record_at(position)
            yield record
            previous = event_before(record[2])
            position = previous if previous < position else 0

    def _record_in(self, data: bytes, at: int) -> tuple[int, int, bytes] | None:
        if at < 0:
            return None
        for kind, time_ns, first, last in records(data, self._seed, at):
            return kind, time_ns, data[first:last]
        return None


class Segment(Protocol):
    """Contiguous output of a journal, in blocks."""

    first: int
    end: int
    last_time: int
    newlines: int
    boots: int

    @property
    def firsts(self) -> Sequence[int]:
        """The offsets at which the blocks begin."""

    def block(self, number: int) -> Block:
        """:raises Damaged: the block cannot be read."""

    def first_time(self, number: int) -> int:
        """Return the time of the first byte of a block, or an earlier time."""

    def newlines_until(self, number: int) -> int:
        """Return the number of newlines in the segment before a block."""

    def events(self, kind: EventKind | None = None) -> Sequence[Event]:
        """Return the events of the segment, or only those of one kind, oldest first."""


class SealedSegment:
    """
    A segment whose output is compressed.

    :raises Damaged: the file is not a segment of this journal.
    :raises NewerFormat: the file is of a later release.
    """

    def __init__(self, layer: Any, path: str, first: int, epoch: bytes) -> None:
        self._layer, self._path = layer, path
        self.first = first
        with opened(layer, path) as descriptor:
            header = decode_header(layer.pread(descriptor, HEADER_BYTES, 0), SEALED_MAGIC)
            check_segment(header, first, epoch)
            self.time_ns = header.time_ns
            size = layer.fstat(descriptor).st_size
            trailer = layer.pread(descriptor, TRAILER_BYTES, max(0, size - TRAILER_BYTES))
            position, length = index_place(trailer, size)
            self._index: Index = decode_block_index(
                trailer, layer.pread(descriptor, length, position)
            )
        self.end, self.last_time = self._index.end, self._index.last_time
        self.newlines, self.boots = self._index.newlines, self._index.boots
        self._until = [0]
        for entry in self._index.entries:
            self._until.append(self._until[-1] + entry.newlines)

    @property
    def firsts(self) -> Sequence[int]:
        return self._index.firsts

    def block(self, number: int) -> Block:
        entry = self._index.entries[number]
        with opened(self._layer, self._path) as descriptor:
            return decode_block(
                entry, read_output(self._layer, descriptor, entry.stored_bytes, entry.position)
            )

    def first_time(self, number: int) -> int:
        return self._index.entries[number].first_time

    def newlines_until(self, number: int) -> int:
        return self._until[number]

    def events(self, kind: EventKind | None = None) -> Sequence[Event]:
        return of_kind(self._index.events, kind)


def seal(layer: Any, path: str, target: str, first: int, epoch: bytes, level: int = LEVEL) -> int:
    """
    Write the sealed file of a full segment, and force it to the disk; for another thread.

    :return: its length.
    :raises Damaged: the open segment cannot be read.
    """
    segment, _ = OpenSegment.recover(layer, path, first, epoch)
    try:
        return _write_sealed(layer, segment, target, level)
    finally:
        segment.close()


def _write_sealed(layer: Any, segment: OpenSegment, target: str, level: int) -> int:
    new = f"{target}.new"
    with opened(layer, new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
        size = 0
        for piece in _sealed(segment, level):
            view = memoryview(piece)
            while view:
                written = layer.write(descriptor, view)
                size += written
                view = view[written:]
        # Retention goes by the time of the file.
        layer.utime(descriptor, ns=(segment.last_time, segment.last_time))
        layer.fdatasync(descriptor)
    layer.rename(new, target)
    sync_directory(layer, os.path.dirname(target))
    return size


def _sealed(segment: OpenSegment, level: int) -> Iterator[bytes]:
    encoder = SegmentEncoder(replace(segment.header, magic=SEALED_MAGIC), level)
    yield encoder.begin()
    for number in range(len(segment.firsts)):
        try:
            block = segment.block(number)
        except Damaged:
            continue
        yield encoder.skip_to(block.first)
        for first, last, time_ns in block.runs():
            yield encoder.add(time_ns, block.data[first:last])
    for event in segment.events():
        encoder.event(event)
    yield encoder.end(segment.end, segment.boots)
