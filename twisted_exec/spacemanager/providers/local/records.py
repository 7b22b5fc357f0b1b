"""
What a provider of local spaces keeps on disk: which spaces there are to be, and who may run them.

==================================  =============================================================
``lock``                            held (flock) by the adaptor that runs these spaces; its process id
``records/NAME.json``               that a space is to be, or is to go: written before anything is done
``spaces/UID/``                     all else of one: its state directory, its kubeconfig, its log
==================================  =============================================================

A record is written whole or not at all.  What a space is made of is under its UID, so a name that is used again
never meets the remains of the one before; a record goes last, when nothing of its space is left.
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
        """As the manager calls it."""
        return Physical(self.name)


def new_record(name: str, owner: str, port: int = 0) -> Record:
    """A space that there was none of until now."""
    return Record(name, str(uuid.uuid4()), owner, port)


def checked(physical: Physical) -> str:
    """
    The name of a space that there may be.

    :raises BadRequest: there can be none.
    """
    told = ascii(physical.name[:80])
    if physical.parent:
        where = ascii(physical.parent[:80])
        raise BadRequest(
            f"local space {told}: there is no place {where}, local spaces are all in one;"
            " take the annotation kubestellar.io/space-path away"
        )
    if wrong := names.dns_label(physical.name):
        raise BadRequest(f"local space {told}: its name {wrong[0]}")
    return physical.name


class Store:
    """
    The directory of one provider.  Nothing is touched before :meth:`open`.

    All that changes anything is one of the methods here, so that tests can end it between any two.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = -1
        self._seen: dict[str, tuple[tuple[int, int, int], Record]] = {}

    # Whose it is.

    def open(self) -> None:
        """
        Make it or check it, and be the only one in it; once that is so, only check that it still is.

        :raises ServiceUnavailable: another has it, it cannot be used, or it is there no more.
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
        """Whether it is open, and still where it was."""
        try:
            self._check_there()
        except (OSError, ServiceUnavailable):
            return False
        return True

    def close(self) -> None:
        """Let others have it; the kernel does so, too, when we die."""
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
        """Files that somebody was writing when he was killed."""
        for name in os.listdir(os.path.join(self.path, RECORDS)):
            if name.startswith("."):
                _unlink(os.path.join(self.path, RECORDS, name))

    def _check_there(self) -> None:
        """
        :raises ServiceUnavailable: what is there now is not what we have locked.
        """
        if self._lock < 0:
            raise ServiceUnavailable("local spaces: closed")
        ours = os.fstat(self._lock)
        try:
            found = os.stat(os.path.join(self.path, LOCK))
        except OSError:  # such as of a directory that is a file now
            found = None
        if found is None or (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino):
            raise ServiceUnavailable(
                f"local spaces: {self.path} is not there any more, or is another one;"
                " put it back (is its file system mounted?), or restart the manager"
            )

    # What is there.

    def records(self) -> dict[str, Record]:
        """
        All of them, by name, in order.

        :raises ServiceUnavailable: they cannot be read.
        """
        found: dict[str, tuple[tuple[int, int, int], Record]] = {}
        try:
            with os.scandir(os.path.join(self.path, RECORDS)) as entries:
                for entry in entries:
                    name = entry.name.removesuffix(_SUFFIX)
                    if not entry.name.startswith(".") and name != entry.name:
                        found[name] = self._read(name, entry)
        except OSError as error:
            raise ServiceUnavailable(
                f"local spaces: {self.path}/{RECORDS} cannot be read: {error.strerror}; mend it"
            ) from None
        self._seen = found
        return {name: found[name][1] for name in sorted(found)}

    def stamp(self) -> int:
        """
        Changes when a record is written or taken away.

        :raises ServiceUnavailable: it cannot be looked at.
        """
        self._check_there()
        try:
            return os.stat(os.path.join(self.path, RECORDS)).st_mtime_ns
        except OSError as error:
            raise ServiceUnavailable(f"local spaces: {self.path}: {error.strerror}") from None

    def _read(self, name: str, entry: os.DirEntry[str]) -> tuple[tuple[int, int, int], Record]:
        told = entry.stat(follow_symlinks=False)
        stamp = told.st_ino, told.st_mtime_ns, told.st_size
        known = self._seen.get(name)
        if known is not None and known[0] == stamp and not known[1].damaged:
            return known
        return stamp, _parse(name, entry.path)

    def home(self, record: Record, *parts: str) -> str:
        """Its directory, or what is in it."""
        assert record.uid, record  # a damaged one has none, and never that of all
        return os.path.join(self.path, SPACES, record.uid, *parts)

    def has_home(self, record: Record) -> bool:
        """Whether its directory is there."""
        return os.path.isdir(self.home(record))

    # What changes it.  Each raises ServiceUnavailable when it cannot be done.

    def write(self, record: Record) -> None:
        """Have this record from now on."""
        value = {
            key: told for key, told in asdict(record).items() if key not in ("name", "damaged")
        }
        self.write_file(
            os.path.join(self.path, RECORDS, record.name + _SUFFIX), json.dumps(value).encode()
        )

    def remove(self, record: Record) -> None:
        """Have no such record any more."""
        self._change(_unlink, os.path.join(self.path, RECORDS, record.name + _SUFFIX))

    def make_home(self, record: Record) -> None:
        """Have its directory."""
        self._change(private_directory, self.home(record))

    def remove_home(self, record: Record) -> None:
        """Have nothing of it any more."""
        self._change(_remove_tree, self.home(record))

    def write_file(self, path: str, content: bytes) -> None:
        """A file below, whole or not at all."""
        self._change(write_private, path, content)

    def remove_file(self, path: str) -> None:
        """A file below; that it is not there is no failure."""
        self._change(_unlink, path)

    def _change(self, act: Any, *told: Any) -> None:
        self.step()
        self._check_there()
        try:
            act(*told)
        except (OSError, TLSConfigError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ServiceUnavailable(f"local spaces: {told[0]}: {why}; mend it") from None

    def step(self) -> None:
        """Called before each change; tests let a manager die here."""


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _remove_tree(path: str) -> None:
    """First out of the way at once, so that half of it is never taken for it."""
    gone = f"{path}.gone"
    if os.path.lexists(path):
        os.replace(path, gone)
    if os.path.lexists(gone):
        shutil.rmtree(gone)


def _parse(name: str, path: str) -> Record:
    try:
        with open(path, "rb") as file:
            told = json.loads(file.read(_LONGEST_RECORD))
        return _read_record(name, told)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, APIError):
        return Record(name, "", damaged=f"{path} cannot be read; put it right, or take it away")


def _read_record(name: str, told: Mapping[str, Any]) -> Record:
    checked(Physical(name))
    uid, owner, port = told["uid"], told.get("owner", ""), told.get("port", 0)
    known = isinstance(owner, str) and isinstance(port, int) and 0 <= port < 65536
    if not known or str(uuid.UUID(uid)) != uid:  # it names a directory
        raise ValueError
    return Record(name, uid, owner, port, told.get("made") is True, told.get("going") is True)
