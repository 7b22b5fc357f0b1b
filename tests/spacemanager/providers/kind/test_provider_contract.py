"""The provider contract, run with a fake kind."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld
from tests.spacemanager.providers.kind.world import KindWorld
from tests.tiers import PROGRAMS


class KindContractTests(SpaceProviderContract, TestCase):
    """The contract for :class:`KindProvider` with the program ``fake_kind.sh``."""

    starts = PROGRAMS

    def make_world(self) -> SpaceWorld:
        return KindWorld(self.mktemp())
