"""
Volumes and network interfaces: what a machine in the target is made of besides itself.

Disks of the host, and interfaces that name a subnet, are words in the machine's ``spec``.  A volume that
is connected to, and an interface on a network, are objects of their own in the target, as ironcore's
broker makes them (``server/machine_volume_attach.go``, ``server/machine_networkinterface_attach.go``):
a Volume without a class, whose access is what the source cluster told, with a Secret; a
NetworkInterface, and the Network with the provider's id that it is on.  The machine owns them.  Their
names are made of the machine's and the part's, so making them twice makes them once.

What was told of them, but nothing secret, is kept beside the machine: lists are answered from there.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import json_format

from twisted_exec.api import quantity
from twisted_exec.api.meta import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadRequest,
    Conflict,
    NotFound,
    NotImplementedByBackend,
)
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revisions_disks import IMAGE_DISK, image_disk
from twisted_exec.kube.interfaces import IKubeClient, Object

from .place import Place

SECRETS = Resource("", "v1", "secrets", "Secret")

INTERFACES = "networkInterfaces"
"""The key in a machine's ``spec`` that holds its network interfaces."""

Part = pb.Volume | pb.NetworkInterface

_VERSION = "v1alpha1"
_SUBNET = "network-name", "subnet-name"
"""The attributes of an interface that names its subnet itself, see :mod:`twisted_exec.iri`."""


def part_name(machine_id: str, kind: str, name: str) -> str:
    """The name of the object that stands for a machine's part: 63 hexadecimal digits."""
    told = json.dumps([machine_id, kind, name]).encode()
    return hashlib.sha256(told).hexdigest()[:63]


def network_name(network_id: str) -> str:
    """The name of the Network with a provider's id."""
    return f"net-{hashlib.sha256(network_id.encode()).hexdigest()[:40]}"


# As words of the machine.


def spec_of(spec: pb.MachineSpec, machine_id: str, place: Place) -> Object:
    """
    What a machine's ``spec`` says of its parts.

    :raises APIError: the target has no kinds for one of them, or nobody could make it.
    """
    dialect, made = place.dialect, {}
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


# What was told of them.


def told_of(spec: pb.MachineSpec) -> str:
    """
    The parts for an annotation, without what is secret; empty when there is nothing to be told.
    """
    return told_again("", *spec.volumes, *spec.network_interfaces)


def told_again(annotation: str, *parts: Part) -> str:
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


# As objects.


class Parts:
    """Makes and removes the objects of machines' parts."""

    def __init__(self, client: IKubeClient, place: Place) -> None:
        self._client, self._place = client, place
        storage, networking = (
            f"{each}.{place.dialect.domain}" for each in ("storage", "networking")
        )
        self._volumes = Resource(storage, _VERSION, "volumes", "Volume")
        self._interfaces = Resource(networking, _VERSION, "networkinterfaces", "NetworkInterface")
        self._networks = Resource(networking, _VERSION, "networks", "Network")

    async def make(self, machine: Object, spec: pb.MachineSpec) -> None:
        """
        Everything that a machine needs.

        :param machine: the object that is to own it.
        :raises APIError: it cannot be made.
        """
        for volume in spec.volumes:
            await self.make_volume(machine, volume)
        for interface in spec.network_interfaces:
            await self.make_interface(machine, interface)

    async def make_volume(self, machine: Object, volume: pb.Volume) -> None:
        """The Volume of one that is connected to, and its Secrets; of others nothing."""
        if not volume.HasField("connection"):
            return
        connection, name = volume.connection, self._name(machine, "volume", volume.name)
        spec: Object = {"claimRef": _claim(machine)}
        if connection.encryption_data:
            key = self._name(machine, "encryption", volume.name)
            kind = f"{self._volumes.group}/volume-encryption"
            await self.keep_secret(machine, key, kind, connection.encryption_data)
            spec["encryption"] = {"secretRef": {"name": key}}
        if connection.secret_data:
            kind = f"{self._volumes.group}/volume-auth"
            await self.keep_secret(machine, name, kind, connection.secret_data)
        await self._create(self._volumes, machine, name, spec)
        await self._tell_access(name, connection)

    async def _tell_access(self, name: str, connection: pb.VolumeConnection) -> None:
        access: Object = {
            "driver": connection.driver,
            "handle": connection.handle,
            "volumeAttributes": dict(connection.attributes),
        }
        if connection.secret_data:
            access["secretRef"] = {"name": name}
        size = str(connection.effective_storage_bytes)
        status = {"state": "Available", "access": access, "resources": {"storage": size}}
        await self._patch(self._volumes, name, {"status": status}, subresource="status")

    async def update_volume(self, machine: Object, volume: pb.Volume) -> None:
        """
        A volume that has become larger, or has other credentials.

        :raises NotImplementedByBackend: it is a disk of the host.
        """
        if not volume.HasField("connection"):
            raise NotImplementedByBackend("a disk of the machine's own host does not change")
        name = self._name(machine, "volume", volume.name)
        if volume.connection.secret_data:
            data = {"data": _encoded(volume.connection.secret_data)}
            await self._patch(SECRETS, name, data)
        await self._tell_access(name, volume.connection)

    async def make_interface(self, machine: Object, interface: pb.NetworkInterface) -> None:
        """The NetworkInterface and its Network, where interfaces are objects of their own."""
        if self._place.dialect.subnets:
            return
        if not interface.network_id:
            raise BadRequest(f'network interface "{interface.name}" names no network')
        network = await self._network(interface.network_id)
        spec: Object = {
            "networkRef": {"name": network},
            "machineRef": _claim(machine),
            "ipFamilies": [_family(ip) for ip in interface.ips],
            "ips": [{"value": ip} for ip in interface.ips],
        }
        if interface.attributes:
            spec["attributes"] = dict(interface.attributes)
        name = self._name(machine, "interface", interface.name)
        await self._create(self._interfaces, machine, name, spec)

    async def _network(self, network_id: str) -> str:
        """The name of the Network with this provider's id, that of another broker if there is one."""
        namespace = self._place.namespace
        listed = await self._in_words(
            self._client.list(self._networks, namespace, label_selector=self._place.manager)
        )
        for each in listed["items"]:
            has = (each.get("spec") or {}).get("providerID")
            if has == network_id and not each["metadata"].get("deletionTimestamp"):
                return str(each["metadata"]["name"])
        name = network_name(network_id)
        await self._create(self._networks, None, name, {"providerID": network_id})
        available = {"status": {"state": "Available"}}
        await self._patch(self._networks, name, available, subresource="status")
        return name

    async def keep_secret(
        self, machine: Object, name: str, kind: str, data: Mapping[str, bytes]
    ) -> None:
        """A Secret that a machine owns; one that is there already stays as it is."""
        await self._create(SECRETS, machine, name, type=kind, data=_encoded(data))

    async def remove(self, machine: Mapping[str, Any]) -> None:
        """
        What belongs to a machine that is gone, for clusters in which nobody removes what has lost
        its owner.  Networks stay: others may be on them.
        """
        name, spec = machine["name"], machine["spec"]
        if spec.get("ignitionRef"):
            await self._delete(SECRETS, name)
        for disk in spec.get(self._place.dialect.disks_field) or ():
            if "volumeRef" in disk:
                await self.remove_volume(name, disk["name"])
        for interface in spec.get(INTERFACES) or ():
            if "networkInterfaceRef" in interface:
                await self.remove_interface(name, interface["name"])

    async def remove_volume(self, machine_id: str, volume: str) -> None:
        """The objects of a volume, as far as there are any."""
        name = part_name(machine_id, "volume", volume)
        await self._delete(self._volumes, name)
        await self._delete(SECRETS, name)
        await self._delete(SECRETS, part_name(machine_id, "encryption", volume))

    async def remove_interface(self, machine_id: str, interface: str) -> None:
        """The object of a network interface, if there is one."""
        await self._delete(self._interfaces, part_name(machine_id, "interface", interface))

    def _name(self, machine: Object, kind: str, name: str) -> str:
        return part_name(machine["metadata"]["name"], kind, name)

    async def _create(
        self, resource: Resource, owner: Object | None, name: str, spec: Any = None, **more: Any
    ) -> None:
        metadata: Object = {"name": name, "labels": self._place.labels()}
        if owner is not None:
            metadata["ownerReferences"] = [_owner(owner)]
        made = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        made |= more | ({} if spec is None else {"spec": spec})
        try:
            await self._in_words(self._client.create(resource, made, self._place.namespace))
        except APIError as error:
            if error.reason != AlreadyExists.reason:
                raise

    async def _patch(self, resource: Resource, name: str, patch: Object, **more: Any) -> None:
        await self._client.patch(resource, name, patch, self._place.namespace, **more)

    async def _delete(self, resource: Resource, name: str) -> None:
        try:
            await self._client.delete(resource, name, self._place.namespace)
        except APIError as error:
            if error.code != NotFound.code:
                raise

    async def _in_words(self, asked: Any) -> Any:
        """A cluster that does not serve a kind answers 404 to whoever lists it or makes one."""
        try:
            return await asked
        except APIError as error:
            if error.code != NotFound.code:
                raise
            raise NotImplementedByBackend(
                f"the target cluster has no place for the machine's parts: {error.message}"
            ) from None


def _claim(machine: Object) -> Object:
    metadata = machine["metadata"]
    return {"name": metadata["name"], "uid": metadata["uid"]}


def _owner(machine: Object) -> Object:
    return {
        "apiVersion": machine["apiVersion"],
        "kind": machine["kind"],
        **_claim(machine),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode("ascii") for key, value in data.items()}


def _family(ip: str) -> str:
    return "IPv6" if ":" in ip else "IPv4"


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
