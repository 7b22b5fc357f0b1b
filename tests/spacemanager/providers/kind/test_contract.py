"""Clusters of a played kind are what every provider promises."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld
from tests.spacemanager.providers.kind_world import KindWorld


class KindContractTests(SpaceProviderContract, TestCase):
    """:class:`KindProvider` with a program that says what kind says."""

    def make_world(self) -> SpaceWorld:
        return KindWorld(self.mktemp())
