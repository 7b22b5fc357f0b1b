"""
``kubectl console`` under load in both directions, whose connections and programs fail at random moments.

``MOMENTS`` is the number of faults (20 without it), ``SEED`` repeats a run.  Connections are reset
at both ends or at one, or lose all packets; client, API server, poollet and runtime are stopped for a
while; client, API server and poollet are killed, and the two servers are ended, and started again.
What the machine prints and what it gets is compared with numbered lines, byte for byte, as it arrives.
"""

from __future__ import annotations

import random

from twisted.trial.unittest import TestCase

from tests.flows.programs import script
from tests.flows.resuming import CabledDeployment

from .faults import MOMENTS, SEED, Faults
from .loaded_clients import BusyMachine, LoadedClient, calm, compare, start_busy
from .lossy_network import LossyNetwork, missing

_LOST_AFTER = "5s"
_CABLES = ("near", "middle", "far")


class ResumeTests(TestCase):
    """One machine, a writer and an observer."""

    timeout = 300 + 15 * MOMENTS

    async def test_moments(self) -> None:
        """Nothing is missing and nothing is there twice, in both directions."""
        choice = random.Random(SEED)
        if why := missing():
            print(f"\nno packets are dropped: {why}")
        network = None if why else LossyNetwork()
        if network is not None:
            self.addCleanup(network.leave)
        self.deployment = deployment = CabledDeployment(self.mktemp())
        self.addCleanup(deployment.stop)
        (machine,) = await start_busy(deployment, ["busy"])
        self.writer = await self.client(machine, "ada", types=True)
        self.observer = await self.client(machine, "bob", types=False)
        faults = Faults(deployment, choice, _CABLES, ("api", "poollet"), network)
        faults.add("stop runtime", 1, lambda: faults.stop("runtime"))
        faults.add("stop client", 3, lambda: faults.stop_for_a_while(self.writer.signal))
        faults.add("kill client", 3, self.kill_client)
        self.addCleanup(faults.report)
        print(f"\n{MOMENTS} moments, SEED={SEED}")
        for _ in range(MOMENTS):
            self.writer.rest()
            name = await faults.next()
            await calm([self.writer, self.observer])
            faults.took(name, [self.writer.longest_pause])
        faults.compared = await compare([self.writer, self.observer])
        self.assertEqual(deployment.errors(), [])

    async def client(self, machine: BusyMachine, user: str, *, types: bool) -> LoadedClient:
        """Open the console as a user."""
        kubeconfig = self.deployment.through_cable(user)
        options = ["--lost-after", _LOST_AFTER, "--force" if types else "--read-only"]
        argv = [script("kubectl-console"), machine.name, *options]
        client = LoadedClient(machine, argv, {"KUBECONFIG": kubeconfig}, types=types)
        self.addCleanup(client.stop)
        client.start()
        await client.until(lambda: client.output.size)
        return client

    async def kill_client(self) -> None:
        """Kill the writer; another one takes over from the absent one."""
        await self.writer.kill()
        self.writer = await self.client(self.writer.machine, "ada", types=True)
