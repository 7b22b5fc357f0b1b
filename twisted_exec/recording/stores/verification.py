"""
Proof that a store has the bytes that it was sent.
"""

from __future__ import annotations

from hashlib import sha256

from .interfaces import MAX_READ_BYTES, ReadText, Stored


async def digest(read: ReadText) -> Stored:
    """Read a recording to its end, in pieces of 1 MiB."""
    size, found = 0, sha256()
    while piece := await read(size, MAX_READ_BYTES):
        found.update(piece)
        size += len(piece)
    return Stored(size, found.hexdigest())
