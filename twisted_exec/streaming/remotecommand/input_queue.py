"""
A bounded queue of a session's input: keys, requests, and the end of input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted_exec.wire.resize import Break, Role

Item = bytes | Break | Role | None

_WISH_COST = 64
"""Cost of a BREAK or role request, in bytes."""


class InputQueue:
    """
    A bounded queue that delivers directly, unless it is paused.

    :param deliver: receives each item; it may pause or close the queue.
    :ivar most_bytes: the most keys that are delivered at once, in bytes; 0 for any number.
    """

    def __init__(
        self, limit_bytes: int, deliver: Callable[[Item], None], set_full: Callable[[bool], None]
    ) -> None:
        self._limit_bytes, self._deliver, self._set_full = limit_bytes, deliver, set_full
        self._items: deque[Item] = deque()
        self._cost = self.most_bytes = 0
        self._delivered = 0  # bytes of the first item
        self._paused = False
        self._is_full = self._is_closed = self._is_delivering = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Deliver an item after those that wait; ignored after :meth:`close`."""
        if self._is_closed:
            return
        self._items.append(item)
        self._cost += _cost(item)
        self._run()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._run()

    def drop(self) -> int:
        """
        Drop what waits, but not the end of input.

        :return: the number of pieces that were dropped.
        """
        ends = [item for item in self._items if item is None]
        dropped = sum(map(pieces, self._items)) - len(ends) - self._delivered
        self._items.clear()
        self._delivered = 0
        self._items.extend(ends)
        self._cost = sum(map(_cost, ends))
        self._run()
        return dropped

    def close(self) -> None:
        """Drop what waits, and break the cycle of references."""
        self._items.clear()
        self._deliver = self._set_full = _discard
        self._cost = self._delivered = 0
        self._is_full, self._is_closed = False, True

    def _run(self) -> None:
        if self._is_delivering:  # what follows an item must not overtake it
            return
        self._is_delivering = True
        try:
            while self._items and not self._paused:
                item = self._next()
                self._cost -= _cost(item)
                self._deliver(item)
        finally:
            self._is_delivering = False
        is_full = self._cost >= self._limit_bytes
        if is_full is not self._is_full:
            self._is_full = is_full
            self._set_full(is_full)

    def _next(self) -> Item:
        """Take an item, or a part of the keys in it."""
        item = self._items[0]
        if isinstance(item, bytes) and (self.most_bytes or self._delivered):
            begin, end = self._delivered, self._delivered + (self.most_bytes or len(item))
            if end < len(item):
                self._delivered = end
                return item[begin:end]
            item = item[begin:]
        self._delivered = 0
        self._items.popleft()
        return item


def pieces(item: Item) -> int:
    """Return the number of pieces in an item of input."""
    return len(item) if isinstance(item, bytes) else 1


def _cost(item: Item) -> int:
    return len(item) if isinstance(item, bytes) else _WISH_COST


def _discard(_: object) -> None:
    """Do nothing."""
