"""
Blocks: the bytes of one session on a connection that carries another session after it.

A block is its length, three bytes with the most significant first, and so many bytes.  Three lengths
are marks without bytes:

* :attr:`Mark.END`: this side of the session sends no more.
* :attr:`Mark.READY`, from the server only: it sends no more, and has read the client's end mark.  The
  client may send its next request.
* :attr:`Mark.PLAIN`: what follows are bytes of the session, and this side of it ends with that of the
  connection, which carries no other session.

So a session ends by a length, never by what its bytes are.  Nothing may follow an end mark but, if the client
has sent its own meanwhile, :attr:`Mark.READY` behind :attr:`Mark.END`.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from twisted_exec.wire.errors import RemoteProtocolError

HEAD_BYTES = 3

LONGEST = 0xFFFFFD
"""The most bytes of one block."""


class Mark(Enum):
    """What a length means that is that of no block."""

    END = b"\0\0\0"
    PLAIN = b"\xff\xff\xfe"
    READY = b"\xff\xff\xff"


_MARKS = {mark.value: mark for mark in Mark}
_READY = Mark.READY.value


def head(length: int) -> bytes:
    """
    Return what comes before the bytes of a block.

    :param length: from 1 to :data:`LONGEST`.
    """
    return length.to_bytes(HEAD_BYTES, "big")


def behind(expected: int, record: Any) -> int:
    """
    Return how many bytes of the current block follow a record.

    A peer may send thousands of tiny blocks in one record: whoever reads more than one record at once
    stops behind such a record.

    :param expected: the same before the record.
    :param record: see :meth:`BlockReader.read`.
    :return: -1 if more than one block begins in the record, or a length goes beyond it.
    """
    size = len(record)
    if expected < 0 or size <= expected:
        return expected - size if expected >= 0 else -1
    start = expected + HEAD_BYTES
    if start > size:
        return -1
    return max(-1, int.from_bytes(record[expected:start], "big") - (size - start))


def _whole(data: memoryview, start: int, size: int) -> int:
    """Return the end of a block that begins at ``start``; 0 if it is incomplete, or a mark."""
    if start + HEAD_BYTES >= size:
        return 0
    length = data[start] << 16 | data[start + 1] << 8 | data[start + 2]
    end = start + HEAD_BYTES + length
    return end if 0 < length <= LONGEST and end <= size else 0


class BlockReader:
    """
    Reads the blocks of one session.

    :ivar mark: the last end mark that has arrived.
    :ivar is_plain: no block follows.
    """

    __slots__ = ("_left", "_part", "is_plain", "mark")

    def __init__(self) -> None:
        self._left = 0  # of the current block
        self._part = b""  # of the next block's length
        self.mark: Mark | None = None
        self.is_plain = False

    @property
    def expected(self) -> int:
        """The missing bytes of the current block, or -1 within a length; see :func:`behind`."""
        return -1 if self._part else self._left

    def read(self, data: Any) -> bytes:
        """
        Return the session's bytes among received ones; each is copied at most once.

        :param data: bytes, or a buffer whose slices are bytes.
        :raises RemoteProtocolError: something follows a mark.
        """
        size = len(data)
        if self.is_plain:
            return bytes(data)
        if size <= self._left:
            self._left -= size
            within: bytes = data[0:size]
            return within
        if self._left or self._part or self.mark or not HEAD_BYTES < size <= HEAD_BYTES + LONGEST:
            return self._divide(memoryview(data))
        if int.from_bytes(data[0:HEAD_BYTES], "big") != size - HEAD_BYTES:
            return self._divide(memoryview(data))
        whole: bytes = data[HEAD_BYTES:size]
        return whole

    def _divide(self, data: memoryview) -> bytes:
        pieces, start, size = [], 0, len(data)
        left, part = self._left, self._part
        while start < size:
            if self.mark is not None:
                if start == 0 or self.mark is Mark.READY or bytes(data[start:]) != _READY:
                    raise RemoteProtocolError("bytes follow the end of a session")
                self.mark = Mark.READY
                break
            if left:
                end = min(size, start + left)
                pieces.append(data[start:end])
                left -= end - start
            elif not part and (end := _whole(data, start, size)):
                pieces.append(data[start + HEAD_BYTES : end])
            else:
                end = min(size, start + HEAD_BYTES - len(part))
                part += data[start:end]
                if len(part) == HEAD_BYTES:
                    mark, length, part = _MARKS.get(part), int.from_bytes(part, "big"), b""
                    if mark is Mark.PLAIN:
                        self.is_plain = True
                        pieces.append(data[end:])
                        break
                    self.mark, left = mark, 0 if mark else length
            start = end
        self._left, self._part = left, part
        return b"".join(pieces)
