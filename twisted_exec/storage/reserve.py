"""
Disk space beside the database, for deletions on a full disk.
"""

from __future__ import annotations

import os
import sqlite3

RESERVED_BYTES = 16 << 20
"""
Default size of the file: a transaction of the writer, and the checkpoint after it.
"""

_LARGEST_PART = 8
_SMALLEST = 1 << 16
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
"""SQLite reports ENOSPC as the first; a disk quota or a limit of the file size as the second."""


class Reserve:
    """
    A preallocated file, which is emptied when the disk is full.

    :param path: created with mode 0600 if missing.
    :param size: in bytes; on a small disk at most an eighth of it.
    """

    def __init__(self, path: str, size: int = RESERVED_BYTES) -> None:
        self._path, self._size = path, size

    def fill(self) -> bool:
        """
        Allocate the file, or as much of it as possible.

        :return: whether the disk has space for all of it, and half as much beside it.
        """
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            return _allocate(handle, self._size)
        finally:
            os.close(handle)

    def release(self) -> None:
        """Give the space back to the disk."""
        try:
            os.truncate(self._path, 0)
        except OSError:
            pass  # it was never allocated


def _allocate(handle: int, limit: int) -> bool:
    disk = os.fstatvfs(handle)
    free = disk.f_bavail * disk.f_frsize + os.fstat(handle).st_blocks * 512
    desired = min(limit, disk.f_blocks * disk.f_frsize // _LARGEST_PART)
    size = min(desired, free)
    while size >= _SMALLEST:
        try:
            os.ftruncate(handle, size)
            os.posix_fallocate(handle, 0, size)
        except OSError:  # also if a quota allows less than the disk has
            os.ftruncate(handle, 0)
            size //= 2
        else:
            return size == desired and free >= desired + desired // 2
    return False


def is_full(error: sqlite3.Error) -> bool:
    """Return whether an error means that the disk is full."""
    return getattr(error, "sqlite_errorcode", None) in _FULL
