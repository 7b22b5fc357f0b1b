"""
The end of a session by its terms: after a time without input, and at a point in time.

Only what the user sends counts as use, such as keys. When the user's certificate or token expires,
:mod:`.guard` ends the session.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.times import human, timestamp
from twisted_exec.streaming.interfaces import IDLE, TIME_OVER, Ending
from twisted_exec.wire.session_terms import FULL, Terms

_MOST_WARNING_SECONDS = 60.0
_WARNING_SHARE = 10
"""The user is warned when a tenth of a short time is left."""
_LONGEST_WAIT = 60.0
"""Longest time until the next look at the time of day, which may be set meanwhile."""
_TOLERANCE = 0.001


class LastInput:
    """The time of the last input of a session, shared by its streams: resuming is no input."""

    __slots__ = ("at",)

    def __init__(self, at: float) -> None:
        self.at = at


class TimeLimits:
    """
    The time limits of one stream.

    :param end: ends the session; called at most once; the limits have stopped then.
    :param now: returns the time of day, in seconds since 1970.
    """

    def __init__(
        self,
        clock: IReactorTime,
        warn: Callable[[str], None],
        end: Callable[[Ending], None],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._warn, self._end, self._now = clock, warn, end, now
        self._terms = FULL
        self.last_input = LastInput(clock.seconds())
        self._until_warning = 0.0  # seconds before the end
        self._warned: set[str] = set()
        self._timer: IDelayedCall | None = None
        self._stopped = False

    def touch(self) -> None:
        # The timer does not move with each key: when it is due, it looks at this.
        self.last_input.at = self._clock.seconds()

    def hold_to(self, terms: Terms) -> None:
        """Follow a change of the terms; a session whose time is over ends at once."""
        if terms.until != self._terms.until:
            self._until_warning = _warning_seconds(terms.until - self._now())
            self._warned.discard(TIME_OVER)
        if terms.idle_seconds != self._terms.idle_seconds:
            self._warned.discard(IDLE)
        self._terms = terms
        self._look()

    def stop(self) -> None:
        """Do nothing more, and break the cycle of references."""
        self._stopped = True
        self._warn = self._end = _ignore
        self._cancel()

    def _cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _look(self) -> None:
        self._cancel()
        waits = []
        if self._terms.idle_seconds:
            left = self.last_input.at + self._terms.idle_seconds - self._clock.seconds()
            warning_seconds = _warning_seconds(self._terms.idle_seconds)
            waits.append(self._approach(IDLE, left, warning_seconds))
        if self._terms.until:
            left = self._terms.until - self._now()
            waits.append(self._approach(TIME_OVER, left, self._until_warning))
        if waits and not self._stopped:
            self._timer = self._clock.callLater(min(*waits, _LONGEST_WAIT), self._look)

    def _approach(self, reason: str, left: float, warning_seconds: float) -> float:
        if self._stopped:
            return left
        if left <= _TOLERANCE:
            end = self._end
            self.stop()
            end(Ending(reason, self._end_message(reason)))
        elif left > warning_seconds + _TOLERANCE:
            self._warned.discard(reason)
            return left - warning_seconds
        elif reason not in self._warned:
            self._warned.add(reason)
            self._warn(self._warning(reason, left))
        return left

    def _warning(self, reason: str, left: float) -> str:
        seconds = human(max(1, round(left)))
        if reason == IDLE:
            return f"this session ends in {seconds} unless you type: {self._idle_rule()}"
        until = timestamp(self._terms.until)
        return (
            f"this session ends in {seconds}: {self._terms.rule('allow', 'until')} it until {until}"
        )

    def _end_message(self, reason: str) -> str:
        if reason == IDLE:
            return f"nothing was typed: {self._idle_rule()}"
        return f"{self._terms.rule('allow', 'until')} this session until {timestamp(self._terms.until)}"

    def _idle_rule(self) -> str:
        return f"{self._terms.rule('allow', 'idle_seconds')} {human(self._terms.idle_seconds)} without input"


def _warning_seconds(seconds: float) -> float:
    return min(_MOST_WARNING_SECONDS, max(0.0, seconds / _WARNING_SHARE))


def _ignore(_: object) -> None:
    """Do nothing."""
