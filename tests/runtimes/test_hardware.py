"""
Tests for :mod:`twisted_exec.runtimes.hardware`: volumes and interfaces through the runtime.
"""

from __future__ import annotations

import os
from typing import Any

from tests.contracts.machine_runtime import machine
from tests.tiers import PROGRAMS
from twisted_exec.api.status import (
    APIError,
    BadRequest,
    Conflict,
    NotFound,
    NotImplementedByBackend,
)
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.service import MachineRuntime

from .qemus import QemuCase
from .support import SHELL


def disk(name: str, size: int = 1 << 20, image: str = "") -> pb.Volume:
    local = pb.LocalDisk(size_bytes=size)
    if image:
        local.image.image = image
    return pb.Volume(name=name, device="oda", local_disk=local)


class HardwareCase(QemuCase):
    """A runtime with shells, which have no hardware, and virtual machines, which have."""

    async def start(self, **keys: Any) -> MachineRuntime:
        self.images = os.path.join(self.directory, "images")
        os.makedirs(self.images, exist_ok=True)
        vm = {
            "name": "vm",
            "driver": "qemu",
            "firmware": self.rom(),
            "images": self.images,
            "accelerator": "icount",
            "shutdown_seconds": 0,
            "capabilities": {"cpu": 1, "memory": "16Mi"},
            **keys,
        }
        return await self.make_runtime(SHELL, vm)

    async def create(
        self, runtime: MachineRuntime, class_name: str = "vm", **spec: Any
    ) -> pb.Machine:
        request = machine("x", class_name)
        request.spec.MergeFrom(pb.MachineSpec(**spec))
        answer = await runtime.create_machine(pb.CreateMachineRequest(machine=request))
        return answer.machine

    async def on(self, runtime: MachineRuntime, **spec: Any) -> str:
        """A machine that runs; its id."""
        id = str((await self.create(runtime, **spec)).metadata.id)
        await self.until(lambda: runtime.machines.records.get(id).state == pb.MACHINE_RUNNING)
        return id

    async def listed(self, runtime: MachineRuntime) -> pb.Machine:
        (entry,) = (await runtime.list_machines(pb.ListMachinesRequest())).machines
        return entry

    async def power(self, runtime: MachineRuntime, id: str, power: int) -> None:
        await runtime.update_machine_power(
            pb.UpdateMachinePowerRequest(machine_id=id, power=power)  # type: ignore[arg-type]
        )
        expected = pb.MACHINE_RUNNING if power == pb.POWER_ON else pb.MACHINE_STOPPED
        await self.until(lambda: runtime.machines.records.get(id).state == expected)

    async def refusal(self, kind: type[APIError], call: Any) -> str:
        with self.assertRaises(kind) as caught:
            await call
        return caught.exception.message


class CreateTests(HardwareCase):
    """Parts of new machines."""

    starts = PROGRAMS

    async def test_attached(self) -> None:
        """Volumes and interfaces are attached while the machine is on."""
        runtime = await self.start()
        interfaces = [pb.NetworkInterface(name="nic", network_id="n", ips=["10.0.0.1"])]
        id = await self.on(runtime, volumes=[disk("data")], network_interfaces=interfaces)
        entry = await self.listed(runtime)
        self.assertEqual(
            [(each.name, each.handle, each.state) for each in entry.status.volumes],
            [("data", f"{id}/data", pb.VOLUME_ATTACHED)],
        )
        self.assertEqual(
            [each.state for each in entry.status.network_interfaces],
            [pb.NETWORK_INTERFACE_ATTACHED],
        )
        await self.power(runtime, id, pb.POWER_OFF)
        entry = await self.listed(runtime)
        self.assertEqual(entry.status.volumes[0].state, pb.VOLUME_PENDING)

    async def test_ignition_is_not_told(self) -> None:
        """Lists do not contain the ignition data."""
        runtime = await self.start()
        created = await self.create(runtime, ignition_data=b"secret", power=pb.POWER_OFF)
        self.assertEqual(created.spec.ignition_data, b"")
        self.assertNotIn(b"secret", (await self.listed(runtime)).SerializeToString())

    async def test_missing_image(self) -> None:
        """
        A machine with a missing image waits for it, reports it once, and starts when it exists;
        other machines are not affected.
        """
        runtime = await self.start()
        created = await self.create(runtime, volumes=[disk("root", 0, "system.raw")])
        record = runtime.machines.records.get(created.metadata.id)
        await self.until(lambda: record.conditions)
        self.assertEqual(record.conditions[0].reason, "ImageMissing")
        self.assertIn("copy it there", record.conditions[0].message)
        with open(os.path.join(self.images, "system.raw"), "wb") as file:
            file.truncate(1 << 20)
        await self.until(lambda: record.state == pb.MACHINE_RUNNING)
        output = [each.spec.reason for each in runtime.machines.records.events]
        self.assertEqual(output.count("ImageMissing"), 1)

    async def test_refusals(self) -> None:
        """Parts that the class does not support are refused at once, and leave nothing behind."""
        runtime = await self.start(network="none")
        for spec, kind, message in (
            ({"volumes": [disk("a"), disk("a")]}, BadRequest, "more than once"),
            ({"volumes": [disk("No Name")]}, BadRequest, "not a valid name of a volume"),
            ({"volumes": [disk(f"v{n}") for n in range(30)]}, BadRequest, "at most 24"),
            ({"volumes": [disk("a", 1, "../x.raw")]}, BadRequest, "directory of images"),
            (
                {"volumes": [pb.Volume(name="a", connection=pb.VolumeConnection(driver="ceph"))]},
                NotImplementedByBackend,
                "driver 'ceph'",
            ),
            (
                {"network_interfaces": [pb.NetworkInterface(name="n")]},
                NotImplementedByBackend,
                "no network",
            ),
            ({"ignition_data": b"x" * (3 << 20)}, BadRequest, "ignition data has at most"),
        ):
            self.assertIn(message, await self.refusal(kind, self.create(runtime, **spec)))
        self.assertEqual(len(runtime.machines.records), 0)

    async def test_shells_have_none(self) -> None:
        """A class whose driver knows no hardware says so."""
        runtime = await self.start()
        output = await self.refusal(
            NotImplementedByBackend, self.create(runtime, "shell", volumes=[disk("a")])
        )
        self.assertEqual(output, "machines of class 'shell' have no volumes")


class ChangeTests(HardwareCase):
    """Changes of parts."""

    starts = PROGRAMS

    async def test_while_off(self) -> None:
        """A machine that is off has its changes at the next start."""
        runtime = await self.start()
        created = await self.create(runtime, power=pb.POWER_OFF, volumes=[disk("old")])
        id = created.metadata.id
        await runtime.attach_volume(pb.AttachVolumeRequest(machine_id=id, volume=disk("new")))
        await runtime.detach_volume(pb.DetachVolumeRequest(machine_id=id, name="old"))
        await runtime.update_volume(
            pb.UpdateVolumeRequest(machine_id=id, volume=disk("new", 2 << 20))
        )
        await runtime.attach_network_interface(
            pb.AttachNetworkInterfaceRequest(
                machine_id=id, network_interface=pb.NetworkInterface(name="nic")
            )
        )
        await self.power(runtime, id, pb.POWER_ON)
        run: Any = runtime.machines.supervisors[id].run
        (expected,) = [
            each for each in await run._ask("query-named-block-nodes") if each["drv"] == "qcow2"
        ]
        self.assertEqual(expected["image"]["virtual-size"], 2 << 20)
        self.assertEqual(
            [each.name for each in (await self.listed(runtime)).status.network_interfaces], ["nic"]
        )

    async def test_while_on(self) -> None:
        """Volumes of a machine that is on can be attached and enlarged."""
        runtime = await self.start()
        id = await self.on(runtime)
        await runtime.attach_volume(pb.AttachVolumeRequest(machine_id=id, volume=disk("new")))
        await runtime.update_volume(
            pb.UpdateVolumeRequest(machine_id=id, volume=disk("new", 2 << 20))
        )
        entry = await self.listed(runtime)
        self.assertEqual(entry.spec.volumes[0].local_disk.size_bytes, 2 << 20)
        self.assertEqual(entry.status.volumes[0].state, pb.VOLUME_ATTACHED)

    async def test_interfaces_while_on(self) -> None:
        """Interfaces of a machine that is on cannot be changed, which says when they can."""
        runtime = await self.start()
        id = await self.on(runtime)
        request = pb.AttachNetworkInterfaceRequest(
            machine_id=id, network_interface=pb.NetworkInterface(name="nic")
        )
        output = await self.refusal(Conflict, runtime.attach_network_interface(request))
        self.assertIn("can be changed while it is off", output)

    async def test_refusals(self) -> None:
        """Duplicates, unknown parts, and changes that lose data are refused."""
        runtime = await self.start()
        created = await self.create(runtime, power=pb.POWER_OFF, volumes=[disk("a", 2 << 20)])
        id = created.metadata.id
        attach = pb.AttachVolumeRequest(machine_id=id, volume=disk("a"))
        self.assertIn("already", await self.refusal(APIError, runtime.attach_volume(attach)))
        detach = pb.DetachVolumeRequest(machine_id=id, name="b")
        self.assertIn(
            "has no volume 'b'", await self.refusal(NotFound, runtime.detach_volume(detach))
        )
        for volume, message in (
            (disk("a", 1 << 20), "cannot become smaller"),
            (disk("a", 2 << 20, "x.raw"), "the image of volume"),
        ):
            update = pb.UpdateVolumeRequest(machine_id=id, volume=volume)
            self.assertIn(message, await self.refusal(BadRequest, runtime.update_volume(update)))
