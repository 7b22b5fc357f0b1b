"""
Registry of the live sessions of one hop: limits, audit records, metrics, and endings.

A proxy, relay or stream server opens its :class:`~.session.Session` here, and reports to the session
that it is over.  Each session therefore has exactly one audit start and one audit end, and counts once
in the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol as Typing
from typing import TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import Forbidden, ServiceUnavailable, TooManyRequests
from twisted_exec.observe.audit import Trail
from twisted_exec.observe.metrics import LatencyMetrics, SessionMetrics, new_registry
from twisted_exec.program.descriptors import SessionLimits
from twisted_exec.program.draining import DrainLimit
from twisted_exec.streaming.interfaces import (
    Ending,
    Subject,
)
from twisted_exec.streaming.sessions.endings import MachineKey, PoolKey
from twisted_exec.streaming.sessions.openings import (
    AT_ONCE,
    LOCATING_AT_ONCE,
    LOCATING_PER_USER,
    Openings,
)
from twisted_exec.streaming.sessions.session import Session
from twisted_exec.wire.session_terms import FULL, Terms

_UNRESUMABLE = 1000
_Key = TypeVar("_Key")


class Watcher(Typing):
    """Observer of the streams of :class:`Sessions`."""

    def began(self, session: Session) -> None:
        """The stream of a session is up."""

    def ended(self, session: Session) -> None:
        """A session that had a stream is over."""


class Sessions:
    """
    The sessions of one hop.

    :ivar watcher: is called when streams begin and end.
    :ivar latency: metrics of a hop at the machine's end; ``None`` for other hops.
    :ivar locating: the turns of requests for streams, before their next hop is known.
    :ivar openings: the turns of streams that are being opened.
    :ivar rejoinings: the turns of open streams that lost their next hop; they do not wait behind new
        ones.
    :ivar when_drained: called at the end of :meth:`drain`.
    :ivar on_opened: is called with each new session.
    :ivar on_asked: is called when the hop before asks to end or change sessions.
    :ivar on_carried: is called with each session whose stream is up; the stream's owner may still be
        setting it up.
    :param metrics: ``None`` for metrics that no registry publishes.
    :param limits: of concurrent sessions; by default as many as the process's file descriptors
        allow. Sessions without a user name count only in total.
    """

    def __init__(
        self,
        trail: Trail,
        metrics: SessionMetrics | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        self.trail = trail
        self.watcher: Watcher | None = None
        self.metrics = metrics or SessionMetrics(new_registry(process=False))
        self.latency: LatencyMetrics | None = None
        self.limits = limits or SessionLimits.fitting()
        self.locating = Openings(
            LOCATING_AT_ONCE,
            LOCATING_PER_USER,
            pace_seconds=0,
            most_waiting=self.limits.total,
            most_waiting_per_user=self.limits.per_user,
        )
        self.openings = Openings()
        self.rejoinings = Openings(per_user=AT_ONCE)
        self.on_opened: Callable[[Session], None] | None = None
        self.on_asked: Callable[[], None] | None = None
        self.on_carried: Callable[[Session], None] | None = None
        self._live: dict[Session, None] = {}
        self._by_id: dict[str, tuple[Session, ...]] = {}
        self._per_user: Counter[str] = Counter()
        self._being_resumed: Counter[tuple[str, str]] = Counter()  # by session and user
        self._unresumable: dict[str, str] = {}
        self._empty: list[Deferred[None]] = []
        self.when_drained: list[Callable[[], None]] = []
        self._closing = ""

    def __len__(self) -> int:
        return len(self._live)

    def open(
        self,
        subject: Subject,
        evidence: object = None,
        terms: Terms = FULL,
        ceiling: Terms = FULL,
        resumes: str = "",
    ) -> Session:
        """
        Open a session.  It counts towards the limits until it is :meth:`~Session.over`.

        :param evidence: the session's ``context.evidence``, for
            :class:`~twisted_exec.streaming.sessions.guard.SessionGuard`; without it the session is
            not reviewed.
        :param terms: what this hop holds the session to.
        :param ceiling: what the hop before holds it to.
        :param resumes: the id of the session that the user wants to resume.  The connection that it
            still has does not count towards the user's limit.
        :raises TooManyRequests: the limit of all sessions, or of this user's, is reached.
        :raises Forbidden: the session may not be resumed.
        :raises ServiceUnavailable: this hop is stopping.
        """
        if self._closing:
            self.refused(subject, ServiceUnavailable.code, self._closing)
            raise ServiceUnavailable(self._closing, retry_after_seconds=1)
        if why := self._unresumable.get(resumes, ""):
            self.refused(subject, Forbidden.code, why)
            raise Forbidden(why)
        audit = self.trail.start(subject, resumes)
        session = Session(self, subject, audit, evidence, terms, ceiling, resumes)
        self._live[session] = None
        self._by_id[subject.session] = (*self._by_id.get(subject.session, ()), session)
        self._per_user[subject.user] += 1
        if resumes:
            self._being_resumed[resumes, subject.user] += 1
        problem = self._too_many(session)
        if problem:
            session.over(problem, code=TooManyRequests.code)
            raise TooManyRequests(problem, retry_after_seconds=10)
        if self.on_opened is not None:
            self.on_opened(session)
        return session

    def _too_many(self, session: Session) -> str:
        limits, user = self.limits, session.subject.user
        if len(self._live) > limits.total:
            return f"{limits.total} sessions are open here, the most allowed (--max-sessions)"
        replaced = 1 if self._earlier(session) else 0
        if user and self._per_user[user] - replaced > limits.per_user:
            return (
                f"user {user!r} has {limits.per_user} sessions open, the most allowed "
                "(--max-sessions-per-user)"
            )
        return ""

    def _earlier(self, session: Session) -> list[Session]:
        """Return the sessions that a session replaces when the next hop has resumed it."""
        subject = session.subject
        return [
            each
            for each in (self.with_id(session.resumes) if session.resumes else ())
            if each is not session
            and each.subject.user == subject.user
            and each.subject.uid == subject.uid
            and not each.is_superseded
        ]

    def resumed(self, session: Session) -> None:
        """Take note that the next hop has resumed a session; the session itself calls this."""
        self.metrics.resumed()
        _take_one(self._being_resumed, (session.resumes, session.subject.user))
        for each in self._earlier(session):
            each.supersede()

    def not_resumed(self, session: Session) -> None:
        """Take note that a session was not resumed; the session itself calls this."""
        _take_one(self._being_resumed, (session.resumes, session.subject.user))

    def is_being_resumed(self, subject: Subject) -> bool:
        """Return whether the user's request to resume this session waits for the next hop's answer."""
        return (subject.session, subject.user) in self._being_resumed

    def refuse_resume(self, session: str, why: str) -> None:
        """
        Refuse to resume a session from now on.

        :param session: its id; the latest thousand are remembered.
        """
        if session not in self._unresumable and len(self._unresumable) >= _UNRESUMABLE:
            del self._unresumable[next(iter(self._unresumable))]
        self._unresumable[session] = why

    def connections_beside(self) -> int:
        """Return how many connections fit beside the live sessions, for :class:`Site`."""
        return self.limits.connections_beside(len(self._live))

    def refused(self, subject: Subject, code: int, reason: str) -> None:
        """
        Record and count a request for a session that was refused.

        :param code: the HTTP status of the answer.
        """
        self.trail.refused(subject, code, reason)
        self.metrics.refused(code)

    def close(self, why: str) -> None:
        """Refuse new sessions; open ones continue."""
        self._closing = why

    def forget(self, session: Session) -> None:
        """Remove a session; the session itself calls this when it is over."""
        self._live.pop(session, None)
        name = session.subject.session
        same = tuple(each for each in self._by_id.pop(name, ()) if each is not session)
        if same:
            self._by_id[name] = same
        self.uncount(session)
        if not self._live:
            waiting, self._empty = self._empty, []
            for each in waiting:
                each.callback(None)

    def uncount(self, session: Session) -> None:
        """Count a session no longer towards its user's limit; the session itself calls this."""
        if not session.is_superseded:
            _take_one(self._per_user, session.subject.user)

    def has(self, session: str) -> bool:
        """Return whether a session with this id is live here."""
        return session in self._by_id

    def with_id(self, session: str) -> list[Session]:
        """Return the live sessions with this id: usually one, but the hop before ours chooses it."""
        return list(self._by_id.get(session, ()))

    def bound(self) -> int:
        """Return the number of sessions that end when this hop stops; users can resume the others."""
        return sum(1 for session in self._live if not session.is_resumable)

    def live(self) -> list[Session]:
        """Return the live sessions."""
        return list(self._live)

    def subjects(self) -> list[Subject]:
        """Return the subjects of the live sessions."""
        return [session.subject for session in self._live]

    def end(self, where: Callable[[Subject], bool], ending: Ending) -> int:
        """
        End the sessions that ``where`` selects.

        :return: their number.
        """
        chosen = [session for session in self._live if where(session.subject)]
        for session in chosen:
            session.end(ending)
        return len(chosen)

    def end_object(self, key: MachineKey | PoolKey, ending: Ending) -> int:
        """
        End the sessions that depend on an object.

        :return: their number.
        """
        return self.end(lambda subject: key.covers(subject, ending), ending)

    def drain(self, clock: IReactorTime, seconds: float, ending: Ending) -> Deferred[None]:
        """
        End all sessions; cut those that go on elsewhere, or here later.

        :param seconds: after which the remaining sessions are cut; see
            :class:`~twisted_exec.program.draining.DrainLimit`.
        :return: fires when no session is left, at the latest with the cut; never fails.
        """
        for session in self.live():
            if session.is_movable:
                session.cut(ending.reason)
            else:
                session.end(ending)
        if not self._live:
            self._drained(None)
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._empty.append(waiting)
        limit = DrainLimit(clock, seconds, len(self._live), lambda: self._cut_all(waiting))
        return waiting.addCallback(lambda _: limit.cancel()).addCallback(self._drained)

    def when_empty(self) -> Deferred[None]:
        """Return a Deferred that fires when no session is left."""
        waiting: Deferred[None] = Deferred()
        if self._live:
            self._empty.append(waiting)
        else:
            waiting.callback(None)
        return waiting

    def _drained(self, _: None) -> None:
        for each in self.when_drained:
            each()

    def _cut_all(self, waiting: Deferred[None]) -> None:
        for session in list(self._live):
            session.cut()
        if waiting in self._empty:
            self._empty.remove(waiting)
            waiting.callback(None)


def _take_one(counter: Counter[_Key], key: _Key) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
