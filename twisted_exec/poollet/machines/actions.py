"""The actions of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from twisted_exec.api.dialects import Dialect
from twisted_exec.iri.image_disk import IMAGE_DISK
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.claims import PatchObject
from twisted_exec.poollet.machines.parts import Parts, same_interface, same_volume
from twisted_exec.poollet.machines.references import Key, Object, References
from twisted_exec.poollet.machines.secret_data import with_secrets


@dataclass(frozen=True)
class Attachment:
    """
    One change to the parts of a machine of the runtime.

    :param update: the size of an attached volume changes.
    """

    machine_id: str
    name: str
    volume: pb.Volume | None = field(default=None, hash=False)
    interface: pb.NetworkInterface | None = field(default=None, hash=False)
    update: bool = False
    is_volume: bool = True

    def completed(
        self, secrets: Mapping[str, tuple[Key | None, Key | None]], references: References
    ) -> Attachment:
        """
        Return a copy with the volume's credentials filled in.

        :raises MissingReference: a Secret is missing or unusable.
        """
        if self.volume is None:
            return self
        access, encryption = secrets.get(self.name, (None, None))
        return replace(self, volume=with_secrets(self.volume, access, encryption, references))


def attachments(
    machine: Object, parts: Parts, observed: pb.Machine, dialect: Dialect
) -> list[Attachment]:
    """
    Return the changes of the disks and network interfaces of the runtime's machine.

    Detachments come before attachments of the same kind; volumes lack their credentials.

    A part stays attached while its object cannot be looked up.
    """
    machine_id, spec = observed.metadata.id, machine["spec"]
    disks = {part["name"] for part in spec.get(dialect.disks_field) or ()} | {IMAGE_DISK}
    interfaces = {part["name"] for part in spec.get("networkInterfaces") or ()}
    return [
        *_volumes(machine_id, parts, observed, disks),
        *_interfaces(machine_id, parts, observed, interfaces),
    ]


def _volumes(
    machine_id: str, parts: Parts, observed: pb.Machine, named: set[str]
) -> list[Attachment]:
    has = {volume.name: volume for volume in observed.spec.volumes}
    going = [Attachment(machine_id, name) for name in has if name not in named]
    coming = []
    for desired in parts.volumes:
        current = has.get(desired.name)
        if current is None:
            coming.append(Attachment(machine_id, desired.name, desired))
        elif not same_volume(desired, current):
            going.append(Attachment(machine_id, desired.name))
            coming.append(Attachment(machine_id, desired.name, desired))
        elif _size(desired) != _size(current):
            coming.append(Attachment(machine_id, desired.name, desired, update=True))
    return [*going, *coming]


def _size(volume: pb.Volume) -> int:
    return volume.connection.effective_storage_bytes


def _interfaces(
    machine_id: str, parts: Parts, observed: pb.Machine, named: set[str]
) -> list[Attachment]:
    has = {interface.name: interface for interface in observed.spec.network_interfaces}
    going = [Attachment(machine_id, name, is_volume=False) for name in has if name not in named]
    coming = []
    for desired in parts.interfaces:
        current = has.get(desired.name)
        if current is not None and same_interface(desired, current):
            continue
        if current is not None:
            going.append(Attachment(machine_id, desired.name, is_volume=False))
        coming.append(Attachment(machine_id, desired.name, interface=desired, is_volume=False))
    return [*going, *coming]


@dataclass(frozen=True)
class SetFinalizers:
    """Replace the Machine's finalizers, if it is still at ``resource_version``."""

    finalizers: tuple[str, ...]
    resource_version: str


@dataclass(frozen=True)
class PatchStatus:
    """Merge ``status`` into the Machine's status."""

    status: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Create:
    """Create the machine in the runtime."""

    machine: pb.Machine = field(hash=False)


@dataclass(frozen=True)
class Delete:
    """Delete a machine from the runtime."""

    machine_id: str


@dataclass(frozen=True)
class SetPower:
    """Power a machine of the runtime on or off."""

    machine_id: str
    power: int


@dataclass(frozen=True)
class SetAnnotations:
    """Replace the annotations of a machine of the runtime."""

    machine_id: str
    annotations: Mapping[str, str] = field(hash=False)


Action = (
    SetFinalizers
    | PatchStatus
    | PatchObject
    | Create
    | Delete
    | SetPower
    | SetAnnotations
    | Attachment
)


@dataclass(frozen=True)
class MachinePlan:
    """
    The next actions for one Machine.

    :param actions: in order; after them, planning starts again.
    :param unsettled: a change is still under way, so look again soon.
    :param reads: Secrets to read before the next plan.
    :param waits: retry with growing pauses.
    """

    actions: tuple[Action, ...] = ()
    problem: str = ""
    unsettled: bool = False
    reason: str = ""
    reads: tuple[Key, ...] = ()
    waits: bool = False
