"""
The state of one runtime on disk: its lock, its id, and the recovery after a crash.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from twisted.logger import Logger

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.journal.store import JournalStore
from twisted_exec.runtimes.keeper.client import LOG, Keeper
from twisted_exec.runtimes.machine_storage import ID, MachineStorage
from twisted_exec.runtimes.processes import (
    Leader,
    ProcessFamily,
    ProcessTable,
    RunRecords,
    is_alive,
)
from twisted_exec.tls.files import owner_only
from twisted_exec.tls.private_directories import private_directory, runtime_directory

_log = Logger()


class RuntimeState:
    """
    The state directory of a runtime, and its directory for sockets.

    :ivar id: marks the processes of the runtime's machines; empty before :meth:`open`.
    :ivar directory: private directory with a short path, for sockets; empty before :meth:`open`.
    :ivar keeper: holds terminals, also while no runtime runs; ``None`` before :meth:`open`.
    """

    _log = Logger()

    def __init__(self, path: str, reactor: Any, *, keep: bool, journals: JournalStore) -> None:
        self.path = path
        self._reactor = reactor
        self.journals = journals
        self.id = self.directory = ""
        self.storage = MachineStorage(
            os.path.join(path, "machines"), keep=keep, thread=journals.thread
        )
        self._id_path = os.path.join(path, "runtime-id")
        self.keeper: Keeper | None = None
        self._held: set[str] = set()
        self._records: RunRecords | None = None
        self._lock: int | None = None

    def open(self) -> None:
        """
        Lock the state directory and create what is missing.

        :raises FormerRelease: only release 0.1.0 has used the state directory.
        :raises StateInUse: another runtime uses the state directory.
        :raises StateNotLockable: its file system refuses locks.
        :raises DirectoryError: a directory is not private or cannot be created.
        """
        private_directory(self.path)
        # Release 0.1.0 had no journals.
        if os.path.exists(self._id_path) and not os.path.exists(self.journals.path):
            raise FormerRelease(
                f"only release 0.1.0 has used the state directory {self.path}: start release 0.2.0 with it "
                "once, then this release; or choose another --state-dir"
            )
        self._lock = lock_state(os.path.join(self.path, "runtime.lock"))
        self.directory = runtime_directory(self.path)
        private_directory(self.journals.path)
        self.id = read_or_create_id(self._id_path)
        self._records = RunRecords(os.path.join(self.path, "runs"))
        log = os.path.abspath(os.path.join(self.path, LOG))
        self.keeper = Keeper(self._reactor, self.directory, log)

    async def close(self) -> None:
        """Force the journals to the disk, as far as it answers, and release the lock."""
        if self._lock is None:
            return
        await self.journals.close()
        try:
            if self.keeper is not None:
                await self.keeper.close()
        finally:  # also after a cancellation: the journals are closed
            with contextlib.suppress(OSError):
                os.rmdir(self.directory)  # may still contain a socket
            os.close(self._lock)
            self._lock = None

    async def read_leaders(self) -> dict[str, list[Leader]]:
        """
        Return the processes that an earlier runtime started, by machine id; they may have ended.
        """
        assert self._records is not None and self.keeper is not None
        leaders = self._records.open()
        try:
            held = await self.keeper.holdings()
        except ServiceUnavailable as error:
            self._log.error("machines of the keeper cannot be adopted: {why}", why=error.message)
            held = {}
        leaders.update((name, [command]) for name, command in held.items())
        self._held = set(held)
        return leaders

    def adoptable(
        self, machine_id: str, leaders: Mapping[str, list[Leader]]
    ) -> list[Leader] | None:
        """Return the processes of a machine to adopt; ``None`` if nothing is left of it."""
        if machine_id in self._held:
            return leaders[machine_id]
        return [leader for leader in leaders.get(machine_id, ()) if is_alive(leader)] or None

    async def end_leftovers(
        self, table: ProcessTable, leaders: Mapping[str, list[Leader]], retained: set[str]
    ) -> None:
        """
        End the processes of an earlier runtime's machines that are not retained, and delete their
        sockets.
        """
        assert self._records is not None and self.keeper is not None
        prefix = f"{self.id}/"
        stale = [leader for id, group in leaders.items() if id not in retained for leader in group]

        def belongs(mark: str) -> bool:
            return mark.startswith(prefix) and mark.removeprefix(prefix) not in retained

        left = await ProcessFamily(table, belongs, stale).end()
        if stale:
            self._log.info("ended {count} machines that an earlier runtime left", count=len(stale))
        for process in left:
            self._log.error("process {pid} of an earlier runtime cannot be ended", pid=process.pid)
        self._records.clear(retained)
        forgotten = self._held - retained
        for name in forgotten:
            self.keeper.forget(name)
        if self._held == forgotten:
            await self.keeper.close()  # it holds nothing, and ends
        for name in os.listdir(self.directory):
            if ID.fullmatch(name) and name not in retained:
                self.remove_sockets(name)

    def record_leader(self, machine_id: str, leader: Leader) -> None:
        """Record a process of a machine for a later runtime."""
        self._change_records(lambda records: records.add(machine_id, leader))

    def forget_leaders(self, machine_id: str) -> None:
        self._change_records(lambda records: records.remove(machine_id))

    def _change_records(self, change: Callable[[RunRecords], None]) -> None:
        if self._records is None:
            return
        try:
            change(self._records)
        except OSError as error:
            raise ServiceUnavailable(
                f"the runtime's state directory cannot be written: {error.strerror}"
            ) from None

    def make_sockets(self, machine_id: str) -> str:
        """Create a machine's directory for sockets, unless it exists; return its path."""
        directory = os.path.join(self.directory, machine_id)
        try:
            with contextlib.suppress(FileExistsError):  # of an adopted machine
                os.mkdir(directory, mode=0o700)
        except OSError as error:
            raise ServiceUnavailable(
                f"the directory for the machine's sockets cannot be created: {error.strerror}"
            ) from None
        return directory

    def remove_sockets(self, machine_id: str) -> None:
        shutil.rmtree(os.path.join(self.directory, machine_id), ignore_errors=True)


class FormerRelease(Exception):
    """Only release 0.1.0 has used the state directory."""


class StateInUse(Exception):
    """Another runtime uses the state directory; this runtime would end its machines."""


class StateNotLockable(Exception):
    """The file system of the state directory refuses locks."""


def lock_state(path: str) -> int:
    """
    Lock a state directory with a file in it.

    :return: a descriptor to keep open; the kernel releases the lock with the process.
    :raises StateInUse: another runtime has the lock.
    :raises StateNotLockable: the kernel refuses the lock for another reason.
    """
    directory = os.path.dirname(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StateInUse(
            f"another runtime uses the state directory {directory}: stop it, or choose another"
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise StateNotLockable(
            f"the state directory {directory} cannot be locked ({error.strerror}): choose one on a local disk"
        ) from None
    return descriptor


def read_or_create_id(path: str) -> str:
    """
    Read or create the id of a state directory.

    A damaged id is replaced, so that a power loss, after which no process is left, does not keep the
    runtime from starting.
    """
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read().strip()
        if ID.fullmatch(text):
            return text
        _log.error(
            "{path} is damaged and is replaced: if the host has not rebooted since the last run, look for"
            " processes of machines that this runtime no longer recognises, and end them",
            path=path,
        )
    except FileNotFoundError:
        pass
    new = uuid.uuid4().hex
    with open(f"{path}.new", "w", opener=owner_only) as file:
        file.write(new)
    os.replace(f"{path}.new", path)
    return new
