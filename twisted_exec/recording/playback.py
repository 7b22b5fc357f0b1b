"""
The content of a recording by time, for players.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from twisted_exec.recording.proof_lines import AT, RAW, InvalidRecording, NotARecording, json_object

_FIND_BYTES = 64 << 10


@dataclass(frozen=True)
class PlayedFrame:
    """
    Output, input, a change of the size, or a marker, at its time.

    :param time: milliseconds since the epoch.
    :param code: ``o`` for output, ``i`` for input, ``r`` for a size, ``m`` for a marker; others may
        follow.
    :param data: the bytes that were printed, for output; else text in UTF-8.
    :param block: position of the block in the file.
    """

    time: int
    code: str
    data: bytes
    block: int


@dataclass(frozen=True)
class BlockStart:
    """
    The beginning of the output and the events of a block.

    :param time: of the newest event before, in milliseconds since the epoch.
    """

    position: int
    time: int
    offset: int
    columns: int
    rows: int


def frames(file: BinaryIO, position: int = 0) -> Iterator[PlayedFrame]:
    """
    Iterate over the content of a recording, which may still be written.

    :raises InvalidRecording: a line is not of the format.
    """
    if not position:
        check_beginning(file)
    file.seek(position)
    time, block = 0, position
    raw: bytes | None = None
    for line in file:
        first = line[:1]
        if not line.endswith(b"\n"):
            return
        if first == b"[":
            interval, code, data = decode_event(line)
            time += interval
            yield PlayedFrame(time, code, data if raw is None else raw, block)
            raw = None
        elif line.startswith(RAW):
            raw = _raw(line)
        elif line.startswith(AT):
            state = _block_start(line, file.tell() - len(line))
            time, block = state.time, state.position
        elif first not in (b"#", b"{", b"\n"):
            raise InvalidRecording(f"a line at byte {file.tell() - len(line)} is not of the format")


def decode_event(line: bytes) -> tuple[int, str, bytes]:
    """
    Return the milliseconds since the event before, the code, and the data of an event's line.

    :raises InvalidRecording: the line is not of the format.
    """
    try:
        interval, code, data = json.loads(line)
        return round(interval * 1000), str(code), data.encode()
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise InvalidRecording(f"an event is damaged: {line[:60]!r}") from None


def _raw(line: bytes) -> bytes:
    try:
        return b64decode(line[len(RAW) : -1], validate=True)
    except ValueError:
        raise InvalidRecording("a line with raw bytes is damaged") from None


def _block_start(line: bytes, position: int) -> BlockStart:
    fields = json_object(line[len(AT) :], f"the line at byte {position}")
    numbers: list[Any] = [fields.get(name) for name in ("time", "offset", "cols", "rows")]
    if not all(isinstance(each, int) for each in numbers):
        raise InvalidRecording(f"the line at byte {position} has no time, offset or size")
    return BlockStart(position, *numbers)


def check_beginning(file: BinaryIO) -> None:
    """:raises NotARecording: the file is of another kind.  An empty file may become a recording."""
    file.seek(0)
    if file.read(1) not in (b"{", b""):
        raise NotARecording("it does not begin with '{'")


def first_block(file: BinaryIO) -> BlockStart | None:
    """
    Return the first block with output or events, if any.

    :raises InvalidRecording: the file is no recording, or the block's line is not of the format.
    """
    check_beginning(file)
    return block_from(file, 0)


def block_before(file: BinaryIO, time: int) -> BlockStart | None:
    """
    Return the last block that begins before a time, or the first block.

    :param time: milliseconds since the epoch.
    :return: ``None`` if there is no output and no event.
    :raises InvalidRecording: a line is not of the format.
    """
    block_start = first_block(file)
    if block_start is None:
        return None
    low, high = block_start.position, file.seek(0, 2)
    # The block is at or behind "low"; no block that begins at or behind "high" is before the time.
    while high - low > 1:
        middle = (low + high) // 2
        block = block_from(file, middle)
        if block is None or block.time >= time or block.position >= high:
            high = middle
        else:
            block_start, low = block, block.position
    return block_start


def end_time(file: BinaryIO) -> int:
    """Return the time of the newest event; 0 if there is none."""
    newest = block_before(file, 1 << 62)
    if newest is None:
        return 0
    time = newest.time
    for frame in frames(file, newest.position):
        time = frame.time
    return time


def extent(file: BinaryIO) -> tuple[int, int]:
    """
    Return the times of the first and the newest event, in milliseconds since the epoch; 0 without events.

    :raises InvalidRecording: the file is no recording, or a line is not of the format.
    """
    first = first_block(file)
    return (0, 0) if first is None else (first.time, end_time(file))


def block_from(file: BinaryIO, position: int) -> BlockStart | None:
    """Return the first block whose line begins at or behind a position in the file."""
    # A line may begin exactly at the position: its newline is before.
    begin = max(0, position - 1)
    file.seek(begin)
    buffer = b""
    while data := file.read(_FIND_BYTES):
        buffer += data
        at = buffer.find(b"\n" + AT)
        if at >= 0:
            file.seek(begin + at + 1)
            line = file.readline()
            return _block_start(line, begin + at + 1) if line.endswith(b"\n") else None
        keep = len(AT)
        begin += max(0, len(buffer) - keep)
        buffer = buffer[-keep:]
    return None
