"""
A memory budget for all slow peers together.

A limit per connection is not enough: thousands of connections, each with an incomplete body or an
unread response, take thousands of times that limit, and sending a body needs no credentials.  So
buffers for peers share one budget.  Beyond it the peer whose buffer is oldest is evicted: a
well-behaved peer is done in a moment, so this hardly ever hits one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Holder = TypeVar("Holder")


class SlowReader(Protocol):
    """A holder of bytes that its client does not read."""

    def evict(self) -> None:
        """Free the memory at once, for others."""


class Budget(Generic[Holder]):
    """
    Bytes buffered per holder, with a common limit.

    :param limit_bytes: total of all holders.
    :param evict: called with the holder to evict, which no longer counts.
    """

    def __init__(self, limit_bytes: int, evict: Callable[[Holder], None]) -> None:
        self._limit_bytes, self._evict = limit_bytes, evict
        self._kept: dict[Holder, int] = {}  # oldest first
        self._total = 0

    def __len__(self) -> int:
        """Total of buffered bytes."""
        return self._total

    def keep(self, holder: Holder, count: int) -> None:
        """Count ``count`` more bytes; this may evict any holder, including ``holder``."""
        self._kept[holder] = self._kept.get(holder, 0) + count
        self._total += count
        while self._total > self._limit_bytes:
            longest = next(iter(self._kept))
            self.release(longest)
            self._evict(longest)

    def release(self, holder: Holder, count: int | None = None) -> None:
        """Release ``count`` bytes of ``holder``, by default all."""
        released = self._kept.pop(holder, 0)
        if count is not None and count < released:
            self._kept[holder] = released - count  # it made progress: it becomes the youngest
            released = count
        self._total -= released
