"""The provider contract, run with a fake kcp."""

from __future__ import annotations

from twisted.internet.defer import TimeoutError
from twisted.trial.unittest import TestCase

from tests.contracts.space_provider import OWNER, SpaceProviderContract
from tests.contracts.space_world import SpaceWorld
from tests.spacemanager.providers.kcp.world import PlayedWorld
from twisted_exec.spacemanager.interfaces import Physical, SpaceRequest


class KcpContractTests(SpaceProviderContract, TestCase):
    """The contract for :class:`KcpProvider` over TLS, with responses from kcp's sources."""

    def make_world(self) -> SpaceWorld:
        return PlayedWorld()


class SlowKcpTests(TestCase):
    """Contract cases with killed managers, on a kcp that deletes as slowly as a real kcp."""

    async def passes(self, name: str) -> None:
        """Run one case of the contract."""
        case = KcpContractTests(name)
        case.setUp()
        self.addCleanup(case.tearDown)
        case.world.kcp.lingers = 40
        await getattr(case, name)()

    async def test_killed_while_creating(self) -> None:
        """The next manager finishes while a deleted workspace still exists."""
        await self.passes("test_killed_while_creating")

    async def test_killed_and_forgotten(self) -> None:
        """A manager killed while creating leaves nothing once the Space is deleted."""
        await self.passes("test_killed_and_forgotten")

    async def test_killed_while_deleting(self) -> None:
        """The next manager finishes the deletion."""
        await self.passes("test_killed_while_deleting")

    async def test_killed_then_kept(self) -> None:
        """The name can be used again once the workspace is gone."""
        await self.passes("test_killed_then_kept")


class WorldTests(TestCase):
    """Properties of the fake kcp that the contract relies on."""

    async def test_to_look_is_no_step(self) -> None:
        """Reads do not count as steps, so waiting for a slow kcp adds none."""
        world = PlayedWorld()
        await world.start()
        self.addCleanup(world.stop)
        provider = world.make()
        self.addCleanup(provider.close)
        await world.die_after(0)
        self.assertEqual(await provider.list_names(), [])
        self.assertFalse(world.died())
        creating = provider.create(Physical("red"), SpaceRequest(OWNER))
        self.addCleanup(creating.cancel)
        creating.addErrback(lambda _cancelled: None)
        self.assertTrue(world.died())

    async def turns(self, world: SpaceWorld) -> None:
        """Wait long enough for a running case to send another request."""
        for _ in range(5):
            await world.turn()

    async def test_too_long(self) -> None:
        """A case that exceeds its timeout ends and sends no further requests."""
        case = KcpContractTests("test_create")
        case.timeout = 1
        case.setUp()
        self.addCleanup(case.tearDown)
        case.world.kcp.held = True
        with self.assertRaises(TimeoutError):
            await case.test_create()
        await self.turns(case.world)  # a request may be on its way
        before = len(case.world.kcp.asked)
        await self.turns(case.world)
        self.assertEqual((len(case.world.kcp.asked), list(case.world.left())), (before, []))
