"""
What slow peers may keep of our memory, all of them together.

A limit for each connection is not enough: thousands of connections, each with a
body that never becomes complete or an answer that nobody reads, keep thousands
of times that limit, and the first of these takes no credentials.  So what is kept for peers
counts against one budget, and beyond it goes whoever has kept us the
longest: an honest peer is done in a moment, so it is hardly ever that one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Holder = TypeVar("Holder")


class Budget(Generic[Holder]):
    """
    Bytes that are kept for holders.

    :param limit_bytes: of all holders together.
    :param evict: called with the one that must go; nothing counts for it any more.
    """

    def __init__(self, limit_bytes: int, evict: Callable[[Holder], None]) -> None:
        self._limit_bytes, self._evict = limit_bytes, evict
        self._kept: dict[Holder, int] = {}  # in the order in which they began
        self._total = 0

    def __len__(self) -> int:
        """How many bytes are kept."""
        return self._total

    def keep(self, holder: Holder, count: int) -> None:
        """Keep ``count`` more bytes; this may evict anyone, ``holder`` too."""
        self._kept[holder] = self._kept.get(holder, 0) + count
        self._total += count
        while self._total > self._limit_bytes:
            longest = next(iter(self._kept))
            self.release(longest)
            self._evict(longest)

    def release(self, holder: Holder, count: int | None = None) -> None:
        """Nothing is kept for ``holder`` any more; or ``count`` bytes less."""
        kept = self._kept.pop(holder, 0)
        if count is not None and count < kept:
            self._kept[holder] = kept - count  # it did read: it begins anew
            kept = count
        self._total -= kept
