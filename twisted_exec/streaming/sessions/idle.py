"""
End sessions without traffic after a time limit.

Traffic is counted where the session's bytes pass; where they are not decoded a client's pings count
too, so a quiet session with a live client continues.  A kubelet allows four hours
(``streamingConnectionIdleTimeout``).  Logs have no such limit there, nor here.
"""

from __future__ import annotations

from collections.abc import Collection
from weakref import WeakKeyDictionary

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.program.tasks import BackgroundTask
from twisted_exec.streaming.interfaces import IDLE, Ending
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.session import Session

IDLE_SECONDS = 4 * 3600.0
"""A kubelet's limit."""

_LOOKS = 16
"""Checks per limit: a session may exceed it by a sixteenth."""


class Idleness(BackgroundTask):
    """
    Ends idle sessions.

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
        self._spared = frozenset(spared)
        self._seen: WeakKeyDictionary[Session, tuple[tuple[int, int], float]] = WeakKeyDictionary()

    def start(self) -> None:
        """Check periodically, until :meth:`stop`."""
        if self._seconds:
            self._begin(self._run())

    async def _run(self) -> None:
        while True:
            await deferLater(self._clock, self._seconds / _LOOKS)
            try:
                self.look()
            except CancelledError:
                raise
            except Exception:  # or no session would be checked any more
                self._log.failure("cannot check for idle sessions")

    def look(self) -> None:
        """End sessions that exceed the limit now."""
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

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("cannot check for idle sessions", failure)
