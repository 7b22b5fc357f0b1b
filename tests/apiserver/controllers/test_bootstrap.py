"""
Tests for :mod:`twisted_exec.apiserver.controllers.bootstrap`: several servers at once.  What one
makes is tested with whatever needs it.
"""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS
from twisted_exec.apiserver.controllers.bootstrap import bootstrap
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.auth.rbac.authorizer import bootstrap_objects
from twisted_exec.storage.sqlite import SQLiteStorage


class AtOnceTests(TestCase):
    """Servers that start at the same moment; writes take their time."""

    async def setUp(self) -> None:
        self.storage = SQLiteStorage(self.mktemp(), reactor)
        self.storage.startService()
        self.addCleanup(self.storage.stopService)
        await self.storage.when_ready()

    async def start(self) -> None:
        """Start all servers."""
        verbs = Verbs(self.storage, [], lambda: 1_700_000_000.0)
        await bootstrap(self.storage, verbs, bootstrap_objects(DIALECTS), ["leases"])

    async def test_once_each(self) -> None:
        """All succeed, and each object exists once and complete."""
        await gatherResults([Deferred.fromCoroutine(self.start()) for _ in range(3)])
        for kind in (kinds.CLUSTERROLES, kinds.CLUSTERROLEBINDINGS):
            found = (await self.storage.list(kind.resource)).items
            wanted = [
                each for each in bootstrap_objects(DIALECTS) if each["kind"] == kind.resource.kind
            ]
            self.assertEqual(
                {each["metadata"]["name"]: each.get("rules") for each in found},
                {each["metadata"]["name"]: each.get("rules") for each in wanted},
            )
        names = [
            each["metadata"]["name"]
            for each in (await self.storage.list(kinds.NAMESPACES.resource)).items
        ]
        self.assertEqual(names, ["default", "kube-system", "leases"])
