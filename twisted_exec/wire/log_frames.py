"""
Frames of a log, by which a reader can continue a log that was cut off; sans I/O.

The page docs/reference/logs.rst describes the response header ``Console-Log`` and the frames.  Each
frame is a head of 24 bytes, big-endian, and text::

  length of the text (32 bits), state (32 bits), offset (64 bits), time (64 bits)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.keys import ALONE, EPOCH, NUMBER, decode_fields, encode_fields

HEADER = b"Console-Log"

MID_LINE = 1
"""Bit of the state: the text so far ends within a line."""
RETURNED = 2
"""Bit of the state: the text has a carriage return, and no text behind it."""

_HEAD = struct.Struct(">IIQQ")
_MAX_TEXT_BYTES = 1 << 20
_FORMS = {"frames": ALONE, "epoch": EPOCH, "start": NUMBER}


@dataclass(frozen=True)
class Framing:
    """
    The facts of a framed log.

    :param end: ``None`` for a log that is followed, unless it is of an earlier boot.
    """

    epoch: str
    start: int
    end: int | None = None

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]]) -> Framing | None:
        """Read a response's headers; ``None`` if its body is plain text."""
        for name, value in headers:
            if name.lower() == HEADER.lower():
                with suppress(RemoteProtocolError):
                    return cls._parse(value.decode("ascii", "replace"))
        return None

    @classmethod
    def _parse(cls, value: str) -> Framing:
        fields = decode_fields(HEADER.decode("ascii"), value, _FORMS)
        end = fields.get("end", "0")
        if NUMBER.match(end) is None:
            raise RemoteProtocolError(f"header {HEADER.decode('ascii')} has no valid field end")
        return cls(fields["epoch"], int(fields["start"]), int(end) if "end" in fields else None)

    def header(self) -> tuple[bytes, bytes]:
        end = {} if self.end is None else {"end": self.end}
        text = encode_fields(frames="", epoch=self.epoch, start=self.start, **end)
        return HEADER, text.encode("ascii")


class LogFrame(NamedTuple):
    """
    A frame of a log.

    :param text: may be empty.
    :param offset: where the log continues.
    :param time_ns: of the last byte before ``offset``; nanoseconds since the epoch.
    :param state: opaque for readers, except :data:`MID_LINE`.
    """

    text: bytes
    offset: int
    time_ns: int
    state: int = 0

    def encode(self) -> bytes:
        head = _HEAD.pack(len(self.text), self.state, self.offset, self.time_ns)
        return head + self.text


class FrameDecoder:
    """Splits the body of a framed log into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def is_between(self) -> bool:
        return not self._buffer

    def feed(self, data: bytes) -> list[LogFrame]:
        """
        Return the frames that ``data`` completes.

        :raises RemoteProtocolError: a frame is too large.
        """
        if not self._buffer and len(data) >= _HEAD.size:
            size, state, offset, time_ns = _HEAD.unpack_from(data)
            if len(data) - _HEAD.size == size <= _MAX_TEXT_BYTES:  # usually: one frame, not copied
                return [LogFrame(data[_HEAD.size :], offset, time_ns, state)]
        self._buffer += data
        frames: list[LogFrame] = []
        at = 0
        while len(self._buffer) - at >= _HEAD.size:
            size, state, offset, time_ns = _HEAD.unpack_from(self._buffer, at)
            # Refused before its text is buffered: 32 bits can claim 4 GiB.
            if size > _MAX_TEXT_BYTES:
                raise RemoteProtocolError(f"a frame of a log has {size} bytes")
            begin = at + _HEAD.size
            if len(self._buffer) < begin + size:
                break
            at = begin + size
            frames.append(
                # The view saves a copy.  It must be gone before the del below, which cannot shrink
                # an exported buffer.
                LogFrame(bytes(memoryview(self._buffer)[begin:at]), offset, time_ns, state)
            )
        del self._buffer[:at]
        return frames
