"""
A manager of spaces with one provider, over a hub in memory.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.spacemanager.live import World
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.spacemanager.interfaces import Physical

ONE = Physical("one")
HOME = "spaceprovider-p"


class WorldTestCase(SynchronousTestCase):
    """A world with one provider, and one manager."""

    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.stop)
        self.world.desc("p")
        self.manager = self.world.manager()
        self.world.settle(3)
        self.spaces = self.world.spaces_of()

    def ready(self, name: str = "one", **spec: Any) -> None:
        self.world.space(name, "p", **spec)
        self.world.settle(3)
        self.assertEqual(self.world.phase(name), "Ready")

    def secret(self, name: str, namespace: str = HOME) -> Any:
        return self.world.cluster.objects[SECRETS.resource, namespace, name]

    def calls(self, name: str) -> int:
        return sum(1 for call, _ in self.spaces.calls if call == name)
