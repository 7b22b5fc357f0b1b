"""
Changes by others of the files of an open SQLite database, such as a removal.
"""

from __future__ import annotations

import os

_HEADER_BYTES = 100


class DatabaseFiles:
    """Notices when others change an open database's files, such as by a removal."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Stays open until the database is closed: closing it would end SQLite's locks on the file.
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._header = b""
        self._log_size = 0
        self._log: tuple[int, int] | None = None

    def note(self) -> None:
        """Remember the state after a commit or checkpoint."""
        self._header = os.pread(self._handle, _HEADER_BYTES, 0)
        try:
            log = os.stat(f"{self._path}-wal")
        except OSError:
            return
        if self._log is None:
            self._log = (log.st_dev, log.st_ino)
        self._log_size = log.st_size

    def problem(self) -> str:
        """Return the problem with the files, such as ``was removed``, or empty."""
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
