"""
Volumes and network interfaces of machines, as the interface asks for them.

What a machine has is in its spec, and is made when the machine starts; a machine that is on is
changed where its run can do that.  Whether a class can have any is the driver's to say.
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
from twisted_exec.runtimes.supervisor import Keeper

from .interfaces import IHardware, IHotPlug, IMachineDriver
from .machines import Record

_MAX_PARTS = 24
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_VOLUMES, _INTERFACES = "volumes", "network interfaces"


class _Class(Protocol):
    """What is asked of a class."""

    @property
    def driver(self) -> IMachineDriver: ...


class Hardware:
    """
    Checks and changes what machines have.

    :param offered: the classes by name; may change.
    :param keepers: of the machines, by id; likewise.
    :param changed: called with a machine whose spec is another now.
    """

    def __init__(
        self,
        offered: Mapping[str, _Class],
        keepers: Mapping[str, Keeper],
        changed: Callable[[Record], None],
    ) -> None:
        self._offered = offered
        self._keepers = keepers
        self._changed = changed
        self._busy: set[str] = set()

    def check(self, wanted: pb.Machine) -> None:
        """
        :raises APIError: the machine has parts that its class cannot have.
        """
        name = str(getattr(wanted.spec, "class"))
        if name not in self._offered:
            return  # which is refused with what there is
        _check_names("volume", wanted.spec.volumes)
        _check_names("network interface", wanted.spec.network_interfaces)
        for volume in wanted.spec.volumes:
            self._driver(name, _VOLUMES).check_volume(volume)
        for interface in wanted.spec.network_interfaces:
            self._driver(name, _INTERFACES).check_network_interface(interface)

    def attach_volume(self, record: Record, volume: pb.Volume) -> Deferred[None]:
        """Fires when the machine has it, or will have it at its next start."""
        self._driver(record.class_name, _VOLUMES).check_volume(volume)
        _check_new(record, "volume", record.spec.volumes, volume)
        done = self._plug(record, "attach_volume", volume)
        return done.addCallback(lambda _: record.spec.volumes.append(volume)).addCallback(
            lambda _: self._changed(record)
        )

    def detach_volume(self, record: Record, name: str) -> Deferred[None]:
        """Fires when the machine has it no more, nor what was on it."""
        known = _find(record, "volume", record.spec.volumes, name)
        done = self._plug(record, "detach_volume", name)
        return done.addCallback(lambda _: record.spec.volumes.remove(known)).addCallback(
            lambda _: self._changed(record)
        )

    def update_volume(self, record: Record, volume: pb.Volume) -> Deferred[None]:
        """Fires when it has its new size, or will have it at the machine's next start."""
        known = _find(record, "volume", record.spec.volumes, volume.name)
        self._driver(record.class_name, _VOLUMES).check_volume(volume)
        _check_growth(known, volume)
        done = self._plug(record, "resize_volume", volume)
        return done.addCallback(lambda _: known.CopyFrom(volume)).addCallback(
            lambda _: self._changed(record)
        )

    def attach_interface(self, record: Record, interface: pb.NetworkInterface) -> None:
        """The machine has it at its next start; :raises Conflict: it is on."""
        self._driver(record.class_name, _INTERFACES).check_network_interface(interface)
        _check_new(record, "network interface", record.spec.network_interfaces, interface)
        self._must_be_off(record, _INTERFACES)
        record.spec.network_interfaces.append(interface)
        self._changed(record)

    def detach_interface(self, record: Record, name: str) -> None:
        """As :meth:`attach_interface`, the other way round."""
        parts = record.spec.network_interfaces
        known = _find(record, "network interface", parts, name)
        self._must_be_off(record, _INTERFACES)
        parts.remove(known)
        self._changed(record)

    def _driver(self, class_name: str, what: str) -> Any:
        """:raises NotImplementedByBackend: machines of the class have none."""
        driver = self._offered[class_name].driver
        if not IHardware.providedBy(driver):
            raise NotImplementedByBackend(f"machines of class {class_name!r} have no {what}")
        return driver

    def _plug(self, record: Record, change: str, what: Any) -> Deferred[None]:
        """Change a machine that is on; one that is off has the change at its next start."""
        if record.id in self._busy:
            raise Conflict(f'the volumes of machine "{record.label}" are just being changed')
        keeper = self._keepers[record.id]
        run: Any = keeper.run
        if keeper.is_starting:
            raise Conflict(f'machine "{record.label}" is just starting: try again')
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

    def _must_be_off(self, record: Record, what: str) -> None:
        keeper = self._keepers[record.id]
        if keeper.run is not None or keeper.is_starting:
            raise Conflict(
                f'machine "{record.label}" is on: its {what} can be changed while it is off'
            )


def _check_names(kind: str, parts: Sequence[Any]) -> None:
    names = [part.name for part in parts]
    if len(names) > _MAX_PARTS:
        raise BadRequest(f"a machine has at most {_MAX_PARTS} {kind}s")
    for name in names:
        if not _NAME.fullmatch(name):
            raise BadRequest(f"{name[:300]!r} is no name for a {kind}")
        if names.count(name) > 1:
            raise BadRequest(f"{kind} {name!r} is there more than once")


def _check_new(record: Record, kind: str, parts: Sequence[Any], part: Any) -> None:
    if any(one.name == part.name for one in parts):
        raise APIError(
            f'machine "{record.label}" has {kind} {part.name!r} already',
            code=409,
            reason=AlreadyExists.reason,
        )
    _check_names(kind, [*parts, part])


def _check_growth(known: pb.Volume, wanted: pb.Volume) -> None:
    """A disk has its image for life, and never becomes smaller: its end may be in use."""
    if wanted.local_disk.image != known.local_disk.image:
        raise BadRequest(f"volume {known.name!r} is of another image, which cannot be changed")
    if wanted.local_disk.size_bytes < known.local_disk.size_bytes:
        raise BadRequest(f"volume {known.name!r} cannot become smaller")


def _find(record: Record, kind: str, parts: Sequence[Any], name: str) -> Any:
    """:raises NotFound: the machine has no such part."""
    for part in parts:
        if part.name == name:
            return part
    message = f'machine "{record.label}" has no {kind} {name[:300]!r}'
    raise NotFound("machines", record.id, message=message)
