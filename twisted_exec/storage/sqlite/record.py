"""
The record of the SQLite store's latest acknowledged version, and its lock.

The record (:class:`VersionRecord`) shows whether the database is complete: it has the latest
acknowledged version, and is never ahead of the database. :func:`.database.check_complete` compares
both at the start.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass

from twisted_exec.storage.interfaces import StorageError


@dataclass(frozen=True)
class Acknowledged:
    """
    The content of a record.

    :param identity: changes when the database is restored.
    :param version: the latest acknowledged version.
    """

    identity: str
    version: int


class VersionRecord:
    """The file ``PATH-state``, which is locked as long as a server uses the database."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def lock(self) -> None:
        """
        Lock the file.

        :raises StorageError: another server has the lock, or the file cannot be opened.
        """
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._handle = os.open(state_path(self._path), flags, 0o600)
        except OSError as error:
            raise StorageError(f"cannot open the store {self._path}: {error.strerror}") from None
        try:
            # The lock is on this file, so that a backup can read the database meanwhile.
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise StorageError(in_use(self._path)) from None

    def write(self, content: Acknowledged, *, durable: bool = False) -> None:
        """Replace the content."""
        # A fixed width, so that a write is one part of one sector.
        os.pwrite(self._handle, f"{content.identity} {content.version:020d}\n".encode("ascii"), 0)
        if durable:
            os.fsync(self._handle)

    def clear(self) -> None:
        """Remove the content, so that any database is accepted."""
        os.ftruncate(self._handle, 0)
        os.fsync(self._handle)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def state_path(path: str) -> str:
    """Return the path of a database's record."""
    return f"{path}-state"


def in_use(path: str) -> str:
    """Return the message for a database that another server uses."""
    return f"the store {path} is in use by another server: stop it, or choose another file"


def read_record(path: str) -> Acknowledged | None:
    """Return the content of a database's record; ``None`` if it is missing or unreadable."""
    try:
        with open(state_path(path), encoding="ascii") as record:
            identity, version = record.read(200).split()
        return Acknowledged(identity, int(version))
    except (OSError, ValueError):
        return None
