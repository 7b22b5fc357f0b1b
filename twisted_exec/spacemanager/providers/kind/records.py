"""Records of the clusters that we create, on disk."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.program.state_files import from_document
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.private_files import write_private

CREATING, MADE, DELETING = "creating", "made", "deleting"
_STATES = (CREATING, MADE, DELETING)
_RECORD, _LOCK = "record", "lock"
CONFIG, KUBECONFIG, CODE, LOG = "config", "kubeconfig", "code", "log"
LOG_BYTES = 64 << 10


@dataclass(frozen=True)
class ClusterRecord:
    """
    The record of one cluster.

    :param state: :data:`CREATING`, :data:`MADE` or :data:`DELETING`.
    :param group: process group of the creating run; 0 if unknown.
    :param began: seconds since the epoch.
    """

    owner: str
    state: str
    began: float
    group: int = 0
    uid: str = ""


@dataclass(frozen=True)
class ClusterCreation:
    """
    The run that creates a cluster.

    :param code: exit code; ``None`` without a regular end.
    """

    busy: bool
    code: int | None = None
    log: bytes = b""


class Records:
    """
    The records of a provider.

    kind knows the names of clusters, but not their owners, so a record with the owner is written
    before a cluster is created.

    ``lock`` is locked (``flock``) by the process that changes the cluster or its record, and by the
    run of kind that creates it.
    """

    def __init__(self, directory: str, step: Callable[[], None] = lambda: None) -> None:
        self._directory, self._step = directory, step

    def path(self, name: str, file: str) -> str:
        return os.path.join(self._directory, name, file)

    def names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return []

    def read(self, name: str) -> ClusterRecord | None:
        """Return a record; ``None`` if it is missing or invalid."""
        try:
            with open(self.path(name, _RECORD), encoding="utf-8") as file:
                document = json.load(file)
            record = from_document(ClusterRecord, document)
        except (OSError, ValueError, TypeError):
            return None
        texts = (record.owner, record.state, record.uid)
        numbers = (record.began, record.group)
        sound = all(isinstance(each, str) for each in texts) and all(
            isinstance(each, int | float) for each in numbers
        )
        return record if sound and record.state in _STATES else None

    def write(self, name: str, record: ClusterRecord) -> None:
        self._step()
        self.put(name, _RECORD, json.dumps(asdict(record)).encode())

    def put(self, name: str, file: str, content: bytes) -> None:
        """
        Write a file of a cluster, mode 0600.

        :raises ServiceUnavailable: the file cannot be written.
        """
        try:
            write_private(self.path(name, file), content)
        except TLSConfigError as problem:
            raise ServiceUnavailable(f"clusters of kind: {problem}; repair it") from None

    def attempt(self, name: str) -> ClusterCreation:
        try:
            descriptor = os.open(self.path(name, _LOCK), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return ClusterCreation(False)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return ClusterCreation(True)
        finally:
            os.close(descriptor)
        return ClusterCreation(False, self._code(name), self._log(name))

    def lock(self, name: str) -> int | None:
        """
        Lock a cluster; closing the descriptor unlocks it.

        :return: ``None`` if another process has the lock.
        :raises ServiceUnavailable: it cannot be locked.
        """
        try:
            return self._locked(name)
        except OSError as problem:
            raise ServiceUnavailable(
                f"clusters of kind: {self.path(name, _LOCK)} cannot be locked: {problem.strerror}; repair it"
            ) from None

    def _locked(self, name: str) -> int | None:
        while True:
            os.makedirs(os.path.join(self._directory, name), mode=0o700, exist_ok=True)
            try:
                descriptor = os.open(
                    self.path(name, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
            except FileNotFoundError:
                continue  # another process has just removed the directory
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            if self._is_current(name, descriptor):
                return descriptor
            os.close(descriptor)

    def clear(self, name: str) -> None:
        """Remove the files of the previous run.  The lock must be held."""
        self._step()
        for file in os.listdir(os.path.join(self._directory, name)):
            # A killed run leaves kind's own lock file, which would block the next run.
            if file not in (_LOCK, _RECORD):
                os.unlink(self.path(name, file))

    def forget(self, name: str) -> None:
        """Remove all files of a cluster, whose lock is held or which no process changes."""
        if not os.path.lexists(os.path.join(self._directory, name)):
            return
        self._step()
        # The record goes first: the rest has no meaning without it.
        for file in (_RECORD, ""):
            path = self.path(name, file)
            try:
                os.unlink(path) if file else shutil.rmtree(path)
            except OSError as problem:
                if problem.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise

    def _is_current(self, name: str, descriptor: int) -> bool:
        try:
            current = os.stat(self.path(name, _LOCK))
        except FileNotFoundError:
            return False
        return os.path.samestat(current, os.fstat(descriptor))

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
