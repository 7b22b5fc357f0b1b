"""
Input of one session that waits for the machine.

Keys and requests keep their order.  The queue is bounded: beyond the limit the client is not read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted_exec.wire.remotecommand.messages import Break, Role

Item = bytes | Break | Role | None
"""Bytes, a request, or ``None``: the end of input."""

_WISH_COST = 64
"""Cost of a BREAK or role request, in bytes."""


class InputQueue:
    """
    A queue that delivers at once, unless it is paused.

    :param deliver: receives each item; it may pause or close the queue.
    :param set_full: is called with true when the limit is reached, and with false when the queue is
        below it again.
    """

    def __init__(
        self, limit_bytes: int, deliver: Callable[[Item], None], set_full: Callable[[bool], None]
    ) -> None:
        self._limit_bytes, self._deliver, self._set_full = limit_bytes, deliver, set_full
        self._items: deque[Item] = deque()
        self._cost = 0
        self._paused = False
        self._is_full = self._is_closed = False

    def __len__(self) -> int:
        """Return the number of items that wait."""
        return len(self._items)

    def put(self, item: Item) -> None:
        """Deliver an item after those that wait; ignored after :meth:`close`."""
        if self._is_closed:
            return
        self._items.append(item)
        self._cost += _cost(item)
        self._run()

    def pause(self) -> None:
        """Deliver nothing until :meth:`resume`."""
        self._paused = True

    def resume(self) -> None:
        """Deliver what waits."""
        self._paused = False
        self._run()

    def drop(self) -> int:
        """
        Drop what waits, but not the end of input.

        :return: the number of pieces that were dropped.
        """
        ends = [item for item in self._items if item is None]
        dropped = sum(map(pieces, self._items)) - len(ends)
        self._items.clear()
        self._items.extend(ends)
        self._cost = sum(map(_cost, ends))
        self._run()
        return dropped

    def close(self) -> None:
        """Drop what waits, and the callbacks: they and the session refer to each other."""
        self._items.clear()
        self._deliver = self._set_full = _ignore
        self._cost, self._is_full, self._is_closed = 0, False, True

    def _run(self) -> None:
        while self._items and not self._paused:
            item = self._items.popleft()
            self._cost -= _cost(item)
            self._deliver(item)
        is_full = self._cost >= self._limit_bytes
        if is_full is not self._is_full:
            self._is_full = is_full
            self._set_full(is_full)


def pieces(item: Item) -> int:
    """Return how many pieces of input an item is: each byte is one, and so is anything else."""
    return len(item) if isinstance(item, bytes) else 1


def _cost(item: Item) -> int:
    return len(item) if isinstance(item, bytes) else _WISH_COST


def _ignore(_: object) -> None:
    """Do nothing."""
