"""Exponential back-off."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from twisted.internet.interfaces import IReactorTime

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0

_RANDOM = random.Random()
"""For all: a generator takes 2.5 KiB."""

K = TypeVar("K", bound=Hashable)


class Backoff:
    """Exponential back-off up to a limit, with random parts."""

    def __init__(
        self,
        first_seconds: float = FIRST_PAUSE_SECONDS,
        longest_seconds: float = LONGEST_PAUSE_SECONDS,
        rng: random.Random | None = None,
    ) -> None:
        self._first = self._next = first_seconds
        self._longest = longest_seconds
        self._random = rng or _RANDOM

    def reset(self) -> None:
        self._next = self._first

    def pause(self, longest_seconds: float = inf) -> float:
        """
        Return how many seconds to wait now.

        :param longest_seconds: a limit of this pause.
        """
        seconds = min(self._next, self._longest, longest_seconds)
        self._next = 2 * seconds
        return seconds * (0.5 + self._random.random() / 2)


@dataclass(slots=True)
class _Failing:
    backoff: Backoff
    until: float = -inf
    cause: str = ""


class Backoffs(Generic[K]):
    """
    Back-off of several keys, for a loop over all of them.

    A :class:`~twisted_exec.control.queue.WorkQueue` has its own for its keys.

    :param new: makes the back-off of one key.
    """

    def __init__(self, clock: IReactorTime, new: Callable[[], Backoff] = Backoff) -> None:
        self._clock, self._new = clock, new
        self._failing: dict[K, _Failing] = {}

    def __len__(self) -> int:
        return len(self._failing)

    def failed(self, key: K, cause: str = "") -> bool:
        """
        Let a key wait, unless it waits already.

        :return: whether it did not fail before, or for another cause.
        """
        failing = self._failing.get(key)
        is_new = failing is None or failing.cause != cause
        if failing is None:
            failing = self._failing[key] = _Failing(self._new())
        failing.cause = cause
        if self.wait_seconds(key) <= 0:
            failing.until = self._clock.seconds() + failing.backoff.pause()
        return is_new

    def succeeded(self, key: K) -> None:
        self._failing.pop(key, None)

    def wait_seconds(self, key: K) -> float:
        """Return how long a key has to wait yet; 0 if it may be tried."""
        failing = self._failing.get(key)
        return 0.0 if failing is None else max(0.0, failing.until - self._clock.seconds())
