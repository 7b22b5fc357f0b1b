"""
What ends sessions from this side: changes of Machines and pools, and withdrawn permissions.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import APIError, Forbidden, Unauthorized
from twisted_exec.kube.interfaces import Object
from twisted_exec.poollet.exec_route import ExecLocator
from twisted_exec.poollet.running import Running
from twisted_exec.poollet.terms import wants_power
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    Ending,
    Subject,
)
from twisted_exec.streaming.sessions import Sessions

REVIEW_SECONDS = 15.0
"""With answers cached for 10 s, what was withdrawn counts within 25 s."""


def machine_ending(before: Object | None, after: Object | None, dialect: Dialect) -> Ending | None:
    """
    Why the sessions of a Machine end with this change, or ``None``.

    :param after: ``None`` when it is gone, or no longer bound to this pool.
    """
    if before is None:
        return None
    name = before["metadata"]["name"]
    if after is None or after["metadata"].get("deletionTimestamp"):
        return Ending(MACHINE_DELETED, f'{dialect.noun} "{name}" was deleted')
    if wants_power(before) and not wants_power(after):
        return Ending(POWERED_OFF, f'{dialect.noun} "{name}" was powered off')
    return None


def pool_ending(before: Object | None, after: Object | None, dialect: Dialect) -> Ending | None:
    """Why all sessions end with this change of the pool, or ``None``."""
    if before is None:
        return None
    if after is None or after["metadata"].get("deletionTimestamp"):
        told = f'{dialect.pool_noun} "{before["metadata"]["name"]}" was deleted'
        return Ending(POOL_DELETED, told)
    return None


class Withdrawal(Running):
    """
    Asks again and again whether those who have a console may still have it.

    An API server that cannot be asked withdraws nothing: that is its own
    trouble, told elsewhere.
    """

    _log = Logger()

    def __init__(
        self,
        sessions: Sessions,
        locator: ExecLocator,
        clock: IReactorTime,
        seconds: float = REVIEW_SECONDS,
    ) -> None:
        self._sessions, self._locator, self._clock = sessions, locator, clock
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
        self._locator.forget_all_but(subject.session for subject in live)
        problems = [await self._review(subject) for subject in live]
        problem = next((each for each in problems if each), "")
        if problem and not self._problem:
            self._log.warn("sessions cannot be reviewed: {why}", why=problem)
        self._problem = problem

    async def _review(self, subject: Subject) -> str:
        """Why it could not be found out, or nothing."""
        try:
            await self._locator.review(subject)
        except (Unauthorized, Forbidden) as withdrawn:
            ending = Ending(REVOKED, withdrawn.message)
            self._sessions.end(lambda one: one == subject, ending)
        except APIError as error:
            return error.message
        return ""

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("reviewing sessions failed", failure)
