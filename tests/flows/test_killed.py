"""
kill -9 of each program, at work: what was acknowledged is there afterwards, and what
runs is what is wanted.
"""

from __future__ import annotations

import signal
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.kube.consoles.exec import ConsoleLost

from .consoles import Screen, watch
from .deployment import Deployment, gone, machine, pause

MACHINES = kinds.MACHINES.resource
LANES = 6


class KilledTests(TestCase):
    """Three programs, one of which is killed."""

    timeout = 170

    async def setUp(self) -> None:
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        await self.deployment.start_api()

    async def write(self, lane: int, known: dict[str, str]) -> None:
        """Create, change and delete machines until the server is gone; ``known`` is what it said."""
        client = self.deployment.client
        turn = 0
        while True:
            name = f"m-{lane}-{turn}"
            body = machine(name, "shell")
            del body["spec"]["machinePoolRef"]  # nobody shall run it
            try:
                made = await client.create(MACHINES, body, namespace="default")
                known[name] = made["metadata"]["resourceVersion"]
                if turn % 2:
                    patch = {"metadata": {"labels": {"turn": str(turn)}}}
                    known[name] = ""  # whether the change counts is not known until it is said
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
        """Killed while it is written to, again and again: all that it said holds."""
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
            there = {
                each["metadata"]["name"]: each["metadata"]["resourceVersion"]
                for each in listed["items"]
            }
            for name, version in known.items():
                if version == "deleted":
                    self.assertNotIn(name, there)
                elif version:
                    self.assertEqual(there.get(name), version, name)
            newest = max(int(version) for version in known.values() if version.isdigit())
            self.assertGreaterEqual(int(listed["metadata"]["resourceVersion"]), newest)

    async def the_rest(self) -> Screen:
        """Runtime and poollet, and the console of a shell that remembers something."""
        await self.deployment.start_runtime()
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
        """The console, as soon as the chain is whole again."""
        while True:
            try:
                return await watch(self.deployment.admin, "sh")
            except APIError:
                await pause()

    async def test_poollet(self) -> None:
        """Its sessions are lost, and said to be; its machines go on, and it finds them again."""
        screen = await self.the_rest()
        await self.deployment.poollet.stop(signal.SIGKILL)
        lost: Any = await screen.ended
        self.assertIsInstance(lost, ConsoleLost)
        self.assertIsNone(lost.ending)
        await self.deployment.start_poollet()
        again = await self.reopened()
        await again.ask(b"echo still-$remembered\n", rb"\nstill-42\r\n")
        await again.leave()

    async def test_poollet_while_deleting(self) -> None:
        """What was deleted while it was dead it deletes when it is back."""
        await self.the_rest()
        await self.deployment.poollet.stop(signal.SIGKILL)
        await self.deployment.client.delete(MACHINES, "sh", "default")
        dying = await self.deployment.client.get(MACHINES, "sh", "default")
        self.assertIn("deletionTimestamp", dying["metadata"])
        await self.deployment.start_poollet()
        await gone(self.deployment.client, MACHINES, "sh", "default")

    async def test_api_server_below_sessions(self) -> None:
        """When the API server dies its sessions are lost, the machine is not."""
        screen = await self.the_rest()
        await self.deployment.api.stop(signal.SIGKILL)
        lost: Any = await screen.ended
        self.assertIsInstance(lost, ConsoleLost)
        await self.deployment.start_api()
        again = await self.reopened()
        await again.ask(b"echo still-$remembered\n", rb"\nstill-42\r\n")
        await again.leave()

    async def test_runtime(self) -> None:
        """Its machines die with it; the API's objects do not, and are run again."""
        screen = await self.the_rest()
        before = await self.deployment.client.get(MACHINES, "sh", "default")
        await self.deployment.runtime.stop(signal.SIGKILL)
        await screen.ended
        await self.deployment.start_runtime()
        again = await self.reopened()
        await again.ask(b"echo anew-$remembered-\n", rb"\nanew--\r\n")
        await again.leave()
        after = await self.deployment.client.get(MACHINES, "sh", "default")
        self.assertEqual(after["metadata"]["uid"], before["metadata"]["uid"])
