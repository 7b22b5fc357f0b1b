"""
Proof that a store has the bytes that it was sent.
"""

from __future__ import annotations

from hashlib import sha256

from .interfaces import MAX_READ_BYTES, ReadText, Stored


async def digest(read: ReadText, most: int | None = None) -> Stored:
    """
    Return size and hash of a recording; reads it in pieces of 1 MiB.

    :param most: a larger one is not read to its end, which may not exist.
    """
    size, content = 0, sha256()
    while (most is None or size <= most) and (piece := await read(size, MAX_READ_BYTES)):
        content.update(piece)
        size += len(piece)
    return Stored(size, content.hexdigest())
