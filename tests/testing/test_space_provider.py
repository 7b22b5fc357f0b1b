"""The provider in memory keeps what every provider promises."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import TestCase

from tests.contracts.space_provider import SpaceProviderContract
from tests.contracts.space_world import SpaceWorld
from twisted_exec.api.spaces import VIEWPOINTS
from twisted_exec.api.status import BadGateway, Forbidden, ServiceUnavailable, Unauthorized
from twisted_exec.spacemanager.interfaces import BROKEN, ISpaceProvider, Physical
from twisted_exec.testing.space_provider import MemorySpaces


class MemoryWorld(SpaceWorld):
    """Physical spaces in memory."""

    title = "memory"
    cannot = {
        "works": "No server listens at the addresses in its kubeconfigs.",
        "no_parents": "It has parents.",
    }
    parents = ("root:a", "root:b")
    parameters = {"size": "small"}

    def __init__(self) -> None:
        self.spaces = MemorySpaces(self.parents)

    def make(self) -> ISpaceProvider:
        return self.spaces.provider()

    async def make_foreign(self, physical: Physical) -> None:
        self.spaces.put(physical)

    async def vanish(self, physical: Physical) -> None:
        self.spaces.drop(physical)

    async def there(self) -> Sequence[Physical]:
        return sorted(self.spaces.spaces)

    async def wreck(self, physical: Physical) -> None:
        space = self.spaces.spaces[physical]
        space.state, space.reason, space.message = (
            BROKEN,
            "Wrecked",
            "it was wrecked: create it again",
        )

    async def hold(self) -> None:
        self.spaces.held = True

    async def release(self) -> None:
        self.spaces.release()

    async def hide_access(self, physical: Physical) -> None:
        self.spaces.spaces[physical].viewpoints = ()

    async def show_access(self, physical: Physical) -> None:
        self.spaces.spaces[physical].viewpoints = VIEWPOINTS

    async def only(self, physical: Physical, viewpoint: str) -> None:
        self.spaces.spaces[physical].viewpoints = (viewpoint,)

    async def break_down(self) -> None:
        self.spaces.problem = ServiceUnavailable("the provider is down: start it again")

    async def come_back(self) -> None:
        self.spaces.problem, self.spaces.stalled = None, False

    async def stall(self) -> None:
        self.spaces.stalled = True

    async def talk_nonsense(self) -> None:
        self.spaces.problem = BadGateway("the provider talks nonsense: is it one?")

    async def revoke(self) -> None:
        self.spaces.problem = Unauthorized("the credentials are refused: renew the Secret")

    async def forbid(self) -> None:
        self.spaces.problem = Forbidden("the user may not do this: grant it")

    async def renew(self) -> None:
        self.spaces.problem = None

    def calls(self) -> int:
        return len(self.spaces.calls)

    def left(self) -> Sequence[str]:
        return ()

    async def die_after(self, steps: int) -> None:
        self.spaces.lived = steps

    def died(self) -> bool:
        return self.spaces.lived is not None and self.spaces.lived < 0

    async def live(self) -> None:
        self.spaces.lived = None


class MemoryProviderTests(SpaceProviderContract, TestCase):
    """Tests for :class:`MemoryProvider`."""

    def make_world(self) -> SpaceWorld:
        return MemoryWorld()
