"""Workspaces of a played kcp are what every provider promises."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld
from tests.spacemanager.providers.kcp_world import PlayedWorld


class KcpContractTests(SpaceProviderContract, TestCase):
    """:class:`KcpProvider` over TLS, before what kcp's sources say that it answers."""

    def make_world(self) -> SpaceWorld:
        return PlayedWorld()
