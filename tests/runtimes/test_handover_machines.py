"""
Tests for :mod:`twisted_exec.runtimes.handover`: two runtimes in one process, one after the
other, with a QEMU that goes on.
"""

from __future__ import annotations

import json
import os
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol

from tests.contracts.machine_runtime import machine
from tests.runtimes.lines.test_serial_port import Device
from tests.runtimes.support import RACK
from tests.runtimes.test_service_keep_machines import KeptCase
from tests.tiers import PROGRAMS
from twisted_exec.console.notices import LINE_AGAIN
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant
from twisted_exec.journal.interfaces import EventKind
from twisted_exec.runtimes.handover import CannotHandOver, MachinesHandOver
from twisted_exec.runtimes.lines import device_lock
from twisted_exec.runtimes.state import StateInUse
from twisted_exec.runtimes.viewer_export import restore_viewer
from twisted_exec.streaming.interfaces import Position
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.stream_options import CONSOLE


class MachinesTests(KeptCase):
    """Machines that another runtime continues."""

    starts = PROGRAMS
    exact = True

    async def hand_over(self, first: Any, **options: Any) -> Any:
        """Suspend a runtime, and return the one that continues its machines."""
        handed = MachinesHandOver(first)
        await handed.settle()
        values = json.loads(json.dumps(await handed.suspend()))
        return await self.start(inherited=values, **options)

    async def test_goes_on(self) -> None:
        """The machine has the same process, name and output, and gets what was typed before."""
        first = await self.start()
        id = await self.create(first)
        viewer = self.attach(first, id)
        await self.until(lambda: b"ok" in viewer.got)
        (pid,) = self.pids()
        viewer.viewer.data_received(b"a")
        second = await self.hand_over(first)
        await self.until_running(second, id)
        self.assertEqual(self.pids(), [pid])
        self.assertIsNone(viewer.ending)
        later = self.attach(second, id)
        await self.until(lambda: b"a." in later.got)
        self.assertTrue(later.got.startswith(bytes(viewer.got)))
        (entry,) = (await second.list_machines(pb.ListMachinesRequest())).machines
        self.assertEqual(entry.metadata.id, id)
        self.assertIn("Started", self.told(second))

    async def test_goes_on_after_a_failure(self) -> None:
        """If nothing continues a machine, the same runtime goes on, and viewers have not noticed."""
        first = await self.start()
        id = await self.create(first)
        viewer = self.attach(first, id)
        await self.until(lambda: b"ok" in viewer.got)
        (pid,) = self.pids()
        for key in (b"a", b"b"):
            handed = MachinesHandOver(first)
            await handed.suspend()
            self.assertTrue(viewer.input_paused)
            await handed.unsuspend()
            await self.until_running(first, id)
            viewer.viewer.data_received(key)
            await self.until(lambda key=key: key + b"." in viewer.got)  # type: ignore[misc]
        self.assertEqual(self.pids(), [pid])
        self.assertNotIn(b"twisted-exec", viewer.got)
        await first.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        self.assertEqual(self.pids(), [])

    async def test_output_of_a_failed_successor(self) -> None:
        """What the machine printed while another runtime had it is part of the output."""
        first = await self.start()
        id = await self.create(first)
        viewer = self.attach(first, id)
        await self.until(lambda: b"ok" in viewer.got)
        second = await self.hand_over(first)
        await self.until_running(second, id)
        other = self.attach(second, id)
        await self.until(lambda: not other.input_paused)
        other.viewer.data_received(b"z")
        await self.until(lambda: b"z." in other.got)
        await MachinesHandOver(second).suspend()
        handed = MachinesHandOver(first)
        handed._unsent = {id: b""}
        await handed.unsuspend()
        await self.until(lambda: viewer.got == other.got)

    async def test_off(self) -> None:
        """A machine that is off stays off."""
        first = await self.start()
        id = await self.create(first, power=pb.POWER_OFF)
        second = await self.hand_over(first)
        self.assertEqual(second.machines.records.get(id).state, pb.MACHINE_STOPPED)
        self.assertEqual(self.pids(), [])

    async def test_waiting_session(self) -> None:
        """A session at a machine that is off waits in the other process until the machine is on."""
        limits = ConsoleLimits(restart_seconds=3600)
        first = await self.start(limits=limits)
        id = await self.create(first)
        await self.until_running(first, id)
        _, viewer = first.attach(Grant(id))
        viewer.attached(MarkStream(options=CONSOLE))
        off = pb.UpdateMachinePowerRequest(machine_id=id, power=pb.POWER_OFF)
        await first.update_machine_power(off)
        await self.until(lambda: first.machines.records.get(id).state == pb.MACHINE_STOPPED)
        second = await self.hand_over(first, limits=limits)
        ((_, _, values),) = MachinesHandOver(first).viewers()
        console = MachinesHandOver(second).console(id, waits=True)
        assert console is not None
        restored = restore_viewer(console, values)
        assert restored is not None
        stream = MarkStream(options=CONSOLE)
        restored.resumed(stream, Position(console.journal.epoch, console.journal.end))
        on = pb.UpdateMachinePowerRequest(machine_id=id, power=pb.POWER_ON)
        await second.update_machine_power(on)
        await self.until(lambda: b"ok" in stream.output)
        await self.until(lambda: LINE_AGAIN in stream.notices)

    async def test_obstacle(self) -> None:
        """Without --keep-machines a QEMU ends with its process, so nothing is handed over."""
        first = await self.start(keep_machines=False)
        id = await self.create(first)
        handed = MachinesHandOver(first)
        with self.assertRaisesRegex(CannotHandOver, "class vm .* would end with this process"):
            await handed.suspend()
        self.assertIsNotNone(self.attach(first, id).viewer)

    async def test_disk_hangs(self) -> None:
        """A runtime whose disk does not take the last output keeps its machines."""
        first = await self.start()
        id = await self.create(first)
        viewer = self.attach(first, id)
        await self.until(lambda: b"ok" in viewer.got)

        async def close(*, gives_up: bool) -> bool:
            return gives_up

        patch = self.patch(first.journals, "close", close)
        handed = MachinesHandOver(first)
        with self.assertRaisesRegex(CannotHandOver, "disk does not take the last output"):
            await handed.suspend()
        patch.restore()
        await handed.unsuspend()
        viewer.viewer.data_received(b"a")
        await self.until(lambda: b"a." in viewer.got)

    async def test_class_is_gone(self) -> None:
        """A runtime that does not offer the class of a machine refuses to continue it."""
        first = await self.start()
        await self.create(first)
        handed = MachinesHandOver(first)
        values = await handed.suspend()
        with self.assertRaisesRegex(ValueError, "class 'vm', which this runtime does not offer"):
            await self.make_runtime(inherited=values, keep_machines=True)
        refused = self.made
        await refused._state.close()  # It was not started, so it cannot be stopped.
        await handed.unsuspend()
        await self.until(lambda: len(self.pids()) == 1)

    async def test_one_does_not_go_on(self) -> None:
        """If a machine does not go on, the others do, and the log names it."""

        async def fail(*_: object) -> None:
            raise OSError("too many open files")

        first = await self.start()
        for uid in ("u1", "u2"):
            vm = machine("x", "vm", uid=uid)
            await first.create_machine(pb.CreateMachineRequest(machine=vm))
        records = [record.id for record in first.machines.records]
        other = self.attach(first, records[1])
        await self.until(lambda: b"ok" in other.got)
        handed = MachinesHandOver(first)
        await handed.settle()
        await handed.suspend()
        self.patch(first.machines.supervisors[records[0]], "unsuspend", fail)
        await handed.unsuspend()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        other.viewer.data_received(b"a")
        await self.until(lambda: b"a." in other.got)

    async def test_one_is_not_suspended(self) -> None:
        """A machine that cannot be let go of delays no other one, and goes on with them."""
        first = await self.start()
        ids = []
        for uid in ("u1", "u2"):
            shell = machine("x", "shell", uid=uid)
            answer = await first.create_machine(pb.CreateMachineRequest(machine=shell))
            ids.append(answer.machine.metadata.id)
            await self.until_running(first, ids[-1])
        waits: Deferred[bytes] = Deferred()
        bad, good = (first.machines.supervisors[id] for id in ids)
        suspend = bad.suspend

        async def slow() -> bytes:
            await suspend()
            return await waits

        self.patch(bad, "suspend", slow)
        handed = MachinesHandOver(first)
        await handed.settle()
        suspending = Deferred.fromCoroutine(handed.suspend())
        self.assertTrue(good.is_suspended)
        waits.errback(RuntimeError("a bug"))
        with self.assertRaises(RuntimeError):
            await suspending
        await handed.unsuspend()
        for id in ids:
            viewer = self.attach(first, id)
            viewer.viewer.data_received(b"echo $((6 * 7))\r")
            await self.until(lambda viewer=viewer: b"42" in viewer.got)  # type: ignore[misc]

    async def test_locked(self) -> None:
        """A runtime does not go on while another one has the state directory."""
        first = await self.start()
        handed = MachinesHandOver(first)
        second = await self.start(inherited=await handed.suspend())
        with self.assertRaises(StateInUse):
            await handed.unsuspend()
        await second.stopService()
        await handed.unsuspend()
        await self.create(first)

    async def test_tokens(self) -> None:
        """Attaching with the id of the machine works as before."""
        first = await self.start()
        id = await self.create(first)
        second = await self.hand_over(first)
        subject, _ = second.attach(Grant(id))
        self.assertEqual(subject.machine, first.attach(Grant(id))[0].machine)

    async def check_shell(self, keep: bool) -> None:
        """Hand a shell over, and end it as any other afterwards."""
        first = await self.start(keep_machines=keep)
        id = await self.create(first, "shell")
        viewer = self.attach(first, id)
        await self.until(lambda: not viewer.input_paused)
        viewer.viewer.data_received(b"kept=$((6 * 7)); echo a$kept\r")
        await self.until(lambda: b"a42" in viewer.got)
        before = self.pids()
        second = await self.hand_over(first, keep_machines=keep)
        await self.until_running(second, id)
        self.assertEqual(self.pids(), before)
        later = self.attach(second, id)
        await self.until(lambda: not later.input_paused)
        later.viewer.data_received(b"echo b$kept; exit\r")
        await self.until(lambda: b"b42" in later.got)
        await self.until(lambda: self.pids() and self.pids() != before)
        _, journal = second.read_log(Grant(id))
        kinds: list[str] = []

        def read() -> bool:
            try:
                kinds.extend(event.kind for event in journal.events(0, journal.end))
            except OSError:
                return False  # the disk of a busy machine is late
            return True

        await self.until(read)
        self.assertNotIn("gap", kinds)
        await second.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        self.assertEqual(self.pids(), [])

    async def test_shell(self) -> None:
        """A shell goes on without --keep-machines."""
        await self.check_shell(False)

    async def test_kept_shell(self) -> None:
        """A shell goes on with --keep-machines."""
        await self.check_shell(True)

    async def test_shell_after_a_failure(self) -> None:
        """If nothing continues a shell, the same runtime goes on with it."""
        first = await self.start(keep_machines=False)
        id = await self.create(first, "shell")
        viewer = self.attach(first, id)
        await self.until(lambda: not viewer.input_paused)
        before = self.pids()
        for key in (b"a", b"b"):
            handed = MachinesHandOver(first)
            await handed.suspend()
            await handed.unsuspend()
            await self.until_running(first, id)
            viewer.viewer.data_received(b"echo $((6 * 7))" + key + b"\r")
            await self.until(lambda key=key: b"42" + key in viewer.got)  # type: ignore[misc]
        self.assertEqual(self.pids(), before)
        await first.stopService()
        self.assertEqual(self.pids(), [])

    async def test_line_that_is_opened_again(self) -> None:
        """Where nobody has read a line, its journal has a gap that readers see."""

        class Peer(Protocol):
            def connectionMade(self) -> None:
                self.transport.write(b"up")

        path = os.path.join(self.directory, "line")
        listening: Any = reactor.listenUNIX(path, Factory.forProtocol(Peer))  # type: ignore[attr-defined]
        self.addCleanup(listening.stopListening)
        rack = {**RACK, "lines": {"x": {"endpoint": f"unix:{path}"}}}
        first = await self.make_runtime(rack)
        id = await self.create(first, "rack")
        await self.until(lambda: self.text(first, id) == b"up")
        values = await MachinesHandOver(first).suspend()
        second = await self.make_runtime(rack, inherited=values)
        self.runtimes.append(second)
        await self.until_running(second, id)
        _, journal = second.read_log(Grant(id))
        await self.until(lambda: journal.end == 5)
        (gap,) = journal.events(0, 5, EventKind.GAP)
        self.assertEqual((gap.offset, dict(gap.data)), (2, {"bytes": None, "end": 3}))
        self.assertEqual((journal.read(0, 9), journal.read(3, 9)), (b"up", b"up"))

    async def test_serial_device(self) -> None:
        """A serial device stays open, so that what its machine prints meanwhile is not lost."""
        self.patch(device_lock, "LOCK_DIRECTORY", self.directory)
        device = Device()
        self.addCleanup(device.pull_out)
        rack = {
            "name": "rack",
            "driver": "serial",
            "lines": {"x": {"device": device.path}},
            "capabilities": {"cpu": 1, "memory": "1Gi"},
        }
        first = await self.make_runtime(rack)
        id = await self.create(first, "rack")
        device.says(b"before")
        await self.until(lambda: self.text(first, id) == b"before")
        handed = MachinesHandOver(first)
        values = await handed.suspend()
        device.says(b"meanwhile")
        second = await self.make_runtime(rack, inherited=values)
        self.runtimes.append(second)
        await self.until(lambda: self.text(second, id) == b"beforemeanwhile")
        self.assertNotIn("gap", self.kinds(second, id))
