"""
Pace of the writes to ConsoleSessions whose sessions are over, or whose users are absent.
"""

from __future__ import annotations

import math

from twisted.internet.interfaces import IReactorTime

REMOVALS_AT_ONCE = 5
"""Objects that are deleted at once in each :data:`REMOVAL_PAUSE_SECONDS`."""
REMOVAL_PAUSE_SECONDS = 1.0
"""Delay before the first of the other deletions."""
REMOVALS_PER_SECOND = 150
"""Limit for the other deletions."""


class WritePace:
    """
    Pace of one server's writes to objects of sessions that have ended, or whose users are absent.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._due = self._other_due = -math.inf

    def delay(self) -> float:
        """Return the delay before the next such write."""
        now = self._clock.seconds()
        interval = REMOVAL_PAUSE_SECONDS / REMOVALS_AT_ONCE
        due = max(self._due, now - REMOVAL_PAUSE_SECONDS)
        if due + interval / 2 < now:  # not whole intervals, whose sum is rounded
            self._due = due + interval
            return 0.0
        due = max(self._other_due, now + REMOVAL_PAUSE_SECONDS) + 1 / REMOVALS_PER_SECOND
        self._other_due = due
        return due - now
