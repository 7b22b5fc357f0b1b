"""
Local spaces with the real processes: each case of the contract, for two minutes and a half.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld
from tests.spacemanager.providers.local.world import LocalWorld
from twisted_exec.spacemanager.interfaces import ProviderContext, ProviderSpec
from twisted_exec.spacemanager.providers.local import provider as local
from twisted_exec.spacemanager.providers.local.space import SpaceEnvironment
from twisted_exec.testing.cluster import MemoryCluster


class RealLocalWorld(LocalWorld):
    """The same directory and operations as :class:`LocalWorld`, with a real exec-standalone."""

    title = "local"
    cannot = {name: why for name, why in LocalWorld.cannot.items() if name != "works"}
    many = 4

    def make_means(self) -> SpaceEnvironment:
        hub = MemoryCluster().client()
        around = ProviderContext(hub, reactor, os.path.dirname(self.path), time.time)
        made = local.space_environment(ProviderSpec("default", "local"), around)
        self.enrolled = made.enrol  # type: ignore[method-assign]
        return replace(made, enrol=self.enrol)

    async def version(self) -> str:
        return "this release"


class RealLocalTests(SpaceProviderContract, TestCase):
    """The contract with exec-standalone."""

    def make_world(self) -> SpaceWorld:
        return RealLocalWorld(os.path.abspath(self.mktemp()))
