"""
The order of users who wait for turns, whatever each of them asks for: a round, in which each user has one turn.

A user who comes in the middle of a round need not wait for the rest of it: one such user at a time comes next, or after
one other, and the users behind that go to the end of the round.  So a user who calls seldom does not wait behind all
others, and the round has every second turn at least, however many new names come; a name may cost an attacker nothing.
Compare RFC 8290, section 4.2, where all new flows go first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Rotation(Generic[T]):
    """
    What users wait for, each item once; all operations have a constant cost.

    A user without items keeps the place in the round until its turn comes, and so is a guest once in a round.
    """

    def __init__(self) -> None:
        self._items: dict[str, OrderedDict[T, None]] = {}
        self._round: deque[str] = deque()
        self._guest: str | None = None  # the user who need not wait for the rest of the round
        self._was_guest = False  # the last turn was that of a guest
        self._length = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._length

    def add(self, user: str, item: T) -> None:
        """Let an item wait, behind the user's others."""
        if user not in self._items:
            self._items[user] = OrderedDict()
            if self._guest is None:
                self._guest = user
            else:
                self._round.append(user)
        self._items[user][item] = None
        self._length += 1

    def remove(self, user: str, item: T) -> None:
        """Remove an item that waits."""
        del self._items[user][item]
        self._count_down()

    def pop(self) -> T:
        """
        Remove and return the item whose turn it is.

        :raises IndexError: none waits.
        """
        while True:
            guest, is_guest = self._guest, not (self._was_guest and self._round)
            if guest is not None and is_guest:
                user, self._guest = guest, None
            else:
                user, is_guest = self._round.popleft(), False
            if items := self._items[user]:
                break
            del self._items[user]
        self._was_guest = is_guest
        self._round.append(user)
        item, _ = items.popitem(last=False)
        self._count_down()
        return item

    def _count_down(self) -> None:
        self._length -= 1
        if not self._length:  # there is no round any more
            self._items.clear()
            self._round.clear()
            self._guest, self._was_guest = None, False
