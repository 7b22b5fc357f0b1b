"""
A file in memory, with the output that the files of journals do not have yet.

If the program is killed, the next run finds in this file what it still has to write, unless the
file was given up. A power cut ends the file together with the program.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from twisted.logger import Logger

from twisted_exec.api.display import reason_of
from twisted_exec.journal.file_access import open_file, opened
from twisted_exec.journal.interfaces import Event
from twisted_exec.journal.records import Damaged, decode_event, encode, encode_event, records

MEMORY = "/dev/shm"
"""A file system in memory, to which every user may write."""
MOST_BYTES = 64 << 20
"""A file beyond this size is given up: the next start then assumes that output was lost."""

_LOST = b"lost"
"""Content of a spare file whose run could not keep its output in memory."""
_PREFIX = struct.Struct("<36s8sQ")
_OUTPUT, _EVENT = 1, 2
_PIECE_BYTES = 32 << 10
_SEED = 0x54584A46  # "TXJF" in ASCII


@dataclass(frozen=True)
class Unwritten:
    """
    Output or an event of a journal that may not be in its files.

    :param time_ns: nanoseconds since the epoch.
    """

    key: str
    epoch: bytes
    offset: int
    time_ns: int
    entry: bytes | Event


class Front:
    """The file of one run."""

    _log = Logger()

    def __init__(self, directory: str = MEMORY) -> None:
        self.name = f"twisted-exec-{secrets.token_hex(16)}"
        self.path = os.path.join(directory, self.name)
        self._descriptor: int | None = None
        self._size, self._is_spare = 0, False
        try:
            self._descriptor = open_file(os, self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except OSError as error:
            self._given_up(reason_of(error))

    def move(self, path: str) -> None:
        """Move to the path of the store's spare file."""
        self._is_spare = True
        if self._descriptor is None:
            self.path = path
            self._mark_lost()
            return
        try:
            os.rename(self.path, path)
        except OSError as error:
            self._given_up(reason_of(error))
        else:
            self.path = path

    def add_name(self, directory: str) -> None:
        """Add the file's own name, before that name is written to the disk."""
        with suppress(OSError):
            os.link(self.path, os.path.join(directory, self.name))

    def remove_name(self, directory: str) -> None:
        """Remove the file's own name, which the disk has not taken."""
        remove(os.path.join(directory, self.name))

    def move_back(self, directory: str) -> None:
        """Remove the spare name: the own name is on the disk now."""
        spare, self.path = self.path, os.path.join(directory, self.name)
        self._is_spare = False
        remove(spare)

    def _mark_lost(self) -> None:
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with opened(os, self.path, flags) as descriptor:
                os.write(descriptor, _LOST)

    def add_output(self, key: str, epoch: bytes, offset: int, time_ns: int, data: bytes) -> None:
        if self._descriptor is None:
            return
        for at in range(0, len(data), _PIECE_BYTES):
            prefix = _PREFIX.pack(key.encode("ascii"), epoch, offset + at)
            piece = data[at : at + _PIECE_BYTES]
            self._add(encode(_OUTPUT, time_ns, prefix + piece, _SEED))

    def add_event(self, key: str, epoch: bytes, event: Event) -> None:
        if self._descriptor is not None:
            prefix = _PREFIX.pack(key.encode("ascii"), epoch, event.offset)
            record = prefix + encode_event(event, 0, _SEED)
            self._add(encode(_EVENT, event.time_ns, record, _SEED))

    def add(self, each: Unwritten) -> None:
        if isinstance(each.entry, Event):
            self.add_event(each.key, each.epoch, each.entry)
        else:
            self.add_output(each.key, each.epoch, each.offset, each.time_ns, each.entry)

    def _add(self, record: bytes) -> None:
        if self._descriptor is None:
            return
        try:
            if self._size + len(record) > MOST_BYTES:
                raise OSError(0, "it is full")
            # A full file system takes a part of it, without an error.
            if os.pwrite(self._descriptor, record, self._size) < len(record):
                raise OSError(0, "its file system is full")
        except OSError as error:
            self._given_up(reason_of(error))
        else:
            self._size += len(record)

    def _given_up(self, why: str) -> None:
        self.remove()
        if self._is_spare:
            self._mark_lost()
        self._log.info(
            "output that is not on disk would be lost if the program was killed now: {path}: {why}",
            path=self.path,
            why=why,
        )

    def clear(self) -> None:
        if self._descriptor is not None and self._size:
            self._size = 0
            os.ftruncate(self._descriptor, 0)

    @property
    def has_file(self) -> bool:
        """False once the file was given up, or removed."""
        return self._descriptor is not None

    def remove(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
            remove(self.path)


def remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def read(path: str) -> list[Unwritten] | None:
    """Return what a run left in its file, oldest first; ``None`` if it is lost."""
    try:
        with opened(os, path) as descriptor:
            data = os.pread(descriptor, MOST_BYTES, 0)
    except OSError:
        return None
    return None if data == _LOST else list(_decoded(data))


def spare_path(directory: str, store: str) -> str:
    """Return the path of the file of a run whose name the disk of the store does not take."""
    digest = hashlib.sha256(store.encode("utf-8", "surrogateescape")).hexdigest()
    return os.path.join(directory, f"twisted-exec-{digest[:32]}")


def is_own(path: str) -> bool:
    """Return whether there is a file of this user."""
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False


def _decoded(data: bytes) -> Iterator[Unwritten]:
    for kind, time_ns, first, last in records(data, _SEED):
        if last - first < _PREFIX.size:
            return
        key, epoch, offset = _PREFIX.unpack_from(data, first)
        content: Any = data[first + _PREFIX.size : last]
        entry: bytes | Event | None = content if kind == _OUTPUT else _event(content)
        if entry is not None:
            name = key.rstrip(b"\0").decode("ascii", "replace")
            yield Unwritten(name, epoch, offset, time_ns, entry)


def _event(data: bytes) -> Event | None:
    for kind, time_ns, first, last in records(data, _SEED):
        try:
            return decode_event(kind, time_ns, data[first:last])[0]
        except Damaged:
            return None
    return None
