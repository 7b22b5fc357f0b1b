"""
Full segments of a journal, whose output is compressed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from .blocks import (
    LEVEL,
    TRAILER_BYTES,
    Block,
    Index,
    SegmentEncoder,
    decode_block,
    decode_index,
    index_place,
)
from .interfaces import Event, Kind, of_kind
from .layer import opened, read_output, sync_directory
from .open_segment import OpenSegment, check_segment
from .records import HEADER_BYTES, SEALED_MAGIC, Damaged, decode_header


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

    def events(self, kind: Kind | None = None) -> Sequence[Event]:
        """Return the events of the segment, or only those of one kind, oldest first."""


class SealedSegment:
    """
    A segment whose output is compressed.

    :raises Damaged: the file is not a segment of this journal.
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
            self._index: Index = decode_index(trailer, layer.pread(descriptor, length, position))
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

    def events(self, kind: Kind | None = None) -> Sequence[Event]:
        return of_kind(self._index.events, kind)


def seal(layer: Any, path: str, target: str, first: int, epoch: bytes, level: int = LEVEL) -> int:
    """
    Write the sealed file of a full segment, and force it to the disk; for another thread.

    :param path: the open segment, to which nothing is appended any more.
    :param target: the path of the sealed file; it appears when it is complete.
    :param level: of compression.
    :return: its length.
    :raises Damaged: the open segment cannot be read.
    :raises OSError: the disk is full, or not writable.
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
