"""Tests for :mod:`twisted_exec.spacemanager.providers.kind.name_poller`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.kind.name_poller import POLL_SECONDS, NamePoller

RED, GREEN = Physical("red"), Physical("green")


class PollTests(SynchronousTestCase):
    """Tests for :class:`NamePoller`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.names: list[str] = ["red"]
        self.down = False
        self.told: list[Physical | None] = []
        self.unsettled: list[Physical] = []
        self.poll = NamePoller(self.clock, self.listed, lambda: self.unsettled)

    async def listed(self) -> list[str]:
        if self.down:
            raise ServiceUnavailable("docker does not answer")
        return self.names

    def turn(self) -> list[Physical | None]:
        """Return the hints of the next poll."""
        self.told.clear()
        self.clock.advance(POLL_SECONDS)
        return list(self.told)

    def test_told(self) -> None:
        """
        The first hint is None; later hints name spaces that appear, disappear or are unsettled.
        """
        leave = self.poll.add(self.told.append)
        self.assertEqual(self.told, [None])
        self.assertEqual(self.turn(), [])
        self.names = ["green"]
        self.assertEqual(self.turn(), [GREEN, RED])
        self.unsettled = [GREEN, RED]
        self.assertEqual(self.turn(), [GREEN])
        leave()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_down(self) -> None:
        """A failed list gives no hints; the next poll tries again."""
        self.poll.add(self.told.append)
        self.down = True
        self.assertEqual(self.turn(), [])
        self.down, self.names = False, ["red", "green"]
        self.assertEqual(self.turn(), [GREEN])
        self.successResultOf(self.poll.close())

    def test_again(self) -> None:
        """A listener added after all others left gets the hint None again."""
        self.poll.add(self.told.append)()
        self.told.clear()
        self.poll.add(self.told.append)
        self.assertEqual(self.told, [None])
        self.successResultOf(self.poll.close())
