"""
Sessions whose connections are lost, and whose users may come back.

Each waits for the same time, so one timer serves all.  Their number is limited: the session that has
waited longest ends first.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

MOST = 4096
MOST_OF_USER = MOST // 4
"""One user may have a quarter, as of open sessions: a hop that is replaced cuts all of a user's at once."""
_AT_ONCE = 50
"""Sessions that end in one turn of the reactor."""

NOT_BACK = "the user did not come back"
TOO_MANY = "too many lost sessions wait for their users"


class Absentee(Protocol):
    """A session that waits for its user."""

    @property
    def user(self) -> str:
        """The user's name."""

    def give_up(self, reason: str) -> None:
        """End the session."""


class Absences:
    """
    The sessions that wait for their users.

    :param seconds: how long a session waits.
    :param most: limit for their number.
    :param most_of_user: limit for each user.
    """

    def __init__(
        self,
        clock: IReactorTime,
        seconds: float,
        most: float = MOST,
        most_of_user: float = MOST_OF_USER,
    ) -> None:
        self._clock, self._seconds = clock, seconds
        self._most, self._most_of_user = most, most_of_user
        self._until: dict[Absentee, float] = {}  # the one that ends first is first
        self._of_user: dict[str, dict[Absentee, None]] = {}
        self._timer: IDelayedCall | None = None
        self._closed = ""

    def __len__(self) -> int:
        return len(self._until)

    def of_user(self, user: str) -> Iterable[Absentee]:
        """Return the sessions of a user."""
        return self._of_user.get(user, ())

    def add(self, session: Absentee) -> None:
        """Let a session wait; it ends at once after :meth:`close`."""
        if self._closed:
            session.give_up(self._closed)
            return
        self._until[session] = self._clock.seconds() + self._seconds
        mine = self._of_user.setdefault(session.user, {})
        mine[session] = None
        if len(mine) > self._most_of_user:
            self._end(next(iter(mine)), TOO_MANY)
        elif len(self._until) > self._most:
            self._end(next(iter(self._until)), TOO_MANY)
        if self._timer is None and self._until:
            self._timer = self._clock.callLater(self._seconds, self._expire)

    def remove(self, session: Absentee) -> None:
        """Take note that a session does not wait any more; one that does not wait is ignored."""
        if self._until.pop(session, None) is None:
            return
        mine = self._of_user[session.user]
        del mine[session]
        if not mine:
            del self._of_user[session.user]
        if not self._until:
            self._cancel()

    def close(self, reason: str) -> None:
        """End all sessions, also those that are added from now on."""
        self._closed = reason
        for session in list(self._until):
            self._end(session, reason)

    def _end(self, session: Absentee, reason: str) -> None:
        self.remove(session)
        session.give_up(reason)

    def _cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        for session, until in list(islice(self._until.items(), _AT_ONCE)):
            if until <= now:
                self._end(session, NOT_BACK)
        if self._until:
            seconds = next(iter(self._until.values())) - now
            self._timer = self._clock.callLater(max(0.0, seconds), self._expire)
