"""
State of local spaces on disk: which spaces exist, and which process may run them.

==================================  =============================================================
``lock``                            locked (flock) by the provider that runs the spaces; its
process ID ``records/NAME.json``               a space to create or delete: written before anything
is done ``spaces/UID/``                     all else of a space: its state directory, kubeconfig
and log
==================================  =============================================================

A record is written atomically.  The data of a space is under its UID, so a reused name never finds
remains of an earlier space.  The record is removed last, when nothing of the space is left.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.status import APIError, BadRequest, ServiceUnavailable
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.authority import write_private
from twisted_exec.tls.unix import private_directory

LOCK, RECORDS, SPACES = "lock", "records", "spaces"
_SUFFIX = ".json"
_LONGEST_RECORD = 64 << 10


@dataclass(frozen=True)
class Record:
    """
    One space that is to be, or is to go.

    :param uid: of the physical space; also the name of its directory.
    :param owner: the mark: UID of the Space that it was made for; empty when it was made for none.
    :param port: of its API server on loopback; 0 until one was chosen.
    :param made: it was usable once.
    :param going: it is being deleted.
    :param damaged: why nothing is known but the name; such a record was not written here.
    """

    name: str
    uid: str
    owner: str = ""
    port: int = 0
    made: bool = False
    going: bool = False
    damaged: str = ""

    @property
    def physical(self) -> Physical:
        """Identity for the manager."""
        return Physical(self.name)


def new_record(name: str, owner: str, port: int = 0) -> Record:
    """Return the record of a new space."""
    return Record(name, str(uuid.uuid4()), owner, port)


def checked(physical: Physical) -> str:
    """
    Return the name of a valid physical space.

    :raises BadRequest: the name or parent is impossible.
    """
    name = ascii(physical.name[:80])
    if physical.parent:
        where = ascii(physical.parent[:80])
        raise BadRequest(
            f"local space {name}: there is no place {where}, local spaces are all in one;"
            " take the annotation kubestellar.io/space-path away"
        )
    if wrong := names.dns_label(physical.name):
        raise BadRequest(f"local space {name}: its name {wrong[0]}")
    return physical.name


class Store:
    """
    The directory of one provider.  Nothing is accessed before :meth:`open`.

    Every change is a method here, so that tests can interrupt between any two.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = -1
        self._seen: dict[str, tuple[tuple[int, int, int], Record]] = {}

    # Ownership.

    def open(self) -> None:
        """
        Create or check the directory, and lock it; later only check that it is still the same.

        :raises ServiceUnavailable: another process has it, or it is not usable, or it was removed.
        """
        try:
            if self._lock < 0:
                private_directory(self.path)
                self._take_lock()
                private_directory(os.path.join(self.path, RECORDS))
                private_directory(os.path.join(self.path, SPACES))
                self._clear()
            self._check_there()
        except (OSError, TLSConfigError) as error:
            self.close()
            why = error.strerror if isinstance(error, OSError) else error
            raise ServiceUnavailable(
                f"local spaces: {self.path} cannot be used: {why}; give it back, or free it"
            ) from None

    def is_ours(self) -> bool:
        """Return whether the store is open and still in place."""
        try:
            self._check_there()
        except (OSError, ServiceUnavailable):
            return False
        return True

    def close(self) -> None:
        """Release the lock; the kernel does so, too, when the process dies."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _take_lock(self) -> None:
        path = os.path.join(self.path, LOCK)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            os.close(lock)
            by = f"process {holder}" if holder.isdigit() else "another process"
            raise ServiceUnavailable(
                f"local spaces: {self.path} is in use by {by}; stop that one, or wait until it lets go"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        self._lock = lock

    def _clear(self) -> None:
        """Remove incomplete files of a process that was killed."""
        for name in os.listdir(os.path.join(self.path, RECORDS)):
            if name.startswith("."):
                _unlink(os.path.join(self.path, RECORDS, name))

    def _check_there(self) -> None:
        """
        Check that the directory is the one that we have locked.

        :raises ServiceUnavailable: it was removed or replaced.
        """
        if self._lock < 0:
            raise ServiceUnavailable("local spaces: closed")
        ours = os.fstat(self._lock)
        try:
            status = os.stat(os.path.join(self.path, LOCK))
        except OSError:  # for example, the directory is a file now
            status = None
        if status is None or (status.st_dev, status.st_ino) != (ours.st_dev, ours.st_ino):
            raise ServiceUnavailable(
                f"local spaces: {self.path} is not there any more, or is another one;"
                " put it back (is its file system mounted?), or restart the manager"
            )

    # Reading.

    def records(self) -> dict[str, Record]:
        """
        Return all records by name, sorted.

        :raises ServiceUnavailable: they cannot be read.
        """
        records: dict[str, tuple[tuple[int, int, int], Record]] = {}
        try:
            with os.scandir(os.path.join(self.path, RECORDS)) as entries:
                for entry in entries:
                    name = entry.name.removesuffix(_SUFFIX)
                    if not entry.name.startswith(".") and name != entry.name:
                        records[name] = self._read(name, entry)
        except OSError as error:
            raise ServiceUnavailable(
                f"local spaces: {self.path}/{RECORDS} cannot be read: {error.strerror}; repair it"
            ) from None
        self._seen = records
        return {name: records[name][1] for name in sorted(records)}

    def stamp(self) -> int:
        """
        Return a number that changes when a record is written or removed.

        :raises ServiceUnavailable: the directory cannot be read.
        """
        self._check_there()
        try:
            return os.stat(os.path.join(self.path, RECORDS)).st_mtime_ns
        except OSError as error:
            raise ServiceUnavailable(f"local spaces: {self.path}: {error.strerror}") from None

    def _read(self, name: str, entry: os.DirEntry[str]) -> tuple[tuple[int, int, int], Record]:
        status = entry.stat(follow_symlinks=False)
        stamp = status.st_ino, status.st_mtime_ns, status.st_size
        cached = self._seen.get(name)
        if cached is not None and cached[0] == stamp and not cached[1].damaged:
            return cached
        return stamp, _parse(name, entry.path)

    def home(self, record: Record, *parts: str) -> str:
        """Return the path of a space's directory, or of an entry in it."""
        assert record.uid, (
            record
        )  # a damaged record has no UID, and must not mean the parent directory
        return os.path.join(self.path, SPACES, record.uid, *parts)

    def has_home(self, record: Record) -> bool:
        """Return whether a space's directory exists."""
        return os.path.isdir(self.home(record))

    # Changing.  Each method raises ServiceUnavailable on failure.

    def write(self, record: Record) -> None:
        """Write a record."""
        value = {
            key: item for key, item in asdict(record).items() if key not in ("name", "damaged")
        }
        self.write_file(
            os.path.join(self.path, RECORDS, record.name + _SUFFIX), json.dumps(value).encode()
        )

    def remove(self, record: Record) -> None:
        """Remove a record."""
        self._change(_unlink, os.path.join(self.path, RECORDS, record.name + _SUFFIX))

    def make_home(self, record: Record) -> None:
        """Create a space's directory."""
        self._change(private_directory, self.home(record))

    def remove_home(self, record: Record) -> None:
        """Remove a space's directory."""
        self._change(_remove_tree, self.home(record))

    def write_file(self, path: str, content: bytes) -> None:
        """Write a file atomically."""
        self._change(write_private, path, content)

    def remove_file(self, path: str) -> None:
        """Remove a file; a missing one is no failure."""
        self._change(_unlink, path)

    def _change(self, act: Any, *args: Any) -> None:
        self.step()
        self._check_there()
        try:
            act(*args)
        except (OSError, TLSConfigError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ServiceUnavailable(f"local spaces: {args[0]}: {why}; repair it") from None

    def step(self) -> None:
        """Called before each change, so that tests can simulate a crash here."""


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _remove_tree(path: str) -> None:
    """Remove a tree.  It is renamed first, so that a partial one is never taken for a space."""
    removed = f"{path}.gone"
    if os.path.lexists(path):
        os.replace(path, removed)
    if os.path.lexists(removed):
        shutil.rmtree(removed)


def _parse(name: str, path: str) -> Record:
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read(_LONGEST_RECORD))
        return _read_record(name, document)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, APIError):
        return Record(name, "", damaged=f"{path} cannot be read; put it right, or take it away")


def _read_record(name: str, document: Mapping[str, Any]) -> Record:
    checked(Physical(name))
    uid, owner, port = document["uid"], document.get("owner", ""), document.get("port", 0)
    is_valid = isinstance(owner, str) and isinstance(port, int) and 0 <= port < 65536
    if not is_valid or str(uuid.UUID(uid)) != uid:  # it names a directory
        raise ValueError
    return Record(
        name, uid, owner, port, document.get("made") is True, document.get("going") is True
    )
