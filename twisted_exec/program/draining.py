"""
The time that sessions get to end when a program stops.

The options for it are in :mod:`twisted_exec.program.options.shared`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.control.polling import until
from twisted_exec.program.service import SUMMARY

_log = Logger()

_LOOK_EVERY_SECONDS = 0.1
_FAREWELL_SECONDS = 0.5
"""Limit of drains that begin after :func:`stop_at_once`: sessions get the message that ends them."""


class _Stop:
    def __init__(self) -> None:
        self.limits: set[DrainLimit] = set()
        self.announced = self.at_once = False


_stop = _Stop()


class DrainLimit:
    """
    The end of a drain: after its time, or after :func:`stop_at_once`.

    :param expired: called at the end, unless :meth:`cancel` came first.
    """

    def __init__(
        self,
        clock: IReactorTime,
        seconds: float,
        sessions: int,
        expired: Callable[[], object] = lambda: None,
    ) -> None:
        self.is_over = False
        self._expired = expired
        if sessions and seconds:
            _announce(seconds, sessions)
        if _stop.at_once:
            seconds = min(seconds, _FAREWELL_SECONDS)
        self._call = clock.callLater(seconds, self.expire)
        _stop.limits.add(self)

    def expire(self) -> None:
        """End the drain now."""
        self.cancel()
        self.is_over = True
        self._expired()

    def cancel(self) -> None:
        """Forget the limit: the drain has ended."""
        _stop.limits.discard(self)
        if self._call.active():
            self._call.cancel()


def pause(clock: IReactorTime, seconds: float) -> Deferred[None]:
    """Return a Deferred that fires after a time, or after :func:`stop_at_once`."""
    waiting: Deferred[None] = Deferred()
    DrainLimit(clock, seconds, 0, lambda: waiting.callback(None))
    return waiting


async def let_sessions_end(reactor: Any, seconds: float, count: Callable[[], int]) -> None:
    """Wait until no session is open, at most until the limit of the drain."""
    limit = DrainLimit(reactor, seconds, count())
    await until(lambda: not count() or limit.is_over, reactor, _LOOK_EVERY_SECONDS)
    limit.cancel()


def stop_at_once() -> None:
    """End all drains of this process; those to come are short."""
    _stop.at_once = True
    _log.info("stopping at once", **{SUMMARY: True})
    for limit in list(_stop.limits):
        limit.expire()


def _announce(seconds: float, sessions: int) -> None:
    # Programs drain one part after another, with the same sessions.
    if _stop.announced or _stop.at_once:
        return
    _stop.announced = True
    _log.info(
        "stopping: {sessions} {noun} {seconds:g} s to end; press Ctrl-C again to stop at once",
        sessions=sessions,
        noun="session gets" if sessions == 1 else "sessions get",
        seconds=seconds,
        **{SUMMARY: True},
    )
