"""
The content of a recording by time; also as an asciicast of version 2.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from twisted_exec.recording.chain import AT, RAW, InvalidRecording, compact, json_object

_FIND_BYTES = 64 << 10
_VERSION_2_CODES = ("o", "i", "m", "r")


@dataclass(frozen=True)
class PlayedFrame:
    """
    Something that happened.

    :param time: milliseconds since the epoch.
    :param code: ``o`` for output, ``i`` for input, ``r`` for a size, ``m`` for a marker; others may
        follow.
    :param data: output as it was printed; else a text in UTF-8.
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
        _check_beginning(file)
    file.seek(position)
    time, block = 0, position
    raw: bytes | None = None
    for line in file:
        first = line[:1]
        if not line.endswith(b"\n"):
            return
        if first == b"[":
            interval, code, data = _event(line)
            time += interval
            yield PlayedFrame(time, code, data if raw is None else raw, block)
            raw = None
        elif line.startswith(RAW):
            raw = _raw(line)
        elif line.startswith(AT):
            state = _at(line, file.tell() - len(line))
            time, block = state.time, state.position
        elif first not in (b"#", b"{", b"\n"):
            raise InvalidRecording(f"a line at byte {file.tell() - len(line)} is not of the format")


def version_2(lines: Iterable[bytes]) -> Iterator[bytes]:
    """
    Convert a recording to an asciicast of version 2, for players that read no newer version.

    The result has no proof, and replaces output that is not UTF-8.
    """
    rest, time, number = iter(lines), 0, 1
    yield _version_2_header(next(rest, b""))
    for line in rest:
        number += 1
        if not line.endswith(b"\n"):
            return
        if line[:1] == b"[":
            interval, code, data = _event(line)
            time += interval
            if code in _VERSION_2_CODES:
                seconds, milliseconds = divmod(time, 1000)
                text = json.dumps(data.decode(), ensure_ascii=False)
                yield f'[{seconds}.{milliseconds:03d}, "{code}", {text}]\n'.encode()
        elif line[:1] not in (b"#", b"\n"):
            raise InvalidRecording(f"line {number} is not of the format")


def _version_2_header(line: bytes) -> bytes:
    header = json_object(line, "the header")
    known = {key: header[key] for key in ("timestamp", "title") if key in header}
    try:
        size = {"width": int(header["term"]["cols"]), "height": int(header["term"]["rows"])}
        if header["version"] != 3:
            raise ValueError
        return compact({"version": 2, **size, **known}) + b"\n"
    except (KeyError, TypeError, ValueError):
        raise InvalidRecording("the header is not that of an asciicast of version 3") from None


def _event(line: bytes) -> tuple[int, str, bytes]:
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


def _at(line: bytes, position: int) -> BlockStart:
    fields = json_object(line[len(AT) :], f"the line at byte {position}")
    numbers: list[Any] = [fields.get(name) for name in ("time", "offset", "cols", "rows")]
    if not all(isinstance(each, int) for each in numbers):
        raise InvalidRecording(f"the line at byte {position} has no time, offset or size")
    return BlockStart(position, *numbers)


def _check_beginning(file: BinaryIO) -> None:
    file.seek(0)
    if file.read(1) not in (b"{", b""):
        raise InvalidRecording("it is no recording")


def first_block(file: BinaryIO) -> BlockStart | None:
    """
    Return the first block with output or events, if any.

    :raises InvalidRecording: the file is no recording, or the block's line is not of the format.
    """
    _check_beginning(file)
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


def block_from(file: BinaryIO, position: int) -> BlockStart | None:
    """Return the first block from a position on."""
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
            return _at(line, begin + at + 1) if line.endswith(b"\n") else None
        keep = len(AT)
        begin += max(0, len(buffer) - keep)
        buffer = buffer[-keep:]
    return None
