"""
The input of a session that waits until its attachment accepts input again.
"""

from __future__ import annotations

from collections import deque

from twisted_exec.wire.resize import Break, Role

Item = bytes | Break | Role | None
"""Keys, a request, or the end of input."""

_WISH_COST = 64
"""Cost of a BREAK or role request, in bytes."""


class WaitingInput:
    """
    Input in its order, for :class:`.server.ConsoleServer`.

    :ivar cost: what it costs to keep it, in bytes.
    """

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._taken = 0  # bytes of the first item
        self.cost = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        self._items.append(item)
        self.cost += _cost(item)

    def take(self, most_bytes: int) -> Item:
        """
        Take the first item, or a part of its keys.

        :param most_bytes: 0 for any number.
        """
        item = self._items[0]
        if isinstance(item, bytes):
            begin, end = self._taken, self._taken + (most_bytes or len(item))
            if end < len(item):
                self._taken = end
                self.cost -= end - begin
                return item[begin:end]
            item = item[begin:]
        self._taken = 0
        self._items.popleft()
        self.cost -= _cost(item)
        return item

    def drop(self) -> int:
        """
        Drop everything but the end of input.

        :return: the number of pieces that were dropped.
        """
        ends = [item for item in self._items if item is None]
        dropped = sum(map(pieces, self._items)) - len(ends) - self._taken
        self.clear()
        for end in ends:
            self.put(end)
        return dropped

    def clear(self) -> None:
        self._items.clear()
        self._taken = self.cost = 0


def pieces(item: Item) -> int:
    """Return the number of pieces in an item of input (:mod:`twisted_exec.wire.resume`)."""
    return len(item) if isinstance(item, bytes) else 1


def _cost(item: Item) -> int:
    return len(item) if isinstance(item, bytes) else _WISH_COST
