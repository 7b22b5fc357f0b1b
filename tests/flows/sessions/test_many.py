"""
Large numbers of ptys, created during other calls, and of sessions that end in every order; all of
their resources are released.
"""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from tests import needs, procfs, soak
from tests.flows.consoles import Screen, watch
from tests.flows.deployment import Deployment, machine, pause, settled
from tests.flows.programs import start
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError, GatewayTimeout
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.service import MARK

CHANGE_BYTES = 7 << 10
"""Memory of a remembered object, both as Python dictionaries and as JSON."""
MACHINES = 5
MACHINE = kinds.MACHINES.resource


class ManyPtysTests(TestCase):
    """The runtime alone, under load."""

    starts = PROGRAMS
    exact = True

    async def setUp(self) -> None:
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        await self.deployment.start_runtime()
        self.client = IRIClient(self.deployment.iri_target, reactor)
        self.client.startService()
        self.addCleanup(self.client.stopService)

    async def test_ptys_under_load(self) -> None:
        """
        Many ptys start while other calls keep coming; all run, all end, and no process or descriptor
        is left.
        """
        ptys = soak.figure(self)
        pid = self.deployment.runtime.transport.pid
        # The first machine opens threads and files for good; they do not count.
        await self.client.delete_machine(pb.DeleteMachineRequest(machine_id=await self.create(0)))
        await settled(lambda: len(self.processes()))
        descriptors = procfs.open_descriptors(pid)
        busy = [Deferred.fromCoroutine(self.keep_asking()) for _ in range(4)]
        creating = [Deferred.fromCoroutine(self.create(n)) for n in range(1, ptys + 1)]
        ids = await gatherResults(creating, consumeErrors=True)
        await self.until(lambda machines: len(machines) == ptys and all(map(running, machines)))
        # The kernel shows a mark at the end of exec, after the keeper has heard of it.
        while len(self.processes()) < ptys:
            await pause()
        self.assertEqual(await settled(lambda: len(self.processes())), ptys)
        await gatherResults(
            [self.client.delete_machine(pb.DeleteMachineRequest(machine_id=one)) for one in ids],
            consumeErrors=True,
        )
        self.asking = False
        self.assertTrue(all(await gatherResults(busy, consumeErrors=True)))
        self.assertEqual(self.processes(), [])
        # A slow disk has the logs open for a while.
        while procfs.open_descriptors(pid) > descriptors + 2:
            await pause()

    asking = True

    def processes(self) -> list[int]:
        """Return the processes of the machines, which are children of the keeper."""
        id = Path(self.deployment.path("runtime-state/runtime-id")).read_text().strip()
        found = ProcessTable(reactor, MARK).scan_now()
        return [pid for pid, (_, mark) in found.items() if mark.startswith(f"{id}/")]

    async def keep_asking(self) -> int:
        """Repeat a call until ``asking`` is false; return the number of answers."""
        for count in itertools.count():
            if not self.asking:
                return count
            await self.client.list_machines(pb.ListMachinesRequest())
        raise AssertionError("unreachable")

    async def create(self, number: int) -> str:
        label = {"machinepoollet.ironcore.dev/machine-uid": f"uid-{number}"}
        machine = pb.Machine(spec=pb.MachineSpec(**{"class": "shell"}))
        machine.metadata.labels.update(label)
        answer = await self.client.create_machine(pb.CreateMachineRequest(machine=machine))
        return answer.machine.metadata.id

    async def until(self, condition: Callable[[Any], bool]) -> None:
        while True:
            answer = await self.client.list_machines(pb.ListMachinesRequest())
            if condition(answer.machines):
                return
            await pause()


def running(machine: pb.Machine) -> bool:
    return machine.status.state == pb.MACHINE_RUNNING


class ManySessionsTests(TestCase):
    """Sessions through all three processes."""

    starts = PROGRAMS
    exact = True

    async def setUp(self) -> None:
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()
        self.names = [f"sh-{n}" for n in range(MACHINES)]
        await gatherResults(
            [
                Deferred.fromCoroutine(self.deployment.create_machine(name, "shell"))
                for name in self.names
            ],
            consumeErrors=True,
        )

    async def test_every_order_of_death(self) -> None:
        """
        Many sessions end by the user, by a torn connection, by the process, by the
        user while the machine is off, and by several of these at once; descriptors are back where
        they were, and memory, which the large figure shows.
        """
        orders = [self.leave, self.tear, self.exit, self.power, self.tear_while_exiting]
        rounds = max(len(orders), soak.figure(self) // 2)
        sessions = rounds * MACHINES * soak.figure(self)
        for order in orders:  # allocators and caches reach their size
            await self.round(order)
        before = await self.use()
        for order in itertools.islice(itertools.cycle(orders), rounds):
            await self.round(order)
        for hop, (descriptors, _) in before.items():
            # Hops keep idle connections to each other for half a minute.
            while procfs.open_descriptors(self.pid(hop)) > descriptors + 2:
                await pause()
        after = await self.use()
        for hop, (_, resident) in before.items() if soak.is_large() else ():
            # The allocator keeps some.  Connections left to the garbage collector were
            # 21 MB and more, a thousand sessions that were kept would be 65 MB.
            bound = 16 << 20
            if hop == "api":
                # It remembers each session's beginning and end for watches, up to a number that
                # a thousand of them do not reach; and the allocator keeps more between those.
                bound = sessions * 2 * CHANGE_BYTES + (40 << 20)
            grown = after[hop][1] - resident
            self.assertLess(grown, bound, f"{hop} holds {grown} bytes more")

    async def round(self, end: Callable[[list[Screen]], Awaitable[None]]) -> None:
        """As many viewers as the figure on each of the machines; each has seen the shell answer."""
        screens = await gatherResults(
            [Deferred.fromCoroutine(self.opened(name)) for name in self.names * soak.figure(self)],
            consumeErrors=True,
        )
        await end(screens)
        for screen in screens:
            await screen.ended

    async def opened(self, name: str) -> Screen:
        screen = await watch(self.deployment.admin, name)
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")
        return screen

    async def use(self) -> dict[str, tuple[int, int]]:
        """Descriptors and resident bytes of every hop, once its sessions are gone."""
        found = {}
        for hop in ("api", "poollet", "runtime"):
            pid = self.pid(hop)
            await settled(lambda pid=pid: procfs.open_descriptors(pid))
            found[hop] = (procfs.open_descriptors(pid), procfs.resident_bytes(pid))
        return found

    def pid(self, hop: str) -> int:
        """The process id of a hop."""
        pid: int = getattr(self.deployment, hop).transport.pid
        return pid

    async def leave(self, screens: list[Screen]) -> None:
        for screen in screens:
            screen.transport.loseConnection()

    async def tear(self, screens: list[Screen]) -> None:
        for screen in screens:
            screen.transport.abortConnection()

    async def exit(self, screens: list[Screen]) -> None:
        """End the processes; every viewer receives the exit code."""
        for screen in screens[:MACHINES]:
            screen.type(b"exit 3\n")
        for screen in screens:
            self.assertEqual((await screen.ended).ending.exit_code, 3)
            screen.ended = Deferred()
            screen.ended.callback(None)
        await self.all_in_state("Running")

    async def power(self, screens: list[Screen]) -> None:
        """The users leave while their sessions wait for the machine."""
        for power, state in (("Off", "Shutdown"), ("On", "Running")):
            for name in self.names:
                await self.deployment.client.patch(
                    kinds.MACHINES.resource, name, {"spec": {"power": power}}, "default"
                )
            await self.all_in_state(state)
            for screen in screens:
                screen.transport.loseConnection()

    async def tear_while_exiting(self, screens: list[Screen]) -> None:
        for number, screen in enumerate(screens):
            if number < MACHINES:
                screen.type(b"exit 0\n")  # and stays: a reset may overtake what was typed
            elif number % 3:
                screen.transport.abortConnection()
            elif number % 2:
                screen.transport.loseConnection()

    async def all_in_state(self, state: str) -> None:
        for name in self.names:
            await self.deployment.machine_in_state(name, state)


class ManyLogsTests(TestCase):
    """One kubectl that follows the logs of many machines."""

    starts = PROGRAMS
    exact = True
    skip = needs.kubectl()

    async def test_logs_by_label(self) -> None:
        """
        ``kubectl logs -l app=x -f --prefix`` prints the lines of all machines as they come, each
        once, also after the poollet was killed.
        """
        deployment = Deployment(self.mktemp())
        self.addCleanup(deployment.stop)
        await deployment.start()
        logs = soak.figure(self)
        names = [f"sh-{number}" for number in range(logs)]
        for name in names:
            labelled = machine(name, "shell")
            labelled["metadata"]["labels"] = {"app": "x"}
            await deployment.client.create(MACHINE, labelled, "default")
        for name in names:
            await deployment.machine_in_state(name, "Running")
        argv = ["kubectl", "logs", "-l", "app=x", "-f", "--prefix", f"--max-log-requests={logs}"]
        follower = start(argv, env={"KUBECONFIG": deployment.admin})
        self.addCleanup(follower.stop)
        for word in ("here", "there"):
            for name in names:
                await self.say(deployment, name, word)
            for name in names:
                line = rb"(?m)^\[pod/%b/console\] %b\r$" % (name.encode(), word.encode())
                await follower.until(line)
            if word == "here":
                await deployment.poollet.stop(signal.SIGKILL)
                await deployment.start_poollet()
        for word in (b"here", b"there"):
            lines = re.findall(rb"(?m)^\[pod/\S+/console\] %b\r$" % word, follower.output)
            self.assertEqual((len(lines), len(set(lines))), (logs, logs))
        self.assertIsNone(follower.exit_code)

    async def say(self, deployment: Deployment, name: str, word: str) -> None:
        """Let a machine print a word."""
        while True:
            try:
                screen = await watch(deployment.admin, name)
                break
            except APIError as error:
                # All logs connect at once to a poollet that has just started.
                if error.code != GatewayTimeout.code:
                    raise
        screen.type(b"echo %b''%b\n" % (word[:2].encode(), word[2:].encode()))
        await screen.until(rb"\r\n%b\r\n" % word.encode())
        await screen.leave()
