"""
``kill -9`` of the leader of two API servers on one etcd, fifty times (or as often as
``REPLICAS_KILLED`` says).
"""

from __future__ import annotations

import os

from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.outages.replicated import Replicas
from tests.flows.outages.surviving import Survival

ROUNDS = int(os.environ.get("REPLICAS_KILLED", "50"))
WRITES = 60
"""In each third of a round: before the kill, while one is gone, and with both again."""


class LeadersKilled(Survival):
    """Each round waits for a leader, and kills it."""

    async def victim(self, number: int) -> str:
        return await self.leader()


class KilledTests(TestCase):
    """Two servers, the leader of which is killed while it is busy."""

    timeout = 60 + 90 * ROUNDS
    skip = needs.etcd()

    async def test_kill_9(self) -> None:
        """Nothing acknowledged is lost, no watch has a gap, the other serves all the time."""
        replicas = Replicas(self.mktemp())
        self.addCleanup(replicas.stop)
        await replicas.start()
        await replicas.create_machine("sh", "shell")
        survival = LeadersKilled(replicas)
        try:
            await survival.run(ROUNDS, WRITES)
        finally:
            print(f"\n{survival.figures}")
        self.assertEqual(survival.figures.rounds, ROUNDS)
        seconds = await survival.takeover()
        print(f"{seconds:.1f} s after its leader was killed the cluster placed a machine")
        self.assertLess(seconds, 30)
