"""
Withdrawn permissions end sessions, too: whoever may no more is told so, and is out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, Forbidden, Unauthorized
from twisted_exec.program.tasks import Running
from twisted_exec.streaming.interfaces import REVOKED, Ending, Subject
from twisted_exec.streaming.sessions.registry import Sessions

REVIEW_SECONDS = 15.0
"""With answers cached for 10 s, what was withdrawn counts within 25 s."""


class Reviewer(Protocol):
    """Knows who opened each session."""

    async def review(self, subject: Subject) -> None:
        """
        Ask again whether a session may be.

        :raises Unauthorized: its user is not known any more.
        :raises Forbidden: its user, or who spoke for them, may not any more.
        :raises APIError: it could not be found out.
        """

    def forget_all_but(self, sessions: Iterable[str]) -> None:
        """Only these sessions are left."""


class Withdrawal(Running):
    """
    Asks again and again whether those who have a session may still have it.

    An API server that cannot be asked withdraws nothing: that is its own
    trouble, told elsewhere.
    """

    _log = Logger()

    def __init__(
        self,
        sessions: Sessions,
        reviewer: Reviewer,
        clock: IReactorTime,
        seconds: float = REVIEW_SECONDS,
    ) -> None:
        self._sessions, self._reviewer, self._clock = sessions, reviewer, clock
        self._seconds = seconds
        self._problem = ""

    def start(self) -> None:
        """Ask every few seconds, until :meth:`stop`."""
        self._begin(self._run())

    async def _run(self) -> None:
        while True:
            await deferLater(self._clock, self._seconds)
            try:
                await self.review()
            except CancelledError:
                raise
            except Exception:  # else nothing would be withdrawn from here on
                self._log.failure("reviewing sessions failed")

    async def review(self) -> None:
        """Ask about everyone now."""
        live = self._sessions.subjects()
        self._reviewer.forget_all_but(subject.session for subject in live)
        problems = [await self._review(subject) for subject in live]
        problem = next((each for each in problems if each), "")
        if problem and not self._problem:
            self._log.warn("sessions cannot be reviewed: {why}", why=problem)
        self._problem = problem

    async def _review(self, subject: Subject) -> str:
        """Why it could not be found out, or nothing."""
        try:
            await self._reviewer.review(subject)
        except (Unauthorized, Forbidden) as withdrawn:
            ending = Ending(REVOKED, withdrawn.message)
            self._sessions.end(lambda one: one == subject, ending)
        except APIError as error:
            return error.message
        return ""

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("reviewing sessions failed", failure)
