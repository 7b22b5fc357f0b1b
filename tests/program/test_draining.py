"""
Tests for :mod:`twisted_exec.program.draining`.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program import draining
from twisted_exec.program.draining import DrainLimit, pause, stop_at_once


def fresh_stop(case: SynchronousTestCase) -> None:
    """Let a test stop the program, as far as its drains know."""
    case.patch(draining, "_stop", draining._Stop())


class DrainLimitTests(SynchronousTestCase):
    """Tests for :class:`DrainLimit`."""

    def setUp(self) -> None:
        fresh_stop(self)
        self.clock = Clock()
        self.lines: list[str] = []
        globalLogPublisher.addObserver(self.logged)
        self.addCleanup(globalLogPublisher.removeObserver, self.logged)

    def logged(self, event: LogEvent) -> None:
        self.lines.append(formatEvent(event))

    def test_time(self) -> None:
        """A drain ends after its time; the first with sessions is announced."""
        ended: list[str] = []
        DrainLimit(self.clock, 9, 0)
        limit = DrainLimit(self.clock, 5, 1, lambda: ended.append("first"))
        DrainLimit(self.clock, 7, 1, lambda: ended.append("second")).cancel()
        self.clock.advance(4.9)
        self.assertFalse(limit.is_over)
        self.clock.advance(0.1)
        self.assertTrue(limit.is_over)
        self.clock.advance(5)
        self.assertEqual(ended, ["first"])
        announced = "stopping: 1 session gets 5 s to end; press Ctrl-C again to stop at once"
        self.assertEqual(self.lines, [announced])

    def test_at_once(self) -> None:
        """An impatient user ends all drains; later drains are short, and not announced."""
        limit, waiting = DrainLimit(self.clock, 5, 0), pause(self.clock, 60)
        stop_at_once()
        self.assertTrue(limit.is_over)
        self.successResultOf(waiting)
        later = DrainLimit(self.clock, 60, 3)
        self.assertFalse(later.is_over)
        self.clock.advance(1)
        self.assertTrue(later.is_over)
        self.assertEqual(self.lines, ["stopping at once"])
        self.assertEqual(self.clock.getDelayedCalls(), [])
