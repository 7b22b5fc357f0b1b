"""
Turns of the watches of a server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from twisted_exec.program.turns import TURN_SECONDS


class WatchTurns:
    """
    Turns of all watches of a server together; half of the time is left to the server's other work.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock, self.seconds = clock, clock.seconds
        # The user whose turn is next comes first.
        self._steps: dict[str, deque[Callable[[], object]]] = {}
        self._call: IDelayedCall | None = None
        self._until = self._next = 0.0

    def is_free(self) -> bool:
        """Return whether a watch may go on at once."""
        return not self._steps and self._has_time()

    def wait(self, user: str, step: Callable[[], object]) -> None:
        """Do a step of a watch after the user's waiting steps."""
        self._steps.setdefault(user, deque()).append(step)
        self._schedule()

    async def breathe(self, user: str) -> None:
        """Wait for the turn of a watch's next step."""
        if not self.is_free():
            turn: Deferred[None] = Deferred()
            self.wait(user, partial(turn.callback, None))
            await turn

    def _has_time(self) -> bool:
        now = self._clock.seconds()
        if now >= self._next:
            self._until, self._next = now + TURN_SECONDS, now + 2 * TURN_SECONDS
        return now < self._until

    def _schedule(self) -> None:
        if self._call is None and self._steps:
            self._call = self._clock.callLater(
                max(0.0, self._next - self._clock.seconds()), self._run
            )

    def _run(self) -> None:
        self._call = None
        while self._steps and self._has_time():
            step = self._next_step()
            try:
                step()
            except Exception:
                self._log.failure("a watch failed and is ended")
        self._schedule()

    def _next_step(self) -> Callable[[], object]:
        user = next(iter(self._steps))
        steps = self._steps.pop(user)
        step = steps.popleft()
        if steps:
            self._steps[user] = steps
        return step
