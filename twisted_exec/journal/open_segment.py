"""
The newest segment of a journal, to which output is appended.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from .blocks import Block, Times
from .interfaces import Event, Kind
from .layer import is_passing, open_file, opened, read_output
from .records import (
    FIRST_RECORD,
    MAX_RECORD_BYTES,
    OPEN_MAGIC,
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


def check_segment(header: Header, first: int, epoch: bytes) -> None:
    """:raises Damaged: the header is of another journal, or another segment."""
    if header.epoch != epoch:
        raise Damaged("it is a segment of another journal")
    if header.first != first:
        raise Damaged("it begins at another offset than its name says")


class OpenSegment:
    """
    The segment that grows.

    :ivar position: where the next record begins in the file.
    :ivar synced: the position and the offset that the newest checkpoint has.
    :ivar reserved: viewers may have seen output below this offset that is not in the file; 0 if not.

    :param seed: of the CRCs of records, if it is not that of the header.
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
        """
        Create the file, which appears when it is complete.

        :param gap: the first record.
        :raises OSError: the disk is full, or not writable.
        """
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
        # At most so many records are in the block, whose beginning is not read now.
        self._records = (self.position - begin) // 17
        self._block_first = self.end

    def _add(self, kind: int, time_ns: int, payload: bytes, position: int) -> None:
        """Take over the effect of a record that is at ``position``."""
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
        """A descriptor for reading, which also a disk has that is read-only."""
        if self._descriptor is None:
            self._descriptor = open_file(self._layer, self.path, os.O_RDONLY)
            self._is_writable = False
        return self._descriptor

    @property
    def is_active(self) -> bool:
        """True if the segment has an open descriptor."""
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
        """False if there are too many events without output in between."""
        return self._events_count < _MAX_EVENTS * 10

    def close(self) -> None:
        """Close the descriptor and forget the index; the next use opens it again."""
        self._positions = None
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._layer.close(descriptor)

    # Writing.

    def append(self, data: bytes, time_ns: int) -> None:
        """:raises OSError: the disk is full, or not writable; then nothing changed."""
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
        """
        Append an event; without output in between, only the first 10 000.

        :raises OSError: the disk is full, or not writable; then nothing changed.
        """
        if not self.takes_events:
            return
        encoded = encode_event(event, self._event_position, self._seed)
        self._write(encoded, self.position)
        self._event_position = self.position
        self.position += len(encoded)
        self.last_time = event.time_ns
        self._events_count += 1
        if event.kind == Kind.BOOT:
            self.boots = event.data["number"]
        elif event.kind == Kind.GAP and self._gaps is not None:
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
        """Remove what a failed write left."""
        self._layer.ftruncate(self._fd, self.position)

    def reserve(self, until: int) -> None:
        """
        Note that offsets below ``until`` may be shown to viewers, although they are not on disk.

        It works on a full disk, because it changes the file in place.
        """
        self._write_checkpoint(self._fd, self.checkpoint(until))

    def sync(self, checkpoint: Checkpoint) -> None:
        """
        Force the output up to a checkpoint to the disk; for another thread.

        :raises OSError: that failed.
        """
        with opened(self._layer, self.path, os.O_RDWR) as descriptor:
            self._layer.fdatasync(descriptor)
            self._write_checkpoint(descriptor, checkpoint)

    def synchronized(self, checkpoint: Checkpoint) -> None:
        """Take over that :meth:`sync` is done."""
        self.synced = max(self.synced, (checkpoint.position, checkpoint.offset))

    def _write_checkpoint(self, descriptor: int, checkpoint: Checkpoint) -> None:
        self._layer.pwrite(descriptor, checkpoint.encode(self._seed), checkpoint.slot)

    def checkpoint(self, reserved: int = 0) -> Checkpoint:
        """Return the present state, for :meth:`sync`."""
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
        """Read the index records, from the newest to the oldest."""
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
                break  # blocks before this one become one large block
            blocks.append((position, first, newlines, time_ns))
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

    def events(self, kind: Kind | None = None) -> Sequence[Event]:
        """Return the events, or only those of one kind, by the chain of their records."""
        if kind != Kind.GAP:
            return self._read_events(kind)
        if self._gaps is None:
            self._gaps = self._read_events(kind)
        return list(self._gaps)

    def _read_events(self, kind: Kind | None) -> list[Event]:
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
        """Iterate over kind, time and payload of each event, the newest first."""
        position, start, data = self._event_position, 0, b""
        for _ in range(_MAX_EVENTS * 10 + 1):
            if not position:
                break
            record = self._record_in(data, position - start)
            if record is None:  # most events are close to the one before
                start = max(FIRST_RECORD, position - _EVENTS_BYTES)
                length = position - start + _EVENTS_BYTES
                data = read_output(self._layer, self._reading_fd, length, start)
                record = self._record_in(data, position - start) or self._record_at(position)
            yield record
            previous = event_before(record[2])
            position = previous if previous < position else 0

    def _record_in(self, data: bytes, at: int) -> tuple[int, int, bytes] | None:
        """Return the record that begins at a place in ``data``; ``None`` if it is not there, or not whole."""
        if at < 0:
            return None
        for kind, time_ns, first, last in records(data, self._seed, at):
            return kind, time_ns, data[first:last]
        return None
