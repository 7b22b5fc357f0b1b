"""
The codec of sealed segments, sans I/O: compressed blocks, and an index at the end.

``docs/reference/journal-format.rst`` has the format.
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

from .interfaces import Event
from .records import HEADER_BYTES, Damaged, Header

BLOCK_BYTES = 64 << 10
LEVEL, FAST_LEVEL = 6, 1
"""Levels of compression: on two cores, 38 and 89 MB/s of a log, for 2.1 and 2.0 times."""
_PLAIN, _ZLIB = 0, 1
_MAGIC = b"\x89TXJ-e\r\n"
_ENTRY = struct.Struct("<QQQQIIIIIB3x32s")
_TRAILER = struct.Struct("<8sQQQIIIII")
_CRC = struct.Struct("<I")
TRAILER_BYTES = 64
_NEWLINE = b"\n"
_MAX_BLOCKS = 1 << 16
_MAX_EVENT_BYTES = 32 << 20


class Times:
    """Times of output: from an offset on, relative to a block, until the next offset."""

    __slots__ = ("offsets", "times")

    def __init__(self) -> None:
        self.offsets, self.times = array("I"), array("q")

    def add(self, offset: int, time_ns: int) -> None:
        """Add a time, unless it is that of the output before."""
        if not self.times or self.times[-1] != time_ns:
            self.offsets.append(offset)
            self.times.append(time_ns)

    def at(self, offset: int) -> int:
        """Return the time of a byte."""
        return self.times[max(0, bisect_right(self.offsets, offset) - 1)]

    def since(self, moment: int) -> int | None:
        """Return the first offset with output at ``moment`` or later."""
        at = bisect_left(self.times, moment)
        return self.offsets[at] if at < len(self.times) else None

    def encode(self) -> bytes:
        """Encode as pairs of numbers of variable length: difference of offset, difference of time."""
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
        """
        Undo :meth:`encode`.

        :raises Damaged: the numbers are not of the format.
        """
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
    """Up to 64 KiB of output, and its times."""

    first: int
    data: bytes
    times: Times

    @property
    def last(self) -> int:
        """The offset after the block."""
        return self.first + len(self.data)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Iterate over the output by time: begin, end, both relative to the block, and time."""
        if not self.data:
            return
        ends = [*self.times.offsets[1:], len(self.data)]
        yield from zip(self.times.offsets, ends, self.times.times, strict=True)


@dataclass(frozen=True)
class Entry:
    """
    One block in the index of a segment.

    :param position: where the block begins in the file.
    """

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
        """The offset after the block."""
        return self.first + self.raw_bytes


@dataclass
class Index:
    """
    The index of a sealed segment.

    :param end: the offset after the segment.
    :param last_time: time of the newest record.
    :param boots: number of the newest boot.
    """

    entries: Sequence[Entry]
    events: Sequence[Event]
    end: int
    last_time: int
    newlines: int
    boots: int
    firsts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.firsts = [entry.first for entry in self.entries]


class SegmentEncoder:
    """
    Encodes a sealed segment.

    :param header: that of the sealed file.
    """

    def __init__(self, header: Header, level: int = LEVEL) -> None:
        self._header, self._level = header, level
        self._position = HEADER_BYTES
        self._offset = header.first
        self._last_time = header.time_ns
        self._entries: list[Entry] = []
        self._events: list[Event] = []
        self._newlines = 0
        self._data, self._times = bytearray(), Times()

    def begin(self) -> bytes:
        """Return the header."""
        return self._header.encode()

    def add(self, time_ns: int, data: bytes) -> bytes:
        """Add output; return the blocks that are complete, encoded."""
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
        """Add an event."""
        self._events.append(event)
        self._last_time = max(self._last_time, event.time_ns)

    def skip_to(self, offset: int) -> bytes:
        """Leave out damaged output before ``offset``; return the block that is complete."""
        if offset == self._offset + len(self._data):
            return b""
        block = self._block() if self._data else b""
        self._offset = offset
        return block

    def end(self, end: int, boots: int) -> bytes:
        """
        Return the last block, the index, and the trailer.

        :param end: the offset after the segment.
        :param boots: number of the newest boot.
        """
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
        trailer += _CRC.pack(crc32(trailer))
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
            Entry(
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


def _pack(entry: Entry) -> bytes:
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
    Return where the index is in the file: position and length.

    :param trailer: the last 64 bytes of the file.
    :param size: the length of the file.
    :raises Damaged: the trailer is not of the format, or corrupted.
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
    if _CRC.unpack_from(trailer, _TRAILER.size)[0] != crc32(trailer[: _TRAILER.size]):
        raise Damaged("the trailer is corrupted")


def decode_index(trailer: bytes, data: bytes) -> Index:
    """
    Decode the index.

    :param data: the bytes at :func:`index_place`.
    :raises Damaged: the index is corrupted.
    """
    _, _, end, last_time, blocks, _, newlines, boots, crc = _TRAILER.unpack_from(trailer)
    if crc32(data) != crc:
        raise Damaged("the index is corrupted")
    size = blocks * _ENTRY.size
    entries = [Entry(*fields) for fields in _ENTRY.iter_unpack(data[:size])]
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(data[size:], _MAX_EVENT_BYTES)
        events = [
            Event(offset, time_ns, kind, data) for offset, time_ns, kind, data in json.loads(text)
        ]
    except (zlib.error, ValueError, TypeError) as error:
        raise Damaged(f"the events cannot be read: {error}") from None
    return Index(entries, events, end, last_time, newlines, boots)


def decode_block(entry: Entry, stored: bytes) -> Block:
    """
    Decode one block and verify its digest.

    :raises Damaged: the block is not what was written.
    """
    if len(stored) != entry.stored_bytes or crc32(stored) != entry.crc:
        raise Damaged("a block is corrupted")
    content, size = stored, entry.times_bytes + entry.raw_bytes
    if entry.method == _ZLIB:
        try:
            content = zlib.decompressobj().decompress(stored, size + 1)
        except zlib.error as error:
            raise Damaged(f"a block cannot be decompressed: {error}") from None
    elif entry.method != _PLAIN:
        raise Damaged(f"a block has the unknown method {entry.method}")
    raw = content[entry.times_bytes :]
    if len(content) != size or sha256(raw).digest() != entry.digest:
        raise Damaged("a block has another content than the index says")
    return Block(entry.first, raw, Times.decode(content[: entry.times_bytes]))
