"""
Tests for :mod:`twisted_exec.runtimes.console_access`, with real ptys.
"""

from __future__ import annotations

import os

from twisted.internet import reactor

from tests.contracts.machine_runtime import (
    machine,
)
from tests.tiers import PROGRAMS
from twisted_exec.api.display import BANNER
from twisted_exec.api.obstacles import Obstacle, obstacles_of
from twisted_exec.api.status import (
    Conflict,
    NotFound,
    TooManyRequests,
)
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant, RequestCache, StreamLinks
from twisted_exec.streaming.interfaces import MACHINE_DELETED, POWERED_OFF
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.stream_options import CONSOLE

from .support import RACK, MachineCase


class LogTests(MachineCase):
    """Logs of consoles."""

    starts = PROGRAMS

    async def test_goes_on(self) -> None:
        """The log of a machine goes on through its end, and through power off and on."""
        runtime, id = await self.start()
        _, journal = runtime.read_log(Grant(id))
        stream = self.attach(runtime, id)
        stream.viewer.data_received(b"echo a$((40+2))a; exit\n")
        await self.until(lambda: b"a42a" in journal.read(0, 1 << 20))
        await self.until(lambda: stream.ending)
        await self.until_state(runtime, id, pb.MACHINE_RUNNING)
        change = pb.UpdateMachinePowerRequest(machine_id=id, power=pb.POWER_OFF)
        await runtime.update_machine_power(change)
        await self.until_state(runtime, id, pb.MACHINE_STOPPED)
        self.assertIs(runtime.read_log(Grant(id))[1], journal)
        self.assertFalse(journal.closed)
        off = journal.end
        change = pb.UpdateMachinePowerRequest(machine_id=id, power=pb.POWER_ON)
        await runtime.update_machine_power(change)
        await self.until(lambda: journal.end > off)
        self.assertIn(b"a42a", journal.read(0, 1 << 20))

    async def test_deleted(self) -> None:
        """It ends with the machine, at once, whatever its processes still do."""
        runtime, id = await self.start()
        _, journal = runtime.read_log(Grant(id))
        deleting = runtime.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        self.assertTrue(journal.closed)
        with self.assertRaises(NotFound):
            runtime.read_log(Grant(id))
        await deleting

    async def test_restart(self) -> None:
        """What a machine printed is in the log of the machine that is created again for its UID."""
        uid = "0b3f6c3a-52c1-4b43-9a39-3f4d2a6c8f10"
        request = pb.CreateMachineRequest(machine=machine("x", "shell", uid=uid))
        first = await self.make_runtime()
        id = (await first.create_machine(request)).machine.metadata.id
        await self.until_state(first, id, pb.MACHINE_RUNNING)
        stream = self.attach(first, id)
        stream.viewer.data_received(b"echo a$((40+2))a\n")
        await self.until(lambda: b"a42a" in stream.got)
        epoch = first.read_log(Grant(id))[1].epoch
        await first.stopService()

        second = await self.make_runtime()
        again = (await second.create_machine(request)).machine.metadata.id
        self.assertNotEqual(again, id)
        await self.until_state(second, again, pb.MACHINE_RUNNING)
        _, journal = second.read_log(Grant(again))
        self.assertEqual(journal.epoch, epoch)
        self.assertIn(b"a42a", journal.read(0, 1 << 20))
        self.assertEqual([boot.number for boot in journal.boots()], [1, 2])
        kinds = [event.kind for event in journal.events(0, journal.end)]
        self.assertEqual(kinds[:5], ["boot", "join", "role", "leave", "boot"])
        self.assertIn(b"a42a", self.attach(second, again).got)

    async def test_deleted_machine(self) -> None:
        """What a deleted machine printed is read by its UID, also after a restart, and has an end."""
        uid = "0b3f6c3a-52c1-4b43-9a39-3f4d2a6c8f10"
        request = pb.CreateMachineRequest(machine=machine("x", "shell", uid=uid))
        runtime = await self.make_runtime()
        id = (await runtime.create_machine(request)).machine.metadata.id
        await self.until_state(runtime, id, pb.MACHINE_RUNNING)
        stream = self.attach(runtime, id)
        stream.viewer.data_received(b"echo a$((40+2))a\n")
        await self.until(lambda: b"a42a" in stream.got)
        self.assertFalse(runtime.read_log(Grant("", uid))[1].closed)
        await runtime.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        for restarts in (False, True):
            if restarts:
                await runtime.stopService()
                runtime = await self.make_runtime()
            url = (await runtime.log(console_pb2.LogRequest(), machine_uid=uid)).url
            self.assertIn("/log/", url)
            subject, journal = runtime.read_log(Grant("", uid))
            self.assertEqual(subject.uid, uid)
            await self.until(
                lambda journal=journal: b"a42a" in journal.read(journal.start, 1 << 20)
            )  # type: ignore[misc]
            self.assertTrue(journal.closed)
        for other in ("", uid.replace("0", "1"), "../" + uid, id):
            with self.assertRaises(NotFound):
                await runtime.log(console_pb2.LogRequest(), machine_uid=other)
        again = (await runtime.create_machine(request)).machine.metadata.id
        await self.until_state(runtime, again, pb.MACHINE_RUNNING)
        _, journal = runtime.read_log(Grant("", uid))
        self.assertFalse(journal.closed)
        await self.until(lambda: b"a42a" in journal.read(journal.start, 1 << 20))

    async def test_no_url(self) -> None:
        """Without a place to serve logs there is no URL."""
        runtime, id = await self.start(links=StreamLinks(exec_url=str))
        self.assertEqual((await runtime.log(console_pb2.LogRequest(machine_id=id))).url, "")


class ConsoleTests(MachineCase):
    """Consoles by token."""

    starts = PROGRAMS

    async def test_subject(self) -> None:
        """The machine's own names, for audit."""
        runtime, id = await self.start()
        subject, _ = runtime.attach(Grant(id, machine_uid="uid-x"))
        self.assertEqual(
            (subject.namespace, subject.machine, subject.uid), ("default", "x", "uid-x")
        )

    async def test_banner(self) -> None:
        """A new session has the banner of now, printable also if the poollet has not checked it."""
        runtime, id = await self.start()
        for banner, shown in (("ask\x1b[2J ops\n2", ["banner: ask[2J ops | 2"]), ("\x07", [])):
            await runtime.update_machine_annotations(
                pb.UpdateMachineAnnotationsRequest(machine_id=id, annotations={BANNER: banner})
            )
            stream = MarkStream(options=CONSOLE)
            runtime.attach(Grant(id))[1].attached(stream)
            self.assertEqual([each for each in stream.notices if "banner" in each], shown)

    async def test_two_viewers(self) -> None:
        """Two viewers see one shell; the later one gets the earlier output."""
        runtime, id = await self.start()
        ann, bob = self.attach(runtime, id), self.attach(runtime, id)
        ann.viewer.data_received(b"echo $((6 * 7))x\n")
        await self.until(lambda: b"42x" in bob.got and b"42x" in ann.got)
        self.assertIn(b"42x", self.attach(runtime, id).got)

    async def test_exit_status(self) -> None:
        """A shell that ends tells its viewers; the machine stays, with a new shell."""
        runtime, id = await self.start()
        ann = self.attach(runtime, id)
        ann.viewer.data_received(b"exit 7\n")
        await self.until(lambda: ann.ending)
        assert ann.ending is not None
        self.assertEqual(ann.ending.exit_code, 7)
        bob = self.attach(runtime, id)
        await self.until(lambda: not bob.input_paused)
        bob.viewer.data_received(b"echo $((6 * 7))x\n")
        await self.until(lambda: b"42x" in bob.got)
        self.assertEqual(runtime.machines.records.get(id).state, pb.MACHINE_RUNNING)

    async def test_deleted(self) -> None:
        """Deleting tells the viewers which machine it was, and leaves no process and no file."""
        runtime, id = await self.start()
        ann = self.attach(runtime, id)
        await runtime.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        assert ann.ending is not None
        self.assertEqual(ann.ending.reason, MACHINE_DELETED)
        self.assertEqual(ann.ending.message, 'machine "default/x" was deleted')
        self.assertEqual(self.alive(), [])
        self.assertNotIn(id, os.listdir(runtime.directory))
        self.assertEqual(os.listdir(os.path.join(self.directory, "state", "runs")), [])
        with self.assertRaises(NotFound):
            runtime.attach(Grant(id))

    async def test_being_deleted(self) -> None:
        """A machine on its way out is shown as that, and takes no new viewers or wishes."""
        runtime, id = await self.start()
        deleting = runtime.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        self.assertEqual(runtime.machines.records.get(id).state, pb.MACHINE_TERMINATING)
        with self.assertRaises(NotFound):
            runtime.attach(Grant(id))
        with self.assertRaises(Conflict):
            await runtime.update_machine_power(pb.UpdateMachinePowerRequest(machine_id=id))
        await deleting

    async def test_powered_off(self) -> None:
        """Power off ends the viewers; then new ones are refused."""
        runtime, id = await self.start()
        ann = self.attach(runtime, id)
        request = pb.UpdateMachinePowerRequest(machine_id=id, power=pb.POWER_OFF)
        await runtime.update_machine_power(request)
        assert ann.ending is not None
        self.assertEqual(ann.ending.reason, POWERED_OFF)
        await self.until_state(runtime, id, pb.MACHINE_STOPPED)
        self.assertEqual(self.alive(), [])
        with self.assertRaises(Conflict) as caught:
            runtime.attach(Grant(id))
        self.assertEqual(caught.exception.message, 'machine "default/x" is powered off')
        self.assertEqual(obstacles_of(caught.exception), (Obstacle.POWERED_OFF,))

    async def test_dead_line(self) -> None:
        """The console of a machine that cannot start is refused at once, with the reason."""
        runtime = await self.make_runtime(RACK)
        template = machine("wbe-1", "rack")
        answer = await runtime.create_machine(pb.CreateMachineRequest(machine=template))
        id = answer.machine.metadata.id
        why = (
            'machine "default/wbe-1" cannot start: no line is called "default/wbe-1"; '
            "free lines are: web-1"
        )
        with self.assertRaises(Conflict) as caught:
            runtime.attach(Grant(id))
        self.assertEqual(caught.exception.message, why)
        with self.assertRaises(Conflict) as caught:
            await runtime.exec(pb.ExecRequest(machine_id=id))
        self.assertEqual(caught.exception.message, why)

    async def test_full(self) -> None:
        """With too many outstanding tokens a caller gets a time to retry."""
        cache = RequestCache(reactor, limit=1)  # type: ignore[arg-type]
        runtime, id = await self.start(cache=cache)
        await runtime.exec(pb.ExecRequest(machine_id=id))
        with self.assertRaises(TooManyRequests) as caught:
            await runtime.exec(pb.ExecRequest(machine_id=id))
        self.assertGreater(caught.exception.retry_after_seconds or 0, 0)
