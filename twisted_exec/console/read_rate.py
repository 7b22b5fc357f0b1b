"""
The limit of the rate at which a console reads its line; :mod:`.pacing` has that of a line without viewers.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

BYTES_PER_SECOND = 4 << 20
"""Maximal average rate of reading: about ten times that of a serial line with 4,000,000 baud."""
_BURST_SECONDS = 0.25


class ReadRateLimit:
    """A leaky bucket for a quarter of a second of reading."""

    def __init__(
        self,
        clock: IReactorTime,
        pause: Callable[[], None],
        resume: Callable[[], None],
        bytes_per_second: int = BYTES_PER_SECOND,
    ) -> None:
        self._clock = clock
        self._rate, self._size = bytes_per_second, bytes_per_second * _BURST_SECONDS
        self._pause, self._resume = pause, resume
        self._level, self._charged_at = 0.0, clock.seconds()
        self._timer: IDelayedCall | None = None

    @property
    def is_paused(self) -> bool:
        return self._timer is not None

    def charge(self, amount: int) -> None:
        """Count bytes that were read, or work that costs as much."""
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
