"""
What is kept of clusters that were made here, beside the clusters: one directory for each.

kind knows names of clusters and nothing more, least of all whose they are.  So a record is written before one is
made, which says for whom; and the cluster bears the mark as well, as a label of its nodes, which is what counts
wherever it can be read.  The record tells of a cluster that is half built, or down; the label tells whoever has
lost the directory, and tells another's cluster that came under that name meanwhile.

``lock`` is held (``flock``) by whoever makes or deletes that cluster, and by the run of kind that makes it: it is
free as soon as all of them have ended, however that was.  ``code`` is there once that run has ended by itself.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.authority import write_private

CREATING, MADE, DELETING = "creating", "made", "deleting"
_STATES = (CREATING, MADE, DELETING)
_RECORD, _LOCK = "record", "lock"
CONFIG, KUBECONFIG, CODE, LOG = "config", "kubeconfig", "code", "log"
LOG_BYTES = 64 << 10


@dataclass(frozen=True)
class Record:
    """
    :param owner: the UID of the Space.
    :param state: :data:`CREATING`, :data:`MADE` or :data:`DELETING`.
    :param began: seconds since the epoch.
    :param group: the process group that makes it; 0 before there is one.
    :param uid: the cluster's, once it was read.
    """

    owner: str
    state: str
    began: float
    group: int = 0
    uid: str = ""


@dataclass(frozen=True)
class Attempt:
    """
    The run that makes one.

    :param busy: something is at work on it.
    :param code: its exit code, ``None`` when it has not ended by itself.
    :param told: the end of what it printed.
    """

    busy: bool
    code: int | None = None
    told: bytes = b""


class Records:
    """
    :param directory: absolute; made, private, when something is kept.
    :param step: called before each change that others can see.
    """

    def __init__(self, directory: str, step: Callable[[], None] = lambda: None) -> None:
        self._directory, self._step = directory, step

    def path(self, name: str, file: str) -> str:
        """A file of one cluster."""
        return os.path.join(self._directory, name, file)

    def names(self) -> list[str]:
        """Of all that there are records of."""
        try:
            return sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return []

    def read(self, name: str) -> Record | None:
        """One; ``None`` when there is none that makes sense."""
        try:
            with open(self.path(name, _RECORD), encoding="utf-8") as file:
                told = json.load(file)
            record = Record(**told)
        except (OSError, ValueError, TypeError):
            return None
        texts = (record.owner, record.state, record.uid)
        numbers = (record.began, record.group)
        sound = all(isinstance(each, str) for each in texts) and all(
            isinstance(each, int | float) for each in numbers
        )
        return record if sound and record.state in _STATES else None

    def write(self, name: str, record: Record) -> None:
        """Keep one, whole or not at all."""
        self._step()
        self.put(name, _RECORD, json.dumps(asdict(record)).encode())

    def put(self, name: str, file: str, content: bytes) -> None:
        """
        Write a file of a cluster, mode 0600.

        :raises ServiceUnavailable: it cannot be written.
        """
        try:
            write_private(self.path(name, file), content)
        except TLSConfigError as problem:
            raise ServiceUnavailable(f"clusters of kind: {problem}; mend it") from None

    def attempt(self, name: str) -> Attempt:
        """How the run that makes it stands."""
        try:
            descriptor = os.open(self.path(name, _LOCK), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return Attempt(False)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Attempt(True)
        finally:
            os.close(descriptor)
        return Attempt(False, self._code(name), self._log(name))

    def lock(self, name: str) -> int | None:
        """
        Be the one who is at work on it; closing the descriptor ends that.

        :return: ``None`` when somebody else is.
        :raises ServiceUnavailable: there is no place to keep anything.
        """
        try:
            return self._locked(name)
        except OSError as problem:
            raise ServiceUnavailable(
                f"clusters of kind: {self.path(name, _LOCK)} cannot be locked: {problem.strerror}; mend it"
            ) from None

    def _locked(self, name: str) -> int | None:
        while True:
            os.makedirs(os.path.join(self._directory, name), mode=0o700, exist_ok=True)
            try:
                descriptor = os.open(
                    self.path(name, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
            except FileNotFoundError:
                continue  # it was just forgotten by somebody
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            if self._is_current(name, descriptor):
                return descriptor
            os.close(descriptor)

    def clear(self, name: str) -> None:
        """Forget the run before; the lock is held."""
        self._step()
        for file in os.listdir(os.path.join(self._directory, name)):
            # A lock of kind's own stays where its run was killed: nothing would be made any more.
            if file not in (_LOCK, _RECORD):
                os.unlink(self.path(name, file))

    def forget(self, name: str) -> None:
        """Keep nothing of it.  Done while the lock is held, or when nobody can be at work."""
        if not os.path.lexists(os.path.join(self._directory, name)):
            return
        self._step()
        # The record goes first: what is left of the rest says nothing.
        for file in (_RECORD, ""):
            path = self.path(name, file)
            try:
                os.unlink(path) if file else shutil.rmtree(path)
            except OSError as problem:
                if problem.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise

    def _is_current(self, name: str, descriptor: int) -> bool:
        try:
            there = os.stat(self.path(name, _LOCK))
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))

    def _code(self, name: str) -> int | None:
        try:
            with open(self.path(name, CODE), encoding="ascii") as file:
                return int(file.read(20))
        except (OSError, ValueError):
            return None

    def _log(self, name: str) -> bytes:
        try:
            with open(self.path(name, LOG), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - LOG_BYTES))
                return file.read(LOG_BYTES)
        except OSError:
            return b""
