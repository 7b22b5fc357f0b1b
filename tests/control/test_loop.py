"""Tests for :mod:`twisted_exec.control.loop`."""

from __future__ import annotations

from math import inf

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.control.backoff import LONGEST_PAUSE_SECONDS
from twisted_exec.control.loop import PokedLoop


class PokedLoopTests(SynchronousTestCase):
    """Tests for :class:`PokedLoop`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.looks: list[Deferred[float | None]] = []
        self.told: list[tuple[str, int]] = []
        self.loop = PokedLoop(self.look, self.clock, 60.0, soon_seconds=1.0, refused=self.refused)

    async def look(self) -> float | None:
        self.looks.append(Deferred())
        return await self.looks[-1]

    def refused(self, error: APIError, failures: int) -> None:
        self.told.append((error.message, failures))

    def end(self, seconds: float | None = None) -> None:
        """End the look that is under way."""
        self.looks[-1].callback(seconds)

    def advance(self, *looks: int, seconds: float) -> None:
        """Compare the number of looks just before and at the end of some time."""
        self.clock.advance(seconds - 0.1)
        numbers = [len(self.looks)]
        self.clock.advance(0.1)
        self.assertEqual([*numbers, len(self.looks)], [*looks])

    def test_interval(self) -> None:
        """The next look follows the interval after the end of one, or the seconds that it returns."""
        self.loop.start()
        self.clock.advance(100.0)
        self.assertEqual(len(self.looks), 1)
        self.end()
        self.advance(1, 2, seconds=60.0)
        self.end(5.0)
        self.advance(2, 3, seconds=5.0)

    def test_poked(self) -> None:
        """One look follows pokes soon; those during a look, soon after it."""
        self.loop.start(None)
        self.clock.advance(1000.0)
        self.assertEqual(len(self.looks), 0)
        self.loop.poke()
        self.clock.advance(0.5)
        self.loop.poke()
        self.advance(0, 1, seconds=0.5)
        self.loop.poke()
        self.loop.poke()
        self.clock.advance(5.0)
        self.end()
        self.advance(1, 2, seconds=1.0)
        self.end()
        self.advance(2, 3, seconds=60.0)

    def test_only_poked(self) -> None:
        """Without an interval only a poke leads to another look."""
        loop = PokedLoop(self.look, self.clock)
        loop.start()
        self.end()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        loop.poke()
        self.assertEqual(len(self.looks), 2)

    def test_not_again(self) -> None:
        """A look may say that only a poke leads to another."""
        self.loop.start()
        self.end(inf)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.loop.poke(3.0)
        self.advance(1, 2, seconds=3.0)

    def test_fails(self) -> None:
        """A failed look is repeated with back-off, which a poke does not shorten, but a hurry does."""
        self.loop.start()
        for _ in range(10):
            self.looks[-1].errback(ServiceUnavailable("down"))
            self.clock.advance(LONGEST_PAUSE_SECONDS)
        self.assertEqual(self.told[-1], ("down", 10))
        self.looks[-1].errback(ServiceUnavailable("down"))
        before = len(self.looks)
        self.loop.poke()
        self.clock.advance(LONGEST_PAUSE_SECONDS / 2 - 1)
        self.assertEqual(len(self.looks), before)
        self.loop.hurry()
        self.clock.advance(0)
        self.assertEqual(len(self.looks), before + 1)

    def test_stopped(self) -> None:
        """A stopped loop has no look under way and hears no poke; it can start again."""
        self.loop.poke()
        self.assertEqual(self.looks, [])
        self.loop.start()
        self.successResultOf(self.loop.stop())
        self.loop.poke()
        self.loop.hurry()
        self.assertEqual((len(self.looks), self.clock.getDelayedCalls()), (1, []))
        self.loop.start(2.0)
        self.loop.start()
        self.advance(1, 2, seconds=2.0)
