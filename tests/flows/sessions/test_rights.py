"""
Rights at a console by role and by client, through three programs: over each protocol with a kubectl of
this machine, our plugin and our client.

``tests.interop.rights`` tries all kubectls and a real kube-apiserver, and writes the tables.
"""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.clients import kubectl
from tests.flows import kubectls
from tests.flows.deployment import Deployment
from tests.tiers import PROGRAMS

from . import rights


class RightsTests(TestCase):
    """Verbs, roles and clients."""

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

    async def clients(self) -> list[rights.Client]:
        """Return our client and plugin, the oldest kubectl over SPDY, and the newest over WebSockets."""
        found = await kubectl.found()
        several = [*rights.ours(), rights.of_plugin(self.mktemp())]
        for each, protocol in zip(
            kubectls.spread(found, 2), (rights.SPDY, rights.WEBSOCKET), strict=False
        ):
            ways = rights.of_kubectl(each.name, each.path, each.minor, self.mktemp())
            several += [way for way in ways if way.protocol == protocol and "exec" in way.command]
        return several

    async def test_answers(self) -> None:
        """Every client gets the answers of the documentation."""
        expected = rights.answers_of_table(rights.ANSWERS.read_text(encoding="utf-8"))
        for mode in rights.MODES:
            site = rights.of_deployment(await self.start(mode))
            self.assertEqual(await site.found(await self.clients()), expected[mode])
