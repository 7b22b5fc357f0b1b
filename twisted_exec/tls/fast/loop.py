"""
The clock and the loop of a program's reactor.

Timers use the monotonic clock. Twisted's reactors use ``time.time``: if the system clock is set
back by an hour, no timer fires for an hour. See https://github.com/twisted/twisted/issues/2424.
Code that needs the time of day must not ask the reactor for it.
"""

from __future__ import annotations

import select
import sys
import time
from functools import partial
from typing import Any

from twisted.logger import Logger
from twisted.python import log

from twisted_exec.tls.fast.names import is_usable


def use_monotonic_clock(reactor: Any) -> None:
    """
    Make a reactor use the monotonic clock.

    Does nothing if the reactor runs or has timers already.
    """
    if not reactor.running and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic


TURN_EVENTS = 16
"""Most events of one turn."""


_IN, _OUT = getattr(select, "EPOLLIN", 1), getattr(select, "EPOLLOUT", 4)  # which only Linux has

_LONGEST_SECONDS = 1_000_000
"""Limit of one wait: epoll_wait(2) takes milliseconds as a C ``int``."""

_log = Logger()


def shorten_turns(reactor: Any) -> None:
    """
    Limit the events of each turn of a reactor.

    Does nothing if the reactor runs, is none of Twisted's epoll reactors, or lacks a name of
    :mod:`twisted_exec.tls.fast.names`.
    """
    epoll = sys.modules.get("twisted.internet.epollreactor")  # which only Linux can import
    if epoll is None or type(reactor) is not epoll.EPollReactor or reactor.running:
        return
    if is_usable("loop", {"EPollReactor": reactor}):
        reactor.doIteration = partial(_iterate, reactor)
        reactor.mainLoop = partial(_main_loop, reactor)


def _iterate(reactor: Any, timeout: float | None) -> None:
    """Do the same as ``EPollReactor.doPoll``, for a few events."""
    selectables = reactor._selectables
    for descriptor, event in reactor._poller.poll(-1 if timeout is None else timeout, TURN_EVENTS):
        selectable = selectables.get(descriptor)
        if selectable is None:
            continue  # an earlier event has closed it
        # As in Twisted, an error is logged with the prefix of its culprit, and ends nothing else.
        if event not in (_IN, _OUT):
            log.callWithLogger(selectable, reactor._doReadOrWrite, selectable, descriptor, event)
            continue
        try:
            why = selectable.doRead() if event == _IN else selectable.doWrite()
        except BaseException as problem:
            why = problem
            log.callWithLogger(selectable, log.err)
        if why:
            try:
                reactor._disconnectSelectable(selectable, why, event == _IN)
            except BaseException:
                log.callWithLogger(selectable, log.err)


def _main_loop(reactor: Any) -> None:
    """Do the same as ``ReactorBase.mainLoop``, with fewer looks at the clock."""
    while reactor._started:
        try:
            _run(reactor)
        except BaseException:
            _log.failure("an error reached the main loop")


def _run(reactor: Any) -> None:
    seconds = reactor.seconds
    while reactor._started:
        timed, now = reactor._pendingTimedCalls, seconds()
        if (
            reactor._newTimedCalls
            or reactor.threadCallQueue
            or reactor._justStopped
            or (timed and timed[0].time <= now)
        ):
            reactor.runUntilCurrent()
            _iterate(reactor, reactor.running and reactor.timeout())
        else:
            _iterate(reactor, min(timed[0].time - now, _LONGEST_SECONDS) if timed else None)
