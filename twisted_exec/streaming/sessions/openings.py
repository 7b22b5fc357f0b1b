"""
Streams that are being opened: a few concurrently, while the others wait for their user's turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.status import TooManyRequests
from twisted_exec.program.session_limits import MOST_SESSIONS
from twisted_exec.tls.deadlines import Late, Progress, limited

AT_ONCE = 32
"""Concurrent openings to one next hop."""
PER_USER = 2
"""
Concurrent openings of one user to one next hop; more while this program is on time, see
:data:`PACE_SECONDS`.
"""
LOCATING_AT_ONCE, LOCATING_PER_USER = 64, 4
"""Concurrent openings before the next hop is known: of all users, and of one user."""
PACE_SECONDS = 0.025
"""
While this program is on time, one more stream of a user than :data:`PER_USER` begins in each such
period: waiting for a distant hop costs nothing here.
"""
RETRY_SECONDS = 2
_LATE_SECONDS = 0.005


class Openings:
    """
    The turns of one program.

    :param at_once: concurrent openings to one next hop.
    :param pace_seconds: see :data:`PACE_SECONDS`; 0 for never more than ``per_user``.
    :param most_waiting: streams that may wait for a turn.
    """

    def __init__(
        self,
        at_once: int = AT_ONCE,
        per_user: int = PER_USER,
        pace_seconds: float = PACE_SECONDS,
        most_waiting: int = MOST_SESSIONS,
        most_waiting_per_user: int = MOST_SESSIONS,
    ) -> None:
        self.at_once, self.per_user, self.pace_seconds = at_once, per_user, pace_seconds
        self._most_waiting, self._most_waiting_per_user = most_waiting, most_waiting_per_user
        self._hops: dict[str, _Hop] = {}
        self._waiting: Counter[Hashable] = Counter()  # by user

    def __len__(self) -> int:
        return sum(hop.under_way.total() for hop in self._hops.values())

    @property
    def waiting(self) -> int:
        return self._waiting.total()

    async def begin(
        self,
        hop: str,
        user: Hashable,
        clock: IReactorTime,
        seconds: float,
        signs: Iterable[Progress] = (),
    ) -> None:
        """
        Wait for a turn; :meth:`end` must follow, unless this raises.

        :param seconds: longest wait, counted from the last sign of life.
        :raises TooManyRequests: too many wait already, or there was no turn in that time.
        """
        turns = self._hops.get(hop)
        if turns is None:
            turns = self._hops[hop] = _Hop(self, clock)
        if turns.admits(user):
            turns.under_way[user] += 1
            return
        self._check_room(user)
        turn = limited(turns.wait(user), clock, seconds, signs)
        self._waiting[user] += 1
        try:
            await turn
        except Late:
            raise _too_many("too many streams are being opened at this moment") from None
        finally:
            _take_one(self._waiting, user)

    def _check_room(self, user: Hashable) -> None:
        if self._waiting[user] >= self._most_waiting_per_user:
            most = self._most_waiting_per_user
            raise _too_many(f"{most} streams of this user wait for being opened, the most allowed")
        if self._waiting.total() >= self._most_waiting:
            raise _too_many("too many streams are being opened at this moment")

    def end(self, hop: str, user: Hashable) -> None:
        """The stream is open, or was refused."""
        turns = self._hops[hop]
        turns.end(user)
        # Within that, this was perhaps done already, and others have begun.
        if turns.is_idle and self._hops.get(hop) is turns:
            turns.close()
            del self._hops[hop]


class _Hop:
    def __init__(self, limits: Openings, clock: IReactorTime) -> None:
        self._limits, self._clock = limits, clock
        self.under_way: Counter[Hashable] = Counter()
        # The user whose turn is next comes first; so does the stream that has waited longest.
        self._waiting: dict[Hashable, dict[Deferred[None], None]] = {}
        self._is_serving = False
        self._timer: IDelayedCall | None = None
        self._due = 0.0

    @property
    def is_idle(self) -> bool:
        return not self.under_way and not self._waiting

    def admits(self, user: Hashable) -> bool:
        limits = self._limits
        return self._has_room() and self.under_way[user] < limits.per_user

    def _has_room(self) -> bool:
        return self.under_way.total() < self._limits.at_once

    def wait(self, user: Hashable) -> Deferred[None]:
        turn: Deferred[None] = Deferred(lambda turn: self._withdraw(user, turn))
        self._waiting.setdefault(user, {})[turn] = None
        self._pace()
        return turn

    def _withdraw(self, user: Hashable, turn: Deferred[None]) -> None:
        turns = self._waiting[user]
        del turns[turn]
        if not turns:
            del self._waiting[user]
        if not self._waiting:
            self.close()

    def end(self, user: Hashable) -> None:
        _take_one(self.under_way, user)
        self._serve()

    def _serve(self) -> None:
        if not self._has_room() or not self._waiting:
            return
        if self._is_serving:  # it ended at once; the next one must not hold up the reactor, too
            self._schedule(0.0)
            return
        limit = self._limits.per_user
        user = next((user for user in self._waiting if self.under_way[user] < limit), None)
        if user is None:
            self._pace()
        else:
            self._begin(user)

    def _begin(self, user: Hashable) -> None:
        turns = self._waiting.pop(user)
        turn = next(iter(turns))
        del turns[turn]
        if turns:
            self._waiting[user] = turns  # behind all others
        self.under_way[user] += 1
        self._is_serving = True
        try:
            turn.callback(None)
        finally:
            self._is_serving = False

    def _pace(self) -> None:
        if self._limits.pace_seconds and self._timer is None:
            self._schedule(self._limits.pace_seconds)

    def _schedule(self, seconds: float) -> None:
        self.close()
        self._due = self._clock.seconds() + seconds
        self._timer = self._clock.callLater(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        is_paced = bool(self._limits.pace_seconds)
        is_late = self._clock.seconds() - self._due > _LATE_SECONDS
        if not self._waiting or not self._has_room():
            return
        limit = self._limits.per_user
        if any(self.under_way[user] < limit for user in self._waiting):
            self._serve()
        elif is_paced and not is_late:
            self._begin(next(iter(self._waiting)))
        if self._waiting:
            self._pace()

    def close(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


def _too_many(message: str) -> TooManyRequests:
    return TooManyRequests(message, retry_after_seconds=RETRY_SECONDS)


def _take_one(counter: Counter[Hashable], user: Hashable) -> None:
    counter[user] -= 1
    if not counter[user]:
        del counter[user]
