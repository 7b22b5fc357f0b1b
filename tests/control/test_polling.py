"""Tests for :mod:`twisted_exec.control.polling`."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.control.polling import until


class UntilTests(SynchronousTestCase):
    """Tests for :func:`until`."""

    def setUp(self) -> None:
        self.clock, self.looks = Clock(), 0

    def look(self) -> bool:
        self.looks += 1
        return self.clock.seconds() >= 3

    def wait(self, longest_seconds: float) -> Deferred[bool]:
        return Deferred.fromCoroutine(until(self.look, self.clock, 1.0, longest_seconds))

    def test_comes(self) -> None:
        """The state is looked at at once, and then at the interval."""
        waiting = self.wait(10)
        self.clock.pump([1.0, 1.0])
        self.assertNoResult(waiting)
        self.clock.advance(1)
        self.assertTrue(self.successResultOf(waiting))
        self.assertEqual(self.looks, 4)

    def test_late(self) -> None:
        """The wait ends after its longest time."""
        waiting = self.wait(2)
        self.clock.pump([1.0, 1.0])
        self.assertFalse(self.successResultOf(waiting))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_asked(self) -> None:
        """The state may come with a Deferred."""
        self.assertTrue(
            self.successResultOf(
                Deferred.fromCoroutine(until(lambda: succeed(True), self.clock, 1.0))
            )
        )
