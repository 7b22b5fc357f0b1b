"""
Changes of volumes and network interfaces of machines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed

from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadRequest,
    Conflict,
    NotFound,
    NotImplementedByBackend,
)
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.interfaces import IHardware, IHotPlug, IMachineDriver
from twisted_exec.runtimes.machine_records import MachineRecord
from twisted_exec.runtimes.supervisor import Supervisor

_MAX_PARTS = 24
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_VOLUMES, _INTERFACES = "volumes", "network interfaces"


class _Class(Protocol):
    @property
    def driver(self) -> IMachineDriver: ...


class Hardware:
    """
    Checks and changes volumes and network interfaces.

    :param changed: called with a machine after a change of its spec.
    """

    def __init__(
        self,
        offered: Mapping[str, _Class],
        supervisors: Mapping[str, Supervisor],
        changed: Callable[[MachineRecord], None],
    ) -> None:
        self._offered = offered
        self._supervisors = supervisors
        self._changed = changed
        self._busy: set[str] = set()

    def check(self, machine: pb.Machine) -> None:
        """Check the volumes and interfaces of a new machine."""
        name = str(getattr(machine.spec, "class"))
        if name not in self._offered:
            return  # Machines.create refuses the unknown class
        _check_names("volume", machine.spec.volumes)
        _check_names("network interface", machine.spec.network_interfaces)
        for volume in machine.spec.volumes:
            self._driver(name, _VOLUMES).check_volume(volume)
        for interface in machine.spec.network_interfaces:
            self._driver(name, _INTERFACES).check_network_interface(interface)

    def attach_volume(self, record: MachineRecord, volume: pb.Volume) -> Deferred[None]:
        """:return: fires when the machine has the volume, or will have it at its next start."""
        self._driver(record.class_name, _VOLUMES).check_volume(volume)
        _check_new(record, "volume", record.spec.volumes, volume)
        done = self._plug(record, "attach_volume", volume)
        return done.addCallback(lambda _: record.spec.volumes.append(volume)).addCallback(
            lambda _: self._changed(record)
        )

    def detach_volume(self, record: MachineRecord, name: str) -> Deferred[None]:
        """
        Detach a volume, and delete its data; if the machine is off, the next start deletes it.
        """
        volume = _find(record, "volume", record.spec.volumes, name)
        done = self._plug(record, "detach_volume", name)
        return done.addCallback(lambda _: record.spec.volumes.remove(volume)).addCallback(
            lambda _: self._changed(record)
        )

    def update_volume(self, record: MachineRecord, volume: pb.Volume) -> Deferred[None]:
        """:return: fires when the volume has its new size, or will have it at the next start."""
        current = _find(record, "volume", record.spec.volumes, volume.name)
        self._driver(record.class_name, _VOLUMES).check_volume(volume)
        _check_growth(current, volume)
        done = self._plug(record, "resize_volume", volume)
        return done.addCallback(lambda _: current.CopyFrom(volume)).addCallback(
            lambda _: self._changed(record)
        )

    def attach_interface(self, record: MachineRecord, interface: pb.NetworkInterface) -> None:
        """
        Add an interface for the next start.

        :raises APIError: the machine is on, or cannot have the interface.
        """
        self._driver(record.class_name, _INTERFACES).check_network_interface(interface)
        _check_new(record, "network interface", record.spec.network_interfaces, interface)
        self._must_be_off(record, _INTERFACES)
        record.spec.network_interfaces.append(interface)
        self._changed(record)

    def detach_interface(self, record: MachineRecord, name: str) -> None:
        """
        Remove an interface.

        :raises APIError: the machine is on, or does not have the interface.
        """
        parts = record.spec.network_interfaces
        interface = _find(record, "network interface", parts, name)
        self._must_be_off(record, _INTERFACES)
        parts.remove(interface)
        self._changed(record)

    def _driver(self, class_name: str, what: str) -> Any:
        driver = self._offered[class_name].driver
        if not IHardware.providedBy(driver):
            raise NotImplementedByBackend(f"machines of class {class_name!r} have no {what}")
        return driver

    def _plug(self, record: MachineRecord, change: str, what: Any) -> Deferred[None]:
        if record.id in self._busy:
            raise Conflict(f'the volumes of machine "{record.label}" are being changed: try again')
        supervisor = self._supervisors[record.id]
        run: Any = supervisor.run
        if supervisor.is_starting:
            raise Conflict(f'machine "{record.label}" is starting: try again')
        if run is None:
            return succeed(None)
        if not IHotPlug.providedBy(run):
            self._must_be_off(record, _VOLUMES)
        self._busy.add(record.id)
        done: Deferred[None] = getattr(run, change)(what)
        return done.addBoth(self._done, record.id)

    def _done(self, result: Any, machine_id: str) -> Any:
        self._busy.discard(machine_id)
        return result

    def _must_be_off(self, record: MachineRecord, what: str) -> None:
        supervisor = self._supervisors[record.id]
        if supervisor.run is not None or supervisor.is_starting:
            raise Conflict(
                f'machine "{record.label}" is on: its {what} can be changed while it is off'
            )


def _check_names(kind: str, parts: Sequence[Any]) -> None:
    names = [part.name for part in parts]
    if len(names) > _MAX_PARTS:
        raise BadRequest(f"a machine has at most {_MAX_PARTS} {kind}s")
    for name in names:
        if not _NAME.fullmatch(name):
            raise BadRequest(f"{name[:300]!r} is not a valid name of a {kind}")
        if names.count(name) > 1:
            raise BadRequest(f"{kind} {name!r} occurs more than once")


def _check_new(record: MachineRecord, kind: str, parts: Sequence[Any], part: Any) -> None:
    if any(each.name == part.name for each in parts):
        raise APIError(
            f'machine "{record.label}" has {kind} {part.name!r} already',
            code=409,
            reason=AlreadyExists.reason,
        )
    _check_names(kind, [*parts, part])


def _check_growth(current: pb.Volume, desired: pb.Volume) -> None:
    if desired.local_disk.image != current.local_disk.image:
        raise BadRequest(f"the image of volume {current.name!r} cannot be changed")
    if desired.local_disk.size_bytes < current.local_disk.size_bytes:
        raise BadRequest(f"volume {current.name!r} cannot become smaller")


def _find(record: MachineRecord, kind: str, parts: Sequence[Any], name: str) -> Any:
    for part in parts:
        if part.name == name:
            return part
    message = f'machine "{record.label}" has no {kind} {name[:300]!r}'
    raise NotFound("machines", record.id, message=message)
