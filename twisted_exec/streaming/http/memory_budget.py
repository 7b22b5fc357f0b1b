"""A common limit for the bytes that several holders buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Holder = TypeVar("Holder")


class SlowReader(Protocol):
    """A holder of bytes that its client does not read."""

    def evict(self) -> None:
        """Free the memory for others."""


class Budget(Generic[Holder]):
    """
    Bytes buffered per holder, with a common limit.

    Beyond the limit the holder with the oldest buffer is evicted.
    """

    def __init__(self, limit_bytes: int, evict: Callable[[Holder], None]) -> None:
        self._limit_bytes, self._evict = limit_bytes, evict
        self._kept: dict[Holder, int] = {}  # oldest first
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def keep(self, holder: Holder, count: int) -> None:
        """Count more bytes of ``holder``; may evict any holder."""
        self._kept[holder] = self._kept.get(holder, 0) + count
        self._total += count
        while self._total > self._limit_bytes:
            longest = next(iter(self._kept))
            self.release(longest)
            self._evict(longest)

    def release(self, holder: Holder, count: int | None = None) -> None:
        released = self._kept.pop(holder, 0)
        if count is not None and count < released:
            self._kept[holder] = released - count  # it made progress: it becomes the youngest
            released = count
        self._total -= released
