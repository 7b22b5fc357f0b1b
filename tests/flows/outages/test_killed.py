"""
Each program is killed with SIGKILL at work: acknowledged writes survive, and machines run as their
specs demand.
"""

from __future__ import annotations

import signal
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from tests.flows.consoles import Screen, watch
from tests.flows.deployment import Deployment, gone, machine, pause
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.kube.console_endpoint import ConsoleLost

MACHINES = kinds.MACHINES.resource
LANES = 6


class KilledTests(TestCase):
    """One of three programs is killed."""

    starts = PROGRAMS
    exact = True

    async def setUp(self) -> None:
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        await self.deployment.start_api()

    async def write(self, lane: int, known: dict[str, str]) -> None:
        """
        Create, change and delete machines until the server dies; ``known`` has the acknowledged
        state.
        """
        client = self.deployment.client
        turn = 0
        while True:
            name = f"m-{lane}-{turn}"
            body = machine(name, "shell")
            del body["spec"]["machinePoolRef"]  # keep it unscheduled
            try:
                made = await client.create(MACHINES, body, namespace="default")
                known[name] = made["metadata"]["resourceVersion"]
                if turn % 2:
                    patch = {"metadata": {"labels": {"turn": str(turn)}}}
                    known[name] = ""  # the outcome is unknown until the server answers
                    made = await client.patch(MACHINES, name, patch, "default")
                    known[name] = made["metadata"]["resourceVersion"]
                if turn % 3 == 2:
                    known[name] = ""
                    await client.delete(MACHINES, name, "default")
                    known[name] = "deleted"
            except APIError:
                return
            turn += 1

    async def test_api_server(self) -> None:
        """Writes that a repeatedly killed API server has acknowledged are not lost."""
        known: dict[str, str] = {}
        for round_ in range(3):
            lanes = [
                Deferred.fromCoroutine(self.write(10 * round_ + lane, known))
                for lane in range(LANES)
            ]
            before = len(known)
            while len(known) < before + 40:
                await pause()
            await self.deployment.api.stop(signal.SIGKILL)
            await gatherResults(lanes, consumeErrors=True)
            await self.deployment.start_api()
            listed = await self.deployment.client.list(MACHINES, namespace="default")
            there = {each["metadata"]["name"]: each["metadata"] for each in listed["items"]}
            for name, version in known.items():
                if version == "deleted":
                    self.assertNotIn(name, there)
                elif version:
                    found, turn = there[name], name.rpartition("-")[2]
                    # The scheduler may have written after it.
                    self.assertGreaterEqual(int(found["resourceVersion"]), int(version), name)
                    labels = {"turn": turn} if int(turn) % 2 else None
                    self.assertEqual(found.get("labels"), labels, name)
            newest = max(int(version) for version in known.values() if version.isdigit())
            self.assertGreaterEqual(int(listed["metadata"]["resourceVersion"]), newest)

    async def the_rest(self, *options: str) -> Screen:
        """Start runtime and poollet, and open the console of a shell that has set a variable."""
        await self.deployment.start_runtime(*options)
        await self.deployment.start_poollet()
        await self.deployment.client.create(
            kinds.MACHINECLASSES.resource,
            {
                "apiVersion": MACHINES.api_version,
                "kind": "MachineClass",
                "metadata": {"name": "shell"},
                "capabilities": {"cpu": "1", "memory": "64Mi"},
            },
        )
        await self.deployment.create_machine("sh", "shell")
        screen = await watch(self.deployment.admin, "sh")
        await screen.ask(b"remembered=$((6*7))\necho kept-$remembered\n", rb"kept-42\r\n")
        return screen

    async def reopened(self) -> Screen:
        """Open the console as soon as all programs work again."""
        while True:
            try:
                return await watch(self.deployment.admin, "sh")
            except APIError:
                await pause()

    async def test_poollet(self) -> None:
        """
        A killed poollet loses neither its machines nor its sessions, and finds them after the restart.
        """
        screen = await self.the_rest()
        await self.deployment.poollet.stop(signal.SIGKILL)
        screen.type(b"echo still-$remembered\n")
        await self.deployment.start_poollet()
        await screen.until(rb"\nstill-42\r\n")
        again = await self.reopened()
        await again.ask(b"echo again-$remembered\n", rb"\nagain-42\r\n")
        await again.leave()
        await screen.leave()

    async def test_poollet_does_not_come_back(self) -> None:
        """A session whose poollet stays away ends with the reason."""
        screen = await self.the_rest("--rejoin-seconds=1")
        await self.deployment.poollet.stop(signal.SIGKILL)
        lost: Any = await screen.ended
        self.assertIsInstance(lost, ConsoleLost)
        self.assertIn("the connection behind this hop was lost", lost.ending.message)

    async def test_poollet_while_deleting(self) -> None:
        """A restarted poollet deletes machines whose deletion was requested while it was down."""
        await self.the_rest()
        await self.deployment.poollet.stop(signal.SIGKILL)
        await self.deployment.client.delete(MACHINES, "sh", "default")
        dying = await self.deployment.client.get(MACHINES, "sh", "default")
        self.assertIn("deletionTimestamp", dying["metadata"])
        await self.deployment.start_poollet()
        await gone(self.deployment.client, MACHINES, "sh", "default")

    async def test_api_server_below_sessions(self) -> None:
        """A killed API server loses its sessions but not the machine."""
        screen = await self.the_rest()
        await self.deployment.api.stop(signal.SIGKILL)
        lost: Any = await screen.ended
        self.assertIsInstance(lost, ConsoleLost)
        await self.deployment.start_api()
        again = await self.reopened()
        await again.ask(b"echo still-$remembered\n", rb"\nstill-42\r\n")
        await again.leave()

    async def test_runtime(self) -> None:
        """A killed runtime loses its machines, and the same API objects are started again."""
        screen = await self.the_rest()
        before = await self.deployment.client.get(MACHINES, "sh", "default")
        await self.deployment.runtime.stop(signal.SIGKILL)
        await self.deployment.start_runtime()
        await screen.ended
        again = await self.reopened()
        await again.ask(b"echo anew-$remembered-\n", rb"\nanew--\r\n")
        await again.leave()
        after = await self.deployment.client.get(MACHINES, "sh", "default")
        self.assertEqual(after["metadata"]["uid"], before["metadata"]["uid"])
