"""
The clock of a program.

Timers use the monotonic clock.  Twisted's reactors use ``time.time``: if the system clock is set
back by an hour, no timer fires for an hour and heartbeats stop; if it is set forward, all time
limits expire at once.  See https://github.com/twisted/twisted/issues/2424.  Code that needs the
time of day must not ask the reactor for it.
"""

from __future__ import annotations

import time
from typing import Any


def use_monotonic_clock(reactor: Any) -> None:
    """
    Make a reactor use the monotonic clock.

    Does nothing if the reactor runs or has timers already: their times are on the other clock, and
    the reactor may belong to another program, too.
    """
    if not reactor.running and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic
