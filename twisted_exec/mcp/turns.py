"""
Turns of users: calls begin a few at a time, and the user goes first whose last call began longest ago.

So a user who asks seldom does not wait behind those who ask all the time, however many they are.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

AT_ONCE = 4
HELD_SECONDS = 0.5
"""A call that takes longer waits for a machine or a person, and holds up nobody."""
_REMEMBERED = 4096


class Turn:
    """The turn of one call."""

    def __init__(self, turns: UserTurns, clock: IReactorTime) -> None:
        self._turns: UserTurns | None = turns
        self._late: Any = clock.callLater(HELD_SECONDS, self.end)

    def end(self) -> None:
        """End the turn; a second call does nothing."""
        turns, self._turns = self._turns, None
        if turns is not None:
            if self._late.active():
                self._late.cancel()
            turns.ended()


class UserTurns:
    """
    The turns of all users.

    :param at_once: calls that may begin before another has ended.
    """

    def __init__(self, clock: IReactorTime, at_once: int = AT_ONCE) -> None:
        self._clock, self._free = clock, at_once
        self._waiting: dict[str, deque[Deferred[Turn]]] = {}
        self._served: OrderedDict[str, None] = OrderedDict()  # users; the newest last

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def next(self, user: str) -> Deferred[Turn]:
        """Return what fires with the turn of a call; cancelling gives it up."""
        if self._free and not self._waiting:
            return succeed(self._begin(user))
        waiting: Deferred[Turn] = Deferred(lambda each: self._give_up(user, each))
        self._waiting.setdefault(user, deque()).append(waiting)
        return waiting

    def _give_up(self, user: str, waiting: Deferred[Turn]) -> None:
        queue = self._waiting.get(user)
        if queue is not None and waiting in queue:
            queue.remove(waiting)
            if not queue:
                del self._waiting[user]

    def _begin(self, user: str) -> Turn:
        self._free -= 1
        self._served.pop(user, None)
        self._served[user] = None
        while len(self._served) > _REMEMBERED:
            self._served.popitem(last=False)
        return Turn(self, self._clock)

    def ended(self) -> None:
        """Give the place of a turn that has ended to the next user."""
        self._free += 1
        while self._free and self._waiting:
            user = self._next_user()
            queue = self._waiting[user]
            waiting = queue.popleft()
            if not queue:
                del self._waiting[user]
            waiting.callback(self._begin(user))

    def _next_user(self) -> str:
        for user in self._waiting:
            if user not in self._served:
                return user
        return next(user for user in self._served if user in self._waiting)
