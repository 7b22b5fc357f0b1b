"""
What a line printed: bytes under ever-growing offsets, of which the newest are kept.

Every viewer reads the same journal at an offset of its own, so that a byte is kept once however many
look on.  Bytes are collected in segments: a chatty line prints single bytes,
and a Python object for each would weigh fifty times as much.
"""

from __future__ import annotations

from collections import deque

_SEGMENT_BYTES = 64 << 10


class Journal:
    """
    The newest bytes of one console.

    ``start`` is the offset of the oldest byte that is kept, ``end`` that of the
    next byte to come.  Offsets never go back, also when a line is opened again.
    """

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._segments: deque[bytearray] = deque()

    def append(self, data: bytes) -> None:
        """Add what the line printed, 1 byte or more."""
        last = self._segments[-1] if self._segments else None
        if last is None or len(last) + len(data) > _SEGMENT_BYTES:
            last = bytearray()
            self._segments.append(last)
        last += data
        self.end += len(data)

    def read(self, offset: int, limit: int) -> bytes:
        """
        Bytes from ``offset`` on: 1 to ``limit`` of them, none only at the end.

        :param offset: from ``start`` to ``end``; others are :class:`ValueError`.
        """
        if not self.start <= offset <= self.end:
            raise ValueError(f"offset {offset} is not within {self.start} to {self.end}")
        # From the end: those who read are mostly near it.
        segment_start = self.end
        for segment in reversed(self._segments):
            segment_start -= len(segment)
            if segment_start <= offset:
                at = offset - segment_start
                return bytes(memoryview(segment)[at : at + limit])
        return b""

    def keep_from(self, offset: int) -> None:
        """Forget whole segments of bytes before ``offset``."""
        while self._segments and self.start + len(self._segments[0]) <= offset:
            self.start += len(self._segments.popleft())
