"""
What machines have on disk: a directory each, and in it, where machines are kept, what they are.

Without ``--keep-machines`` a machine ends with its runtime, and its directory is removed: the next
runtime makes the machine anew, with new disks.  With it the machine's metadata, spec and
ignition are in the file ``machine`` (a ``machine.v1alpha1.Machine`` as protobuf writes it), and the
next runtime goes on with the machine, whether it still runs or not.

What a runtime keeps in its state directory for itself: that it is the only one, and who it is.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator

from google.protobuf.message import DecodeError
from twisted.logger import Logger

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.authority import write_private
from twisted_exec.tls.unix import private_directory

from .machines import Record

ID = re.compile(r"[0-9a-f]{32}")
"""What :func:`identity` makes, and what machines are called here."""


class StateInUse(Exception):
    """Another runtime has the state directory; it would end the other's machines."""


def lock(path: str) -> int:
    """
    A descriptor to keep; the lock goes with the process, however it ends.

    :raises StateInUse: another runtime has it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        directory = os.path.dirname(path)
        raise StateInUse(
            f"another runtime uses the state directory {directory}: stop it, or choose another"
        ) from None
    return descriptor


def identity(path: str) -> str:
    """This state directory's own word, made once; it marks processes as ours."""
    try:
        with open(path) as file:
            found = file.read().strip()
        if ID.fullmatch(found):
            return found
    except FileNotFoundError:
        pass
    made = uuid.uuid4().hex
    with open(f"{path}.new", "w") as file:
        file.write(made)
    os.replace(f"{path}.new", path)
    return made


_FILE = "machine"
_MAX_FILE_BYTES = 32 << 20


class RetainedMachinesError(Exception):
    """An earlier runtime was told to keep its machines, and this one was not."""


class MachineStorage:
    """
    The directories of a runtime's machines.

    :param path: private; made when it is missing.
    :param keep: whether machines outlive the runtime.
    """

    _log = Logger()

    def __init__(self, path: str, *, keep: bool) -> None:
        self._path = os.path.abspath(path)
        self.keep = keep

    def directory(self, machine_id: str) -> str:
        """The machine's own; whoever needs it makes it."""
        return os.path.join(self._path, machine_id)

    def open(self) -> list[pb.Machine]:
        """
        Make the directory, and remove what belongs to no machine that is kept.

        :return: the machines that are kept.
        :raises RetainedMachinesError: there are some, and this runtime keeps none.
        """
        private_directory(self._path)
        kept = [name for name in os.listdir(self._path) if os.path.lexists(self._file(name))]
        if kept and not self.keep:
            raise RetainedMachinesError(
                f"{self._path} has {len(kept)} machines that are kept, with their disks: start with "
                "--keep-machines, or remove that directory"
            )
        for name in os.listdir(self._path):
            if name not in kept and ID.fullmatch(name):
                self.remove(name)
        return list(self._read(kept))

    def _file(self, machine_id: str) -> str:
        return os.path.join(self._path, machine_id, _FILE)

    def _read(self, names: list[str]) -> Iterator[pb.Machine]:
        for name in sorted(names):
            try:
                with open(self._file(name), "rb") as file:
                    machine = pb.Machine.FromString(file.read(_MAX_FILE_BYTES))
            except (OSError, DecodeError) as error:
                # Its disks may be all that somebody has: they stay until somebody looks.
                self._log.error(
                    "kept machine {name} cannot be read and is left alone: {error}",
                    name=name,
                    error=error,
                )
                continue
            if machine.metadata.id == name:
                yield machine

    def write(self, record: Record) -> None:
        """
        Keep what the machine is; nothing where machines are not kept.

        :raises ServiceUnavailable: there is no room.
        """
        if not self.keep:
            return
        spec = pb.MachineSpec()
        spec.CopyFrom(record.spec)
        spec.ignition_data = record.ignition_data
        content = pb.Machine(metadata=record.metadata, spec=spec).SerializeToString()
        try:
            os.makedirs(self.directory(record.id), mode=0o700, exist_ok=True)
            write_private(self._file(record.id), content)
        except (OSError, TLSConfigError) as error:
            raise ServiceUnavailable(f"the machine cannot be kept: {error}") from None

    def remove(self, machine_id: str) -> None:
        """The machine is no more, and neither is what it had on disk."""
        shutil.rmtree(self.directory(machine_id), ignore_errors=True)
