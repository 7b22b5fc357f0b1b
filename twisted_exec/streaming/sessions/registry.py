"""
Registry of the live sessions of one hop, with limits, audit records, metrics, and endings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol as Typing
from typing import TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.status import Forbidden, ServiceUnavailable, TooManyRequests
from twisted_exec.program.audit import AuditSession, Trail
from twisted_exec.program.metrics import new_registry
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.program.session_metrics import LatencyMetrics, SessionMetrics
from twisted_exec.program.tasks import each_alone
from twisted_exec.streaming.evidence import SessionEvidence
from twisted_exec.streaming.http.responses import outcome
from twisted_exec.streaming.interfaces import (
    RESTARTING,
    RESUMED,
    REVOKED,
    SHUTTING_DOWN,
    Ending,
)
from twisted_exec.streaming.lifecycle import Living
from twisted_exec.streaming.sessions.endings import MachineKey, PoolKey
from twisted_exec.streaming.sessions.openings import (
    AT_ONCE,
    LOCATING_AT_ONCE,
    LOCATING_PER_USER,
    Openings,
)
from twisted_exec.streaming.sessions.stream import ISessionStream, SessionStream
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.session_terms import FULL, Terms, stricter
from twisted_exec.wire.stream_options import StreamOptions

_UNRESUMABLE = 1000
_Key = TypeVar("_Key")


class StreamWatcher(Typing):
    """Observer of the streams of :class:`Sessions`."""

    def began(self, session: Session) -> None:
        """The stream of a session is up."""

    def ended(self, session: Session) -> None:
        """A session that had a stream is over."""


class Sessions:
    """
    The sessions of one hop.

    :ivar latency: metrics of a hop at the machine's end; ``None`` for other hops.
    :ivar on_begun: are called with each session that begins; it has no stream yet.
    :ivar on_asked: are called when the previous hop asks to end or change sessions.
    :param metrics: by default some that no registry publishes.
    :param limits: of concurrent sessions; by default as many as the process's file descriptors
        allow.  Sessions without a user name count only in total.
    """

    _log = Logger()

    def __init__(
        self,
        trail: Trail,
        metrics: SessionMetrics | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        self.trail = trail
        self.watcher: StreamWatcher | None = None
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
        self.on_begun: list[Callable[[Session], None]] = []
        self.on_asked: list[Callable[[], None]] = []
        self._live: dict[Session, None] = {}
        self._by_id: dict[str, tuple[Session, ...]] = {}
        self._per_user: dict[str, set[Session]] = {}
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
        evidence: SessionEvidence | None = None,
        terms: Terms = FULL,
        ceiling: Terms = FULL,
        resumes: str = "",
    ) -> Session:
        """
        Open a session.

        :param evidence: the session's ``context.evidence``; without it the session is not reviewed.
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
        self._per_user.setdefault(subject.user, set()).add(session)
        if resumes:
            self._being_resumed[resumes, subject.user] += 1
        problem = self._too_many(session)
        if problem:
            session.over(problem, code=TooManyRequests.code)
            raise TooManyRequests(problem, retry_after_seconds=10)
        for each in self.on_begun:
            each(session)
        return session

    def _too_many(self, session: Session) -> str:
        limits, user = self.limits, session.subject.user
        if len(self._live) > limits.total:
            return f"{limits.total} sessions are open here, the most allowed (--max-sessions)"
        replaced = 1 if self._earlier(session) else 0
        if user and len(self._per_user[user]) - replaced > limits.per_user:
            return (
                f"user {user!r} has {limits.per_user} sessions open, the most allowed "
                "(--max-sessions-per-user)"
            )
        return ""

    def _earlier(self, session: Session) -> list[Session]:
        subject = session.subject
        return [
            each
            for each in (self.with_id(session.resumes) if session.resumes else ())
            if each is not session
            and each.subject.user == subject.user
            and each.subject.uid == subject.uid
            and each in self._per_user[subject.user]  # otherwise it is superseded
        ]

    def resumed(self, session: Session) -> None:
        """Take note that the next hop has resumed a session; for the session itself."""
        self.metrics.resumed()
        _take_one(self._being_resumed, (session.resumes, session.subject.user))
        for each in self._earlier(session):
            each.supersede()

    def not_resumed(self, session: Session) -> None:
        """As :meth:`resumed`, of a session that was not resumed."""
        _take_one(self._being_resumed, (session.resumes, session.subject.user))

    def is_being_resumed(self, subject: Subject) -> bool:
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
        return self.limits.connections_beside(len(self._live))

    def refused(self, subject: Subject, code: int, reason: str) -> None:
        self.trail.refused(subject, code, reason)
        self.metrics.refused(code)

    def close(self, why: str) -> None:
        """Refuse new sessions; open ones continue."""
        self._closing = why

    def forget(self, session: Session) -> None:
        """Remove a session that is over; for the session itself."""
        self._live.pop(session, None)
        name = session.id
        same = tuple(each for each in self._by_id.pop(name, ()) if each is not session)
        if same:
            self._by_id[name] = same
        self.uncount(session)
        if not self._live:
            waiting, self._empty = self._empty, []
            for each in waiting:
                each.callback(None)

    def uncount(self, session: Session) -> None:
        """Count a session no longer towards its user's limit; for the session itself."""
        user = session.subject.user
        counted = self._per_user.get(user, set())
        counted.discard(session)
        if not counted:
            self._per_user.pop(user, None)

    def has(self, session: str) -> bool:
        return session in self._by_id

    def with_id(self, session: str) -> list[Session]:
        """Return the live sessions with this id, which the previous hop chooses."""
        return list(self._by_id.get(session, ()))

    def live(self) -> list[Session]:
        return list(self._live)

    def subjects(self) -> list[Subject]:
        return [session.subject for session in self._live]

    def end(self, where: Callable[[Subject], bool], ending: Ending) -> int:
        """End the sessions that ``where`` selects; return their number."""
        chosen = [session for session in self._live if where(session.subject)]
        self.each(chosen, lambda session: session.end(ending))
        return len(chosen)

    def each(self, chosen: Iterable[Session], act: Callable[[Session], object]) -> None:
        """Call a function for each of several sessions, also if it fails for one of them."""
        each_alone(chosen, act, self._failed)

    def _failed(self, session: Session) -> None:
        self._log.failure("session {id}", id=session.id)

    def end_object(self, key: MachineKey | PoolKey, ending: Ending) -> int:
        """End the sessions that depend on an object; return their number."""
        return self.end(lambda subject: key.covers(subject, ending), ending)

    def drain(self, clock: IReactorTime, seconds: float, program: str) -> Deferred[None]:
        """
        End all sessions, because this program stops.

        Clients that can resume read that it restarts.  Streams that the previous hop rejoins are cut.  All
        other clients read the reason as the last Status.

        :param program: its name, for the reasons.
        :return: fires when none is left, or the remaining ones were cut.
        """
        restarts = Ending(RESTARTING, f"{program} is restarting")
        over = Ending(SHUTTING_DOWN, f"{restarts.message}; try again in a moment")

        def end(session: Session) -> None:
            if session.is_resumable:
                session.end(restarts)
            elif session.is_rejoined_by_hop and session.ending is None:
                session.cut(SHUTTING_DOWN)
            else:
                session.end(over)

        self.each(self.live(), end)
        if not self._live:
            self._drained()
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._empty.append(waiting)
        limit = clock.callLater(seconds, self._cut_all, waiting)

        def drained(_: None) -> None:
            if limit.active():
                limit.cancel()
            self._drained()

        return waiting.addCallback(drained)

    def _drained(self) -> None:
        for each in self.when_drained:
            each()

    def _cut_all(self, waiting: Deferred[None]) -> None:
        self.each(self.live(), Session.cut_off)
        if waiting in self._empty:
            self._empty.remove(waiting)
            waiting.callback(None)


def _take_one(counter: Counter[_Key], key: _Key) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]


@dataclass(frozen=True)
class StreamRequest:
    """
    What the request for a stream asked for.

    :param via: the requested subresource, as ``RESOURCE/SUBRESOURCE``.
    """

    via: str = ""
    options: StreamOptions = StreamOptions()


class SessionLife(Enum):
    """The phases of a session's life; :data:`SESSION_TRANSITIONS` has their order."""

    OPENING = "opening"
    """It has no stream yet."""
    CALLED_OFF = "called off"
    """It has no stream yet, and ends as soon as it has."""
    CARRIED = "carried"
    """Its stream is up."""
    SUPERSEDED = "superseded"
    """Its user has resumed it over another connection, and its stream ends soon."""
    ENDING = "ending"
    """Its stream has the reason for the end from this side."""
    OVER = "over"
    """It has no stream any more, if it had one."""
    LOST = "lost"
    """As over; the connection was lost, and the machine's end waits for the user."""


SESSION_TRANSITIONS: Mapping[SessionLife, frozenset[SessionLife]] = {
    SessionLife.OPENING: frozenset({SessionLife.CARRIED, SessionLife.CALLED_OFF, SessionLife.OVER}),
    SessionLife.CALLED_OFF: frozenset({SessionLife.ENDING, SessionLife.OVER}),
    SessionLife.CARRIED: frozenset(
        {SessionLife.SUPERSEDED, SessionLife.ENDING, SessionLife.OVER, SessionLife.LOST}
    ),
    SessionLife.SUPERSEDED: frozenset({SessionLife.ENDING, SessionLife.OVER, SessionLife.LOST}),
    SessionLife.ENDING: frozenset({SessionLife.OVER, SessionLife.LOST}),
    SessionLife.OVER: frozenset(),
    SessionLife.LOST: frozenset(),
}
"""What may follow each phase of a session's life."""


_WITH_STREAM = frozenset({SessionLife.CARRIED, SessionLife.SUPERSEDED, SessionLife.ENDING})


def _ignore(_: Ending) -> None:
    """Do nothing."""


class _Opening(SessionStream):
    """
    Stands for the stream until it is up.

    :ivar on_end: called when the session must end before that.
    :ivar has_other_terms: the terms have changed meanwhile.
    """

    on_end: Callable[[Ending], object] = staticmethod(_ignore)
    has_other_terms = False

    def end(self, ending: Ending) -> None:
        self.on_end(ending)

    def hold_to(self, terms: Terms) -> bool:
        self.has_other_terms = True
        return True


_NO_STREAM = SessionStream()
_NO_REQUEST = StreamRequest()


class Session(Living[SessionLife]):
    """
    One session; :meth:`Sessions.open` creates it.

    :ivar life: the phase of its life.
    :ivar ending: the reason that this side gave for ending the session; ``None`` while it has given
        none, also if the session ends from the other side.
    :ivar evidence: what allowed the session; ``None`` when the session is not reviewed, or is over.
    :ivar request: what the user asked for; empty unless there is a :attr:`Sessions.watcher`.
    :ivar protocol: that of the user's connection; likewise.
    :ivar resumes: the id of the session that the user wants to resume, or has resumed; may be
        empty.
    :ivar resumable_seconds: how long the next hop waits for the user after a loss; may be 0.
    :ivar is_rejoined_by_hop: the previous hop rejoins the stream after a loss.
    :ivar is_continuation: the user's request resumes a session, or rejoins a stream.
    :ivar waits_for_machine: the runtime keeps the session while its machine is off; known with the
        stream.
    :ivar on_over: are called once the session is over.
    """

    transitions = SESSION_TRANSITIONS

    def __init__(
        self,
        sessions: Sessions,
        subject: Subject,
        audit: AuditSession,
        evidence: SessionEvidence | None = None,
        terms: Terms = FULL,
        ceiling: Terms = FULL,
        resumes: str = "",
    ) -> None:
        self.life = SessionLife.OPENING
        self.subject, self.evidence = subject, evidence
        self.resumes, self.resumable_seconds = resumes, 0
        self.is_continuation = self.is_rejoined_by_hop = self.waits_for_machine = False
        self._why = ""  # why this side has cut the session; a cut is no ending, it may be resumed
        self.ending: Ending | None = None
        self._own_terms, self._ceiling = terms, ceiling
        self._highest = self.terms.right
        self.request, self.protocol = _NO_REQUEST, ""
        self.on_over: list[Callable[[], object]] = []
        self._sessions, self._audit = sessions, audit
        self._stream: ISessionStream = _Opening()

    @property
    def id(self) -> str:
        """The id of the session, usually the same on every hop."""
        return self.subject.session

    @property
    def is_over(self) -> bool:
        return self.life in (SessionLife.OVER, SessionLife.LOST)

    @property
    def outlasts_power_off(self) -> bool:
        """
        Return whether the runtime keeps the session while its machine is off, or may do so, as long
        as that is unknown.
        """
        return self.waits_for_machine if self.life in _WITH_STREAM else self.is_continuation

    def when_called_off(self, end: Callable[[Ending], object]) -> None:
        """
        Call a function if the session must end before it has a stream, which may take hours.
        """
        if isinstance(self._stream, _Opening):
            self._stream.on_end = end
            if self.ending is not None:
                end(self.ending)

    def carry(self, stream: ISessionStream) -> None:
        """
        Take note that the stream is up; it resumes the session that the request named, if any.
        """
        opening = self._stream
        if not isinstance(opening, _Opening):
            return  # a connection was lost while the stream was being set up
        self._stream = stream
        self._become(SessionLife.CARRIED if self.ending is None else SessionLife.ENDING)
        self._sessions.metrics.opened()
        if self._sessions.watcher is not None:
            self._sessions.watcher.began(self)
        if self.resumes:
            self._sessions.resumed(self)
        if self.ending is not None:
            stream.end(self.ending)
        elif opening.has_other_terms:
            self._apply_terms()

    def end(self, ending: Ending) -> None:
        """End the session as soon as its stream can carry the reason; the first call counts."""
        if self.ending is not None or self.is_over:
            return
        self.ending = ending
        self._become(
            SessionLife.CALLED_OFF if self.life is SessionLife.OPENING else SessionLife.ENDING
        )
        self._stream.end(ending)

    @property
    def terms(self) -> Terms:
        """The stricter ones of the terms of this hop and of the previous hop."""
        return stricter(self._own_terms, self._ceiling)

    @property
    def expires(self) -> float:
        """The end of the credentials, in seconds since 1970; infinite if they do not end."""
        return math.inf if self.evidence is None else self.evidence.expires

    @property
    def is_resumable(self) -> bool:
        """Return whether the user can resume the session after a loss."""
        return bool(self.resumable_seconds) and self._goes_on

    @property
    def _goes_on(self) -> bool:
        return self.ending is None or self.ending.reason == RESTARTING

    def counts(self) -> tuple[int, int]:
        """Return the bytes to the machine and to the user so far; nothing without a stream."""
        return self._stream.counts()

    def transports(self) -> tuple[object, object]:
        """Return the transports to the user and to the machine; ``None`` for one without."""
        return self._stream.transports()

    def hold_to(self, terms: Terms) -> None:
        """
        Change the terms that this hop holds the session to; a stream that cannot change them ends.
        """
        self._change(terms, self._ceiling)

    def limit_to(self, ceiling: Terms) -> None:
        """Change the terms that the previous hop holds the session to; as :meth:`hold_to`."""
        self._change(self._own_terms, ceiling)

    def _change(self, own: Terms, ceiling: Terms) -> None:
        before = self.terms
        self._own_terms, self._ceiling = own, ceiling
        self._highest = max(self._highest, self.terms.right)
        if self.terms != before and self.ending is None and not self.is_over:
            self._apply_terms()

    def _apply_terms(self) -> None:
        if not self._stream.hold_to(self.terms):
            self.end(Ending(REVOKED, "the terms of this session have changed: open it again"))

    def cut(self, why: str = "") -> None:
        """End the session now, without telling its user why, if it has a stream."""
        if self.life in _WITH_STREAM:
            self._why = why
            self._stream.cut()

    def cut_off(self) -> None:
        """End the session now, and do not wait for its connections: the program stops."""
        self.cut()
        to_machine, to_user = self.counts()
        self.over("cut", bytes_to_machine=to_machine, bytes_to_user=to_user)

    def supersede(self) -> None:
        """Take note that the user has resumed the session over another connection."""
        if self.life in _WITH_STREAM and self._stream.supersede():
            self._sessions.uncount(self)
            if self.life is SessionLife.CARRIED:
                self._become(SessionLife.SUPERSEDED)

    def echoed(self, seconds: float) -> None:
        if self._sessions.latency is not None:
            self._sessions.latency.echoed(seconds)

    def pinged(self, seconds: float) -> None:
        if self._sessions.latency is not None:
            self._sessions.latency.pinged(seconds)

    def failed(self, problem: BaseException) -> None:
        """Take note that an error ended the session before it had a stream."""
        code, reason = outcome(problem)
        self.over(reason, code=code)

    def over(
        self,
        reason: str,
        *,
        code: int | None = None,
        bytes_to_machine: int = 0,
        bytes_to_user: int = 0,
        is_lost: bool = False,
    ) -> None:
        """
        Take note that the session is over.  Repeated calls do nothing.

        :param code: the HTTP status of a session that never had a stream.
        :param is_lost: the connection was lost; the session waits for its user at the machine's
            end.
        """
        if self.is_over:
            return
        had_stream = self.life in _WITH_STREAM
        if code is not None:
            pass
        elif self.ending is not None:
            reason = self.ending.reason
        elif self.life is SessionLife.SUPERSEDED:
            reason = RESUMED
        else:
            reason = self._why or reason
        self._become(SessionLife.LOST if is_lost and had_stream else SessionLife.OVER)
        counts = {"bytes_to_machine": bytes_to_machine, "bytes_to_user": bytes_to_user}
        opened = had_stream and self.subject.subresource not in ("log", "screen")
        self._audit.end(
            reason,
            code=code,
            right=self._highest.verb if opened else "",
            policy=self.terms.policy,
            resumes=self.resumes if had_stream else "",
            **counts,
        )
        if had_stream:
            self._sessions.metrics.ended(**counts)
            if self._sessions.watcher is not None:
                self._sessions.watcher.ended(self)
        elif code is not None:
            self._sessions.metrics.refused(code)
        if self.resumes and not had_stream:
            self._sessions.not_resumed(self)
        on_over, self.on_over = self.on_over, []
        for each in on_over:
            each()
        self._stream = _NO_STREAM
        self.evidence = None  # credentials hold the memory of the connection that they came by
        self._sessions.forget(self)
