"""The note on disk that this runtime has opened a console that its BMC has only once."""

from __future__ import annotations

import contextlib
import os
import time

from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.private_files import write_private

_RECENT_SECONDS = 600.0


class LineMark:
    """
    The note of one BMC.

    It is renewed while the console is open: a BMC ends a session that its client has left, so an
    old note says nothing of who has the console now.

    :param path: empty to keep nothing.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def is_recent(self) -> bool:
        """Return whether this runtime, or one before it, had the console some minutes ago."""
        try:
            return abs(time.time() - os.stat(self._path).st_mtime) < _RECENT_SECONDS
        except OSError:
            return False

    def write(self) -> None:
        """Write the note, or renew it."""
        if not self._path:
            return
        try:
            os.utime(self._path)
        except FileNotFoundError:
            with contextlib.suppress(TLSConfigError):  # what is left behind then needs steal
                write_private(self._path, b"")
        except OSError:
            pass

    def remove(self) -> None:
        try:
            os.unlink(self._path)
        except OSError:
            pass
