"""
Files beside the database that show whether the database is complete.

SQLite cannot tell that its write-ahead log was removed or cut: it shows an earlier state.  So the
latest acknowledged version is also in a file of its own.  It is written after each commit without a
sync of its own: it may lag behind the database after a power failure, but is never ahead.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass

from twisted_exec.storage.interfaces import StorageError

_HEADER_BYTES = 100


@dataclass(frozen=True)
class Acknowledged:
    """
    The content of a record.

    :param identity: of the database, which changes when it is restored.
    :param version: the latest version that was acknowledged to a client.
    """

    identity: str
    version: int


class Record:
    """
    The file ``PATH-state``, which is locked as long as a server uses the database.

    :param path: of the database.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def lock(self) -> None:
        """
        :raises StorageError: another server has the lock, or the file cannot be opened.
        """
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._handle = os.open(state_path(self._path), flags, 0o600)
        except OSError as error:
            raise StorageError(f"cannot open the store {self._path}: {error.strerror}") from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise StorageError(in_use(self._path)) from None

    def write(self, content: Acknowledged, *, durable: bool = False) -> None:
        """
        Replace the content.

        :param durable: wait until it is on the disk.
        """
        # A fixed width, so that a write is one part of one sector.
        os.pwrite(self._handle, f"{content.identity} {content.version:020d}\n".encode("ascii"), 0)
        if durable:
            os.fsync(self._handle)

    def clear(self) -> None:
        """Remove the content, durably: any database is then accepted."""
        os.ftruncate(self._handle, 0)
        os.fsync(self._handle)

    def close(self) -> None:
        """Unlock the file."""
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


class Files:
    """
    Notices that an open database or its write-ahead log was removed, replaced, overwritten or cut.

    :param path: of the database, which must exist.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # Stays open until the database is closed: closing it would end SQLite's locks on the file.
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._header = b""
        self._log_size = 0
        self._log: tuple[int, int] | None = None

    def note(self) -> None:
        """Remember the state after a commit or checkpoint of our own."""
        self._header = os.pread(self._handle, _HEADER_BYTES, 0)
        try:
            log = os.stat(f"{self._path}-wal")
        except OSError:
            return
        if self._log is None:
            self._log = (log.st_dev, log.st_ino)
        self._log_size = log.st_size

    def problem(self) -> str:
        """Return the problem with the files, such as ``was removed``; empty if there is none."""
        try:
            present, opened = os.stat(self._path), os.fstat(self._handle)
            if (present.st_dev, present.st_ino) != (opened.st_dev, opened.st_ino):
                return f"{self._path} was replaced by another file"
            if os.pread(self._handle, _HEADER_BYTES, 0) != self._header:
                return f"{self._path} was overwritten"
            log = os.stat(f"{self._path}-wal")
        except OSError as error:
            return f"{error.filename or self._path} was removed"
        if (log.st_dev, log.st_ino) != self._log:
            return f"{self._path}-wal was replaced by another file"
        return f"{self._path}-wal was cut" if log.st_size < self._log_size else ""

    def close(self) -> None:
        """Close the file, after the database."""
        os.close(self._handle)
