"""
Sessions on which nothing has passed for long end, and are told why.

What passes is counted where a session is carried; where that is unread, a client's pings count as
well, so a quiet session whose client lives goes on.  A kubelet gives one four hours
(``streamingConnectionIdleTimeout``); what only tells a log has no such limit there, nor here.
"""

from __future__ import annotations

from collections.abc import Collection
from weakref import WeakKeyDictionary

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.program.tasks import Running
from twisted_exec.streaming.interfaces import IDLE, Ending
from twisted_exec.streaming.sessions.registry import Session, Sessions

IDLE_SECONDS = 4 * 3600.0
"""A kubelet's patience."""

_LOOKS = 16
"""How often it is looked in that time: what is late is at most a sixteenth of it."""


class Idleness(Running):
    """
    Ends sessions on which nothing passes.

    :param seconds: for how long; 0 for as long as they like.
    :param spared: subresources whose sessions have no such limit.
    """

    _log = Logger()

    def __init__(
        self,
        sessions: Sessions,
        clock: IReactorTime,
        seconds: float = IDLE_SECONDS,
        *,
        spared: Collection[str] = ("log", "run"),
    ) -> None:
        self._sessions, self._clock, self._seconds = sessions, clock, seconds
        self._spared = frozenset(spared)
        self._seen: WeakKeyDictionary[Session, tuple[tuple[int, int], float]] = WeakKeyDictionary()

    def start(self) -> None:
        """Look again and again, until :meth:`stop`."""
        if self._seconds:
            self._begin(self._run())

    async def _run(self) -> None:
        while True:
            await deferLater(self._clock, self._seconds / _LOOKS)
            try:
                self.look()
            except CancelledError:
                raise
            except Exception:  # else nothing would be ended from here on
                self._log.failure("looking for idle sessions failed")

    def look(self) -> None:
        """End those that have been idle for too long by now."""
        now = self._clock.seconds()
        for session in self._sessions.live():
            if session.subject.subresource in self._spared:
                continue
            counts = session.counts()
            before, since = self._seen.get(session, (None, now))
            if counts != before:
                self._seen[session] = (counts, now)
            elif now - since >= self._seconds:
                told = f"nothing was sent or received for {self._seconds:g} seconds"
                session.end(Ending(IDLE, told))

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("looking for idle sessions failed", failure)
