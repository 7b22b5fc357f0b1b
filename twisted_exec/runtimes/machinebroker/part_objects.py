"""
The objects of volumes and network interfaces in the target.

They have the form of those of ironcore's broker (``server/machine_volume_attach.go``,
``server/machine_networkinterface_attach.go``). The machine owns them, except the Network.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadRequest,
    NotFound,
    NotImplementedByBackend,
)
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.runtimes.machinebroker.objects import (
    INTERFACES,
    BrokerPlace,
    network_name,
    part_name,
)

SECRETS = Resource("", "v1", "secrets", "Secret")

_VERSION = "v1alpha1"


class PartObjects:
    """Creates and deletes the objects of machines' parts."""

    def __init__(self, client: IKubeClient, place: BrokerPlace) -> None:
        self._client, self._place = client, place
        storage, networking = (
            f"{each}.{place.dialect.domain}" for each in ("storage", "networking")
        )
        self._volumes = Resource(storage, _VERSION, "volumes", "Volume")
        self._interfaces = Resource(networking, _VERSION, "networkinterfaces", "NetworkInterface")
        self._networks = Resource(networking, _VERSION, "networks", "Network")

    async def make(self, machine: Object, spec: pb.MachineSpec) -> None:
        for volume in spec.volumes:
            await self.make_volume(machine, volume)
        for interface in spec.network_interfaces:
            await self.make_interface(machine, interface)

    async def make_volume(self, machine: Object, volume: pb.Volume) -> None:
        """Create the Volume and the Secrets of a connected volume; do nothing for others."""
        if not volume.HasField("connection"):
            return
        connection, name = volume.connection, self._name(machine, "volume", volume.name)
        spec: Object = {"claimRef": _claim(machine)}
        if connection.encryption_data:
            key = self._name(machine, "encryption", volume.name)
            kind = f"{self._volumes.group}/volume-encryption"
            await self.create_secret(machine, key, kind, connection.encryption_data)
            spec["encryption"] = {"secretRef": {"name": key}}
        if connection.secret_data:
            kind = f"{self._volumes.group}/volume-auth"
            await self.create_secret(machine, name, kind, connection.secret_data)
        await self._create(self._volumes, machine, name, spec)
        await self._set_access(name, connection)

    async def _set_access(self, name: str, connection: pb.VolumeConnection) -> None:
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
        Update size and credentials of a connected volume.

        :raises NotImplementedByBackend: the volume is a local disk.
        """
        if not volume.HasField("connection"):
            raise NotImplementedByBackend("a local disk in the target cluster cannot be changed")
        name = self._name(machine, "volume", volume.name)
        if volume.connection.secret_data:
            data = {"data": _encoded(volume.connection.secret_data)}
            await self._patch(SECRETS, name, data)
        await self._set_access(name, volume.connection)

    async def make_interface(self, machine: Object, interface: pb.NetworkInterface) -> None:
        """
        Create the NetworkInterface, and its Network if it is missing; a dialect with subnets needs
        neither.
        """
        if self._place.dialect.subnets:
            return
        if not interface.network_id:
            raise BadRequest(f'network interface "{interface.name}" has no network')
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
        namespace = self._place.namespace
        listed = await self._explain(
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

    async def create_secret(
        self, machine: Object, name: str, kind: str, data: Mapping[str, bytes]
    ) -> None:
        await self._create(SECRETS, machine, name, type=kind, data=_encoded(data))

    async def remove(self, machine: Mapping[str, Any]) -> None:
        """
        Delete the objects of a deleted machine, for clusters without garbage collection.

        Networks stay, because other machines may use them.
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
        name = part_name(machine_id, "volume", volume)
        await self._delete(self._volumes, name)
        await self._delete(SECRETS, name)
        await self._delete(SECRETS, part_name(machine_id, "encryption", volume))

    async def remove_interface(self, machine_id: str, interface: str) -> None:
        await self._delete(self._interfaces, part_name(machine_id, "interface", interface))

    def _name(self, machine: Object, kind: str, name: str) -> str:
        return part_name(machine["metadata"]["name"], kind, name)

    async def _create(
        self, resource: Resource, owner: Object | None, name: str, spec: Any = None, **more: Any
    ) -> None:
        metadata: Object = {"name": name, "labels": self._place.labels()}
        if owner is not None:
            metadata["ownerReferences"] = [_owner(owner)]
        document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        document |= more | ({} if spec is None else {"spec": spec})
        try:
            await self._explain(self._client.create(resource, document, self._place.namespace))
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

    async def _explain(self, request: Any) -> Any:
        try:
            return await request
        except APIError as error:
            if error.code != NotFound.code:
                raise
            raise NotImplementedByBackend(
                f"the target cluster does not serve a kind that the machine needs: {error.message}"
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
