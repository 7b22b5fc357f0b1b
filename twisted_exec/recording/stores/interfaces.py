"""
The interface of stores of recordings, and proof that a store has the bytes that it was sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

ReadText = Callable[[int, int], "Deferred[bytes]"]
"""
Reads a recording: takes an offset and a limit, fires with 1 to ``limit`` bytes, or with none at the
end. The same offset always has the same bytes.
"""

MAX_READ_BYTES = 1 << 20
"""The largest ``limit`` of :meth:`IRecordingStore.read`."""
SUFFIX = ".cast"
"""Suffix of the names of files and objects."""

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,199}")

KINDS = ("unreachable", "refused", "full", "answer", "disk")


class StoreError(Exception):
    """
    A store did not do its work; the same call may succeed later.

    :param kind: one of :data:`KINDS`, for the metric.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class NotStored(StoreError):
    """The store has no such recording."""

    def __init__(self, location: str) -> None:
        super().__init__("answer", f"{location} does not exist")


@dataclass(frozen=True)
class Stored:
    """
    A recording as it was sent to a store.

    :param sha256: of all bytes, in hexadecimal digits.
    """

    size: int
    sha256: str


@dataclass(frozen=True)
class StoreEntry:
    """A recording in a store."""

    name: str
    size: int


class IRecordingStore(Interface):
    """Closed recordings by their names. Deferreds fail with :class:`StoreError`."""

    url = Attribute("The store without credentials, for messages (str).")

    def put(name: str, read: ReadText) -> Deferred[Stored]:
        """
        Store a recording, or complete an earlier attempt to do so.

        Readers see nothing of the recording before it is complete. After a crash, another call
        completes the recording. Calls for one name must not overlap.

        :param name: as :func:`require_name` demands.
        :param read: its errors are passed on.
        """

    def read(name: str, offset: int, limit: int) -> Deferred[bytes]:
        """
        Return 1 to ``limit`` bytes of a complete recording from ``offset`` on; none at the end.

        :param limit: at most :data:`MAX_READ_BYTES`.
        :return: fails with :class:`NotStored` if there is no such recording.
        """

    def list(after: str = "", limit: int = 1000) -> Deferred[Sequence[StoreEntry]]:
        """
        Return complete recordings.

        :param after: only those behind this name.
        :param limit: at most 1000.
        """

    def delete(name: str) -> Deferred[None]:
        """
        Delete a recording, and what incomplete attempts have left; succeeds if there is nothing.
        """

    def location(name: str) -> str:
        """Return the URL of a recording, without credentials."""

    def close() -> Deferred[None]:
        """Release connections; later calls open them again."""


def is_name(text: str) -> bool:
    """
    Return whether a text can be the name of a recording: 1 to 200 lower-case letters, digits, dots and
    hyphens; a letter or digit first.
    """
    return _NAME.fullmatch(text) is not None


def require_name(name: str) -> str:
    """
    Return a name.

    :raises ValueError: see :func:`is_name`.
    """
    if not is_name(name):
        raise ValueError(f"{name!r} is not a name of a recording")
    return name


async def fill(read: ReadText, offset: int, size: int) -> bytes:
    """Return exactly ``size`` bytes from ``offset`` on, fewer only at the end."""
    data = bytearray()
    while len(data) < size:
        piece = await read(offset + len(data), min(MAX_READ_BYTES, size - len(data)))
        if not piece:
            break
        data += piece
    return bytes(data)


def reader(store: Any, name: str) -> ReadText:
    """Return a function that reads a stored recording."""
    return lambda offset, limit: store.read(name, offset, limit)


async def digest(read: ReadText, most: int | None = None) -> Stored:
    """
    Return size and hash of a recording.

    :param most: stop when more bytes than this were read; the hash is then of the part read.
    """
    size, content = 0, sha256()
    while (most is None or size <= most) and (piece := await read(size, MAX_READ_BYTES)):
        content.update(piece)
        size += len(piece)
    return Stored(size, content.hexdigest())
