"""
Tests for :mod:`twisted_exec.sshd.bounded_log`.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.sshd.bounded_log import MOST_LINES, SECONDS, BoundedLog


class BoundedLogTests(SynchronousTestCase):
    """What clients can write into the log."""

    def test_flood(self) -> None:
        """Lines above the limit are counted, and the next minute has room again."""
        clock = Clock()
        log = BoundedLog(clock)
        with capturedLogs() as events:
            for number in range(MOST_LINES + 1000):
                log.info("{who} was here", who=str(number))
            clock.advance(SECONDS)
            log.info("{who} was here", who="eve")
        lines = [formatEvent(each) for each in events]
        self.assertEqual(len(lines), MOST_LINES + 2)
        self.assertEqual(lines[MOST_LINES - 1], f"{MOST_LINES - 1} was here")
        self.assertTrue(str(lines[-2]).startswith("1000 lines "), lines[-2])
        self.assertEqual(lines[-1], "eve was here")
