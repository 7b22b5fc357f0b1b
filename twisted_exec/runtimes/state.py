"""
The state of one runtime on disk: its lock and id, the machines' directories, and the recovery after
a crash.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.logger import Logger

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.journal.store import JournalStore
from twisted_exec.tls.unix import private_directory, runtime_directory

from .keeper.client import LOG, Keeper
from .processes import Leader, ProcessFamily, ProcessTable, RunRecords, read_process
from .storage import ID, MachineStorage, identity, lock


class RuntimeState:
    """
    The state directory of a runtime, and its directory for sockets.

    :param path: the state directory; created if missing.
    :param keep: machines outlive the runtime.
    :param journals: the journals of the machines' consoles, in this directory.
    :ivar id: id of the state directory, which marks the processes of its machines; empty before
        :meth:`open`.
    :ivar directory: private directory with a short path, for sockets; empty before :meth:`open`.
    :ivar keeper: holds terminals while no runtime runs; ``None`` before :meth:`open`.
    :ivar storage: the machines on disk.
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
        self.keeper: Keeper | None = None
        self._held: set[str] = set()
        self._records: RunRecords | None = None
        self._lock: int | None = None

    def open(self) -> None:
        """
        Lock the state directory and create what is missing.

        :raises StateInUse: another runtime uses the state directory.
        :raises TLSConfigError: a directory is not private or cannot be created.
        """
        private_directory(self.path)
        self._lock = lock(os.path.join(self.path, "runtime.lock"))
        self.directory = runtime_directory(self.path)
        self.id = identity(os.path.join(self.path, "runtime-id"))
        self._records = RunRecords(os.path.join(self.path, "runs"))
        log = os.path.abspath(os.path.join(self.path, LOG))
        if self.keeper is None:  # else it was closed, and connects again
            self.keeper = Keeper(self._reactor, self.directory, log)

    async def close(self) -> None:
        """Force the journals to the disk, and release the lock.  Repeated calls do nothing."""
        if self._lock is not None:
            await self.journals.close()
            if self.keeper is not None:
                await self.keeper.close()
            with contextlib.suppress(OSError):
                os.rmdir(self.directory)  # may still contain a socket
            os.close(self._lock)
            self._lock = None

    @property
    def is_open(self) -> bool:
        """True from :meth:`open` to :meth:`close`."""
        return self._lock is not None

    async def read_leaders(self) -> dict[str, list[Leader]]:
        """Return the processes that an earlier runtime started, by machine id; they may have ended."""
        assert self._records is not None and self.keeper is not None
        leaders = self._records.open()
        try:
            held = await self.keeper.holdings()
        except ServiceUnavailable as error:
            self._log.error("machines of the keeper cannot be adopted: {why}", why=error.message)
            held = {}
        for name, command in held.items():
            if command is not None:
                leaders[name] = [command]
        self._held = set(held)
        return leaders

    def adoptable(
        self, machine_id: str, leaders: Mapping[str, list[Leader]]
    ) -> list[Leader] | None:
        """
        Return the processes of a machine to adopt; ``None`` if nothing is left of it.

        The keeper has the terminal and the exit status also of a command that has ended.

        :param leaders: see :meth:`read_leaders`.
        """
        if machine_id in self._held:
            return leaders[machine_id]
        return [leader for leader in leaders.get(machine_id, ()) if is_alive(leader)] or None

    async def end_leftovers(
        self, table: ProcessTable, leaders: Mapping[str, list[Leader]], retained: set[str]
    ) -> None:
        """
        End the processes of an earlier runtime, and delete the sockets of their machines.

        :param leaders: see :meth:`read_leaders`.
        :param retained: ids of machines that continue.
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
        # The name of a command is the machine's id; a stored descriptor has a suffix.
        forgotten = {name for name in self._held if name.partition("/")[0] not in retained}
        for name in forgotten:
            self.keeper.forget(name)
        if self._held == forgotten:
            await self.keeper.close()  # it holds nothing, and ends
        for name in os.listdir(self.directory):
            if ID.fullmatch(name) and name not in retained:
                self.remove_sockets(name)

    def record_leaders(self, machine_id: str, leaders: Sequence[Leader]) -> None:
        """
        Record the processes of a machine for a later runtime; an empty list deletes the record.

        :raises ServiceUnavailable: the disk is full.
        """
        if self._records is None:
            return
        try:
            self._records.write(machine_id, leaders)
        except OSError as error:
            raise ServiceUnavailable(
                f"the runtime's state directory cannot be written: {error.strerror}"
            ) from None

    def make_sockets(self, machine_id: str) -> str:
        """
        Create a machine's directory for sockets, unless it exists; return its path.

        :raises ServiceUnavailable: the disk is full.
        """
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
        """Delete a machine's directory for sockets."""
        shutil.rmtree(os.path.join(self.directory, machine_id), ignore_errors=True)


def is_alive(leader: Leader) -> bool:
    """Return true if the process runs, and its id was not reused."""
    process = read_process(leader.pid)
    return process is not None and process.start == leader.start
