"""
Timers that count seconds, whatever the wall clock is set to.

Twisted's reactors time their calls by ``time.time``: when the clock is set back by an hour, no
timer is due for an hour, and no heartbeat is sent; when it is set forward, every time-out is over
at once.  See https://github.com/twisted/twisted/issues/2424.  Whoever wants the time of day asks
for that, not the reactor.
"""

from __future__ import annotations

import time
from typing import Any


def steady_timers(reactor: Any) -> None:
    """
    Let a reactor count by the clock that is never set.

    Does nothing when the reactor has timers already, or runs: it is not this program's alone,
    and times by the other clock would be among those timers.
    """
    if not reactor.running and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic
