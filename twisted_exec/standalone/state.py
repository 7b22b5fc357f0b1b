"""
The state directory of a standalone host.

The directory is private, locked while the program runs, and has a version number:

==================  ============================================================
``version``         the number of the layout; a newer one is left alone
``dialect``         the dialect of the objects
``storage``         location of the API server's store
``lock``            locked (flock) while the program runs; contains its process ID
``pki/``            authorities and certificates
``objects.db``      the API server's store (SQLite)
``runtime/``        state of the machine runtime
``client-cas.crt``  all client CAs, if there are others besides our own
``spaces/``         state of the providers of spaces on this host
``audit.jsonl``     the audit log, one JSON object per line
``created``         the objects that were created once, so that deleted ones stay deleted
``admin.kubeconfig``  the administrator's kubeconfig, written at each start
==================  ============================================================
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from twisted_exec.standalone.certificates import POOL
from twisted_exec.storage.etcd.target import same_location
from twisted_exec.storage.interfaces import MEMORY
from twisted_exec.tls.errors import DirectoryError
from twisted_exec.tls.private_directories import private_directory
from twisted_exec.tls.private_files import write_private

VERSION = 1
OBJECTS = "objects.db"
"""File of the API server's store."""
_DIALECT, _STORAGE, CREATED, CERTIFICATES = "dialect", "storage", "created", "pki"
_LONGEST_LOCATION = 1 << 16


class StateError(Exception):
    """The state directory is not usable."""


class StateDirectory:
    """One state directory."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._lock = -1

    def open(self) -> None:
        """
        Create or check the directory, and lock it.

        :raises StateError: it cannot be used, for example because another program uses it.
        """
        try:
            private_directory(self.path)
        except DirectoryError as error:
            raise StateError(f"--state-dir: {error}") from None
        try:
            self._check_release()  # before anything is changed
            self._take_lock()
            self._check_version()
        except OSError as error:
            self.close()
            raise StateError(f"--state-dir {self.path}: {error.strerror or error}") from None
        except StateError:
            self.close()
            raise

    def _check_release(self) -> None:
        # Release 0.1.0 did not record where the objects are, and no recorder had a certificate.
        later = (_STORAGE, os.path.join(CERTIFICATES, f"recorder-{POOL}.crt"))
        if self._has(OBJECTS, CREATED) and not self._has(*later):
            raise StateError(
                f"only release 0.1.0 has used {self.path}: start release 0.2.0 with it once, then this "
                "release; or choose another --state-dir"
            )

    def _has(self, *names: str) -> bool:
        return any(os.path.lexists(self.file(name)) for name in names)

    def belong_to(self, dialect: str) -> None:
        """
        Record the dialect of the objects, or check the record.

        :raises StateError: the objects have another dialect.
        """
        recorded = self.names(_DIALECT)
        if recorded - {dialect}:
            names = " ".join(sorted(recorded))
            raise StateError(
                f"{self.path} has machines of {names}: set --dialect {names}, or choose another "
                "--state-dir"
            )
        self.keep_names(_DIALECT, {dialect})

    def check_storage(self, location: str) -> None:
        """
        Check that the objects are in the same place as before.

        With an empty store the poollet would delete the machines of the former store.

        :raises StateError: the objects were in another place.
        """
        recorded, location = self._recorded_storage(), self._relative(location)
        if not location:
            return
        if recorded not in ("", MEMORY) and not _is_same(recorded, location):
            raise StateError(
                f"the objects of {self.path} are in {recorded}, and --storage is now {location}: "
                f"start with the former --storage, or choose another --state-dir, or empty {self.file(_STORAGE)} "
                "after you have moved the objects"
            )
        if recorded == MEMORY:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.file(CREATED))  # with those objects

    def keep_storage(self, location: str) -> None:
        """Record the place of the objects, once the store is known to be usable."""
        if location:
            write_private(self.file(_STORAGE), f"{self._relative(location)}\n".encode())

    def _relative(self, location: str) -> str:
        # A state directory may be moved with its store.
        return location.replace(f"sqlite:{self.path}{os.sep}", "sqlite:")

    def _recorded_storage(self) -> str:
        try:
            with open(self.file(_STORAGE), encoding="utf-8", errors="replace") as file:
                return file.read(_LONGEST_LOCATION).strip()
        except FileNotFoundError:
            return ""

    def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def file(self, name: str) -> str:
        """Return the path of an entry."""
        return os.path.join(self.path, name)

    def names(self, name: str) -> set[str]:
        """Return the words of a small file; none if it is missing."""
        try:
            with open(self.file(name), encoding="utf-8") as file:
                return set(file.read(1 << 20).split())
        except FileNotFoundError:
            return set()

    def keep_names(self, name: str, names: set[str]) -> None:
        """Write the lines of a small file, atomically."""
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


def _is_same(recorded: str, location: str) -> bool:
    if recorded.startswith("etcd:") and location.startswith("etcd:"):
        return same_location(recorded, location)
    return recorded == location
