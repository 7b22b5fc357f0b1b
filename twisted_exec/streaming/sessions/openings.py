"""
Streams that are being opened: some at once to each next hop, and the others wait for their turn.

A next hop that gets a thousand requests at once works on all of them at once, and answers each so
late that all time out.  In turns, the first are open soon, and the time limits count from a
stream's turn.
"""

from __future__ import annotations

from collections import Counter, deque

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import TooManyRequests

AT_ONCE = 32
"""Streams that are opened concurrently to one next hop: 4 ms of CPU time each, for that hop and this."""
RETRY_SECONDS = 2


class Openings:
    """
    The turns of one program.

    :param at_once: concurrent openings to one next hop.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._under_way: Counter[str] = Counter()
        self._waiting: dict[str, deque[Deferred[None]]] = {}

    def __len__(self) -> int:
        return self._under_way.total()

    async def begin(self, hop: str, clock: IReactorTime, seconds: float) -> None:
        """
        Wait for a turn; :meth:`end` must follow, unless this raises.

        :param hop: identifies the next hop; slow ones do not delay others.
        :param seconds: longest time to wait.
        :raises TooManyRequests: there was no turn in that time.
        """
        if self._under_way[hop] < self._at_once:
            self._under_way[hop] += 1
            return
        turn: Deferred[None] = Deferred()
        self._waiting.setdefault(hop, deque()).append(turn)
        turn.addTimeout(seconds, clock)
        try:
            await turn
        except TimeoutError:
            raise TooManyRequests(
                "too many streams are being opened at this moment",
                retry_after_seconds=RETRY_SECONDS,
            ) from None

    def end(self, hop: str) -> None:
        """The stream is open, or was refused: the next one has its turn."""
        waiting = self._waiting.get(hop)
        while waiting:
            turn = waiting.popleft()
            if not turn.called:  # otherwise its client has left, or it has waited too long
                turn.callback(None)
                return
        self._waiting.pop(hop, None)
        self._under_way[hop] -= 1
        if not self._under_way[hop]:
            del self._under_way[hop]
