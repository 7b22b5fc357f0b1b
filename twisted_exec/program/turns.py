"""Turns of the reactor: work that lets others have their turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater

from twisted_exec.program.rotation import Rotation

TURN_SECONDS = 0.002
"""Longest work of one coroutine before others have their turn."""
REST_SECONDS = 0.006
"""Rest between two turns."""

SHARED_TURN_SECONDS = 0.001
"""Longest turn of work that takes a turn in each iteration of the reactor."""

URGENT_TURN_SECONDS = 0.004
"""Longest turn of urgent work, such as the withdrawal of rights."""
URGENT_REST_SECONDS = 0.0005
"""Rest between two turns of urgent work."""


class ShortTurns:
    """
    The turns of a coroutine with much to do, such as one step for each of thousands of sessions.

    It awaits :meth:`breathe` before each step; when it has worked for :data:`TURN_SECONDS`, others
    are served for :data:`REST_SECONDS`.

    :param is_urgent: take longer turns and shorter rests, because all must be done within a second.
    """

    def __init__(self, clock: IReactorTime, *, is_urgent: bool = False) -> None:
        self._clock = clock
        self._turn_seconds = URGENT_TURN_SECONDS if is_urgent else TURN_SECONDS
        self._rest_seconds = URGENT_REST_SECONDS if is_urgent else REST_SECONDS
        self._until = clock.seconds() + self._turn_seconds
        self._rest: Deferred[None] | None = None
        self._is_over = False

    async def breathe(self) -> None:
        """Rest, if this turn has lasted long enough."""
        if self._clock.seconds() >= self._until and not self._is_over:
            self._rest = deferLater(self._clock, self._rest_seconds)
            try:
                await self._rest
            except CancelledError:
                if not self._is_over:
                    raise
            self._rest = None
            self._until = self._clock.seconds() + self._turn_seconds

    def stop(self) -> None:
        """End the rest, and do not rest any more."""
        self._is_over = True
        if self._rest is not None:
            self._rest.cancel()


class SharedTurns:
    """
    Turns of many parties with much to do: one turn in each iteration of the reactor.

    The users take turns, see :mod:`.rotation`, so a user with a hundred parties delays each turn of
    another user by one turn only.

    :param share: the largest part of the time for all turns together; others have the rest.
    """

    def __init__(self, clock: IReactorTime, share: float = 1.0) -> None:
        self._clock, self._rest = clock, 1 / share - 1
        self._not_before = 0.0
        self._users: dict[Callable[[], object], str] = {}
        self._waiting: Rotation[Callable[[], object]] = Rotation()
        self._call: IDelayedCall | None = None

    def __contains__(self, turn: Callable[[], object]) -> bool:
        return turn in self._users

    def soon(self, turn: Callable[[], object], user: str = "") -> None:
        """Call a function in a turn of its own, after those of others; repeated calls until then do nothing."""
        if turn not in self._users:
            self._users[turn] = user
            self._waiting.add(user, turn)
            self._schedule()

    async def rest(self, began: float, user: str = "") -> float:
        """
        Wait for another turn, if the present one has lasted long enough.

        :param began: when that was, in seconds of the clock.
        :return: when the present turn has begun.
        """
        if self._clock.seconds() - began < SHARED_TURN_SECONDS:
            return began
        turn: Deferred[None] = Deferred()
        go_on = partial(turn.callback, None)
        self.soon(go_on, user)
        try:
            await turn
        except CancelledError:
            self.cancel(go_on)
            raise
        return self._clock.seconds()

    @property
    def now(self) -> float:
        """Seconds of the clock."""
        return self._clock.seconds()

    def cancel(self, turn: Callable[[], object]) -> None:
        """Undo :meth:`soon`."""
        user = self._users.pop(turn, None)
        if user is not None:
            self._waiting.remove(user, turn)
            self._schedule()

    def _schedule(self) -> None:
        if self._waiting and self._call is None:
            pause = max(0.0, self._not_before - self._clock.seconds())
            self._call = self._clock.callLater(pause, self._run)
        elif not self._waiting and self._call is not None:
            self._call.cancel()
            self._call = None

    def _run(self) -> None:
        self._call = None
        turn = self._waiting.pop()
        del self._users[turn]
        began = self._clock.seconds()
        try:
            turn()
        finally:
            now = self._clock.seconds()
            self._not_before = now + (now - began) * self._rest
            self._schedule()
