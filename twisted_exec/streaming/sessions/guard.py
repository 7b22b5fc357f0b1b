"""
The session guard: it reviews open sessions, and ends those without a right to go on, and those whose
certificate or token has expired.

The guard passes sessions, with what allowed them (``context.evidence``), to the hop's
:class:`ISessionReviewer`, periodically and soon after a hint, such as a replaced file of users. A
review without an answer ends nothing. :mod:`.time_limits` ends sessions by their terms.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.obstacles import obstacles_of
from twisted_exec.api.status import APIError, Forbidden, Unauthorized
from twisted_exec.control.loop import PokedLoop
from twisted_exec.program.turns import ShortTurns
from twisted_exec.streaming.interfaces import (
    POWERED_OFF,
    REVOKED,
    Ending,
    IRoundReviewer,
    ISessionReviewer,
)
from twisted_exec.streaming.sessions.endings import MachineKey, PoolKey
from twisted_exec.streaming.sessions.registry import Session, Sessions
from twisted_exec.tls.files import Replaceable
from twisted_exec.wire.endings import LOGIN_EXPIRED

CONSOLE_SERVER = "the server of this console"
"""The poollet and the programs behind it, in reasons that users read: they need not know the programs."""
STOPPING = f"{CONSOLE_SERVER} is shutting down"

REVIEW_SECONDS = 15.0
"""Delegated decisions are cached for 10 s, so a withdrawn permission usually counts for 25 s at most."""
HINT_SECONDS = 0.1
"""From a round of reviews to one after a hint, so that a burst of changes is one review."""
FIRST_HINT_SECONDS = 0.02
"""From a hint to its review, if there was no review just before."""
LATER_HOP_SECONDS = 0.3
"""
As :data:`FIRST_HINT_SECONDS`, in a poollet: the API server before it gets the same hints, and ends
or limits most sessions meanwhile.
"""
LONGEST_HINT_SECONDS = 0.7
"""The longest wait after a hint while the hop before goes on asking to end sessions."""
LOOK_SECONDS = 0.2
"""Between two looks at the files. inotify would miss changes on network file systems."""
LONGEST_WAIT_SECONDS = 60.0
"""Longest time until the next look at the time of day, which may be set."""
AT_ONCE = 8
"""Concurrent reviews, each perhaps a request to an API server."""
AT_ONCE_AFTER_HINT = 16
"""Concurrent reviews when permissions have changed."""


_EXPIRED = f"{LOGIN_EXPIRED} at {{}}; open the console again with a new one"


class _Reviews:
    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._running: dict[Deferred[None], None] = {}
        self._unanswered = 0  # in succession
        self._failure: Failure | None = None
        self._waiter: Deferred[None] | None = None
        self.problem = ""

    def add(self, review: Deferred[str]) -> None:
        ended: Deferred[None] = review.addCallbacks(self._answered, self._failed)
        if not ended.called:
            self._running[ended] = None
            ended.addCallback(self._over, ended)

    def _answered(self, problem: str) -> None:
        self._unanswered = self._unanswered + 1 if problem else 0
        self.problem = problem or self.problem

    def _failed(self, failure: Failure) -> None:
        self._failure = self._failure or failure

    def _over(self, _: None, ended: Deferred[None]) -> None:
        self._running.pop(ended, None)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)

    async def wait_for_room(self) -> bool:
        """Wait until a review may begin; return false if too many in succession got no answer."""
        # After a review without an answer none begins: it would wait as long.
        while self._running and len(self._running) + self._unanswered >= self._at_once:
            await self._wait()
        self._raise()
        return self._unanswered < self._at_once

    async def ended(self) -> None:
        while self._running:
            await self._wait()
        self._raise()

    async def _wait(self) -> None:
        self._waiter = Deferred()
        await self._waiter

    def _raise(self) -> None:
        if self._failure is not None:
            self._failure.raiseException()

    def cancel(self) -> None:
        self._waiter = None
        for each in list(self._running):
            each.cancel()


class SessionGuard(Service):
    """
    Reviews the sessions of one hop, and ends those that may not go on.

    :param review_seconds: from the start of one round of reviews to the next.
    :param files: returns the files that decide about users.
    :param hint_seconds: from a hint to its review, if there was no review just before.
    :param now: the time of day, in seconds since 1970.
    """

    _log = Logger()

    def __init__(
        self,
        sessions: Sessions,
        reviewer: ISessionReviewer,
        clock: IReactorTime,
        review_seconds: float = REVIEW_SECONDS,
        at_once: int = AT_ONCE,
        now: Callable[[], float] = time.time,
        files: Callable[[], Sequence[Replaceable]] = tuple,
        on_review: Callable[[], None] = lambda: None,
        hint_seconds: float = FIRST_HINT_SECONDS,
    ) -> None:
        self._hint_seconds = hint_seconds
        self._sessions, self._reviewer, self._clock = sessions, reviewer, clock
        self._review_seconds, self._at_once = review_seconds, at_once
        self._now, self._files, self._on_review = now, files, on_review
        self._versions: list[int] = []
        self._rounds = PokedLoop(self._round, clock, soon_seconds=HINT_SECONDS)
        self._looks = PokedLoop(self._look_at_files, clock, LOOK_SECONDS)
        self._ends = PokedLoop(self._end_expired, clock, soon_seconds=HINT_SECONDS)
        self._hint_due = -math.inf
        self._hinted_at: float | None = None
        self._last_hint: float | None = None  # by time.monotonic
        self._round_ended = -math.inf
        self._since: float | None = None  # the hint of the round that is under way
        self._problem = ""
        self._unreached: frozenset[Session] = frozenset()

    def startService(self) -> None:
        """Review from now on; the first round comes later, or soon after a hint."""
        super().startService()
        self._sessions.on_begun.append(self._opened)
        self._sessions.on_asked.append(self._asked)
        self._ends.start(0.0)
        if files := self._files():
            self._versions = [each.look() for each in files]
            self._looks.start(LOOK_SECONDS)
        self._rounds.start(self._review_seconds)

    def stopService(self) -> Deferred[Any]:
        if self.running:
            self._sessions.on_begun.remove(self._opened)
            self._sessions.on_asked.remove(self._asked)
        super().stopService()
        return DeferredList([each.stop() for each in (self._rounds, self._looks, self._ends)])

    def review_soon(self) -> None:
        """Take a hint that permissions or credentials have changed; bursts count once."""
        if not self.running:
            return
        self._last_hint = time.monotonic()
        now = self._clock.seconds()
        seconds = max(self._hint_seconds, self._round_ended + HINT_SECONDS - now)
        if self._hinted_at is None:  # for a round that is under way: it may have passed the session
            self._hinted_at, self._hint_due = now, now + seconds
        self._rounds.poke(seconds)

    def _asked(self) -> None:
        if self._hinted_at is not None:
            due = self._clock.seconds() + self._hint_seconds
            due = min(due, self._hinted_at + LONGEST_HINT_SECONDS)
            self._hint_due = max(self._hint_due, due)

    def end(self, key: MachineKey | PoolKey, ending: Ending) -> int:
        """
        End the sessions that depend on an object; return their number.

        Sessions that wait for a machine to be switched on again stay: the runtime ends them.
        """
        is_power = ending.reason == POWERED_OFF
        chosen = [
            each
            for each in self._sessions.live()
            if key.covers(each.subject, ending) and not (is_power and each.outlasts_power_off)
        ]
        for session in chosen:
            self._withdraw(session, ending, "object", self._clock.seconds())
        return len(chosen)

    def _withdraw(self, session: Session, ending: Ending, cause: str, since: float | None) -> None:
        if session.ending is None:
            began = self._clock.seconds() if since is None else since
            session.on_over.append(partial(self._measure, cause, began, since is not None))
            session.end(ending)

    def _measure(self, cause: str, began: float, observed: bool) -> None:
        seconds = self._clock.seconds() - began
        self._sessions.metrics.revoked(cause, seconds, observed=observed)

    async def _look_at_files(self) -> None:
        if not len(self._sessions):
            return
        versions = [each.look() for each in self._files()]
        if versions != self._versions:
            self._versions = versions
            self.review_soon()

    def _opened(self, session: Session) -> None:
        self._expect(session.expires)
        if session.evidence is None:
            return
        self._on_review()
        # The rounds of reviews have missed a session that was being opened during a hint.  The
        # caches of decisions are emptied before a hint, so what was decided after it is current.
        if self._last_hint is not None and session.evidence.began <= self._last_hint:
            Deferred.fromCoroutine(self._review_one(self._reviewer, session))

    def _expect(self, moment: float) -> None:
        if not self.running or moment == math.inf:
            return
        self._ends.poke(self._until(moment))

    def _until(self, moment: float) -> float:
        return min(max(moment - self._now(), 0.0), LONGEST_WAIT_SECONDS)

    async def _end_expired(self) -> float:
        earliest, turns = math.inf, ShortTurns(self._clock, is_urgent=True)
        for session in self._sessions.live():
            if session.ending is not None or session.expires == math.inf:
                continue
            if session.expires <= self._now():
                moment = datetime.fromtimestamp(session.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                since = self._clock.seconds() - (self._now() - session.expires)
                self._withdraw(session, Ending(REVOKED, _EXPIRED.format(moment)), "expired", since)
                await turns.breathe()
            else:
                earliest = min(earliest, session.expires)
        return math.inf if earliest == math.inf else self._until(earliest)

    async def _round(self) -> float:
        started = self._clock.seconds()
        if self._hinted_at is not None and self._hint_due > started:
            return self._hint_due - started  # users have asked meanwhile
        try:
            await self.review()
        except Exception:  # a bug must not leave every session without a guard
            if not self.running:
                raise
            self._log.failure("reviewing sessions failed")
        self._round_ended = self._clock.seconds()
        self._hint_due = -math.inf  # a hint during the round waits for HINT_SECONDS only
        # Measured from the start, so that slow reviews do not space the rounds further.
        elapsed = self._clock.seconds() - started
        return self._review_seconds - elapsed % self._review_seconds

    async def review(self) -> None:
        """
        Review the sessions now; stop after a number of reviews in succession without an answer.
        """
        self._since, self._hinted_at = self._hinted_at, None
        turns = ShortTurns(self._clock, is_urgent=self._since is not None)
        at_once = self._at_once
        if self._since is not None:
            at_once = max(at_once, AT_ONCE_AFTER_HINT)
        reviewer = self._reviewer
        if IRoundReviewer.providedBy(reviewer):
            reviewer = IRoundReviewer(reviewer).for_round()
        due = self._due()
        reviews = _Reviews(at_once)
        self._unreached = frozenset()
        try:
            for number, session in enumerate(due):
                if not await reviews.wait_for_room():
                    self._unreached = frozenset(due[number:])
                    break
                reviews.add(Deferred.fromCoroutine(self._review_one(reviewer, session)))
                await turns.breathe()
            await reviews.ended()
        except CancelledError:
            reviews.cancel()
            raise
        if reviews.problem and not self._problem:
            self._log.warn("sessions cannot be reviewed: {why}", why=reviews.problem)
        self._problem = reviews.problem

    def _due(self) -> list[Session]:
        due = [
            session
            for session in self._sessions.live()
            if session.evidence is not None and session.ending is None
        ]
        if not self._unreached:
            return due
        return sorted(due, key=lambda session: session not in self._unreached)

    async def _review_one(self, reviewer: ISessionReviewer, session: Session) -> str:
        """Return why the review got no answer; empty when it got one."""
        if session.evidence is None:  # it was over before its turn
            return ""
        try:
            terms = await reviewer.review(session.subject, session.evidence)
            session.hold_to(terms)
        except (Unauthorized, Forbidden) as error:
            cause = "credential" if isinstance(error, Unauthorized) else "permission"
            ending = Ending(REVOKED, error.message, causes=tuple(obstacles_of(error)))
            self._withdraw(session, ending, cause, self._since)
        # No answer ends nothing: the hops depend on an API server that may restart, and a restart
        # must not close every console.
        except APIError as error:
            return error.message or "no reason was given"
        except Exception as error:  # a bug in one review must not keep the others from theirs
            if isinstance(error, CancelledError) and not self.running:
                raise
            self._log.failure("reviewing session {session} failed", session=session.id)
        return ""
