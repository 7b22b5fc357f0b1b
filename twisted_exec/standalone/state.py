"""
The state directory: private, ours alone while we run, of a version we know.

==================  ============================================================
``version``         the layout's number; a newer one is not touched
``lock``            held (flock) while the program runs; holds its process id
``pki/``            authorities and certificates
``objects.db``      the API server's store (SQLite)
``runtime/``        what the machine runtime keeps
``client-cas.crt``  whose certificates are users, when that is not our own authority alone
``spaces/``         what providers of spaces keep on this host
``audit.jsonl``     who reached what, one JSON object per line
``created``         the objects that were made once, so that deleted ones stay so
``admin.kubeconfig``  while the program is ready, and what to use
==================  ============================================================
"""

from __future__ import annotations

import fcntl
import os

from twisted_exec.api.dialects import DEFAULT
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.authority import write_private
from twisted_exec.tls.unix import private_directory

VERSION = 1
OBJECTS = "objects.db"
"""The API server's store."""
_DIALECT = "dialect"


class StateError(Exception):
    """The state directory cannot be used.  One line: why, and what to do."""


class StateDirectory:
    """
    One state directory.  Nothing is touched before :meth:`open`.

    :param path: made when it is missing, its parents too.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._lock = -1

    def open(self) -> None:
        """
        Make it or check it, and lock it.

        :raises StateError: another program uses it, others may read it, or a
            newer version wrote it.
        """
        try:
            private_directory(self.path)
        except TLSConfigError as error:
            raise StateError(f"--state-dir: {error}") from None
        try:
            self._take_lock()
            self._check_version()
        except OSError as error:
            self.close()
            raise StateError(f"--state-dir {self.path}: {error.strerror or error}") from None
        except StateError:
            self.close()
            raise

    def belong_to(self, dialect: str) -> None:
        """
        Note the dialect that its objects are of, or check that they are.

        :raises StateError: they are of another one.
        """
        known = self.names(_DIALECT)
        if not known and os.path.exists(self.file(OBJECTS)):
            known = {DEFAULT.name}  # of a version that had no other
        if known - {dialect}:
            told = " ".join(sorted(known))
            raise StateError(
                f"{self.path} has machines of {told}: give --dialect {told}, or choose another "
                "--state-dir"
            )
        self.keep_names(_DIALECT, {dialect})

    def close(self) -> None:
        """Let others have it.  The kernel does so, too, when we die."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def file(self, name: str) -> str:
        """The path of an entry."""
        return os.path.join(self.path, name)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        try:
            os.unlink(self.file(name))
        except FileNotFoundError:
            pass

    def names(self, name: str) -> set[str]:
        """The lines of a small file; none when it is missing."""
        try:
            with open(self.file(name), encoding="utf-8") as file:
                return set(file.read(1 << 20).split())
        except FileNotFoundError:
            return set()

    def keep_names(self, name: str, names: set[str]) -> None:
        """Write such a file, atomically."""
        write_private(self.file(name), "".join(f"{each}\n" for each in sorted(names)).encode())

    def _take_lock(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._lock = os.open(self.file("lock"), flags, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 20, 0).decode("ascii", "replace").strip()
            by = f" by process {holder}" if holder.isdigit() else ""
            raise StateError(
                f"{self.path} is in use{by}: stop that one, or choose another --state-dir"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, b"%d\n" % os.getpid(), 0)

    def _check_version(self) -> None:
        path = self.file("version")
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                text = file.read(20).strip()
        except FileNotFoundError:
            write_private(path, b"%d\n" % VERSION)
            return
        if not text.isdigit():
            raise StateError(f"{path} holds no version number: is this the right --state-dir?")
        if int(text) > VERSION:
            raise StateError(
                f"{self.path} was written by a newer version of this program (layout {text}, "
                f"this one knows {VERSION}): upgrade, or choose another --state-dir"
            )
