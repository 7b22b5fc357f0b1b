"""Exponential back-off."""

from __future__ import annotations

import random

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


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
        self._random = rng or random.Random()

    def reset(self) -> None:
        self._next = self._first

    def pause(self) -> float:
        """Return how many seconds to wait now."""
        seconds, self._next = self._next, min(self._next * 2, self._longest)
        return seconds * (0.5 + self._random.random() / 2)
