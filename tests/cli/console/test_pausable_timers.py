"""
Tests for :mod:`twisted_exec.cli.console.pausable_timers`.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.console.pausable_timers import PausableTimers


class TimersTests(SynchronousTestCase):
    """Tests for :class:`PausableTimers`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.timers = PausableTimers(self.clock)
        self.fired: list[str] = []

    def after(self, name: str, seconds: float, *, steady: bool = False) -> None:
        self.timers.after(name, seconds, lambda: self.fired.append(name), steady=steady)

    def test_fires_once(self) -> None:
        """A timer fires after its time, and is gone."""
        self.after("a", 1)
        self.assertIn("a", self.timers)
        self.clock.advance(1)
        self.assertNotIn("a", self.timers)
        self.assertEqual(self.fired, ["a"])

    def test_replaced(self) -> None:
        """A timer of the same name takes the place of the earlier one; cancelling ends it."""
        self.after("a", 1)
        self.after("a", 5)
        self.clock.advance(4)
        self.timers.cancel("a")
        self.timers.cancel("a")
        self.assertEqual((self.fired, self.clock.getDelayedCalls()), ([], []))

    def test_restart(self) -> None:
        """A restarted timer has its full time again."""
        self.after("a", 2)
        self.clock.advance(1.5)
        self.timers.restart("a")
        self.timers.restart("b")
        self.clock.advance(1.5)
        self.assertEqual(self.fired, [])
        self.clock.advance(0.5)
        self.assertEqual(self.fired, ["a"])

    def test_pause(self) -> None:
        """A pause stops all timers but the steady ones; after it they have their full time."""
        self.after("a", 2)
        self.after("steady", 3, steady=True)
        self.clock.advance(1)
        self.timers.pause()
        self.after("later", 1)
        self.timers.restart("a")
        self.clock.advance(10)
        self.assertEqual(self.fired, ["steady"])
        self.timers.resume()
        self.clock.advance(1)
        self.assertEqual(self.fired, ["steady", "later"])
        self.clock.advance(1)
        self.assertEqual(self.fired, ["steady", "later", "a"])

    def test_cancel_all(self) -> None:
        """Nothing is left after all timers are cancelled, paused ones included."""
        self.after("a", 1)
        self.timers.pause()
        self.after("b", 1)
        self.after("c", 1, steady=True)
        self.timers.cancel_all()
        self.timers.resume()
        self.assertEqual(self.clock.getDelayedCalls(), [])
