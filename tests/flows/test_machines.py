"""
Real virtual machines under a real runtime program: what the guest receives, and which processes
survive which.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests import needs
from tests.contracts.machine_runtime import machine
from tests.runtimes.qemus import tiny_rom
from tests.runtimes.support import User, open_console, pause
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import Object
from twisted_exec.runtimes.processes import ProcessFamily, ProcessTable
from twisted_exec.runtimes.service import MARK

from .consoles import Screen, watch
from .deployment import Deployment, gone, machine_class
from .deployment import machine as machine_object
from .programs import Program, twistd

reactor: Any = _reactor
MACHINES = kinds.MACHINES.resource

CLASSES = """
classes:
- name: boot
  driver: qemu
  capabilities: {{cpu: "1", memory: 128Mi}}
- name: tiny
  driver: qemu
  firmware: {rom}
  images: {images}
  accelerator: icount
  shutdown_seconds: 0
  capabilities: {{cpu: "1", memory: 16Mi}}
"""


class MachinesCase(TestCase):
    """A runtime as a program, and a client for it."""

    starts = PROGRAMS
    skip = needs.qemu()

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="twisted-exec-test-")
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.end_all()))
        self.images = os.path.join(self.directory, "images")
        os.mkdir(self.images)
        rom = os.path.join(self.directory, "tiny.rom")
        with open(rom, "wb") as file:
            file.write(tiny_rom())
        with open(os.path.join(self.directory, "runtime.yaml"), "w") as file:
            file.write(CLASSES.format(rom=rom, images=self.images))
        self.target = f"unix://{self.directory}/iri/sock"
        self.table = ProcessTable(reactor, MARK)

    def mark(self) -> str:
        with open(os.path.join(self.directory, "state", "runtime-id")) as file:
            return file.read().strip() + "/"

    async def end_all(self) -> None:
        mark = self.mark()
        await ProcessFamily(self.table, lambda found: found.startswith(mark)).end()

    def pids(self) -> list[int]:
        mark = self.mark()
        return [pid for pid, (_, found) in self.table.scan_now().items() if found.startswith(mark)]

    async def start(self, *options: str) -> tuple[Program, IRIClient]:
        program = twistd(
            "exec-runtime",
            f"--config={self.directory}/runtime.yaml",
            f"--iri-listen={self.target}",
            f"--state-dir={self.directory}/state",
            f"--audit-log={self.directory}/audit.jsonl",
            *options,
        )
        self.addCleanup(program.stop)
        await program.until(rb"machine runtime at unix:///")
        client = IRIClient(self.target, reactor)
        client.startService()
        self.addCleanup(client.stopService)
        return program, client

    async def create(self, client: IRIClient, class_name: str, **spec: Any) -> str:
        wanted = machine("vm-1", class_name)
        wanted.spec.MergeFrom(pb.MachineSpec(**spec))
        answer = await client.create_machine(pb.CreateMachineRequest(machine=wanted))
        return str(answer.machine.metadata.id)

    async def until_running(self, client: IRIClient) -> pb.Machine:
        while True:
            (found,) = (await client.list_machines(pb.ListMachinesRequest())).machines
            if found.status.state == pb.MACHINE_RUNNING:
                return found
            await pause()

    async def console(self, client: IRIClient, id: str) -> User:
        told = await client.exec(pb.ExecRequest(machine_id=id))
        return await open_console(told.url)


class GuestTests(MachinesCase):
    """Devices and configuration of the guest."""

    async def test_u_boot(self) -> None:
        """U-Boot sees virtio devices, and the entries for ignition and host name."""
        _, client = await self.start()
        id = await self.create(
            client,
            "boot",
            ignition_data=b'{"ignition": {"version": "3.4.0"}}',
            guest_config=pb.GuestConfig(hostname="vm-1"),
            volumes=[pb.Volume(name="data", local_disk=pb.LocalDisk(size_bytes=1 << 20))],
            network_interfaces=[pb.NetworkInterface(name="nic")],
        )
        await self.until_running(client)
        user = await self.console(client, id)
        await self.until_printed(user, b"=> ")
        user.stream.write(b"pci\r")
        await self.until_printed(user, b"0x1af4")  # virtio's vendor
        user.stream.write(b"qfw list\r")
        await self.until_printed(user, b"opt/com.coreos/config")
        await self.until_printed(user, b"opt/dev.twisted-exec/hostname")

    async def until_printed(self, user: User, wanted: bytes) -> None:
        while wanted not in user.got:
            self.assertIsNone(user.ending)
            await pause()


class KeptTests(MachinesCase):
    """``--keep-machines``, and a runtime that is killed."""

    async def test_killed(self) -> None:
        """With it, QEMU, the machine's identity and its console survive a killed runtime."""
        first, client = await self.start("--keep-machines")
        id = await self.create(client, "tiny")
        await self.until_running(client)
        before = self.pids()
        self.assertEqual(len(before), 1)
        early = await self.console(client, id)
        while b"ok" not in early.got:
            await pause()
        await first.stop(signal.SIGKILL)
        self.assertEqual(self.pids(), before)

        second, client = await self.start("--keep-machines")
        found = await self.until_running(client)
        self.assertEqual((found.metadata.id, self.pids()), (id, before))
        user = await self.console(client, id)
        user.stream.write(b"a")
        while b"a." not in user.got:
            await pause()
        self.assertEqual(user.got[:2], b"ok")  # printed before the first runtime was killed
        await client.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        self.assertEqual(self.pids(), [])
        await second.stop()
        self.assertNotIn(b"Traceback", second.output)

    async def test_not_asked_for(self) -> None:
        """Without it, no machine survives a killed runtime."""
        first, client = await self.start()
        await self.create(client, "tiny")
        await self.until_running(client)
        self.assertEqual(len(self.pids()), 1)
        await first.stop(signal.SIGKILL)
        while self.pids():
            await pause()

    async def test_forgotten(self) -> None:
        """A start without it, where machines are kept, fails with one line and the remedy."""
        first, client = await self.start("--keep-machines")
        await self.create(client, "tiny", power=pb.POWER_OFF)
        await first.stop()
        program = twistd(
            "exec-runtime",
            f"--config={self.directory}/runtime.yaml",
            f"--iri-listen={self.target}",
            f"--state-dir={self.directory}/state",
        )
        self.addCleanup(program.stop)
        self.assertEqual(await program.ended, 1)
        self.assertIn(b"1 machines that are kept, with their disks: start with", program.output)
        self.assertNotIn(b"Traceback", program.output)


class ChainTests(MachinesCase):
    """The same through the API."""

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.deployment = Deployment(os.path.join(self.directory, "lab"))
        self.addCleanup(self.deployment.stop)
        shutil.copy(f"{self.directory}/runtime.yaml", self.deployment.path("runtime.yaml"))
        await self.deployment.start_api()
        await self.deployment.start_runtime("--keep-machines")
        await self.deployment.start_poollet()
        made = machine_class("tiny", "16Mi")
        await self.deployment.client.create(kinds.MACHINECLASSES.resource, made)

    def mark(self) -> str:
        with open(self.deployment.path("runtime-state/runtime-id")) as file:
            return file.read().strip() + "/"

    async def until_seen(self, seen: Callable[[Object], bool]) -> Object:
        while True:
            found = await self.deployment.client.get(MACHINES, "vm-1", "default")
            if seen(found):
                return found
            await pause()

    async def test_life(self) -> None:
        """
        A machine waits for its image with a condition, gets a disk while it runs, and survives a
        killed runtime; its console remains that of the same machine.
        """
        client = self.deployment.client
        body = machine_object("vm-1", "tiny")
        body["spec"]["volumes"] = [
            {"name": "root", "device": "oda", "localDisk": {"image": "system.raw"}}
        ]
        await client.create(MACHINES, body, "default")
        found = await self.until_seen(lambda one: "ImageMissing" in json.dumps(one))
        self.assertIn("copy it there", json.dumps(found["status"]))
        with open(os.path.join(self.images, "system.raw"), "wb") as file:
            file.truncate(1 << 20)
        await self.deployment.machine_in_state("vm-1", "Running")

        more = [*body["spec"]["volumes"], {"name": "data", "device": "odb", "emptyDisk": {}}]
        await client.patch(MACHINES, "vm-1", {"spec": {"volumes": more}}, "default")
        found = await self.until_seen(
            lambda one: (
                [volume["state"] for volume in one["status"].get("volumes", [])]
                == ["Attached", "Attached"]
            )
        )

        (before,) = self.pids()
        await self.deployment.runtime.stop(signal.SIGKILL)
        await self.deployment.start_runtime("--keep-machines")
        screen = await self.until_console()
        await screen.ask(b"a", rb"a\.")
        await screen.leave()
        again = await self.until_seen(lambda one: one["status"].get("state") == "Running")
        self.assertEqual(again["status"]["machineID"], found["status"]["machineID"])
        self.assertEqual(self.pids(), [before])

        await client.delete(MACHINES, "vm-1", "default")
        await gone(client, MACHINES, "vm-1", "default")
        self.assertEqual(self.pids(), [])

    async def until_console(self) -> Screen:
        """Open the console, and repeat until the poollet has found the runtime again."""
        while True:
            try:
                return await watch(self.deployment.admin, "vm-1")
            except APIError:
                await pause()
