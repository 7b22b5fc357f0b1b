"""
HTTP/2's frames, as far as one must be taken out of them.

The `h2` library takes a GOAWAY for the end of a connection, and whatever follows for an error.  Its
sender may go on for hours with what it had begun before (RFC 9113, §6.8): so GOAWAYs are
taken out of what comes, and the library sees the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_HEAD_BYTES = 9
_MAX_FRAME_BYTES = 1 << 14
"""Of a frame's payload: what a peer may send that was not allowed more (§4.2)."""

_GOAWAY = 7
_NUMBER = 0x7FFFFFFF


@dataclass(frozen=True)
class GoneAway:
    """
    The peer takes no further request.

    :ivar last_stream: what has a higher number it never looked at.
    """

    last_stream: int


class Frames:
    """Cuts what comes, however it was split, behind whole frames."""

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, data: bytes) -> Iterator[bytes | GoneAway]:
        """
        Whole frames in runs, and each GOAWAY by itself, in order.

        :raises ValueError: a frame is longer than it may be, before it is collected, or is none.
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
        """Where the frame ends that begins there; ``None`` while it is not whole."""
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
