"""
The limit of the time in which a session carries nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from weakref import WeakKeyDictionary

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.control.loop import PokedLoop
from twisted_exec.streaming.interfaces import IDLE, Ending
from twisted_exec.streaming.sessions.registry import Session, Sessions

IDLE_SECONDS = 4 * 3600.0
"""Default limit, that of a kubelet."""
_LOOKS = 16
"""Checks per limit: a session may exceed it by a sixteenth."""


class Idleness:
    """
    Ends idle sessions.

    Undecoded pings of a client count as use, so a quiet session with a live client may continue.

    :param seconds: the limit; 0 for none.
    :param spared: subresources without a limit.
    """

    _log = Logger()

    def __init__(
        self,
        sessions: Sessions,
        clock: IReactorTime,
        seconds: float = IDLE_SECONDS,
        *,
        spared: Collection[str] = ("log", "run", "screen"),
    ) -> None:
        self._sessions, self._clock, self._seconds = sessions, clock, seconds
        self._loop = PokedLoop(self._look, clock, seconds / _LOOKS)
        self._spared = frozenset(spared)
        self._seen: WeakKeyDictionary[Session, tuple[tuple[int, int], float]] = WeakKeyDictionary()

    def start(self) -> None:
        if self._seconds:
            self._loop.start(self._seconds / _LOOKS)

    def stop(self) -> Deferred[None]:
        return self._loop.stop()

    async def _look(self) -> None:
        self.look()

    def look(self) -> None:
        now = self._clock.seconds()
        for session in self._sessions.live():
            if session.subject.subresource in self._spared:
                continue
            counts = session.counts()
            before, since = self._seen.get(session, (None, now))
            if counts != before:
                self._seen[session] = (counts, now)
            elif now - since >= self._seconds:
                message = f"nothing was sent or received for {self._seconds:g} seconds"
                session.end(Ending(IDLE, message))
