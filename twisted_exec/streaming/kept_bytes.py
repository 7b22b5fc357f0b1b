"""Sent bytes that are kept, because the other side may not have received them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

_SHORT_BYTES = 512
"""Pieces are joined up to this size: the overhead of an object is larger than a key."""


class KeptBytes:
    """
    Sent bytes, by their offsets in the stream.

    :param limit_bytes: about how many of the last bytes are kept.
    :ivar first: the offset of the first byte that is kept.
    :ivar end: the offset behind the last byte.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.first = self.end = 0
        self._limit_bytes = limit_bytes
        self._short_bytes = min(_SHORT_BYTES, limit_bytes // 16)
        self._pieces: deque[bytes] = deque()

    def __len__(self) -> int:
        return self.end - self.first

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the bytes in pieces, oldest first."""
        return iter(self._pieces)

    def add(self, data: bytes) -> None:
        pieces = self._pieces
        self.end += len(data)
        if pieces and len(pieces[-1]) + len(data) <= self._short_bytes:
            pieces[-1] += data
            return
        pieces.append(data)
        while self.end - self.first - len(pieces[0]) >= self._limit_bytes:
            self._drop_piece()

    def has(self, offset: int) -> bool:
        """Return whether all bytes from an offset on are kept."""
        return self.first <= offset <= self.end

    def forget_until(self, offset: int) -> None:
        pieces = self._pieces
        while pieces and self.first + len(pieces[0]) <= offset:
            self._drop_piece()
        if pieces and self.first < offset:
            pieces[0] = pieces[0][offset - self.first :]
            self.first = offset

    def clear(self) -> None:
        self.forget_until(self.end)

    def _drop_piece(self) -> None:
        self.first += len(self._pieces.popleft())
