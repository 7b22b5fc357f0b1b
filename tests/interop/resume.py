"""
``kubectl console`` under load in both directions, whose connections and programs fail at random moments.

``MOMENTS`` is the number of faults (20 without it), ``SEED`` repeats a run.  Connections are reset
at both ends or at one, or lose all packets; client, API server, poollet and runtime are stopped for a
while; client, API server and poollet are killed, and all programs are ended, and started again.
What the machine prints and what it gets is compared with numbered lines, byte for byte, as it arrives.

Beside them observers at terminals watch a machine that asks the terminal with each line, also with the
client of release 0.2.0 (OLDER_RELEASE): no query may reach them, and every other byte must.
"""

from __future__ import annotations

import random
import sys

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.busy_machine import QUERIES
from tests.flows.programs import script
from tests.flows.resuming import CabledDeployment
from tests.wire.terminal_model import answered

from .faults import MOMENTS, SEED, Faults
from .loaded_clients import BusyMachine, LoadedClient, calm, compare, start_busy
from .lossy_network import LossyNetwork, missing

_LOST_AFTER = "5s"
_CABLES = ("near", "middle", "far")


class ResumeTests(TestCase):
    """A machine with a writer and an observer, and another one with observers at terminals."""

    timeout = 300 + 15 * MOMENTS

    async def test_moments(self) -> None:
        """Nothing is missing and nothing is there twice, in both directions."""
        choice = random.Random(SEED)
        if why := missing():
            print(f"\nno packets are dropped: {why}")
        network = None if why else LossyNetwork()
        if network is not None:
            self.addCleanup(network.leave)
        self.deployment = deployment = CabledDeployment(
            self.mktemp(), runtime_options=["--keep-machines"]
        )
        self.addCleanup(deployment.stop)
        machine, asking = await start_busy(deployment, ["busy"], ["asking"])
        for query, harmless in QUERIES:
            self.assertTrue(answered(query), query)
            self.assertEqual(answered(harmless), [])
        self.writer = await self.client(machine, "ada", types=True)
        self.observer = await self.client(machine, "bob", types=False)
        releases = [""] if needs.older_release() else ["", needs.older_release_directory()]
        self.terminals = {
            each: await self.client(asking, "bob", types=False, release=each) for each in releases
        }
        print(f"\nterminals: this release, {', '.join(releases[1:]) or 'not 0.2.0'}")
        faults = Faults(deployment, choice, _CABLES, ("api", "poollet"), network)
        faults.add("stop runtime", 1, lambda: faults.stop("runtime"))
        faults.add("end runtime", 8, lambda: deployment.restart("runtime", kill=False))
        faults.add("stop client", 3, lambda: faults.stop_for_a_while(self.writer.signal))
        faults.add("kill client", 3, self.kill_client)
        faults.add("kill terminal", 3, lambda: self.kill_terminal(choice.choice(releases)))
        self.addCleanup(faults.report)
        print(f"\n{MOMENTS} moments, SEED={SEED}")
        for _ in range(MOMENTS):
            self.writer.rest()
            name = await faults.next()
            await calm(self.clients)
            faults.took(name, [self.writer.longest_pause])
        faults.compared = await compare(self.clients)
        self.assertEqual(deployment.errors(), [])

    @property
    def clients(self) -> list[LoadedClient]:
        return [self.writer, self.observer, *self.terminals.values()]

    async def client(
        self, machine: BusyMachine, user: str, *, types: bool, release: str = ""
    ) -> LoadedClient:
        """
        Open the console as a user.

        :param release: the directory of an older one.
        """
        kubeconfig = self.deployment.through_cable(user)
        options = ["--lost-after", _LOST_AFTER, "--force" if types else "--read-only"]
        if machine.asks:
            options += ["--raw", "--quiet"]
        # The script of a release imports what that release has.
        program = [sys.executable, f"{release}/bin/kubectl-console"] if release else []
        argv = [*(program or [script("kubectl-console")]), machine.name, *options]
        env = {"KUBECONFIG": kubeconfig, **({"PYTHONPATH": release} if release else {})}
        client = LoadedClient(machine, argv, env, types=types)
        self.addCleanup(client.stop)
        client.start()
        await client.until(lambda: client.output.size)
        return client

    async def kill_client(self) -> None:
        """Kill the writer; another one takes over from the absent one."""
        await self.writer.kill()
        self.writer = await self.client(self.writer.machine, "ada", types=True)

    async def kill_terminal(self, release: str) -> None:
        """Kill an observer; another one gets what was printed before, and what follows."""
        former = self.terminals[release]
        await former.kill()
        self.terminals[release] = await self.client(
            former.machine, "bob", types=False, release=release
        )
