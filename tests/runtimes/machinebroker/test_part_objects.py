"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.part_objects`, on a target in memory.
"""

from __future__ import annotations

import base64
from typing import Any

from tests.contracts.machine_runtime import machine
from twisted_exec.api import kinds
from twisted_exec.api.kinds import networks, storage
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Conflict, NotFound, NotImplementedByBackend
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.machinebroker.objects import network_name, part_name

from .support import CLASS, NAMESPACE, BrokerCase, connected, interface

VOLUMES = storage.volumes("ironcore.dev").resource
NICS, NETWORKS = (
    each("ironcore.dev").resource for each in (networks.networkinterfaces, networks.networks)
)
SECRETS = kinds.SECRETS.resource


class PartsTests(BrokerCase):
    """Volumes and network interfaces through a broker."""

    def object_of(self, resource: Resource, name: str) -> Any:
        return self.target.cluster.objects[(resource, NAMESPACE, name)]

    def left(self) -> set[str]:
        """The kinds of which there is something besides machines, pools and classes."""
        return {key[0].kind for key in self.target.cluster.objects if key[1]} - {"Event"}

    async def test_volume(self) -> None:
        """
        A connected volume becomes a Volume of the machine with its access data; lists contain no
        secret.
        """
        broker = await self.make_runtime()
        template = machine("x", CLASS)
        secret, key = {"userKey": b"s3cret"}, {"encryptionKey": b"k3y"}
        template.spec.volumes.append(connected(secret_data=secret, encryption_data=key))
        created = await self.made(broker, wanted=template)
        self.assertEqual(list(created.spec.volumes), [connected()])
        (part,) = self.target.object(created.metadata.id)["spec"]["volumes"]
        volume = self.object_of(VOLUMES, part["volumeRef"]["name"])
        access = volume["status"]["access"]
        self.assertEqual((access["driver"], access["handle"]), ("ceph", "handle-data"))
        self.assertEqual(volume["spec"]["claimRef"]["name"], created.metadata.id)
        self.assertEqual(volume["metadata"]["ownerReferences"][0]["name"], created.metadata.id)
        entry = self.object_of(SECRETS, access["secretRef"]["name"])
        self.assertEqual(base64.b64decode(entry["data"]["userKey"]), b"s3cret")
        entry = self.object_of(SECRETS, volume["spec"]["encryption"]["secretRef"]["name"])
        self.assertEqual(entry["type"], "storage.ironcore.dev/volume-encryption")
        output = str(self.target.object(created.metadata.id))
        self.assertNotIn("s3cret", output)
        self.assertNotIn(base64.b64encode(b"s3cret").decode(), output)

    async def test_interface(self) -> None:
        """It is a NetworkInterface of the machine's own; machines of one network share that."""
        broker = await self.make_runtime()
        for name in ("x", "y"):
            template = machine(name, CLASS)
            template.spec.network_interfaces.append(interface())
            created = await self.made(broker, wanted=template)
            self.assertEqual(list(created.spec.network_interfaces), [interface()])
        name = part_name(created.metadata.id, "interface", "net")
        spec = self.object_of(NICS, name)["spec"]
        self.assertEqual(spec["ips"], [{"value": "10.0.0.1"}, {"value": "fd00::1"}])
        self.assertEqual(spec["ipFamilies"], ["IPv4", "IPv6"])
        self.assertEqual(spec["networkRef"], {"name": network_name("provider://n1")})
        self.assertEqual(len([key for key in self.target.cluster.objects if key[0] == NETWORKS]), 1)

    async def test_network_of_others(self) -> None:
        """The Network that ironcore's own broker made is used."""
        label = {"machinebroker.ironcore.dev/manager": "machinebroker"}
        network = {"metadata": {"name": "net-x", "labels": label}}
        network["spec"] = {"providerID": "provider://n1"}  # type: ignore[assignment]
        await self.target.client.create(NETWORKS, network, NAMESPACE)
        broker = await self.make_runtime()
        template = machine("x", CLASS)
        template.spec.network_interfaces.append(interface())
        created = await self.made(broker, wanted=template)
        name = part_name(created.metadata.id, "interface", "net")
        self.assertEqual(self.object_of(NICS, name)["spec"]["networkRef"], {"name": "net-x"})

    async def test_come_and_go(self) -> None:
        """Parts are attached, changed and detached, and nothing of them is left behind."""
        broker = await self.make_runtime()
        id = (await self.made(broker)).metadata.id
        volume = connected(secret_data={"a": b"1"})
        for _ in range(2):
            await broker.attach_volume(pb.AttachVolumeRequest(machine_id=id, volume=volume))
        nic = pb.AttachNetworkInterfaceRequest(machine_id=id, network_interface=interface())
        await broker.attach_network_interface(nic)
        self.assertEqual(
            self.left(), {"Machine", "Volume", "Secret", "NetworkInterface", "Network"}
        )
        larger = connected(secret_data={"a": b"2"})
        larger.connection.effective_storage_bytes = 2 << 30
        await broker.update_volume(pb.UpdateVolumeRequest(machine_id=id, volume=larger))
        (output,) = (await broker.list_machines(pb.ListMachinesRequest())).machines
        self.assertEqual(output.spec.volumes[0].connection.effective_storage_bytes, 2 << 30)
        entry = self.object_of(SECRETS, part_name(id, "volume", "data"))
        self.assertEqual(base64.b64decode(entry["data"]["a"]), b"2")
        request = pb.DetachVolumeRequest(machine_id=id, name="data")
        await broker.detach_volume(request)
        self.assertIsInstance(await self.refusal(broker.detach_volume(request)), NotFound)
        off = pb.DetachNetworkInterfaceRequest(machine_id=id, name="net")
        await broker.detach_network_interface(off)
        self.assertEqual(self.left(), {"Machine", "Network"})

    async def test_another(self) -> None:
        """A part of a name that is taken is not put in the other's place."""
        broker = await self.make_runtime()
        id = (await self.made(broker)).metadata.id
        first, other = connected(), pb.Volume(name="data", local_disk=pb.LocalDisk(size_bytes=1))
        await broker.attach_volume(pb.AttachVolumeRequest(machine_id=id, volume=first))
        request = pb.AttachVolumeRequest(machine_id=id, volume=other)
        self.assertIsInstance(await self.refusal(broker.attach_volume(request)), Conflict)
        update = pb.UpdateVolumeRequest(machine_id=id, volume=other)
        error = await self.refusal(broker.update_volume(update))
        self.assertIsInstance(error, NotImplementedByBackend)

    async def test_deleted(self) -> None:
        """With the machine goes what it owned."""
        broker = await self.make_runtime()
        template = machine("x", CLASS)
        template.spec.volumes.append(connected(secret_data={"a": b"1"}))
        template.spec.network_interfaces.append(interface())
        created = await self.made(broker, wanted=template)
        await broker.delete_machine(pb.DeleteMachineRequest(machine_id=created.metadata.id))
        self.assertEqual(self.left(), {"Network"})

    async def test_no_such_kinds(self) -> None:
        """A target without such kinds refuses in words, and no machine is left there."""
        broker = await self.make_runtime()
        for resource in (VOLUMES, NETWORKS):
            del self.target.cluster.kinds[resource]
        stored, nic = machine("x", CLASS), machine("y", CLASS)
        stored.spec.volumes.append(connected())
        nic.spec.network_interfaces.append(interface())
        for expected in (stored, nic):
            error = await self.refusal(self.made(broker, wanted=expected))
            self.assertEqual(error.code, 501)
            self.assertIn("does not serve a kind that the machine needs", error.message)
        await self.until(lambda: not self.left())
