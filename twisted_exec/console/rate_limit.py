"""
A limit of a rate: of reading a line, and of the input that a policy slows down.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

BYTES_PER_SECOND = 4 << 20
"""Maximal average rate of reading a line: about ten times that of a serial line with 4,000,000 baud."""
_BURST_SECONDS = 0.25


class RateLimit:
    """A leaky bucket, which is full after ``burst_seconds`` of the rate."""

    def __init__(
        self,
        clock: IReactorTime,
        pause: Callable[[], None],
        resume: Callable[[], None],
        bytes_per_second: int = BYTES_PER_SECOND,
        burst_seconds: float = _BURST_SECONDS,
    ) -> None:
        self._clock = clock
        self._rate, self._size = bytes_per_second, bytes_per_second * burst_seconds
        self._pause, self._resume = pause, resume
        self._level, self._charged_at = 0.0, clock.seconds()
        self._timer: IDelayedCall | None = None

    @property
    def is_paused(self) -> bool:
        return self._timer is not None

    def charge(self, amount: float) -> None:
        """Count bytes that have passed, or work that costs as much."""
        now = self._clock.seconds()
        self._level = max(0.0, self._level - (now - self._charged_at) * self._rate) + amount
        self._charged_at = now
        if self._level > self._size and self._timer is None:
            seconds = (self._level - self._size / 2) / self._rate
            self._timer = self._clock.callLater(seconds, self._drained)
            self._pause()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drained(self) -> None:
        self._timer = None
        self._resume()
