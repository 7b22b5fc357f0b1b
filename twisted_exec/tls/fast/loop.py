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
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from twisted.internet import tcp
from twisted.logger import Logger
from twisted.python import log

from twisted_exec.tls.fast.names import is_usable
from twisted_exec.tls.turns import TurnTaking


def use_monotonic_clock(reactor: Any) -> None:
    """
    Make a reactor use the monotonic clock.

    Does nothing if the reactor runs or has timers already.
    """
    if not reactor.running and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic


STREAMS_SECONDS = 0.002
"""CPU time of streams, and of what is no connection, in one turn."""

FEW = 4
"""So many streams, as in most turns, are handled without a look at the clock."""

OTHERS_SECONDS = 0.0005
"""CPU time of connections that are made, and of requests, in one turn with others."""

_MOST_READY = 1024
"""The most descriptors that the kernel returns at once."""


_IN, _OUT = getattr(select, "EPOLLIN", 1), getattr(select, "EPOLLOUT", 4)  # which only Linux has

_LONGEST_SECONDS = 1_000_000
"""Limit of one wait: epoll_wait(2) takes milliseconds as a C ``int``."""

_log = Logger()


class ReadyDescriptors:
    """
    The order of descriptors that are ready at the same time: keys before handshakes and requests.

    Each kind has a part of the turn's CPU time, and at least one event.  Descriptors that are left are ready again in
    the next turn, and come before those of their kind that were handled.

    :param comes_first: returns whether a descriptor is a stream, or no connection.
    :param cpu: clock of CPU time, in seconds.
    """

    def __init__(
        self, comes_first: Callable[[int], bool], cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self._comes_first, self._cpu = comes_first, cpu
        self._left: list[int] = []

    def in_order(self, events: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
        """
        Return the events of one turn that are handled in it, each when the one before is handled.

        The kernel reports the others again.
        """
        if len(events) <= FEW and all(self._comes_first(each) for each, _ in events):
            self._left = []
            return events
        return self._shared(events)

    def _shared(self, events: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        ready = dict(events)
        ready = {each: ready[each] for each in self._left if each in ready} | ready
        first: list[int] = []
        then: list[int] = []
        for each in ready:
            (first if self._comes_first(each) else then).append(each)
        self._left = []
        for descriptors, seconds in ((first, STREAMS_SECONDS), (then, OTHERS_SECONDS)):
            until = self._cpu() + seconds
            for number, each in enumerate(descriptors, 1):
                yield each, ready[each]
                if self._cpu() >= until:
                    self._left += descriptors[number:]
                    break


def shorten_turns(reactor: Any) -> None:
    """
    Limit the CPU time of each turn of a reactor, and handle keys before handshakes and requests.

    Does nothing if the reactor runs, is none of Twisted's epoll reactors, or lacks a name of
    :mod:`twisted_exec.tls.fast.names`.
    """
    epoll = sys.modules.get("twisted.internet.epollreactor")  # which only Linux can import
    if epoll is None or type(reactor) is not epoll.EPollReactor or reactor.running:
        return
    if is_usable("loop", {"EPollReactor": reactor}):
        ready = ReadyDescriptors(partial(_comes_first, reactor))
        reactor.doIteration = partial(_iterate, reactor, ready)
        reactor.mainLoop = partial(_main_loop, reactor)


def _comes_first(reactor: Any, descriptor: int) -> bool:
    selectable = reactor._selectables.get(descriptor)
    if isinstance(selectable, TurnTaking):
        return selectable.is_stream
    return not isinstance(selectable, tcp.Port)  # a port of UNIX sockets is one of these, too


def _iterate(reactor: Any, ready: ReadyDescriptors, timeout: float | None) -> None:
    """Do the same as ``EPollReactor.doPoll``, for a part of the events."""
    events = reactor._poller.poll(-1 if timeout is None else timeout, _MOST_READY)
    # Most turns have one event, that of a key, and each call makes a key dearer.
    for descriptor, event in events if len(events) < 2 else ready.in_order(events):
        selectable = reactor._selectables.get(descriptor)
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
            reactor.doIteration(reactor.running and reactor.timeout())
        else:
            reactor.doIteration(min(timed[0].time - now, _LONGEST_SECONDS) if timed else None)
