"""
Disk space beside the database, for deletions on a full disk.
"""

from __future__ import annotations

import errno
import os
import sqlite3

RESERVED_BYTES = 16 << 20
"""
Default size of the file: a transaction of the writer, and the checkpoint after it.
"""

_LARGEST_PART = 4
_SMALLEST = 1 << 16
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Reserve:
    """
    A preallocated file, which is emptied when the disk is full.

    :param path: created with mode 0600 if missing.
    :param size: in bytes; on a small disk at most a quarter of it.
    :ivar size: what it has on this disk, unless the disk is full.
    """

    def __init__(self, path: str, size: int = RESERVED_BYTES) -> None:
        self._path, self._limit, self.size = path, size, size

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
            return self._allocate(handle)
        finally:
            os.close(handle)

    def release(self) -> None:
        """Give the space back to the disk."""
        try:
            os.truncate(self._path, 0)
        except OSError:
            pass  # it was never allocated

    def _allocate(self, handle: int) -> bool:
        disk = os.fstatvfs(handle)
        free = disk.f_bavail * disk.f_frsize + os.fstat(handle).st_blocks * 512
        self.size = min(self._limit, disk.f_blocks * disk.f_frsize // _LARGEST_PART)
        size = min(self.size, free)
        while size >= _SMALLEST:
            try:
                os.ftruncate(handle, size)
                os.posix_fallocate(handle, 0, size)
            except OSError:  # also if a quota allows less than the disk has
                os.ftruncate(handle, 0)
                size //= 2
            else:
                return size == self.size and free >= self.size + self.size // 2
        return False

    def problem(self, error: sqlite3.Error) -> str:
        """
        Return the problem with the disk that an error of SQLite is about; empty if the disk is full.

        SQLite reports ENOSPC as such.  A disk quota, a limit of the file size, a file system that became
        read-only and a disk that fails are all the same error of a write.
        """
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_FULL:
            return ""
        if code not in (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE):
            return str(error)
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(handle, b"\0", 0)
            finally:
                os.close(handle)
        except OSError as refusal:
            if refusal.errno not in _FULL:
                return f"{refusal.strerror} ({error})"
        return ""
