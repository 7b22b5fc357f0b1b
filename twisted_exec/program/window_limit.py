"""A limit on how often something may happen, for each of many users or objects."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WindowLimit(Generic[K]):
    """
    Counts within windows of time, one for each key.

    :param seconds: returns the time, by a monotonic clock.
    :param window_seconds: length of a window, which begins with the first time.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        *,
        window_seconds: float = 60.0,
        most_keys: int = 1024,
    ) -> None:
        self._seconds = seconds
        self._window_seconds, self._most_keys = window_seconds, most_keys
        self._windows: dict[K, tuple[float, int]] = {}  # the start and the number, oldest first

    def allow(self, key: K, most: int = 1) -> bool:
        """Count it once more, if it may happen; return whether it may."""
        now = self._seconds()
        since, count = self._windows.get(key, (now, 0))
        if now - since >= self._window_seconds:
            del self._windows[key]
            since, count = now, 0
        if count >= most:
            return False
        self._windows[key] = since, count + 1
        if len(self._windows) > self._most_keys:
            del self._windows[next(iter(self._windows))]
        return True

    def rest_seconds(self, key: K) -> float:
        """Return how long the window of a key still lasts; 0 without one."""
        now = self._seconds()
        since, _ = self._windows.get(key, (now - self._window_seconds, 0))
        return max(0.0, since + self._window_seconds - now)
