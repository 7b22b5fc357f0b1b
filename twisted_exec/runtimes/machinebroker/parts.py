"""
Volumes and network interfaces as words: in the ``spec`` of the target's machine, and beside it.

Disks of the host, and interfaces that name a subnet, are words alone.  A volume that is connected to,
and an interface on a network, are objects of their own (:mod:`.part_objects`), to which the machine
refers.  Their names are made of the machine's and the part's, so making them twice makes them once.

What was told of those, but nothing secret, is kept beside the machine: lists are answered from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format

from twisted_exec.api import quantity
from twisted_exec.api.status import (
    Conflict,
    NotImplementedByBackend,
)
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revisions.older import IMAGE_DISK, image_disk
from twisted_exec.kube.interfaces import Object
from twisted_exec.runtimes.machinebroker.target import Place

INTERFACES = "networkInterfaces"
"""The key in a machine's ``spec`` that holds its network interfaces."""

Part = pb.Volume | pb.NetworkInterface

_SUBNET = "network-name", "subnet-name"
"""The attributes of an interface that names its subnet itself, see :mod:`twisted_exec.iri`."""


def part_name(machine_id: str, kind: str, name: str) -> str:
    """The name of the object that stands for a machine's part: 63 hexadecimal digits."""
    told = json.dumps([machine_id, kind, name]).encode()
    return hashlib.sha256(told).hexdigest()[:63]


def network_name(network_id: str) -> str:
    """The name of the Network with a provider's id."""
    return f"net-{hashlib.sha256(network_id.encode()).hexdigest()[:40]}"


def spec_of(spec: pb.MachineSpec, machine_id: str, place: Place) -> Object:
    """
    What a machine's ``spec`` says of its parts.

    :raises APIError: the target has no kinds for one of them, or nobody could make it.
    """
    dialect = place.dialect
    made: Object = {}
    images = [each for each in spec.volumes if _is_image(each, place)]
    if images:
        made[dialect.image_field] = images[0].local_disk.image.image
    disks = [disk_of(one, machine_id, place) for one in spec.volumes if one not in images]
    if disks:
        made[dialect.disks_field] = disks
    interfaces = [interface_of(one, machine_id, place) for one in spec.network_interfaces]
    if interfaces:
        made[INTERFACES] = interfaces
    return made


def _is_image(volume: pb.Volume, place: Place) -> bool:
    """In some dialects the machine has an image, not its disk."""
    return bool(place.dialect.image_field) and volume.name == IMAGE_DISK


def disk_of(volume: pb.Volume, machine_id: str, place: Place) -> Object:
    """
    A disk as the target's machines have them.

    :raises NotImplementedByBackend: there are none such in the target.
    """
    dialect = place.dialect
    made: Object = {"name": volume.name}
    if volume.device:
        made["device"] = volume.device
    if volume.HasField("connection"):
        _need_kinds(f'volume "{volume.name}" is one that is connected to', place)
        return {**made, "volumeRef": {"name": part_name(machine_id, "volume", volume.name)}}
    disk: Object = {}
    if volume.local_disk.size_bytes:
        disk["sizeLimit"] = str(volume.local_disk.size_bytes)
    if volume.local_disk.image.image:
        if not dialect.local_disks:
            raise NotImplementedByBackend(
                f'volume "{volume.name}": in the target cluster no disk has an image of its own'
            )
        disk["image"] = volume.local_disk.image.image
    return {**made, "localDisk" if dialect.local_disks else "emptyDisk": disk}


def interface_of(interface: pb.NetworkInterface, machine_id: str, place: Place) -> Object:
    """
    A network interface as the target's machines have them.

    :raises NotImplementedByBackend: there are none such in the target.
    """
    made: Object = {"name": interface.name}
    if place.dialect.subnets:
        network, subnet = (interface.attributes.get(key, "") for key in _SUBNET)
        if not network or not subnet:
            raise NotImplementedByBackend(
                f'network interface "{interface.name}" names no subnet, as those of the target do'
            )
        made["subnetRef"] = {"networkName": network, "name": subnet}
        return {**made, "ips": list(interface.ips)} if interface.ips else made
    _need_kinds(f'network interface "{interface.name}" is an object of its own', place)
    name = part_name(machine_id, "interface", interface.name)
    return {**made, "networkInterfaceRef": {"name": name}}


def _need_kinds(told: str, place: Place) -> None:
    if not place.dialect.domain:
        raise NotImplementedByBackend(f"{told}; the target cluster has no kinds for that")


def told_of(spec: pb.MachineSpec) -> str:
    """
    The parts for an annotation, without what is secret; empty when there is nothing to be told.
    """
    return merge_parts("", *spec.volumes, *spec.network_interfaces)


def merge_parts(annotation: str, *parts: Part) -> str:
    """
    The same, when something new was told of some parts.  What is of no use any more does no harm.

    :param annotation: what was kept before, or empty.
    """
    kept = _parsed(annotation)
    for part in parts:
        if isinstance(part, pb.NetworkInterface):
            others: Any = [each for each in kept.network_interfaces if each.name != part.name]
            del kept.network_interfaces[:]
            kept.network_interfaces.extend([*others, part])
        elif part.HasField("connection"):
            others = [each for each in kept.volumes if each.name != part.name]
            del kept.volumes[:]
            kept.volumes.extend([*others, part])
            kept.volumes[-1].connection.secret_data.clear()
            kept.volumes[-1].connection.encryption_data.clear()
    return json_format.MessageToJson(kept, indent=None) if kept.ByteSize() else ""


def _parsed(annotation: str) -> pb.MachineSpec:
    """:raises ValueError: it is none of ours."""
    told = pb.MachineSpec()
    if annotation:
        try:
            json_format.Parse(annotation, told)
        except json_format.ParseError:
            raise ValueError("what is kept of its volumes and interfaces cannot be read") from None
    return told


def read_parts(
    spec: Object, annotation: str, place: Place
) -> tuple[list[pb.Volume], list[pb.NetworkInterface]]:
    """
    The parts of a machine in the target.

    :param annotation: as :func:`told_of` made it, or empty.
    :raises ValueError: it cannot be read.
    """
    told = _parsed(annotation)
    return list(_volumes(spec, told, place)), list(_interfaces(spec, told, place))


def _volumes(spec: Object, told: pb.MachineSpec, place: Place) -> Iterator[pb.Volume]:
    dialect, known = place.dialect, {each.name: each for each in told.volumes}
    image = spec.get(dialect.image_field) if dialect.image_field else ""
    if image:
        yield image_disk(image)
    for disk in spec.get(dialect.disks_field) or ():
        name, device = disk["name"], disk.get("device") or ""
        source = disk.get("localDisk", disk.get("emptyDisk"))
        if source is None:
            made = known.get(name) or pb.Volume(name=name)
            made.device = device
            yield made
            continue
        made = pb.Volume(name=name, device=device)
        made.local_disk.size_bytes = quantity.value((source or {}).get("sizeLimit") or 0)
        if (source or {}).get("image"):
            made.local_disk.image.image = source["image"]
        yield made


def _interfaces(spec: Object, told: pb.MachineSpec, place: Place) -> Iterator[pb.NetworkInterface]:
    known = {each.name: each for each in told.network_interfaces}
    for part in spec.get(INTERFACES) or ():
        yield known.get(part["name"]) or pb.NetworkInterface(name=part["name"])


def changed(parts: list[Object], wanted: Object) -> list[Object]:
    """
    Parts of a ``spec`` with one more.

    :raises Conflict: there is another of its name.
    """
    for each in parts:
        if each["name"] == wanted["name"]:
            if {**each, "device": ""} != {**wanted, "device": ""}:
                raise Conflict(f'the machine has another part "{each["name"]}" already')
            return parts
    return [*parts, wanted]
