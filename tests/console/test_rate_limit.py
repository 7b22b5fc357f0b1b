"""
Tests for :mod:`twisted_exec.console.rate_limit`.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.console.rate_limit import BYTES_PER_SECOND, RateLimit


class RateLimitTests(SynchronousTestCase):
    """Tests for :class:`RateLimit`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.calls: list[str] = []
        self.limit = RateLimit(
            self.clock, lambda: self.calls.append("pause"), lambda: self.calls.append("resume")
        )

    def test_line(self) -> None:
        """The rate of a serial line is never limited."""
        for _ in range(100):
            self.limit.charge(BYTES_PER_SECOND // 100)
            self.clock.advance(0.01)
        self.assertEqual(self.calls, [])

    def test_flood(self) -> None:
        """A flood is read at the limited rate."""
        through = 0
        while self.clock.seconds() < 60:
            if not self.limit.is_paused:
                self.limit.charge(64 << 10)
                through += 64 << 10
            else:
                self.clock.advance(0.01)
        self.assertLess(through, 61 * BYTES_PER_SECOND)
        self.assertGreater(through, 55 * BYTES_PER_SECOND)

    def test_stop(self) -> None:
        """A line that has ended leaves no timer."""
        self.limit.charge(100 << 20)
        self.assertTrue(self.limit.is_paused)
        self.limit.stop()
        self.limit.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.calls, ["pause"])
