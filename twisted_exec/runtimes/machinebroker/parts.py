"""Conversion of the volumes and network interfaces of a machine, sans I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format

from twisted_exec.api import quantity
from twisted_exec.api.status import Conflict, NotImplementedByBackend
from twisted_exec.iri.image_disk import IMAGE_DISK, image_disk
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import Object
from twisted_exec.runtimes.machinebroker.place import BrokerPlace

INTERFACES = "networkInterfaces"
"""The field of ``spec`` with the network interfaces."""

Part = pb.Volume | pb.NetworkInterface

_SUBNET = "network-name", "subnet-name"
"""Attributes of an interface that names a subnet, see :mod:`twisted_exec.iri`."""


def part_name(machine_id: str, kind: str, name: str) -> str:
    """Return the name of a part's object: 63 hexadecimal digits."""
    key = json.dumps([machine_id, kind, name]).encode()
    return hashlib.sha256(key).hexdigest()[:63]


def network_name(network_id: str) -> str:
    """Return the name of the Network with a provider's id."""
    return f"net-{hashlib.sha256(network_id.encode()).hexdigest()[:40]}"


def spec_of(spec: pb.MachineSpec, machine_id: str, place: BrokerPlace) -> Object:
    """
    Build the part of ``spec`` with volumes and interfaces.

    :raises APIError: the target does not support one of them.
    """
    dialect = place.dialect
    fields: Object = {}
    images = [each for each in spec.volumes if _is_image(each, place)]
    if images:
        fields[dialect.image_field] = images[0].local_disk.image.image
    disks = [disk_of(volume, machine_id, place) for volume in spec.volumes if volume not in images]
    if disks:
        fields[dialect.disks_field] = disks
    interfaces = [
        interface_of(interface, machine_id, place) for interface in spec.network_interfaces
    ]
    if interfaces:
        fields[INTERFACES] = interfaces
    return fields


def _is_image(volume: pb.Volume, place: BrokerPlace) -> bool:
    return bool(place.dialect.image_field) and volume.name == IMAGE_DISK


def disk_of(volume: pb.Volume, machine_id: str, place: BrokerPlace) -> Object:
    """
    Convert a volume to a disk of the target's machines.

    :raises NotImplementedByBackend: the target does not support such disks.
    """
    dialect = place.dialect
    fields: Object = {"name": volume.name}
    if volume.device:
        fields["device"] = volume.device
    if volume.HasField("connection"):
        _need_kinds(f'volume "{volume.name}" is a connected volume', place)
        return {**fields, "volumeRef": {"name": part_name(machine_id, "volume", volume.name)}}
    disk: Object = {}
    if volume.local_disk.size_bytes:
        disk["sizeLimit"] = str(volume.local_disk.size_bytes)
    if volume.local_disk.image.image:
        if not dialect.local_disks:
            raise NotImplementedByBackend(
                f'volume "{volume.name}": disks of the target cluster do not have images'
            )
        disk["image"] = volume.local_disk.image.image
    return {**fields, "localDisk" if dialect.local_disks else "emptyDisk": disk}


def interface_of(interface: pb.NetworkInterface, machine_id: str, place: BrokerPlace) -> Object:
    """
    Convert a network interface to one of the target's machines.

    :raises NotImplementedByBackend: the target does not support such interfaces.
    """
    fields: Object = {"name": interface.name}
    if place.dialect.subnets:
        network, subnet = (interface.attributes.get(key, "") for key in _SUBNET)
        if not network or not subnet:
            raise NotImplementedByBackend(
                f'network interface "{interface.name}" has no subnet, which the target requires'
            )
        fields["subnetRef"] = {"networkName": network, "name": subnet}
        return {**fields, "ips": list(interface.ips)} if interface.ips else fields
    _need_kinds(f'network interface "{interface.name}" needs an object of its own', place)
    name = part_name(machine_id, "interface", interface.name)
    return {**fields, "networkInterfaceRef": {"name": name}}


def _need_kinds(problem: str, place: BrokerPlace) -> None:
    if not place.dialect.domain:
        raise NotImplementedByBackend(f"{problem}; the target cluster has no kinds for that")


def parts_annotation(spec: pb.MachineSpec) -> str:
    """Encode the parts for an annotation, without secrets; empty if none needs it."""
    return merge_parts("", *spec.volumes, *spec.network_interfaces)


def merge_parts(annotation: str, *parts: Part) -> str:
    """Update the annotation with new descriptions of some parts."""
    merged = _parsed(annotation)
    for part in parts:
        if isinstance(part, pb.NetworkInterface):
            others: Any = [each for each in merged.network_interfaces if each.name != part.name]
            del merged.network_interfaces[:]
            merged.network_interfaces.extend([*others, part])
        elif part.HasField("connection"):
            others = [each for each in merged.volumes if each.name != part.name]
            del merged.volumes[:]
            merged.volumes.extend([*others, part])
            merged.volumes[-1].connection.secret_data.clear()
            merged.volumes[-1].connection.encryption_data.clear()
    return json_format.MessageToJson(merged, indent=None) if merged.ByteSize() else ""


def _parsed(annotation: str) -> pb.MachineSpec:
    stored = pb.MachineSpec()
    if annotation:
        try:
            json_format.Parse(annotation, stored)
        except json_format.ParseError:
            raise ValueError("its annotation with volumes and interfaces cannot be read") from None
    return stored


def read_parts(
    spec: Object, annotation: str, place: BrokerPlace
) -> tuple[list[pb.Volume], list[pb.NetworkInterface]]:
    """
    Convert the parts of a machine in the target.

    :raises ValueError: the annotation is damaged, or the size of a disk is not valid.
    """
    stored = _parsed(annotation)
    return list(_volumes(spec, stored, place)), list(_interfaces(spec, stored, place))


def _volumes(spec: Object, stored: pb.MachineSpec, place: BrokerPlace) -> Iterator[pb.Volume]:
    dialect, by_name = place.dialect, {each.name: each for each in stored.volumes}
    image = spec.get(dialect.image_field) if dialect.image_field else ""
    if image:
        yield image_disk(image)
    for disk in spec.get(dialect.disks_field) or ():
        name, device = disk["name"], disk.get("device") or ""
        source = disk.get("localDisk", disk.get("emptyDisk"))
        if source is None:
            result = by_name.get(name) or pb.Volume(name=name)
            result.device = device
            yield result
            continue
        result = pb.Volume(name=name, device=device)
        result.local_disk.size_bytes = quantity.value((source or {}).get("sizeLimit") or 0)
        if (source or {}).get("image"):
            result.local_disk.image.image = source["image"]
        yield result


def _interfaces(
    spec: Object, stored: pb.MachineSpec, place: BrokerPlace
) -> Iterator[pb.NetworkInterface]:
    by_name = {each.name: each for each in stored.network_interfaces}
    for part in spec.get(INTERFACES) or ():
        yield by_name.get(part["name"]) or pb.NetworkInterface(name=part["name"])


def with_part(parts: list[Object], part: Object) -> list[Object]:
    """
    Return the parts of a ``spec`` with one more, unless it is among them.

    :raises Conflict: there is another part with its name.
    """
    for each in parts:
        if each["name"] == part["name"]:
            if {**each, "device": ""} != {**part, "device": ""}:
                raise Conflict(f'the machine has another part "{each["name"]}" already')
            return parts
    return [*parts, part]
