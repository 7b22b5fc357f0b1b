"""
Time limits for silent peers, but not for slow peers.

A limit counts from the peer's last sign of life, which may concern any of its connections, up to a
longest limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

LONGEST_SECONDS = 600.0
"""The longest limit for peers that give signs of life; a longer limit of their own counts."""

_LATE_SECONDS = 0.1
"""A timer that is later than this shows that this process did not run."""
_LOOK_SECONDS = 0.5
"""Time to read what arrived while this process did not run."""

_Result = TypeVar("_Result")


class Progress:
    """
    The time of the last sign of life of a peer.

    :param of: what the peer is a part of, which gets the signs, too.
    """

    __slots__ = ("_clock", "_of", "seconds")

    def __init__(self, clock: IReactorTime, of: Progress | None = None) -> None:
        self._clock, self._of = clock, of
        self.seconds = -math.inf
        """By the clock; minus infinity before the first sign."""

    def note(self) -> None:
        """Note a sign of life of the peer."""
        self.seconds = self._clock.seconds()
        if self._of is not None:
            self._of.note()


class Deadline:
    """
    A time limit for a peer.

    :param late: called at the end, with the seconds since the beginning.
    :param signs: the peer's signs of life; without them the limit is absolute.
    :param first: the limit from now, by default ``seconds``.
    :param seconds: from now, or from the last sign of life.
    """

    def __init__(
        self,
        clock: IReactorTime,
        seconds: float,
        late: Callable[[float], None],
        signs: Iterable[Progress] = (),
        first: float | None = None,
    ) -> None:
        self._clock, self._seconds, self._late = clock, seconds, late
        self._first = seconds if first is None else first
        self._signs = tuple(signs)
        self._began = clock.seconds()
        self._is_second_look = False
        self._timer: IDelayedCall | None = None
        self._due = 0.0
        self._left = 0.0  # while paused
        self._wait(self._first)

    def pause(self) -> None:
        """Stop counting, because the peer waits for this process."""
        if self._timer is not None:
            self._left = self._due - self._clock.seconds()
            self.cancel()

    def go_on(self) -> None:
        if self._timer is None:
            self._wait(max(self._left, _LOOK_SECONDS))

    def restart(self, seconds: float) -> None:
        """Begin anew, with another limit."""
        self._seconds = self._first = seconds
        self._began = self._clock.seconds()
        self._is_second_look = False
        self._wait(seconds)

    def cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _wait(self, seconds: float) -> None:
        self._due = self._clock.seconds() + seconds
        if self._timer is None:
            self._timer = self._clock.callLater(seconds, self._expire)
        else:
            self._timer.reset(seconds)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        # Time in which this process itself did not run is not the peer's: first it reads what
        # arrived meanwhile.
        if now - self._due > _LATE_SECONDS and not self._is_second_look:
            self._is_second_look = True
            self._wait(min(self._seconds, _LOOK_SECONDS))
            return
        self._is_second_look = False
        end = self._end()
        if end > now:
            self._wait(end - now)
        else:
            # Late by the time of a second look, which is nothing that a reader could understand.
            waited = self._first if end == self._began + self._first else round(end - self._began)
            self._late(waited)

    def _end(self) -> float:
        last = max((each.seconds for each in self._signs), default=-math.inf)
        longest = max(self._seconds, LONGEST_SECONDS)
        return min(max(self._began + self._first, last + self._seconds), self._began + longest)


class Late(defer.TimeoutError):
    """A peer was silent, or took too long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"nothing within {seconds:g} s")
        self.seconds = seconds


def limited(
    result: Deferred[_Result],
    clock: IReactorTime,
    seconds: float,
    signs: Iterable[Progress] = (),
    first: float | None = None,
) -> Deferred[_Result]:
    """Cancel a Deferred at a :class:`Deadline`; it then fails with :class:`Late`, because of the Deferred's failure."""
    waited: list[float] = []

    def late(seconds: float) -> None:
        waited.append(seconds)
        result.cancel()

    deadline = Deadline(clock, seconds, late, signs, first)

    def ended(value: _Result | Failure) -> _Result | Failure:
        deadline.cancel()
        # The result may have arrived while the limit ended.
        if waited and isinstance(value, Failure):
            value.trap(CancelledError)
            raise Late(waited[0]) from value.value
        return value

    return result.addBoth(ended)
