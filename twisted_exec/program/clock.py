"""
The clock and the loop of a program's reactor.

Timers use the monotonic clock.  Twisted's reactors use ``time.time``: if the system clock is set
back by an hour, no timer fires for an hour and heartbeats stop; if it is set forward, all time
limits expire at once.  See https://github.com/twisted/twisted/issues/2424.  Code that needs the
time of day must not ask the reactor for it.

Turns of the loop are short.  Twisted's loop handles all events that the kernel reports before it comes
back to its timers.  It also makes a log context for each event, a sixth of the cost of a key; only
Twisted's old log interface shows that context.  With :func:`shorten_turns` a turn has a limited number
of events, and no contexts.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any


def use_monotonic_clock(reactor: Any) -> None:
    """
    Make a reactor use the monotonic clock.

    Does nothing if the reactor runs or has timers already: their times are on the other clock, and
    the reactor may belong to another program, too.
    """
    if not reactor.running and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic


TURN_EVENTS = 16
"""
Most events of one turn.  The kernel reports further ones in the next turn, before those that it has
reported already, so each descriptor has its turn.
"""


def shorten_turns(reactor: Any) -> None:
    """
    Limit the events of each turn of a reactor, and handle them without a log context.

    Does nothing if the reactor runs, for then it belongs to an application, or if it is none of
    Twisted's epoll reactors.
    """
    epoll = sys.modules.get("twisted.internet.epollreactor")  # which only Linux can import
    if epoll is not None and type(reactor) is epoll.EPollReactor and not reactor.running:
        reactor.doIteration = partial(_iterate, reactor)


def _iterate(reactor: Any, timeout: float | None) -> None:
    """Do the same as ``EPollReactor.doPoll``, for a few events."""
    events = reactor._poller.poll(-1 if timeout is None else timeout, TURN_EVENTS)
    selectables, handle = reactor._selectables, reactor._doReadOrWrite
    for descriptor, event in events:
        selectable = selectables.get(descriptor)
        if selectable is not None:  # otherwise an event before this one has closed it
            handle(selectable, descriptor, event)
