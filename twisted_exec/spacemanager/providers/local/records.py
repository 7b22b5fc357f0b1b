"""
Records of local spaces, on disk.

They (:class:`Store`) say which spaces exist, and which process may run them:

=====================  =========================================================================
``lock``               locked (flock) by the provider that runs the spaces; its process ID
``records/NAME.json``  one for each space, written before anything is done for it
``spaces/UID/``        all else of a space: its state directory, kubeconfig and log
=====================  =========================================================================

The data of a space is under its UID, so a reused name never finds remains of an earlier space.
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
from twisted_exec.tls.private_directories import private_directory
from twisted_exec.tls.private_files import write_private

LOCK, RECORDS, SPACES = "lock", "records", "spaces"
_SUFFIX = ".json"
_LONGEST_RECORD = 64 << 10


@dataclass(frozen=True)
class SpaceRecord:
    """
    A space that runs or must be started, or that is being deleted.

    :param uid: of the physical space, and name of its directory.
    :param port: of its API server, or 0 until one was chosen.
    :param damaged: why nothing is known but the name.
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
        return Physical(self.name)


def new_record(name: str, owner: str, port: int = 0) -> SpaceRecord:
    """Return the record of a new space."""
    return SpaceRecord(name, str(uuid.uuid4()), owner, port)


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
    """The directory of one provider.  Call :meth:`open` first."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = -1
        self._seen: dict[str, tuple[tuple[int, int, int], SpaceRecord]] = {}

    # Ownership.

    def open(self) -> None:
        """
        Lock the directory, or check that it is still the same.

        :raises ServiceUnavailable: the directory is not usable.
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
        try:
            self._check_there()
        except (OSError, ServiceUnavailable):
            return False
        return True

    def close(self) -> None:
        """Release the lock."""
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
        for name in os.listdir(os.path.join(self.path, RECORDS)):
            if name.startswith("."):
                _unlink(os.path.join(self.path, RECORDS, name))

    def _check_there(self) -> None:
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

    def records(self) -> dict[str, SpaceRecord]:
        """Return all records by name, sorted."""
        records: dict[str, tuple[tuple[int, int, int], SpaceRecord]] = {}
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
        """Return a number that changes when a record is written or removed."""
        self._check_there()
        try:
            return os.stat(os.path.join(self.path, RECORDS)).st_mtime_ns
        except OSError as error:
            raise ServiceUnavailable(f"local spaces: {self.path}: {error.strerror}") from None

    def _read(self, name: str, entry: os.DirEntry[str]) -> tuple[tuple[int, int, int], SpaceRecord]:
        status = entry.stat(follow_symlinks=False)
        stamp = status.st_ino, status.st_mtime_ns, status.st_size
        cached = self._seen.get(name)
        if cached is not None and cached[0] == stamp and not cached[1].damaged:
            return cached
        return stamp, _parse(name, entry.path)

    def home(self, record: SpaceRecord, *parts: str) -> str:
        assert record.uid, (
            record
        )  # a damaged record has no UID, and must not mean the parent directory
        return os.path.join(self.path, SPACES, record.uid, *parts)

    def has_home(self, record: SpaceRecord) -> bool:
        return os.path.isdir(self.home(record))

    # Changing.  Each method raises ServiceUnavailable on failure.

    def write(self, record: SpaceRecord) -> None:
        value = {
            key: item for key, item in asdict(record).items() if key not in ("name", "damaged")
        }
        self.write_file(
            os.path.join(self.path, RECORDS, record.name + _SUFFIX), json.dumps(value).encode()
        )

    def remove(self, record: SpaceRecord) -> None:
        self._change(_unlink, os.path.join(self.path, RECORDS, record.name + _SUFFIX))

    def make_home(self, record: SpaceRecord) -> None:
        self._change(private_directory, self.home(record))

    def remove_home(self, record: SpaceRecord) -> None:
        self._change(_remove_tree, self.home(record))

    def write_file(self, path: str, content: bytes) -> None:
        self._change(write_private, path, content)

    def remove_file(self, path: str) -> None:
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
        """Hook for tests, called before each change."""


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _remove_tree(path: str) -> None:
    """Rename a tree, then remove it: a partial one must not be taken for a space."""
    removed = f"{path}.gone"
    if os.path.lexists(path):
        os.replace(path, removed)
    if os.path.lexists(removed):
        shutil.rmtree(removed)


def _parse(name: str, path: str) -> SpaceRecord:
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read(_LONGEST_RECORD))
        return _read_record(name, document)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, APIError):
        return SpaceRecord(
            name, "", damaged=f"{path} cannot be read; put it right, or take it away"
        )


def _read_record(name: str, document: Mapping[str, Any]) -> SpaceRecord:
    checked(Physical(name))
    uid, owner, port = document["uid"], document.get("owner", ""), document.get("port", 0)
    is_valid = isinstance(owner, str) and isinstance(port, int) and 0 <= port < 65536
    if not is_valid or str(uuid.UUID(uid)) != uid:  # it names a directory
        raise ValueError
    return SpaceRecord(
        name, uid, owner, port, document.get("made") is True, document.get("going") is True
    )
