"""
Turns of users: a few calls work at a time, and the user goes first whose last call began longest ago.

So the API server gets a bounded number of requests at once, one user has a part of them at most, and a user who makes
many calls delays others no more than one who makes few.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

AT_ONCE = 4
AT_ONCE_PER_USER = 2
WAITING_SECONDS = 0.1
"""A call that may wait for a machine or a person waits by then, and holds up nobody."""
_REMEMBERED = 4096


class Turn:
    """The turn of one call of a user."""

    def __init__(self, turns: UserTurns, user: str, clock: IReactorTime) -> None:
        self._turns: UserTurns | None = turns
        self._user, self._clock = user, clock
        self._waiting: IDelayedCall | None = None

    def may_wait(self) -> None:
        """End it soon: what the call does by then costs, and what follows does not."""
        self._waiting = self._clock.callLater(WAITING_SECONDS, self.end)

    def end(self) -> None:
        """End the turn; a second call does nothing."""
        turns, self._turns = self._turns, None
        if turns is not None:
            if self._waiting is not None and self._waiting.active():
                self._waiting.cancel()
            turns.ended(self._user)


class UserTurns:
    """
    The turns of all users.

    :param at_once: calls that work at a time.
    :param per_user: those of one user.
    """

    def __init__(
        self, clock: IReactorTime, at_once: int = AT_ONCE, per_user: int = AT_ONCE_PER_USER
    ) -> None:
        self._clock, self._free, self._per_user = clock, at_once, per_user
        self._working: Counter[str] = Counter()
        self._waiting: dict[str, deque[Deferred[Turn]]] = {}
        self._served: OrderedDict[str, int] = (
            OrderedDict()
        )  # numbers of users' last turns; the newest last
        self._number = 0

    def __len__(self) -> int:
        """Return how many calls wait."""
        return sum(map(len, self._waiting.values()))

    def next(self, user: str) -> Deferred[Turn]:
        """Return what fires with the turn of a call; cancelling gives it up."""
        if self._free and self._working[user] < self._per_user:
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
        self._working[user] += 1
        self._served.pop(user, None)
        self._number += 1
        self._served[user] = self._number
        while len(self._served) > _REMEMBERED:
            self._served.popitem(last=False)
        return Turn(self, user, self._clock)

    def ended(self, user: str) -> None:
        """Give the place of a turn that has ended to the next user."""
        self._free += 1
        self._working[user] -= 1
        if not self._working[user]:
            del self._working[user]
        while self._free and (following := self._next_user()) is not None:
            queue = self._waiting[following]
            waiting = queue.popleft()
            if not queue:
                del self._waiting[following]
            waiting.callback(self._begin(following))

    def _next_user(self) -> str | None:
        ready = (each for each in self._waiting if self._working[each] < self._per_user)
        return min(ready, key=lambda each: self._served.get(each, 0), default=None)
