"""
Machines that outlive their runtime: :mod:`twisted_exec.runtimes.service` with ``keep_machines``.
"""

from __future__ import annotations

import os
import shutil
import signal
from typing import Any

from twisted.internet.defer import Deferred

from tests.console.doubles import MemoryStream
from tests.contracts.machine_runtime import machine
from tests.runtimes.qemus import COUNTER, QemuCase, boot_rom
from tests.runtimes.support import SHELL, end_keeper
from tests.tiers import PROGRAMS
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant
from twisted_exec.runtimes.machine_storage import RetainedMachinesError
from twisted_exec.runtimes.processes import ProcessFamily, read_process
from twisted_exec.runtimes.qemu.driver import QemuDriver
from twisted_exec.runtimes.service import MachineRuntime
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, TerminalSize


class KeptCase(QemuCase):
    """Runtimes one after the other, in one state directory."""

    def setUp(self) -> None:
        super().setUp()
        self.runtimes: list[MachineRuntime] = []
        self.addCleanup(lambda: Deferred.fromCoroutine(self.end_all()))

    async def end_all(self) -> None:
        """End the machines that a test leaves running; its runtimes are stopped before."""
        await ProcessFamily(self.table, lambda mark: mark.startswith(f"{self.mark}/")).end()
        for runtime in self.runtimes[-1:]:
            await end_keeper(runtime._state.keeper)  # It outlives a runtime by design.
        for runtime in self.runtimes:
            shutil.rmtree(runtime.directory, ignore_errors=True)

    async def start(self, **options: Any) -> MachineRuntime:
        vm = {
            "name": "vm",
            "driver": "qemu",
            "firmware": self.rom(),
            "capabilities": {"cpu": 1, "memory": "16Mi"},
        }
        options.setdefault("keep_machines", True)
        runtime = await self.make_runtime(SHELL, vm, **options)
        self.runtimes.append(runtime)
        return runtime

    async def create(self, runtime: MachineRuntime, class_name: str = "vm", **spec: Any) -> str:
        request = machine("x", class_name)
        request.spec.MergeFrom(pb.MachineSpec(**spec))
        answer = await runtime.create_machine(pb.CreateMachineRequest(machine=request))
        id = str(answer.machine.metadata.id)
        if request.spec.power == pb.POWER_ON:
            await self.until_running(runtime, id)
        return id

    async def until_running(self, runtime: MachineRuntime, id: str) -> None:
        await self.until(lambda: runtime.machines.records.get(id).state == pb.MACHINE_RUNNING)

    def attach(self, runtime: MachineRuntime, id: str) -> MemoryStream:
        _, viewer = runtime.attach(Grant(id))
        return MemoryStream(viewer)

    def text(self, runtime: MachineRuntime, id: str) -> bytes:
        """Everything in the journal of a machine."""
        _, journal = runtime.read_log(Grant(id))
        parts, offset = [], journal.start
        while data := journal.read(offset, 1 << 20):
            parts.append(data)
            offset += len(data)
        return b"".join(parts)

    def kinds(self, runtime: MachineRuntime, id: str) -> list[str]:
        _, journal = runtime.read_log(Grant(id))
        return [event.kind for event in journal.events(0, journal.end)]

    def pids(self) -> list[int]:
        """Processes of machines of any of these runtimes."""
        return self.alive()

    def told(self, runtime: MachineRuntime) -> list[str]:
        return [event.spec.reason for event in runtime.machines.records.events]


class KeptTests(KeptCase):
    """A machine that goes on."""

    starts = PROGRAMS

    async def test_found_again(self) -> None:
        """QEMU outlives a runtime that is stopped; the next one has the machine and its console."""
        first = await self.start()
        id = await self.create(
            first, volumes=[pb.Volume(name="data", local_disk=pb.LocalDisk(size_bytes=1 << 20))]
        )
        viewer = self.attach(first, id)
        await self.until(lambda: b"ok" in viewer.got)
        (pid,) = self.pids()
        await first.stopService()
        assert viewer.ending is not None
        self.assertEqual(viewer.ending.reason, SHUTTING_DOWN)
        self.assertEqual(self.pids(), [pid])

        second = await self.start()
        await self.until_running(second, id)
        self.assertEqual(self.pids(), [pid])
        self.assertIn("Adopted", self.told(second))
        viewer = self.attach(second, id)
        viewer.viewer.data_received(b"a")
        await self.until(lambda: b"a." in viewer.got)
        self.assertIn(b"ok", viewer.got)  # printed before the restart
        (entry,) = (await second.list_machines(pb.ListMachinesRequest())).machines
        self.assertEqual(entry.metadata.labels, machine("x", "vm").metadata.labels)
        self.assertEqual([each.name for each in entry.status.volumes], ["data"])

        await second.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        self.assertEqual(self.pids(), [])
        # The directory goes as soon as the disk answers.
        await self.until(lambda: not os.listdir(os.path.join(self.directory, "state", "machines")))

    async def test_twice(self) -> None:
        """It is found again and again, and ends when its runtime powers it off."""
        id = await self.create(await self.start())
        for _ in range(2):
            await self.runtimes[-1].stopService()
            runtime = await self.start()
            await self.until_running(runtime, id)
        await runtime.update_machine_power(
            pb.UpdateMachinePowerRequest(machine_id=id, power=pb.POWER_OFF)
        )
        await self.until(lambda: runtime.machines.records.get(id).state == pb.MACHINE_STOPPED)
        self.assertEqual(self.pids(), [])
        await runtime.stopService()
        last = await self.start()
        self.assertEqual(last.machines.records.get(id).state, pb.MACHINE_STOPPED)
        self.assertEqual(self.pids(), [])

    async def test_ended_meanwhile(self) -> None:
        """A machine that ended between two runtimes is started again, with its disks."""
        first = await self.start()
        disk = pb.Volume(name="data", local_disk=pb.LocalDisk(size_bytes=1 << 20))
        id = await self.create(first, volumes=[disk])
        disks = os.path.join(self.directory, "state", "machines", id, "disks")
        (name,) = os.listdir(disks)
        before = os.stat(os.path.join(disks, name)).st_ino
        await first.stopService()
        (pid,) = self.pids()
        os.kill(pid, signal.SIGKILL)
        await self.until(lambda: read_process(pid) is None)
        second = await self.start()
        await self.until_running(second, id)
        self.assertNotEqual(self.pids(), [pid])
        self.assertEqual(os.stat(os.path.join(disks, name)).st_ino, before)

    async def test_ends_under_the_next(self) -> None:
        """The end of a machine that was adopted is noticed."""
        first = await self.start()
        id = await self.create(first)
        await first.stopService()
        second = await self.start()
        await self.until_running(second, id)
        viewer = self.attach(second, id)
        viewer.viewer.data_received(b"!")
        await self.until(lambda: second.machines.records.get(id).state == pb.MACHINE_STOPPED)
        assert viewer.ending is not None
        self.assertIn("powered itself off", viewer.ending.message)

    async def test_hangs(self) -> None:
        """A machine that does not answer the next runtime is ended and started again."""
        first = await self.start()
        id = await self.create(first)
        await first.stopService()
        (pid,) = self.pids()
        os.kill(pid, signal.SIGSTOP)
        limits = self.patch(QemuDriver, "start_seconds", 3.0)
        second = await self.start()
        await self.until(lambda: pid not in self.pids())
        limits.restore()  # the new one may take longer
        await self.until_running(second, id)
        self.assertNotIn(pid, self.pids())

    async def test_stopped_while_it_starts(self) -> None:
        """QEMU goes on that is starting, or is being adopted, when the runtime stops."""
        first = await self.start()
        request = pb.CreateMachineRequest(machine=machine("x", "vm"))
        id = (await first.create_machine(request)).machine.metadata.id
        await self.until(self.pids)
        self.assertIsNone(first.machines.supervisors[id].run)
        await first.stopService()
        pids = self.pids()
        for _ in range(2):
            runtime = await self.start()
            self.assertIsNone(runtime.machines.supervisors[id].run)
            await runtime.stopService()
        last = await self.start()
        await self.until_running(last, id)
        self.assertEqual(self.pids(), pids)
        viewer = self.attach(last, id)
        viewer.viewer.data_received(b"a")
        await self.until(lambda: b"a." in viewer.got)

    async def test_off(self) -> None:
        """A machine that is off is kept as well; and so are annotations and volumes that changed."""
        first = await self.start()
        id = await self.create(first, power=pb.POWER_OFF, ignition_data=b"secret")
        await first.attach_volume(
            pb.AttachVolumeRequest(machine_id=id, volume=pb.Volume(name="late"))
        )
        await first.update_machine_annotations(
            pb.UpdateMachineAnnotationsRequest(machine_id=id, annotations={"a": "b"})
        )
        await first.stopService()
        second = await self.start()
        record = second.machines.records.get(id)
        self.assertEqual([each.name for each in record.spec.volumes], ["late"])
        self.assertEqual(record.metadata.annotations, {"a": "b"})
        self.assertEqual((record.spec.ignition_data, record.ignition_data), (b"", b"secret"))
        retained = os.path.join(self.directory, "state", "machines", id, "machine")
        self.assertEqual(os.stat(retained).st_mode & 0o777, 0o600)

    async def test_deleted_meanwhile(self) -> None:
        """A change during the deletion does not restore a machine."""
        runtime = await self.start()
        id = await self.create(runtime)
        record = runtime.machines.records.get(id)
        changing = runtime.attach_volume(
            pb.AttachVolumeRequest(machine_id=id, volume=pb.Volume(name="late"))
        )
        changing.addErrback(lambda failure: None)
        await runtime.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        await changing
        runtime.machines.save(record)
        # The directory goes as soon as the disk answers.
        await self.until(lambda: not os.listdir(os.path.join(self.directory, "state", "machines")))


class ShellTests(KeptCase):
    """Shells that go on, as children of the keeper."""

    starts = PROGRAMS

    async def kept(self, command: str, **options: Any) -> tuple[MachineRuntime, str]:
        """A runtime with a machine that runs a script; further runtimes have the same class."""
        self.shell = {**SHELL, "command": ["/bin/sh", "-c", command], **options}
        first = await self.start()
        return first, await self.create(first, "shell")

    async def start(self, **options: Any) -> MachineRuntime:
        options.setdefault("keep_machines", True)
        runtime = await self.make_runtime(self.shell, **options)
        self.runtimes.append(runtime)
        return runtime

    async def test_found_again(self) -> None:
        """A shell outlives a runtime that is stopped; nothing that it prints is missing."""
        first, id = await self.kept(
            "stty -echo; echo up; read x; echo after; read y; echo end; cat"
        )
        viewer = self.attach(first, id)
        await self.until(lambda: b"up" in viewer.got)
        viewer.viewer.window_changed(TerminalSize(132, 50))
        before = self.pids()
        await first.stopService()
        assert viewer.ending is not None
        self.assertEqual(viewer.ending.reason, SHUTTING_DOWN)
        self.assertEqual(self.pids(), before)

        second = await self.start()
        await self.until_running(second, id)
        self.assertEqual(self.pids(), before)
        self.assertIn("Adopted", self.told(second))
        viewer = self.attach(second, id)
        viewer.viewer.data_received(b"\r")
        await self.until(lambda: b"after" in viewer.got)
        await second.stopService()
        third = await self.start()
        await self.until_running(third, id)
        self.attach(third, id).viewer.data_received(b"\r")
        await self.until(lambda: b"end\r\n" in self.text(third, id))
        self.assertEqual(self.text(third, id), b"up\r\nafter\r\nend\r\n")
        self.assertNotIn("gap", self.kinds(third, id))
        await third.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        self.assertEqual(self.pids(), [])
        await third.stopService()
        self.assertFalse(os.path.exists(third.directory))

    async def test_ended_meanwhile(self) -> None:
        """A shell that ended meanwhile is found with its status; its class decides about a restart."""
        script = "echo up; while [ ! -e go ]; do sleep 0.05; done; echo bye; exit 3"
        first, id = await self.kept(script, directory=self.directory, restart="never")
        await self.until(lambda: b"up" in self.text(first, id))
        await first.stopService()
        with open(os.path.join(self.directory, "go"), "w"):
            await self.until(lambda: not self.pids())
        second = await self.start()
        record = second.machines.records.get(id)
        await self.until(lambda: record.state == pb.MACHINE_STOPPED)
        (condition,) = record.to_machine().status.machine_conditions
        self.assertEqual(condition.message, "the process ended with exit code 3")
        # A journal reads as empty while its disk does not answer.
        await self.until(lambda: self.text(second, id) == b"up\r\nbye\r\n")

    async def test_powered_off_meanwhile(self) -> None:
        """A shell that was to be switched off when its runtime was killed ends at the next start."""
        first, id = await self.kept("trap '' HUP; echo up; sleep 1000")
        await self.until(lambda: b"up" in self.text(first, id))
        record = first.machines.records.get(id)
        record.spec.power = pb.POWER_OFF
        first.machines.save(record)
        await first.stopService()
        second = await self.start()
        self.assertEqual(second.machines.records.get(id).state, pb.MACHINE_STOPPED)
        self.assertEqual(self.pids(), [])

    async def test_keeper_is_killed(self) -> None:
        """A shell whose keeper was killed starts again, also if no runtime ran at that time."""
        first, id = await self.kept("trap '' HUP; echo up; sleep 1000")
        await self.until(lambda: b"up" in self.text(first, id))
        before = self.pids()
        await first.stopService()
        process = read_process(before[0])
        assert process is not None
        while process.parent in before:
            process = read_process(process.parent)
            assert process is not None
        os.kill(process.parent, signal.SIGKILL)
        second = await self.start()
        await self.until(lambda: self.text(second, id).count(b"up") == 2)
        self.assertFalse(set(self.pids()) & set(before))


class NotKeptTests(KeptCase):
    """Machines that end with their runtime."""

    starts = PROGRAMS

    async def test_shells(self) -> None:
        """Shells of an earlier start with the option end, because they have no disks."""
        first = await self.start()
        await self.create(first, "shell")
        await first.stopService()
        self.assertNotEqual(self.pids(), [])
        second = await self.start(keep_machines=False)
        self.assertEqual((self.pids(), len(second.machines.records)), ([], 0))
        self.assertEqual(os.listdir(second.directory), [])  # the keeper has ended as well

    async def test_without(self) -> None:
        """Without the option machines end, and their disks are deleted."""
        runtime = await self.start(keep_machines=False)
        await self.create(runtime, volumes=[pb.Volume(name="data")])
        machines = os.path.join(self.directory, "state", "machines")
        self.assertEqual(len(os.listdir(machines)), 1)
        await runtime.stopService()
        self.assertEqual(self.pids(), [])
        # They go as soon as the disk answers.
        await self.until(lambda: not os.listdir(machines))

    async def test_forgotten(self) -> None:
        """A runtime that keeps none does not start where some are kept: it would take their disks."""
        first = await self.start()
        await self.create(first, power=pb.POWER_OFF)
        await first.stopService()
        with self.assertRaises(RetainedMachinesError) as caught:
            await self.start(keep_machines=False)
        self.assertIn("1 machines that are kept", str(caught.exception))
        self.assertIn("--keep-machines", str(caught.exception))

    async def test_class_is_gone(self) -> None:
        """A machine of a class that is not offered waits on the disk; its processes end."""
        first = await self.start()
        id = await self.create(first)
        await first.stopService()
        second = await self.make_runtime(SHELL, keep_machines=True)
        self.assertEqual((self.pids(), len(second.machines.records)), ([], 0))
        await second.stopService()
        third = await self.start()
        await self.until_running(third, id)


class OutputTests(KeptCase):
    """Output from while no runtime runs."""

    starts = PROGRAMS
    exact = True

    def rom(self) -> str:
        path = os.path.join(self.directory, "counter.rom")
        with open(path, "wb") as file:
            file.write(boot_rom(COUNTER))
        return path

    async def test_every_byte(self) -> None:
        """The journal of the next runtime has what the machine printed meanwhile, without a gap."""
        first = await self.start()
        id = await self.create(first)
        await self.until(lambda: len(self.text(first, id)) > 1000)
        await first.stopService()
        log = os.path.join(self.directory, "state", "machines", id, "serial.log")
        size = os.path.getsize(log)
        await self.until(lambda: os.path.getsize(log) > size + 2000)
        second = await self.start()
        await self.until_running(second, id)
        _, journal = second.read_log(Grant(id))
        end = journal.end
        await self.until(lambda: len(self.text(second, id)) > end + 1000)
        lines = self.text(second, id).split(b"\n")[:-1]
        self.assertEqual(lines, [b"%08x" % number for number in range(len(lines))])
        kinds = [event.kind for event in journal.events(0, journal.end)]
        self.assertEqual(kinds, ["boot"])
