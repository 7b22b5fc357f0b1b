"""
Machines that refer to Volumes, network interfaces and Secrets: the loop, a cluster and a
runtime, the latter two in memory.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.poollet.doubles import CONFIG, MACHINES, MemoryRuntime, machine
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import Conflict, Forbidden
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.informers import Reflector
from twisted_exec.poollet.machines.loop import RELIST_SECONDS, Loop
from twisted_exec.poollet.machines.references import ReferencedKinds
from twisted_exec.poollet.machines.secret_data import MAX_IGNITION_BYTES
from twisted_exec.testing.cluster import MemoryCluster

SECRETS = kinds.SECRETS.resource
DOMAIN = ReferencedKinds(IRONCORE)
VOLUMES, INTERFACES, NETWORKS = DOMAIN.volumes, DOMAIN.interfaces, DOMAIN.networks


def encoded(**data: bytes) -> dict[str, str]:
    """The data of a Secret; underscores stand for points."""
    return {k.replace("_", "."): base64.b64encode(v).decode() for k, v in data.items()}


class ReferringCase(SynchronousTestCase):
    """A reconciled pool, and the objects that its Machines refer to."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = MemoryCluster((*kinds.ALL, *kinds.of(IRONCORE)))
        self.client = self.cluster.client()
        self.runtime = MemoryRuntime()
        self.reports: list[tuple[str, str, str]] = []
        self.reflector = Reflector(
            self.client,
            MACHINES,
            self.clock,
            field_selector="spec.machinePoolRef.name=pool-a",
            on_change=lambda before, after: self.loop.changed(before, after),
        )
        self.loop = Loop(
            self.client,
            self.runtime,
            self.clock,
            machines=lambda: self.reflector,
            synced=lambda: self.reflector.synced,
            now=self.clock.seconds,
            report=lambda about, *arguments: self.reports.append(arguments),
        )
        self.reflector.start()
        self.loop.start(CONFIG)
        self.addCleanup(self.loop.stop)

    def make(self, resource: Any, name: str, **parts: Any) -> Any:
        created = self.successResultOf(
            self.client.create(resource, {"metadata": {"name": name}, **parts}, "lab")
        )
        if "status" in parts:
            self.patch_it(resource, name, "status", status=parts["status"])
        return created

    def patch_it(self, resource: Any, name: str, subresource: str = "", **patch: Any) -> None:
        self.successResultOf(
            self.client.patch(resource, name, patch, "lab", subresource=subresource)
        )

    def create(self, **spec: Any) -> Any:
        return self.successResultOf(self.client.create(MACHINES, machine(**spec), "lab"))

    def get(self, resource: Any = MACHINES, name: str = "vm") -> Any:
        return self.successResultOf(self.client.get(resource, name, "lab"))

    def status(self) -> Any:
        return self.get()["status"]

    def condition(self, type: str) -> tuple[str, str, str]:
        """Status, reason and message."""
        (condition,) = (each for each in self.status()["conditions"] if each["type"] == type)
        return condition["status"], condition["reason"], condition["message"]

    def turn(self, seconds: float, step: float = 0.25) -> None:
        for _ in range(int(seconds / step)):
            self.clock.advance(step)

    @property
    def one(self) -> pb.Machine:
        (machine,) = self.runtime.machines.values()
        return machine


class VolumeTests(ReferringCase):
    """Volumes of storage.ironcore.dev."""

    def volume(self, name: str = "data", size: str = "1Gi", **access: Any) -> Any:
        access_fields = {
            "driver": "ceph",
            "handle": "h-1",
            "volumeAttributes": {"pool": "x"},
            **access,
        }
        status = {"state": "Available", "access": access_fields}
        return self.make(VOLUMES, name, spec={"resources": {"storage": size}}, status=status)

    def refer(self, name: str = "data") -> list[dict[str, Any]]:
        return [{"name": "disk", "device": "oda", "volumeRef": {"name": name}}]

    def test_given(self) -> None:
        """A Volume is claimed for the Machine, then passed to the runtime with its credentials."""
        self.make(SECRETS, "keys", data=encoded(user=b"u", key=b"\x00\xff"))
        created = self.volume(secretRef={"name": "keys"})
        uid = self.create(volumes=self.refer())["metadata"]["uid"]
        self.assertEqual(self.get(VOLUMES, "data")["spec"]["claimRef"], {"name": "vm", "uid": uid})
        (volume,) = self.one.spec.volumes
        connection = volume.connection
        self.assertEqual((volume.name, volume.device), ("disk", "oda"))
        self.assertEqual((connection.driver, connection.handle), ("ceph", "h-1"))
        self.assertEqual(connection.effective_storage_bytes, 1 << 30)
        self.assertEqual(dict(connection.secret_data), {"user": b"u", "key": b"\x00\xff"})
        self.assertEqual(connection.attributes["pool"], "x")
        labels = json.loads(connection.attributes["rawVolumeLabels"])
        prefix = "machinepoollet.ironcore.dev/volume"
        expected = {
            f"{prefix}-uid": created["metadata"]["uid"],
            f"{prefix}-namespace": "lab",
            f"{prefix}-name": "data",
        }
        self.assertEqual(labels, expected)
        (volume_status,) = self.status()["volumes"]
        self.assertEqual(
            {key: volume_status[key] for key in ("name", "handle", "state", "volumeRef")},
            {
                "name": "disk",
                "handle": "handle-disk",
                "state": "Attached",
                "volumeRef": {"name": "data"},
            },
        )
        self.assertEqual(self.condition("VolumesReady"), ("True", "VolumesReady", ""))

    def test_waits(self) -> None:
        """A Machine waits for its Volume, reports that once, and goes on as soon as the Volume exists."""
        self.create(volumes=self.refer())
        self.turn(20)
        lacking = 'volume "disk": volume lab/data does not exist'
        self.assertEqual(self.condition("Ready"), ("False", "VolumeNotReady", lacking))
        self.assertEqual(self.condition("VolumesReady"), ("False", "VolumeNotReady", lacking))
        self.assertEqual(self.reports, [("Warning", "VolumeNotReady", lacking)])
        self.assertEqual(self.runtime.machines, {})
        self.make(VOLUMES, "data", spec={}, status={"state": "Pending"})
        self.assertIn("is Pending, and cannot be accessed", self.condition("Ready")[2])
        access = {"driver": "d", "handle": "h"}
        self.patch_it(VOLUMES, "data", "status", status={"state": "Available", "access": access})
        self.assertEqual(self.status()["state"], "Running")

    def test_refused_at_last(self) -> None:
        """A refusal after a long wait is reported at once, with all parts."""
        self.create(volumes=self.refer())
        self.turn(120)
        self.runtime.refusals["create_machine"] = Forbidden("no disks here")
        self.volume()
        self.turn(1)
        self.assertEqual(self.condition("Ready"), ("False", "CreateFailed", "no disks here"))
        self.assertNotIn("does not exist", self.condition("VolumesReady")[2])

    def test_of_another(self) -> None:
        """A Volume claimed for another Machine, or that cannot be claimed, is left alone."""
        self.volume()
        other = {"name": "other", "uid": "u-other"}
        self.patch_it(VOLUMES, "data", spec={"claimRef": other})
        self.create(volumes=self.refer())
        self.assertIn("is claimed by another machine, 'other'", self.condition("Ready")[2])
        self.patch_it(VOLUMES, "data", spec={"claimRef": None, "unclaimable": True})
        self.assertIn("cannot be claimed", self.condition("Ready")[2])
        self.assertEqual(self.runtime.machines, {})

    def test_released(self) -> None:
        """The claim goes with the Machine, after the runtime's machine, before the finalizer."""
        self.volume()
        self.create(volumes=self.refer())
        self.runtime.ends_slowly = True
        self.successResultOf(self.client.delete(MACHINES, "vm", "lab"))
        self.assertIn("claimRef", self.get(VOLUMES, "data")["spec"])
        self.runtime.settle()
        self.turn(RELIST_SECONDS)
        self.assertNotIn("claimRef", self.get(VOLUMES, "data")["spec"])
        self.assertNotIn((MACHINES, "lab", "vm"), self.cluster.objects)

    def test_attached_and_detached(self) -> None:
        """Disks of a running machine are attached and detached; claims of detached ones are released."""
        self.volume()
        self.create()
        self.patch_it(MACHINES, "vm", spec={"volumes": self.refer()})
        self.assertEqual([volume.name for volume in self.one.spec.volumes], ["disk"])
        self.assertEqual(self.condition("VolumesReady")[0], "True")
        self.patch_it(MACHINES, "vm", spec={"volumes": []})
        self.assertEqual(list(self.one.spec.volumes), [])
        self.assertEqual(self.status()["volumes"], [])
        self.assertNotIn("claimRef", self.get(VOLUMES, "data")["spec"])
        self.assertNotIn(
            "VolumesReady", [condition["type"] for condition in self.status()["conditions"]]
        )
        expected = ["create_machine", "attach_volume", "detach_volume"]
        self.assertEqual([call for call in self.runtime.calls if "annot" not in call], expected)

    def test_off_before_disks(self) -> None:
        """A guest that does not let go of a disk does not keep the machine from being powered off."""
        self.volume()
        self.create(volumes=self.refer())
        self.runtime.refusals["detach_volume"] = Conflict("the guest does not let go")
        self.patch_it(MACHINES, "vm", spec={"volumes": []})
        self.turn(RELIST_SECONDS)
        self.assertIn("does not let go", self.condition("Ready")[2])
        self.patch_it(MACHINES, "vm", spec={"power": "Off"})
        self.turn(RELIST_SECONDS)
        self.assertEqual(self.one.spec.power, pb.POWER_OFF)

    def test_grows(self) -> None:
        """A new size is passed to the runtime; a Volume at another location is reattached."""
        self.volume()
        self.create(volumes=self.refer())
        resources = {"storage": "2Gi"}
        self.patch_it(VOLUMES, "data", "status", status={"resources": resources})
        self.assertEqual(self.one.spec.volumes[0].connection.effective_storage_bytes, 2 << 30)
        self.assertEqual(self.runtime.calls[-1], "update_volume")
        self.patch_it(VOLUMES, "data", "status", status={"access": {"handle": "h-2"}})
        self.assertEqual(self.one.spec.volumes[0].connection.handle, "h-2")
        self.assertEqual(self.runtime.calls[-2:], ["detach_volume", "attach_volume"])

    def test_kept(self) -> None:
        """A part that cannot be looked up stays attached; other labels alone detach nothing."""
        self.volume()
        self.create(volumes=self.refer())
        self.one.spec.volumes[0].connection.attributes["rawVolumeLabels"] = "{}"
        self.turn(RELIST_SECONDS)
        self.successResultOf(self.client.delete(VOLUMES, "data", "lab"))
        self.turn(2 * RELIST_SECONDS)
        self.assertEqual([volume.name for volume in self.one.spec.volumes], ["disk"])
        self.assertEqual(self.condition("VolumesReady")[:2], ("False", "VolumeNotReady"))
        self.assertEqual(self.condition("Ready")[0], "True")
        self.assertNotIn("detach_volume", self.runtime.calls)

    def test_refused(self) -> None:
        """A disk that the runtime refuses does not keep the machine from running."""
        self.volume()
        self.create()
        self.runtime.refusals["attach_volume"] = Forbidden("no such driver")
        self.patch_it(MACHINES, "vm", spec={"volumes": self.refer()})
        self.turn(60)
        self.assertIn(("Warning", "AttachFailed", "disk: no such driver"), self.reports)
        self.assertEqual(self.condition("Ready")[0], "True")
        status, _, why = self.condition("VolumesReady")
        self.assertEqual(status, "False")
        self.assertIn("has not attached disk yet: disk: no such driver", why)
        self.assertLess(self.runtime.calls.count("attach_volume"), 12)
        self.runtime.refusals.clear()
        self.turn(31)
        self.assertEqual(self.condition("VolumesReady")[0], "True")

    def test_without_word(self) -> None:
        """A disk that the runtime does not report is not ready."""
        self.create(volumes=[{"name": "root", "localDisk": {"image": "img"}}])
        del self.one.status.volumes[:]
        self.turn(RELIST_SECONDS)
        message = "the machine runtime has not attached root yet"
        self.assertEqual(self.condition("VolumesReady"), ("False", "VolumeNotReady", message))

    def test_ephemeral(self) -> None:
        """An ephemeral Volume must belong to the Machine; a namesake is refused."""
        self.create(volumes=[{"name": "root", "ephemeral": {"volumeTemplate": {"spec": {}}}}])
        self.turn(5)
        self.assertIn("a controller manager that makes ephemeral", self.condition("Ready")[2])
        self.volume("vm-root")
        self.assertIn("was not made for this machine", self.condition("Ready")[2])
        owner = {
            "apiVersion": MACHINES.api_version,
            "kind": "Machine",
            "name": "vm",
            "uid": self.get()["metadata"]["uid"],
            "controller": True,
        }
        self.patch_it(VOLUMES, "vm-root", metadata={"ownerReferences": [owner]})
        self.assertEqual(self.status()["state"], "Running")

    def test_quiet(self) -> None:
        """Machines with disks in their desired state cost no request either."""
        self.volume()
        self.create(volumes=self.refer())
        request_count = len(self.cluster.requests)
        self.turn(10 * RELIST_SECONDS)
        self.assertEqual(len(self.cluster.requests), request_count)


class InterfaceTests(ReferringCase):
    """NetworkInterfaces of networking.ironcore.dev."""

    def setUp(self) -> None:
        super().setUp()
        self.make(NETWORKS, "net", spec={"providerID": "net://7"})

    def interface(self, name: str = "nic", **spec: Any) -> Any:
        fields = {"networkRef": {"name": "net"}, "ips": [{"value": "10.0.0.5"}], **spec}
        return self.make(INTERFACES, name, spec=fields)

    def refer(self) -> list[dict[str, Any]]:
        return [{"name": "eth0", "networkInterfaceRef": {"name": "nic"}}]

    def test_given(self) -> None:
        """Network, addresses and attributes are passed on; the handle is written back."""
        created = self.interface(attributes={"mtu": "9000"})
        uid = self.create(networkInterfaces=self.refer())["metadata"]["uid"]
        (interface,) = self.one.spec.network_interfaces
        self.assertEqual(
            (interface.name, interface.network_id, list(interface.ips)),
            ("eth0", "net://7", ["10.0.0.5"]),
        )
        self.assertEqual(interface.attributes["mtu"], "9000")
        self.assertIn("rawNetworkLabels", interface.attributes)
        spec = self.get(INTERFACES, "nic")["spec"]
        self.assertEqual(spec["machineRef"], {"name": "vm", "uid": uid})
        self.assertEqual(spec["providerID"], "handle-eth0")
        mapping = json.loads(self.one.metadata.annotations[CONFIG.mapping_annotation])
        self.assertEqual(mapping, {"eth0": {"name": "nic", "uid": created["metadata"]["uid"]}})
        (interface_status,) = self.status()["networkInterfaces"]
        self.assertEqual(
            (interface_status["state"], interface_status["networkInterfaceRef"]),
            ("Attached", {"name": "nic"}),
        )
        self.assertEqual(self.condition("NetworkInterfacesReady")[0], "True")

    def test_prefix(self) -> None:
        """An address that is allocated for the interface comes from its own Prefix."""
        created = self.interface(ips=[{"ephemeral": {"prefixTemplate": {"spec": {}}}}])
        self.create(networkInterfaces=self.refer())
        self.turn(5)
        self.assertIn("prefix lab/nic-0 does not exist", self.condition("Ready")[2])
        self.make(DOMAIN.prefixes, "nic-0", spec={"prefix": "10.1.0.9/32"})
        self.assertIn("does not belong to the network interface", self.condition("Ready")[2])
        owner = {"kind": "NetworkInterface", "uid": created["metadata"]["uid"], "controller": True}
        self.patch_it(DOMAIN.prefixes, "nic-0", metadata={"ownerReferences": [owner]})
        self.assertIn("is not allocated yet", self.condition("Ready")[2])
        self.patch_it(DOMAIN.prefixes, "nic-0", "status", status={"phase": "Allocated"})
        self.assertEqual(list(self.one.spec.network_interfaces[0].ips), ["10.1.0.9"])

    def test_changes(self) -> None:
        """Another address is another attachment; without the interface it is given back."""
        self.interface()
        self.create(networkInterfaces=self.refer())
        self.patch_it(INTERFACES, "nic", spec={"ips": [{"value": "10.0.0.6"}]})
        self.assertEqual(list(self.one.spec.network_interfaces[0].ips), ["10.0.0.6"])
        self.patch_it(MACHINES, "vm", spec={"networkInterfaces": []})
        self.assertEqual(list(self.one.spec.network_interfaces), [])
        spec = self.get(INTERFACES, "nic")["spec"]
        self.assertEqual((spec.get("machineRef"), spec["providerID"]), (None, ""))

    def test_no_network(self) -> None:
        """An interface of a missing network is reported, and the Machine waits for it."""
        self.interface(networkRef={"name": "other"})
        self.create(networkInterfaces=self.refer())
        self.turn(5)
        self.assertEqual(self.condition("Ready")[1], "NetworkInterfaceNotReady")
        self.assertIn("network lab/other does not exist", self.condition("Ready")[2])
        self.make(NETWORKS, "other", spec={})
        self.assertEqual(self.status()["state"], "Running")


class IgnitionTests(ReferringCase):
    """Ignition from a Secret."""

    TYPE = "compute.ironcore.dev/ignition"

    def secret(self, type: str = TYPE, **data: bytes) -> None:
        self.make(SECRETS, "ign", type=type, data=encoded(**data))

    def test_given(self) -> None:
        """The runtime gets the Secret's content; no status and no Event does."""
        self.secret(ignition_yaml=b"variant: fcos\xff")
        self.create(ignitionRef={"name": "ign"})
        self.assertEqual(self.one.spec.ignition_data, b"variant: fcos\xff")
        self.assertNotIn("fcos", repr(self.get()) + repr(self.reports))

    def test_other_key(self) -> None:
        """The Machine may name another key."""
        self.secret(mine=b"x")
        self.create(ignitionRef={"name": "ign", "key": "mine"})
        self.assertEqual(self.one.spec.ignition_data, b"x")

    def test_waits(self) -> None:
        """A Secret that appears later is noticed at once, though only its name is watched."""
        self.create(ignitionRef={"name": "ign"})
        self.turn(20)
        lacking = "secret lab/ign does not exist"
        self.assertEqual(self.condition("Ready"), ("False", "IgnitionNotReady", lacking))
        self.assertEqual(self.reports, [("Warning", "IgnitionNotReady", lacking)])
        watches = self.cluster.watches
        self.make(SECRETS, "other", data={})
        self.secret(ignition_yaml=b"x")
        self.assertEqual(self.status()["state"], "Running")
        self.assertEqual(self.cluster.watches, watches - 1)

    def test_not_usable(self) -> None:
        """Another type, a missing key or too much data are reported, without the content."""
        for type, key, why in (
            ("Opaque", "ignition_yaml", "is of type Opaque, not compute.ironcore.dev/ignition"),
            (self.TYPE, "other", "has no key 'ignition.yaml' that can be read"),
        ):
            self.make(SECRETS, "ign", type=type, data=encoded(**{key: b"hush"}))
            self.create(ignitionRef={"name": "ign"})
            self.assertIn(why, self.condition("Ready")[2])
            self.assertNotIn("hush", repr(self.get()))
            self.successResultOf(self.client.delete(MACHINES, "vm", "lab"))
            self.successResultOf(self.client.delete(SECRETS, "ign", "lab"))
        self.secret(ignition_yaml=bytes(MAX_IGNITION_BYTES + 1))
        self.create(ignitionRef={"name": "ign"})
        self.assertIn(f"{MAX_IGNITION_BYTES} are possible", self.condition("Ready")[2])
        self.assertEqual(self.runtime.machines, {})

    def test_gone_while_waiting(self) -> None:
        """A Machine that is deleted while it waits leaves no watch behind."""
        self.create(ignitionRef={"name": "ign"})
        self.successResultOf(self.client.delete(MACHINES, "vm", "lab"))
        self.turn(2 * RELIST_SECONDS)
        self.assertEqual(self.cluster.watches, 1)  # that of the Machines
