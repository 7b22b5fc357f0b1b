"""
The codec of open segments, sans I/O: records, checkpoints, and the header that sealed ones have, too.

Functions that decode raise :class:`Damaged`, or :class:`NewerFormat` for headers.
``docs/reference/journal-format.rst`` has the format.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any
from zlib import crc32

from twisted_exec.journal.interfaces import Event, EventKind

VERSION = 1
OPEN_MAGIC = b"\x89TXJ-o\r\n"
SEALED_MAGIC = b"\x89TXJ-s\r\n"

_HEADER = struct.Struct("<8sHHI8sQQQQ")
CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + CRC.size + 4  # 64
_CHECKPOINT = struct.Struct("<QQQQQQQII")
CHECKPOINT_BYTES = _CHECKPOINT.size + CRC.size + 4  # 72
FIRST_RECORD = HEADER_BYTES + 2 * CHECKPOINT_BYTES
"""The position of the first record in an open segment."""

_HEAD = struct.Struct("<IHBBQ")
HEAD_BYTES = _HEAD.size
_INDEX = struct.Struct("<QQI")
_EVENT = struct.Struct("<QQ")
MAX_PAYLOAD_BYTES = 0xFFFF
MAX_RECORD_BYTES = HEAD_BYTES + MAX_PAYLOAD_BYTES


class Damaged(Exception):
    """A file, or a part of it, is not as it was written."""


class NewerFormat(Exception):
    """The journal was written by a later release."""


class RecordKind(IntEnum):
    """The kinds of records; a reader ignores kinds that it does not know."""

    OUTPUT = 1
    BOOT = 2
    SIZE = 3
    GAP = 4
    JOIN = 5
    LEAVE = 6
    ROLE = 7
    MOVE = 8
    INDEX = 9
    INPUT = 10
    # 11 was an event of builds between two releases.


_EVENT_KINDS = {RecordKind[kind.name]: kind for kind in EventKind}
_RECORD_KINDS = {str(kind): number for number, kind in _EVENT_KINDS.items()}


@dataclass(frozen=True)
class Header:
    """
    The first 64 bytes of a segment.

    :param time_ns: no record of the segment is earlier.
    :param run: number of the run of the program that created the segment.
    :param boots: number of the newest boot before the segment; 0 if there was none.
    """

    magic: bytes
    epoch: bytes
    first: int
    time_ns: int
    run: int
    boots: int = 0

    def encode(self) -> bytes:
        head = _HEADER.pack(
            self.magic, VERSION, 0, 0, self.epoch, self.first, self.time_ns, self.run, self.boots
        )
        return head + CRC.pack(crc32(head)) + bytes(4)

    @property
    def seed(self) -> int:
        """The CRC of the header, with which the CRCs of records begin."""
        return int(CRC.unpack_from(self.encode(), _HEADER.size)[0])


def decode_header(data: bytes, magic: bytes) -> Header:
    """
    Decode the header of a segment.

    :raises NewerFormat: the segment is of a later release.
    :raises Damaged: the header is of another file, or corrupted.
    """
    if len(data) < HEADER_BYTES or data[:8] != magic:
        raise Damaged("not a segment of a journal")
    if CRC.unpack_from(data, _HEADER.size)[0] != crc32(data[: _HEADER.size]):
        raise Damaged("the header is corrupted")
    _, version, _, _, epoch, first, time_ns, run, boots = _HEADER.unpack_from(data)
    if version > VERSION:
        raise NewerFormat(f"the segment has format {version}; this release reads {VERSION}")
    return Header(magic, epoch, first, time_ns, run, boots)


def open_header(data: bytes, epoch: bytes, first: int) -> tuple[Header, int]:
    """
    Decode the header of an open segment; repair it if it is damaged.

    :return: the header, which may be of another journal; and the seed of the records.
    :raises NewerFormat: the segment is of a later release.
    :raises Damaged: neither the header, nor a checkpoint, nor the first record is correct.
    """
    try:
        header = decode_header(data, OPEN_MAGIC)
    except Damaged:
        return _repaired_header(data, epoch, first)
    return header, header.seed


def _repaired_header(data: bytes, epoch: bytes, first: int) -> tuple[Header, int]:
    if len(data) < FIRST_RECORD:
        raise Damaged("the file is shorter than a header")
    time_ns, run, boots = _HEADER.unpack_from(data)[-3:]
    found = Header(OPEN_MAGIC, epoch, first, time_ns, run, boots)
    stored: int = CRC.unpack_from(data, _HEADER.size)[0]
    for header in (found, *_with_a_bit_changed(found)):
        if header.seed == stored and _has_seed(data, stored):
            return header, stored
    if _has_seed(data, found.seed):
        return found, found.seed  # the damage is in the CRC
    if not _has_seed(data, stored):
        raise Damaged("neither the header nor a record is correct")
    # No record is earlier than the first; the numbers of the run and of the boot are lost.
    earliest = next((each[1] for each in records(data, stored, FIRST_RECORD)), 0)
    return Header(OPEN_MAGIC, epoch, first, earliest, 0), stored


def _with_a_bit_changed(header: Header) -> Iterator[Header]:
    for bit in range(64):
        for name in ("time_ns", "run", "boots"):
            yield replace(header, **{name: getattr(header, name) ^ 1 << bit})


def _has_seed(data: bytes, seed: int) -> bool:
    return (
        decode_checkpoint(data[:FIRST_RECORD], seed, 1 << 63) is not None
        or next(records(data, seed, FIRST_RECORD), None) is not None
    )


@dataclass(frozen=True)
class Checkpoint:
    """
    The state of an open segment at one position.

    :param index: position of the newest index record; 0 if there is none.
    :param event: position of the newest event; 0 if there is none.
    :param reserved: viewers may have seen offsets below this offset that are not on disk; else 0.
    """

    generation: int
    position: int
    offset: int
    time_ns: int
    index: int
    event: int
    reserved: int
    newlines: int
    boots: int

    def encode(self, seed: int) -> bytes:
        body = _CHECKPOINT.pack(
            self.generation,
            self.position,
            self.offset,
            self.time_ns,
            self.index,
            self.event,
            self.reserved,
            self.newlines,
            self.boots,
        )
        return body + CRC.pack(crc32(body, seed)) + bytes(4)

    @property
    def slot(self) -> int:
        """Position of the checkpoint in the file; checkpoints alternate between two slots."""
        return HEADER_BYTES + CHECKPOINT_BYTES * (self.generation & 1)


def decode_checkpoint(head: bytes, seed: int, size: int) -> Checkpoint | None:
    """
    Return the newest valid checkpoint, or ``None``.

    :param head: the file up to :data:`FIRST_RECORD`.
    :raises Damaged: its position is beyond the end of the file.
    """
    newest: Checkpoint | None = None
    for slot in (HEADER_BYTES, HEADER_BYTES + CHECKPOINT_BYTES):
        body = head[slot : slot + _CHECKPOINT.size]
        if len(head) < slot + CHECKPOINT_BYTES:
            continue
        if CRC.unpack_from(head, slot + _CHECKPOINT.size)[0] != crc32(body, seed):
            continue
        checkpoint = Checkpoint(*_CHECKPOINT.unpack(body))
        if newest is None or checkpoint.generation > newest.generation:
            newest = checkpoint
    if newest is not None and newest.position > size:
        raise Damaged(f"the file ends at {size}, before its checkpoint at {newest.position}")
    return newest


def encode(kind: int, time_ns: int, payload: bytes, seed: int) -> bytes:
    """Return one record; the payload has at most 65535 bytes."""
    # Without its CRC, which covers the rest of the head and the payload.
    head = _HEAD.pack(0, len(payload), kind, 0, time_ns)[4:]
    return CRC.pack(crc32(payload, crc32(head, seed))) + head + payload


def encode_output(time_ns: int, data: bytes, seed: int) -> bytes:
    """Return output as records of at most 65535 bytes of output each."""
    if len(data) <= MAX_PAYLOAD_BYTES:
        return encode(RecordKind.OUTPUT, time_ns, data, seed)
    return b"".join(
        encode(RecordKind.OUTPUT, time_ns, data[at : at + MAX_PAYLOAD_BYTES], seed)
        for at in range(0, len(data), MAX_PAYLOAD_BYTES)
    )


def encode_event(event: Event, previous: int, seed: int) -> bytes:
    """
    Return an event as a record.

    :param previous: position of the previous event, or 0.
    :raises ValueError: the event is too large.
    """
    payload = _EVENT.pack(previous, event.offset) + json.dumps(dict(event.data)).encode()
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError("an event is too large")
    return encode(_RECORD_KINDS[event.kind], event.time_ns, payload, seed)


def encode_index(time_ns: int, offset: int, previous: int, newlines: int, seed: int) -> bytes:
    """
    Return an index record.

    :param previous: position of the previous index record, or 0.
    """
    payload = _INDEX.pack(offset, previous, newlines)
    return encode(RecordKind.INDEX, time_ns, payload, seed)


def records(data: bytes, seed: int, at: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """
    Iterate over the records in ``data`` up to the first that is not complete and correct.

    :return: kind, time, and where the payload begins and ends in ``data``.
    """
    unpack, size, head_bytes = _HEAD.unpack_from, len(data), HEAD_BYTES
    view = memoryview(data)
    while at + head_bytes <= size:
        crc, length, kind, _, time_ns = unpack(data, at)
        first = at + head_bytes
        last = first + length
        if last > size or crc32(view[at + 4 : last], seed) != crc:
            return
        yield kind, time_ns, first, last
        at = last


def is_torn(data: bytes, at: int) -> bool:
    """Return whether ``data`` from ``at`` on may be the beginning of an incomplete record."""
    if len(data) - at < HEAD_BYTES:
        return True
    length: int = _HEAD.unpack_from(data, at)[1]
    return at + HEAD_BYTES + length > len(data)


def decode_event(kind: int, time_ns: int, payload: bytes) -> tuple[Event | None, int]:
    """
    Decode the payload of an event.

    :return: the event, ``None`` if its kind is unknown; and the position of the previous event.
    :raises Damaged: the payload is not of the format.
    """
    name = _EVENT_KINDS.get(kind)  # type: ignore[call-overload]
    try:
        previous, offset = _EVENT.unpack_from(payload)
        data: dict[str, Any] = json.loads(payload[_EVENT.size :])
    except (struct.error, ValueError) as error:
        raise Damaged(f"an event cannot be read: {error}") from None
    return (None if name is None else Event(offset, time_ns, name, data)), previous


def event_before(payload: bytes) -> int:
    """
    Return the position of the previous event, or 0, from the payload of an event.

    :raises Damaged: the payload is not of the format.
    """
    if len(payload) < _EVENT.size:
        raise Damaged("an event is too short")
    previous: int = _EVENT.unpack_from(payload)[0]
    return previous


def decode_index(payload: bytes) -> tuple[int, int, int]:
    """
    Decode the payload of an index record: offset, position of the previous index record, newlines.

    :raises Damaged: the payload is not of the format.
    """
    if len(payload) != _INDEX.size:
        raise Damaged("an index record has another length")
    return _INDEX.unpack(payload)
