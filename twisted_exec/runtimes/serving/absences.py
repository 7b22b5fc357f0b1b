"""
Sessions that wait for their users, all for the same time, and the limits of their number.

:mod:`.kept_sessions` says how long that time is.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

MOST = 4096
MOST_OF_USER = MOST // 4
"""Most waiting sessions of one user: all of them wait while a hop restarts."""
_AT_ONCE = 50
"""Most waits that expire in one turn of the reactor."""
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

    Each session waits for the same time. If too many wait, in total or of one user, the one of them
    that has waited longest ends.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        seconds: float,
        most: int = MOST,
        most_of_user: int = MOST_OF_USER,
    ) -> None:
        self._clock, self._seconds = clock, seconds
        self._most, self._most_of_user = most, most_of_user
        self._until: dict[Absentee, float] = {}  # the session that ends first is first
        self._of_user: dict[str, dict[Absentee, None]] = {}
        self._timer: IDelayedCall | None = None
        self._closed = ""

    def __len__(self) -> int:
        return len(self._until)

    def of_user(self, user: str) -> Iterable[Absentee]:
        return self._of_user.get(user, ())

    def add(self, session: Absentee) -> None:
        """Let a session wait; after :meth:`close` it ends instead."""
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
        try:
            session.give_up(reason)
        except Exception:  # the others end nevertheless
            self._log.failure("a session of {user}", user=session.user)

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
