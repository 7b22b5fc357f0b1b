"""
Frames of HTTP/2, as far as GOAWAY needs it.

The `h2` library treats GOAWAY as the end of the connection, and every later frame as an error.
But a server may go on for hours with the requests that it has accepted (RFC 9113, §6.8).  So
GOAWAY frames are cut out of the input, and the library sees the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_HEAD_BYTES = 9
_MAX_FRAME_BYTES = 1 << 14
"""The largest payload that a peer may send unless it was allowed more (RFC 9113, §4.2)."""

_GOAWAY = 7
_NUMBER = 0x7FFFFFFF


@dataclass(frozen=True)
class GoneAway:
    """
    The peer accepts no further requests.

    :ivar last_stream: the peer has not processed any stream with a higher id.
    """

    last_stream: int


class Frames:
    """Splits the input, however it is chunked, at frame boundaries."""

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, data: bytes) -> Iterator[bytes | GoneAway]:
        """
        Yield complete frames in runs, with each GOAWAY on its own, in order.

        :raises ValueError: a frame exceeds the size limit (checked before it is buffered), or is
            malformed.
        """
        data, self._rest = self._rest + data, b""
        begun = at = 0
        while (end := self._end_of(data, at)) is not None:
            if data[at + 3] == _GOAWAY:
                if begun < at:
                    yield data[begun:at]
                yield _gone_away(data[at + _HEAD_BYTES : end])
                begun = end
            at = end
        self._rest = data[at:]
        if begun < at:
            yield data[begun:at]

    def _end_of(self, data: bytes, at: int) -> int | None:
        """Return the end of the frame that starts at ``at``; ``None`` while it is incomplete."""
        if len(data) - at < _HEAD_BYTES:
            return None
        size = int.from_bytes(data[at : at + 3], "big")
        if size > _MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {size} bytes is too long")
        end = at + _HEAD_BYTES + size
        return end if end <= len(data) else None


def _gone_away(payload: bytes) -> GoneAway:
    if len(payload) < 8:
        raise ValueError("a GOAWAY is too short")
    return GoneAway(int.from_bytes(payload[:4], "big") & _NUMBER)
