"""
Tests for :mod:`twisted_exec.program.clock`.
"""

from __future__ import annotations

import time

from twisted.internet.selectreactor import SelectReactor
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.clock import use_monotonic_clock


class SteadyTimersTests(SynchronousTestCase):
    """Tests for :func:`use_monotonic_clock`."""

    def setUp(self) -> None:
        self.reactor = SelectReactor()
        self.addCleanup(self.reactor.waker.connectionLost, None)
        self.wall = 1e9
        self.reactor.seconds = lambda: self.wall

    def test_clock_is_set_back(self) -> None:
        """A timer is due in time although the wall clock is an hour behind by then."""
        use_monotonic_clock(self.reactor)
        fired: list[float] = []
        self.reactor.callLater(0, lambda: fired.append(time.monotonic()))
        self.wall -= 3600
        self.reactor.runUntilCurrent()
        self.assertEqual(len(fired), 1)

    def test_clock_is_set_forward(self) -> None:
        """A timer is not due because the wall clock is an hour ahead."""
        use_monotonic_clock(self.reactor)
        late = self.reactor.callLater(60, self.fail)
        self.wall += 3600
        self.reactor.runUntilCurrent()
        self.assertTrue(late.active())

    def test_reactor_in_use(self) -> None:
        """A reactor that has timers keeps its clock: theirs are times of that one."""
        self.reactor.callLater(60, self.fail)
        use_monotonic_clock(self.reactor)
        self.assertEqual(self.reactor.seconds(), self.wall)
