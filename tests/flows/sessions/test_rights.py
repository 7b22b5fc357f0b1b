"""
Rights at a console by role, through three programs: with our client over each protocol.

``tests.interop.rights`` tries our plugin, all kubectls and a real kube-apiserver, and writes the tables.
"""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.flows.deployment import Deployment
from tests.tiers import PROGRAMS

from . import rights


class RightsTests(TestCase):
    """Verbs and roles."""

    starts = PROGRAMS

    async def start(self, verbs: str) -> Deployment:
        """Start programs whose verbs are compatible or strict."""
        deployment = Deployment(self.mktemp())
        self.addCleanup(deployment.stop)
        await deployment.start_api(f"--console-verbs={verbs}")
        await deployment.start_runtime()
        await deployment.start_poollet(f"--console-verbs={verbs}")
        await deployment.create_class("shell", "64Mi")
        return deployment

    async def test_answers(self) -> None:
        """Our client gets the answers of the documentation over each protocol."""
        expected = rights.answers_of_table(rights.ANSWERS.read_text(encoding="utf-8"))
        for mode in rights.MODES:
            site = rights.of_deployment(await self.start(mode))
            self.assertEqual(await site.found(rights.ours()), expected[mode])
