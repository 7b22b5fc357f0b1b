"""
Tests for :mod:`twisted_exec.runtimes.supervised_machines`, with real ptys.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import capturedLogs, formatEvent

from tests.contracts.machine_runtime import (
    machine,
)
from tests.journal.support import FailingLayer
from tests.tiers import PROGRAMS
from twisted_exec.api.conditions import CONSOLE_IN_USE, CONSOLE_OUTPUT
from twisted_exec.api.status import (
    ServiceUnavailable,
)
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant
from twisted_exec.iri.server import IRIServer
from twisted_exec.program.service import SUMMARY
from twisted_exec.runtimes.processes import read_process
from twisted_exec.runtimes.state import FormerRelease, StateInUse
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Role

from .support import RACK, SHELL, MachineCase, RuntimeCase, runtime_id


class TroubleTests(MachineCase):
    """Failures of the host."""

    starts = PROGRAMS

    async def test_no_place(self) -> None:
        """A machine is refused completely if the disk is full."""
        runtime = await self.make_runtime()
        shutil.rmtree(runtime.directory)
        request = pb.CreateMachineRequest(machine=machine("x", "shell"))
        with self.assertRaises(ServiceUnavailable) as caught:
            await runtime.create_machine(request)
        self.assertIn("No such file or directory", caught.exception.message)
        listed = await runtime.list_machines(pb.ListMachinesRequest())
        self.assertEqual(list(listed.machines), [])
        os.mkdir(runtime.directory, 0o700)
        await runtime.create_machine(request)

    async def test_no_record(self) -> None:
        """
        A machine that a later runtime would not find is not started; it says why,
        and is tried again.
        """
        runtime = await self.make_runtime()
        runs = os.path.join(self.directory, "state", "runs")
        os.rmdir(runs)
        answer = await runtime.create_machine(
            pb.CreateMachineRequest(machine=machine("x", "shell"))
        )
        id = answer.machine.metadata.id
        record = runtime.machines.records.get(id)
        await self.until(lambda: record.conditions)
        (condition,) = record.to_machine().status.machine_conditions
        self.assertEqual((condition.type, condition.status), ("Ready", "False"))
        self.assertEqual(condition.reason, "StartFailed")
        self.assertEqual(
            condition.message,
            "the runtime's state directory cannot be written: No such file or directory",
        )
        self.assertEqual(record.state, pb.MACHINE_PENDING)
        os.mkdir(runs)
        await self.until_state(runtime, id, pb.MACHINE_RUNNING)
        # A new process bears its mark as soon as its exec is done, which nobody waits for.
        await self.until(lambda: len(self.alive()) == 1)
        self.assertEqual(list(record.to_machine().status.machine_conditions), [])

    async def test_record_stays(self) -> None:
        """A record that cannot be removed, of processes that are no more, keeps nothing from going off."""
        runtime, id = await self.start()
        record = os.path.join(self.directory, "state", "runs", id)
        os.unlink(record)
        os.mkdir(record)
        change = pb.UpdateMachinePowerRequest(machine_id=id, power=pb.POWER_OFF)
        await runtime.update_machine_power(change)
        await self.until_state(runtime, id, pb.MACHINE_STOPPED)
        await runtime.delete_machine(pb.DeleteMachineRequest(machine_id=id))
        self.assertEqual(self.alive(), [])

    async def test_full_disk(self) -> None:
        """While the disk is full the console works; Events tell of it and of the recovery."""
        runtime, id = await self.start()
        journal = runtime.read_log(Grant(id))[1]
        layer = FailingLayer()
        journal.open_files().open._layer = layer
        layer.error = errno.ENOSPC
        stream = self.attach(runtime, id)
        stream.viewer.data_received(b"echo a$((40+2))a\n")
        await self.until(lambda: b"a42a" in stream.got)
        await self.until(lambda: runtime.journals.failing)
        reasons = [event.spec.reason for event in runtime.machines.records.events]
        self.assertEqual(reasons.count("JournalFull"), 1)
        record = runtime.machines.records.get(id)
        (condition,) = self.stored(runtime.machines.observed(record))
        self.assertEqual((condition.status, condition.reason), ("False", "JournalFull"))
        self.assertEqual(
            condition.message,
            "console output is in memory only, not on disk: No space left on device",
        )
        layer.error = 0
        await self.until(lambda: not runtime.journals.failing)
        event = runtime.machines.records.events[-1].spec
        message = "console output is on disk again; 0 bytes were lost"
        self.assertEqual((event.reason, event.message), ("JournalRecovered", message))
        self.assertEqual(self.stored(runtime.machines.observed(record)), [])

    def stored(self, machine: pb.Machine) -> list[pb.MachineCondition]:
        """Return the conditions that say that output is not on the disk."""
        conditions = machine.status.machine_conditions
        return [each for each in conditions if each.type == "ConsoleStored"]

    async def test_same_disk(self) -> None:
        """A disk that fails for many machines at once is one line of the log, which names some of them."""
        runtime = await self.make_runtime()
        for number in range(12):
            made = machine(f"m-{number:02}", "shell")
            await runtime.create_machine(pb.CreateMachineRequest(machine=made))
        records = list(runtime.machines.records)
        with capturedLogs() as logged:
            for record in records:
                runtime.journals.failed(record.journal_key, "no answer")
            await self.until(lambda: any(" more: " in formatEvent(each) for each in logged))
        (text,) = (text for each in logged if "output is" in (text := formatEvent(each)))
        named = ", ".join(record.label for record in records[:10])
        message = "console output is in memory only, not on disk: no answer"
        self.assertEqual(text, f"{named} and 2 more: {message}")
        reasons = [event.spec.reason for event in runtime.machines.records.events]
        self.assertEqual(reasons.count("JournalFull"), 12)

    async def test_terminal(self) -> None:
        """A terminal, which shows the warning about a disk that fails, shows the end as well."""
        runtime = await self.make_runtime()
        await runtime.create_machine(pb.CreateMachineRequest(machine=machine("a", "shell")))
        (record,) = runtime.machines.records
        with capturedLogs() as logged:
            runtime.journals.recovered(record.journal_key, 7)
            await self.until(lambda: any("on disk again" in formatEvent(each) for each in logged))
        (end,) = (each for each in logged if "on disk again" in formatEvent(each))
        self.assertTrue(end[SUMMARY])


class ConditionTests(MachineCase):
    """What the runtime says about the lines and consoles of its machines."""

    starts = PROGRAMS

    async def test_in_use(self) -> None:
        """While sessions are open, a condition of the machine names the writers."""

        def conditions() -> list[tuple[str, str, str]]:
            (listed,) = self.successResultOf(
                runtime.list_machines(pb.ListMachinesRequest())
            ).machines
            shown = listed.status.machine_conditions
            return [(each.type, each.status, each.message) for each in shown]

        runtime, id = await self.start()
        self.assertEqual(conditions(), [])
        ann = self.attach(runtime, id)
        writers = [(CONSOLE_IN_USE, "True", "the writers are the sessions s")]
        self.assertEqual(conditions(), writers)
        ann.viewer.wished(Role.OBSERVER)
        self.assertEqual(conditions(), [(CONSOLE_IN_USE, "False", "no session is a writer")])
        ann.viewer.detached("client closed")
        self.assertEqual(conditions(), [])

    async def test_last_line(self) -> None:
        """A condition has the last line of the console, if the runtime's operator wants that."""
        runtime, id = await self.start(last_line_seconds=30)
        runtime.read_log(Grant(id))[1].append(b"\r\nlogin: ")
        (listed,) = self.successResultOf(runtime.list_machines(pb.ListMachinesRequest())).machines
        (condition,) = listed.status.machine_conditions
        self.assertEqual((condition.type, condition.reason), (CONSOLE_OUTPUT, "LastLine"))
        self.assertTrue(condition.message)

    async def test_taken_lines(self) -> None:
        """
        A line belongs to its machine from power on to power off, also while the line cannot be
        opened: another machine's message does not offer it.
        """
        lines = {name: {"endpoint": f"unix:{self.directory}/nobody-{name}"} for name in "ab"}
        runtime = await self.make_runtime({**RACK, "lines": lines})

        async def create(name: str) -> str:
            request = pb.CreateMachineRequest(machine=machine(name, "rack"))
            return str((await runtime.create_machine(request)).machine.metadata.id)

        async def message(id: str, reason: str) -> str:
            record = runtime.machines.records.get(id)
            await self.until(lambda: reason in [each.reason for each in record.conditions])
            (text,) = [each.message for each in record.conditions if each.reason == reason]
            return str(text)

        first = await create("a")
        await message(first, "LineFailed")
        await self.until(lambda: not runtime.machines.supervisors[first].is_starting)
        self.assertEqual(
            await message(await create("x"), "NoLine"),
            'no line is called "default/x"; free lines are: b',
        )
        await runtime.update_machine_power(
            pb.UpdateMachinePowerRequest(machine_id=first, power=pb.POWER_OFF)
        )
        self.assertEqual(
            await message(await create("y"), "NoLine"),
            'no line is called "default/y"; free lines are: a, b',
        )


class AnswerTests(MachineCase):
    """Machines that ask for the size of a terminal while no user is there."""

    starts = PROGRAMS

    async def answer(self, times: int, *, answers: bool) -> bytes:
        """Return the answer to a machine that asks so many times, until it has one."""
        asking = (
            "stty raw -echo\n"
            f"for each in $(seq {times}); do\n"
            "  printf '\\033[18t'\n"
            "  answer=$(timeout --foreground 0.2 head -c 10 | tr '\\033' '^')\n"
            '  [ -z "$answer" ] || break\n'
            "done\n"
            'echo "<$answer>"; sleep 99'
        )
        shell = {**SHELL, "command": ["/bin/sh", "-c", asking], "answer_queries": answers}
        runtime = await self.make_runtime(shell)
        created = await runtime.create_machine(
            pb.CreateMachineRequest(machine=machine("x", "shell"))
        )
        _, journal = runtime.read_log(Grant(created.machine.metadata.id))
        await self.until(lambda: journal.end and b">" in journal.read(0, 4000))
        answer: bytes = journal.read(0, 4000).partition(b"<")[2]
        return answer.partition(b">")[0]

    async def test_answered(self) -> None:
        """A machine of a class with ``answer_queries`` has the answer at once."""
        self.assertEqual(await self.answer(300, answers=True), b"^[8;24;80t")

    async def test_not_answered(self) -> None:
        """A machine of another class waits in vain."""
        self.assertEqual(await self.answer(3, answers=False), b"")


class StopTests(MachineCase):
    """The end of the runtime."""

    starts = PROGRAMS

    async def test_stopped(self) -> None:
        """A runtime that stops tells the viewers, and leaves no process."""
        runtime, id = await self.start()
        ann = self.attach(runtime, id)
        await runtime.stopService()
        assert ann.ending is not None
        self.assertEqual(ann.ending.reason, SHUTTING_DOWN)
        self.assertEqual(self.alive(), [])


KILLED = """
import os
import sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from tests.contracts.machine_runtime import machine
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import RequestCache, StreamLinks
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.service import MARK, MachineRuntime
from twisted_exec.runtimes.settings import MachineSettings

async def main():
    table = ProcessTable(reactor, MARK)
    # Until the trap is set, the end of the runtime ends the shell as well.
    up = sys.argv[1] + "-up"
    stubborn = f"trap '' HUP TERM; setsid sleep 1000 & echo > {up}; while :; do sleep 1000; done"
    classes = [
        {"name": "stubborn", "driver": "pty", "command": ["/bin/sh", "-c", stubborn],
         "same_user": True, "capabilities": {"cpu": 1, "memory": "1Mi"}},
        {"name": "vm", "driver": "qemu", "capabilities": {"cpu": 1, "memory": "64Mi"}},
    ]
    runtime = MachineRuntime(
        [one.build(reactor, table) for one in parse({"classes": classes})], table, reactor,
        MachineSettings(), state_directory=sys.argv[1], cache=RequestCache(reactor),
        links=StreamLinks(exec_url=str),
    )
    await runtime.prepare()
    runtime.startService()
    for name in ("stubborn", "vm"):
        await runtime.create_machine(pb.CreateMachineRequest(machine=machine(name, name)))
    while not os.path.exists(up) or any(
        one.state != pb.MACHINE_RUNNING for one in runtime.machines.records
    ):
        pause = Deferred()
        reactor.callLater(0.01, pause.callback, None)
        await pause
    print("running", flush=True)

reactor.callWhenRunning(lambda: Deferred.fromCoroutine(main()).addErrback(print))
reactor.run()
"""


class Child(ProcessProtocol):
    """Another runtime, in a process that is killed."""

    def __init__(self) -> None:
        self.printed = b""
        self.exited: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        self.printed += data

    def processEnded(self, reason: Any) -> None:
        self.exited.callback(None)


class KilledTests(RuntimeCase):
    """After kill -9."""

    starts = PROGRAMS

    async def kill_one(self) -> str:
        """Start a runtime with machines in the state directory, and kill it; :return: its id."""
        child = Child()
        state = os.path.join(self.directory, "state")
        process = reactor.spawnProcess(  # type: ignore[attr-defined]
            child,
            sys.executable,
            [sys.executable, "-c", KILLED, state],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        await self.until(lambda: b"\n" in child.printed or child.exited.called)
        process.signalProcess("KILL")
        await child.exited
        return runtime_id(self.directory)

    async def test_leftovers(self) -> None:
        """
        The next start ends what was left, however stubborn and well hidden, before it offers
        anything.
        """
        former = self.mark = await self.kill_one()
        await self.until(self.alive)
        runtime = await self.make_runtime()
        self.assertEqual(runtime_id(self.directory), former)
        self.assertEqual(self.alive(), [])
        self.assertEqual(os.listdir(runtime.directory), [])
        self.assertEqual(len(runtime.machines.records), 0)

    async def test_strangers_live(self) -> None:
        """A runtime with another state directory does not end this one's machines."""
        runtime = await self.make_runtime()
        await runtime.create_machine(pb.CreateMachineRequest(machine=machine("x", "shell")))
        await self.until(self.alive)
        (pid,) = self.alive()
        start = self.started_at(pid)
        self.directory += "/other"
        os.mkdir(self.directory)
        await self.make_runtime()
        process = read_process(pid)
        assert process is not None
        self.assertEqual(process.start, start)

    async def test_release_0_1(self) -> None:
        """A directory that only release 0.1.0 has used is left alone, and release 0.2.0 is the way."""
        state = Path(self.directory) / "state"
        state.mkdir(mode=0o700)
        (state / "runtime-id").write_text("0" * 32)
        (state / "runtime.lock").touch()
        for name in ("runs", "machines"):
            (state / name).mkdir()
        (state / "runs" / ("1" * 32)).write_text("{}")
        before = {each: each.is_file() and each.read_bytes() for each in state.rglob("*")}
        with self.assertRaises(FormerRelease) as caught:
            await self.make_runtime()
        self.assertIn("start release 0.2.0 with it once, then this release", str(caught.exception))
        after = {each: each.is_file() and each.read_bytes() for each in state.rglob("*")}
        self.assertEqual(after, before)
        (state / "consoles").mkdir(mode=0o700)  # as release 0.2.0 makes it
        await self.make_runtime()

    async def test_in_use(self) -> None:
        """A state directory has one runtime; a second one is refused before it ends anything."""
        runtime = await self.make_runtime()
        with self.assertRaises(StateInUse) as caught:
            await self.make_runtime()
        self.assertIn("another runtime uses the state directory", str(caught.exception))
        await runtime.stopService()
        await self.make_runtime()


class LoadTests(RuntimeCase):
    """Everything at once."""

    starts = PROGRAMS

    async def test_ptys_under_rpc_load(self) -> None:
        """200 ptys are spawned while many calls are under way: nothing hangs, all comes back."""
        runtime = await self.make_runtime({**SHELL, "quantity": 500})
        target = f"unix://{self.directory}/iri/sock"
        server = IRIServer(runtime, target, reactor)
        server.startService()
        self.addCleanup(server.stopService)
        client = IRIClient(target, reactor, timeout_seconds=600)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        await client.version(pb.VersionRequest())
        before = len(os.listdir("/proc/self/fd"))
        calls: list[Any] = []
        for number in range(200):
            creation = machine(f"m{number}", "shell")
            calls.append(client.create_machine(pb.CreateMachineRequest(machine=creation)))
            calls.append(client.list_machines(pb.ListMachinesRequest()))
        await gatherResults(calls)
        await self.until(
            lambda: all(each.state == pb.MACHINE_RUNNING for each in runtime.machines.records)
        )
        await self.until(lambda: len(self.alive()) == 200)
        lanes = DeferredSemaphore(40)  # of more changes at once the runtime refuses some
        for record in runtime.machines.records:
            request = pb.DeleteMachineRequest(machine_id=record.id)
            calls.append(lanes.run(client.delete_machine, request))
        await gatherResults(calls)
        self.assertEqual(self.alive(), [])
        # gRPC opens a few more of its own when it has much to do, and keeps them; two are for the
        # keeper.
        await self.until(lambda: len(os.listdir("/proc/self/fd")) <= before + 10)

    async def test_killed_shell_under_our_hands(self) -> None:
        """A shell that was killed is started again."""
        runtime = await self.make_runtime()
        await runtime.create_machine(pb.CreateMachineRequest(machine=machine("x", "shell")))
        await self.until(self.alive)
        (first,) = self.alive()
        os.kill(first, signal.SIGKILL)
        await self.until(lambda: self.alive() and self.alive() != [first])
