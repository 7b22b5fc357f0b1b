"""Tests for :mod:`twisted_exec.control.timers`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.control.timers import Timers


class TimersTests(SynchronousTestCase):
    """Tests for :class:`Timers`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.timers = Timers(self.clock)
        self.called: list[float] = []

    def call(self) -> None:
        self.called.append(self.clock.seconds())

    def test_later(self) -> None:
        """A function that is due keeps its time; afterwards, it can be due again."""
        self.timers.later(2, self.call)
        self.timers.later(1, self.call)
        self.clock.pump([1, 1])
        self.assertEqual(self.called, [2])
        self.assertNotIn(self.call, self.timers)
        self.timers.later(1, self.call)
        self.assertIn(self.call, self.timers)
        self.clock.advance(1)
        self.assertEqual(self.called, [2, 3])

    def test_again(self) -> None:
        """A function may be due again as soon as it is called."""
        self.timers.later(1, self.again)
        self.clock.pump([1, 1, 1])
        self.assertEqual(self.called, [1, 2, 3])

    def again(self) -> None:
        self.call()
        self.timers.later(1, self.again)

    def test_cancelled(self) -> None:
        """A cancelled function is not called; to cancel another changes nothing."""
        self.timers.later(1, self.call)
        self.timers.cancel(self.again)
        self.assertIn(self.call, self.timers)
        self.timers.cancel(self.call)
        self.timers.later(1, self.again)
        self.timers.cancel_all()
        self.assertEqual(self.clock.getDelayedCalls(), [])
