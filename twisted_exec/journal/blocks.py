"""
The codec of sealed segments, sans I/O: compressed blocks, their index, and the trailer.

Functions that decode raise :class:`.Damaged`. ``docs/reference/journal-format.rst`` has the format.
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from zlib import crc32

from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.journal.records import CRC, HEADER_BYTES, Damaged, Header

BLOCK_BYTES = 64 << 10
LEVEL, FAST_LEVEL = 6, 1
"""Levels of compression: the second is faster."""
_PLAIN, _ZLIB = 0, 1
_MAGIC = b"\x89TXJ-e\r\n"
_ENTRY = struct.Struct("<QQQQIIIIIB3x32s")
_TRAILER = struct.Struct("<8sQQQIIIII")
TRAILER_BYTES = 64
_NEWLINE = b"\n"
_MAX_BLOCKS = 1 << 16
_MAX_EVENT_BYTES = 32 << 20
_KINDS = frozenset(EventKind)  # `in EventKind` raises TypeError for a string before Python 3.12


class Times:
    """
    Times of a block's output: each from its offset, relative to the block, until the next offset.
    """

    __slots__ = ("offsets", "times")

    def __init__(self) -> None:
        self.offsets, self.times = array("I"), array("q")

    def add(self, offset: int, time_ns: int) -> None:
        if not self.times or self.times[-1] != time_ns:
            self.offsets.append(offset)
            self.times.append(time_ns)

    def at(self, offset: int) -> int:
        return self.times[max(0, bisect_right(self.offsets, offset) - 1)]

    def since(self, moment: int) -> int | None:
        at = bisect_left(self.times, moment)
        return self.offsets[at] if at < len(self.times) else None

    def encode(self) -> bytes:
        """
        Encode as pairs of numbers of variable length: difference of offset, difference of time.
        """
        encoded = bytearray()
        offset = time_ns = 0
        for next_offset, next_time in zip(self.offsets, self.times, strict=True):
            for number in (next_offset - offset, next_time - time_ns):
                while number >= 0x80:
                    encoded.append(number & 0x7F | 0x80)
                    number >>= 7
                encoded.append(number)
            offset, time_ns = next_offset, next_time
        return bytes(encoded)

    @classmethod
    def decode(cls, encoded: bytes) -> Times:
        numbers, number, shift = [], 0, 0
        for byte in encoded:
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                numbers.append(number)
                number = shift = 0
        times = cls()
        offset = time_ns = 0
        try:
            for more_offset, more_time in zip(numbers[::2], numbers[1::2], strict=True):
                offset, time_ns = offset + more_offset, time_ns + more_time
                times.offsets.append(offset)
                times.times.append(time_ns)
        except (OverflowError, ValueError) as error:
            raise Damaged(f"the times of a block cannot be read: {error}") from None
        return times


@dataclass(frozen=True)
class Block:
    """A piece of output, and its times; in a sealed segment at most 64 KiB."""

    first: int
    data: bytes
    times: Times

    @property
    def last(self) -> int:
        return self.first + len(self.data)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Iterate over the output by time: begin, end, both relative to the block, and time."""
        if not self.data:
            return
        ends = [*self.times.offsets[1:], len(self.data)]
        yield from zip(self.times.offsets, ends, self.times.times, strict=True)


@dataclass(frozen=True)
class IndexEntry:
    """One block in the index of a segment, and its position in the file."""

    first: int
    first_time: int
    last_time: int
    position: int
    raw_bytes: int
    stored_bytes: int
    times_bytes: int
    newlines: int
    crc: int
    method: int
    digest: bytes

    @property
    def last(self) -> int:
        return self.first + self.raw_bytes


@dataclass
class Index:
    """The index of a sealed segment; ``end`` is the offset after the segment."""

    entries: Sequence[IndexEntry]
    events: Sequence[Event]
    end: int
    last_time: int
    newlines: int
    boots: int
    firsts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.firsts = [entry.first for entry in self.entries]


class SegmentEncoder:
    """Encodes a sealed segment."""

    def __init__(self, header: Header, level: int = LEVEL) -> None:
        self._header, self._level = header, level
        self._position = HEADER_BYTES
        self._offset = header.first
        self._last_time = header.time_ns
        self._entries: list[IndexEntry] = []
        self._events: list[Event] = []
        self._newlines = 0
        self._data, self._times = bytearray(), Times()

    def begin(self) -> bytes:
        return self._header.encode()

    def add(self, time_ns: int, data: bytes) -> bytes:
        encoded = []
        at = 0
        while at < len(data):
            piece = data[at : at + BLOCK_BYTES - len(self._data)]
            self._times.add(len(self._data), time_ns)
            self._data += piece
            self._last_time = time_ns
            at += len(piece)
            if len(self._data) == BLOCK_BYTES:
                encoded.append(self._block())
        return b"".join(encoded)

    def event(self, event: Event) -> None:
        self._events.append(event)
        self._last_time = max(self._last_time, event.time_ns)

    def skip_to(self, offset: int) -> bytes:
        if offset == self._offset + len(self._data):
            return b""
        block = self._block() if self._data else b""
        self._offset = offset
        return block

    def end(self, end: int, boots: int) -> bytes:
        """Return the last block, the index, and the trailer."""
        block = self._block() if self._data else b""
        events = zlib.compress(
            json.dumps(
                [[each.offset, each.time_ns, each.kind, dict(each.data)] for each in self._events]
            ).encode()
        )
        index = b"".join(_pack(entry) for entry in self._entries)
        trailer = _TRAILER.pack(
            _MAGIC,
            self._position,
            end,
            self._last_time,
            len(self._entries),
            len(events),
            self._newlines,
            boots,
            crc32(events, crc32(index)),
        )
        trailer += CRC.pack(crc32(trailer))
        return block + index + events + trailer.ljust(TRAILER_BYTES, b"\0")

    def _block(self) -> bytes:
        raw, times = bytes(self._data), self._times
        encoded_times = times.encode()
        content = encoded_times + raw
        stored, method = zlib.compress(content, self._level), _ZLIB
        if len(stored) >= len(content):
            stored, method = content, _PLAIN
        newlines = raw.count(_NEWLINE)
        self._entries.append(
            IndexEntry(
                first=self._offset,
                first_time=times.times[0],
                last_time=times.times[-1],
                position=self._position,
                raw_bytes=len(raw),
                stored_bytes=len(stored),
                times_bytes=len(encoded_times),
                newlines=newlines,
                crc=crc32(stored),
                method=method,
                digest=sha256(raw).digest(),
            )
        )
        self._newlines += newlines
        self._offset += len(raw)
        self._position += len(stored)
        self._data, self._times = bytearray(), Times()
        return stored


def _pack(entry: IndexEntry) -> bytes:
    return _ENTRY.pack(
        entry.first,
        entry.first_time,
        entry.last_time,
        entry.position,
        entry.raw_bytes,
        entry.stored_bytes,
        entry.times_bytes,
        entry.newlines,
        entry.crc,
        entry.method,
        entry.digest,
    )


def index_place(trailer: bytes, size: int) -> tuple[int, int]:
    """
    Return position and length of the index in the file.

    :param trailer: the last 64 bytes of the file.
    :raises Damaged: the trailer is not of the format, is corrupted, or does not fit the file.
    """
    _check_trailer(trailer)
    _, position, _, _, blocks, events, *_ = _TRAILER.unpack_from(trailer)
    length = blocks * _ENTRY.size + events
    if blocks > _MAX_BLOCKS or events > _MAX_EVENT_BYTES:
        raise Damaged("the index is too large")
    if position + length + TRAILER_BYTES != size:
        raise Damaged("the file has another length than its trailer says")
    return position, length


def _check_trailer(trailer: bytes) -> None:
    if len(trailer) != TRAILER_BYTES or trailer[:8] != _MAGIC:
        raise Damaged("the trailer is missing")
    if CRC.unpack_from(trailer, _TRAILER.size)[0] != crc32(trailer[: _TRAILER.size]):
        raise Damaged("the trailer is corrupted")


def decode_block_index(trailer: bytes, data: bytes) -> Index:
    """
    Decode the index of a sealed segment.

    :param data: the bytes at :func:`index_place`.
    :raises Damaged: the index is corrupted.
    """
    _, _, end, last_time, blocks, _, newlines, boots, crc = _TRAILER.unpack_from(trailer)
    if crc32(data) != crc:
        raise Damaged("the index is corrupted")
    size = blocks * _ENTRY.size
    entries = [IndexEntry(*fields) for fields in _ENTRY.iter_unpack(data[:size])]
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(data[size:], _MAX_EVENT_BYTES)
        events = [
            Event(offset, time_ns, kind, data)
            for offset, time_ns, kind, data in json.loads(text)
            if kind in _KINDS
        ]
    except (zlib.error, ValueError, TypeError) as error:
        raise Damaged(f"the events cannot be read: {error}") from None
    return Index(entries, events, end, last_time, newlines, boots)


def decode_block(entry: IndexEntry, stored: bytes) -> Block:
    """
    Decode one block and verify its digest.

    :raises Damaged: the block is not what was written.
    """
    if len(stored) != entry.stored_bytes or crc32(stored) != entry.crc:
        raise Damaged("a block is corrupted")
    content, size = stored, entry.times_bytes + entry.raw_bytes
    if entry.method == _ZLIB:
        try:
            # One byte more than expected shows that the block is larger, without inflating all of
            # it.
            content = zlib.decompressobj().decompress(stored, size + 1)
        except zlib.error as error:
            raise Damaged(f"a block cannot be decompressed: {error}") from None
    elif entry.method != _PLAIN:
        raise Damaged(f"a block has the unknown method {entry.method}")
    raw = content[entry.times_bytes :]
    if len(content) != size or sha256(raw).digest() != entry.digest:
        raise Damaged("a block has another content than the index says")
    return Block(entry.first, raw, Times.decode(content[: entry.times_bytes]))
