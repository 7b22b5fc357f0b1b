"""
Stock kubectls under load in both directions, while what is behind their API server fails at random moments.

``MOMENTS`` is the number of faults (20 without it), ``SEED`` repeats a run.  The connections of the
poollet are reset at both ends or at one, or lose all packets; the poollet is stopped for a while, or
killed or ended and started again.  One kubectl is attached over SPDY and one over a WebSocket, each to a
machine of its own.  What the machines print and get is compared with numbered lines, byte for byte, as
it arrives.
"""

from __future__ import annotations

import random
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls
from tests.flows.resuming import CabledDeployment

from .faults import MOMENTS, SEED, Faults
from .loaded_clients import LoadedClient, calm, compare, start_busy
from .lossy_network import LossyNetwork, missing


class RejoinTests(TestCase):
    """A kubectl of each protocol."""

    timeout = 300 + 15 * MOMENTS
    skip = needs.kubectl()

    async def test_moments(self) -> None:
        """Nothing is missing and nothing is there twice, in both directions, and no session ends."""
        choice = random.Random(SEED)
        if why := missing():
            print(f"\nno packets are dropped: {why}")
        network = None if why else LossyNetwork()
        if network is not None:
            self.addCleanup(network.leave)
        deployment = CabledDeployment(self.mktemp())
        self.addCleanup(deployment.stop)
        names = list(kubectls.found())
        programs = list(dict.fromkeys((names[0], names[-1])))
        machines = await start_busy(
            deployment, [f"busy-{number}" for number in range(len(programs))]
        )
        kubeconfig = str(Path(deployment.kubeconfig("ada", ["system:masters"])).resolve())
        clients = []
        for machine, name in zip(machines, programs, strict=True):
            argv = [kubectls.found()[name], "attach", "-i", machine.name]
            env = {"KUBECONFIG": kubeconfig, "HOME": self.mktemp()}
            client = LoadedClient(machine, argv, env, types=True)
            self.addCleanup(client.stop)
            client.start()
            await client.until(lambda client=client: client.output.size)  # type: ignore[misc]
            clients.append(client)
        faults = Faults(deployment, choice, ("middle", "far"), ("poollet",), network)
        self.addCleanup(faults.report)
        print(f"\n{MOMENTS} moments, SEED={SEED}, {', '.join(programs)}")
        for _ in range(MOMENTS):
            for each in clients:
                each.rest()
            name = await faults.next()
            await calm(clients)
            faults.took(name, [each.longest_pause for each in clients])
        faults.compared = await compare(clients)
        self.assertEqual(deployment.errors(), [])
