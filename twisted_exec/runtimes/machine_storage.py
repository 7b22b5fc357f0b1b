"""
The directories of a runtime's machines, with their disks.

With ``--keep-machines``, the file ``machine`` in a machine's directory contains metadata, spec and
ignition (a ``machine.v1alpha1.Machine``, in protobuf's encoding).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial

from google.protobuf.message import DecodeError
from twisted.logger import Logger

from twisted_exec.api.display import reason_of
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.program.disk_thread import AtOnce, Files, Unanswered
from twisted_exec.runtimes.machine_records import MachineRecord
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.private_directories import private_directory
from twisted_exec.tls.private_files import write_private

_FILE = "machine"
_MAX_FILE_BYTES = 32 << 20
ID = re.compile(r"[0-9a-f]{32}")
"""The form of :func:`identity` and of the ids of machines."""


class RetainedMachinesError(Exception):
    """
    Machines of a runtime with ``--keep-machines`` have disks, and this runtime runs without it.
    """


class MachineStorage:
    """The directories of a runtime's machines."""

    _log = Logger()

    def __init__(self, path: str, *, keep: bool, thread: Files | None = None) -> None:
        self._path = os.path.abspath(path)
        self.keep = keep
        self._thread = thread or AtOnce()

    def directory(self, machine_id: str) -> str:
        """Return the path of a machine's directory, which may not exist."""
        return os.path.join(self._path, machine_id)

    def open(
        self, has_no_disks: Callable[[pb.Machine], bool] = lambda machine: False
    ) -> list[pb.Machine]:
        """
        Create the directory, remove leftovers, and return the retained machines.

        :raises RetainedMachinesError: there are retained machines with disks, but ``keep`` is
            false.
        """
        private_directory(self._path)
        retained = [name for name in os.listdir(self._path) if os.path.lexists(self._file(name))]
        if not self.keep:
            without = [each.metadata.id for each in self._read(retained) if has_no_disks(each)]
            retained = [name for name in retained if name not in without]
        if retained and not self.keep:
            raise RetainedMachinesError(
                f"{self._path} has {len(retained)} machines that are kept, with their disks: "
                "start with --keep-machines (exec-standalone: without --no-keep-machines) and "
                "delete them, or remove that directory"
            )
        for name in os.listdir(self._path):
            if name not in retained and ID.fullmatch(name):
                self.remove(name)
        return list(self._read(retained))

    def _file(self, machine_id: str) -> str:
        return os.path.join(self._path, machine_id, _FILE)

    def _read(self, names: list[str]) -> Iterator[pb.Machine]:
        for name in sorted(names):
            try:
                with open(self._file(name), "rb") as file:
                    machine = pb.Machine.FromString(file.read(_MAX_FILE_BYTES))
            except (OSError, DecodeError) as error:
                # Its disks may hold the only copy of data: leave them to an operator.
                self._log.error(
                    "kept machine {name} cannot be read and is left alone: {why}",
                    name=name,
                    why=reason_of(error),
                )
                continue
            if machine.metadata.id == name:
                yield machine

    def write(self, record: MachineRecord) -> None:
        """Write a machine to disk, if machines outlive the runtime."""
        if not self.keep:
            return
        content = record.stored().SerializeToString()
        try:
            self._thread.call(partial(self._write, record.id, content), is_long=True)
        except (OSError, TLSConfigError) as error:
            why = reason_of(error)
            raise ServiceUnavailable(f"the machine cannot be kept: {why}") from None

    def _write(self, machine_id: str, content: bytes) -> None:
        os.makedirs(self.directory(machine_id), mode=0o700, exist_ok=True)
        write_private(self._file(machine_id), content)

    def remove(self, machine_id: str) -> None:
        """Delete a machine's directory with its disks, as soon as the disk answers."""
        removing = partial(shutil.rmtree, self.directory(machine_id), ignore_errors=True)
        try:
            self._thread.call(removing)
        except Unanswered as late:
            if late.answer is None:
                self._thread.run(removing)
