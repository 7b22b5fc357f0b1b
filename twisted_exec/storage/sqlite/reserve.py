"""
The space that the SQLite store reserves on its disk for deletions.
"""

from __future__ import annotations

import errno
import os
import sqlite3

RESERVED_BYTES = 16 << 20
"""Default size of the reserve, in bytes."""

_LARGEST_PART_OF_DISK = 4
_SMALLEST_RESERVE_BYTES = 1 << 16
_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Reserve:
    """
    A preallocated file, which is emptied when the disk is full.

    :param size: in bytes; less on a small disk.
    """

    def __init__(self, path: str, size: int = RESERVED_BYTES) -> None:
        self._path, self._limit, self.size = path, size, size

    def fill(self) -> bool:
        """
        Allocate the file, or a part of it on a full disk.

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
        try:
            os.truncate(self._path, 0)
        except OSError:
            pass  # it was never allocated

    def _allocate(self, handle: int) -> bool:
        disk = os.fstatvfs(handle)
        # st_blocks counts units of 512 bytes, whatever the size of a block (stat(2)).
        free = disk.f_bavail * disk.f_frsize + os.fstat(handle).st_blocks * 512
        self.size = min(self._limit, disk.f_blocks * disk.f_frsize // _LARGEST_PART_OF_DISK)
        size = min(self.size, free)
        while size >= _SMALLEST_RESERVE_BYTES:
            try:
                os.ftruncate(handle, size)
                # ftruncate alone makes a hole, which has no space on the disk.
                os.posix_fallocate(handle, 0, size)
            except OSError:  # also if a quota allows less than the disk has
                os.ftruncate(handle, 0)
                size //= 2
            else:
                return size == self.size and free >= self.size + self.size // 2
        return False

    def problem(self, error: sqlite3.Error) -> str:
        """
        Return the problem with the disk behind an error of SQLite; empty if the disk may be full.
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
            if refusal.errno not in _FULL_ERRORS:
                return f"{refusal.strerror} ({error})"
        return ""
