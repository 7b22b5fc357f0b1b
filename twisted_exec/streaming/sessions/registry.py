"""
The live sessions of one hop: how many, on record, and how they are ended.

Whoever carries a session opens it here and says here that it is over; the audit
start and end, and the figures, follow from that: exactly one of each.

A session that ends from this side ends with a reason.  Only the hop where bytes
are decoded can put that reason into the stream, so hops in the middle hand the
:class:`~twisted_exec.streaming.interfaces.Ending` on to the next one *beside*
the stream: ``DELETE`` of the very path that opened it, with the ending as its
query (:func:`ending_query`, :func:`parse_ending`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol as Typing
from urllib.parse import urlencode

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IRequest

from twisted_exec.api.status import BadRequest, ServiceUnavailable, TooManyRequests
from twisted_exec.observe.audit import AuditSession, Trail
from twisted_exec.observe.metrics import SessionMetrics, new_registry
from twisted_exec.streaming.interfaces import (
    IDLE,
    INTERNAL,
    LINE_LOST,
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    SESSION_DELETED,
    SHUTTING_DOWN,
    Ending,
    Subject,
)
from twisted_exec.wire.stream_options import StreamOptions

_WORDS = frozenset(
    {
        MACHINE_DELETED,
        POOL_DELETED,
        POWERED_OFF,
        LINE_LOST,
        SHUTTING_DOWN,
        REVOKED,
        SESSION_DELETED,
        IDLE,
        INTERNAL,
    }
)
_SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_MAX_MESSAGE = 512


@dataclass(frozen=True)
class Visit:
    """
    How a user comes: what is known of a stream besides who reaches what.

    :param address: the host that the connection is from.
    :param protocol: how the user's client speaks.
    :param agent: what it calls itself.
    :param via: what was asked for, as ``RESOURCE/SUBRESOURCE``.
    """

    address: str = ""
    protocol: str = ""
    agent: str = ""
    via: str = ""
    asked: StreamOptions = StreamOptions()


class Watcher(Typing):
    """Whom :class:`Sessions` tells of streams as they come and go."""

    def began(self, session: Session) -> None:
        """A session has its stream."""

    def ended(self, session: Session) -> None:
        """A session that had one is over."""


def _nothing_counted() -> tuple[int, int]:
    return 0, 0


class Session:
    """
    One session; :meth:`Sessions.open` makes it.

    :ivar ending: why it was asked to end from this side, if it was.
    :ivar evidence: what allowed it, for as long as it lives; ``None`` where nobody reviews it.
    :ivar visit: what its carrier knows of the user's stream, if it tells.
    """

    def __init__(
        self, sessions: Sessions, subject: Subject, audit: AuditSession, evidence: object = None
    ) -> None:
        self.subject, self.evidence = subject, evidence
        self.ending: Ending | None = None
        self.visit = Visit()
        self.counts: Callable[[], tuple[int, int]] = _nothing_counted
        """Bytes to the machine and to the user so far."""
        self._sessions, self._audit = sessions, audit
        self._waits: Callable[[Ending], None] | None = None
        self._end: Callable[[Ending], None] | None = None
        self._cut: Callable[[], None] | None = None
        self._over = False

    def wait(self, end: Callable[[Ending], None]) -> None:
        """
        There is no stream yet, and it may be long until there is one.

        :param end: called when it is to end before; not once there is a stream.
        """
        self._waits = end
        if self.ending is not None and not self._over:
            end(self.ending)

    def carry(
        self,
        end: Callable[[Ending], None],
        cut: Callable[[], None],
        counts: Callable[[], tuple[int, int]] = _nothing_counted,
    ) -> None:
        """
        The stream is up.

        :param end: ends it in the protocol's order, saying why; bounded in time.
        :param cut: ends it now.
        :param counts: tells bytes to the machine and to the user so far.
        """
        if self._over:
            return  # it was lost while it was joined
        self._waits = None
        self._end, self._cut, self.counts = end, cut, counts
        self._sessions.metrics.opened()
        if self._sessions.watcher is not None:
            self._sessions.watcher.began(self)
        if self.ending is not None:
            end(self.ending)

    def end(self, ending: Ending) -> None:
        """End the session, as soon as it has a stream to say so in.  The first ending counts."""
        if self.ending is not None or self._over:
            return
        self.ending = ending
        tell = self._end or self._waits
        if tell is not None:
            tell(ending)

    def cut(self) -> None:
        """End the session without a word."""
        if self._cut is not None and not self._over:
            self._cut()

    def over(
        self,
        reason: str,
        *,
        code: int | None = None,
        bytes_to_machine: int = 0,
        bytes_to_user: int = 0,
    ) -> None:
        """
        Whoever carries the session says that it is gone.  Repeated calls do nothing.

        :param reason: for audit; an :attr:`ending` from this side goes before it.
        :param code: the HTTP status, when there never was a stream.
        """
        if self._over:
            return
        self._over = True
        told = reason if self.ending is None else self.ending.reason
        counts = {"bytes_to_machine": bytes_to_machine, "bytes_to_user": bytes_to_user}
        self._audit.end(told, code=code, **counts)
        if self._end is not None:
            self._sessions.metrics.ended(**counts)
            if self._sessions.watcher is not None:
                self._sessions.watcher.ended(self)
        elif code is not None:
            self._sessions.metrics.refused(code)
        self._end = self._cut = self._waits = None
        self.evidence = None  # credentials hold the memory of the connection that they came by
        self.counts = _nothing_counted
        self._sessions.forget(self)


class Sessions:
    """
    The sessions of one hop.

    :ivar watcher: told of streams that begin and end.
    :param metrics: ``None`` counts for nobody.
    :param limit: at once.
    :param limit_per_user: at once, by user name.
    """

    def __init__(
        self,
        trail: Trail,
        metrics: SessionMetrics | None = None,
        *,
        limit: int = 4096,
        limit_per_user: int = 1024,
    ) -> None:
        self.trail = trail
        self.watcher: Watcher | None = None
        self.metrics = metrics or SessionMetrics(new_registry(process=False))
        self._limit, self._limit_per_user = limit, limit_per_user
        self._live: dict[Session, None] = {}
        self._per_user: Counter[str] = Counter()
        self._empty: list[Deferred[None]] = []
        self._closing = ""

    def __len__(self) -> int:
        return len(self._live)

    def open(self, subject: Subject, evidence: object = None) -> Session:
        """
        Let a session in.  It counts from now on, until it is :meth:`~Session.over`.

        :param evidence: what allowed it, usually ``request.evidence``, for
            :class:`~twisted_exec.streaming.sessions.guard.SessionGuard`; ``None``: it is not reviewed.
        :raises TooManyRequests: there are too many, in all or of this user.
        :raises ServiceUnavailable: this hop takes no more; another one may.
        """
        if self._closing:
            self.refused(subject, ServiceUnavailable.code, self._closing)
            raise ServiceUnavailable(self._closing, retry_after_seconds=1)
        session = Session(self, subject, self.trail.start(vars(subject)), evidence)
        self._live[session] = None
        self._per_user[subject.user] += 1
        problem = self._too_many(subject.user)
        if problem:
            session.over(problem, code=TooManyRequests.code)
            raise TooManyRequests(problem, retry_after_seconds=10)
        return session

    def _too_many(self, user: str) -> str:
        if len(self._live) > self._limit:
            return "too many sessions are open here"
        if self._per_user[user] > self._limit_per_user:
            return f"user {user!r} has {self._limit_per_user} sessions open, the most allowed"
        return ""

    def refused(self, subject: Subject, code: int, reason: str) -> None:
        """
        A session was asked for and never became one: on record and counted.

        :param code: the HTTP status that is answered.
        """
        self.trail.refused(vars(subject), code, reason)
        self.metrics.refused(code)

    def close(self, why: str) -> None:
        """Let no more in; those that are open go on."""
        self._closing = why

    def forget(self, session: Session) -> None:
        """Called by the session when it is over."""
        self._live.pop(session, None)
        self._per_user[session.subject.user] -= 1
        if self._per_user[session.subject.user] <= 0:
            del self._per_user[session.subject.user]
        if not self._live:
            waiting, self._empty = self._empty, []
            for one in waiting:
                one.callback(None)

    def has(self, session: str) -> bool:
        """A session of this id is live here."""
        return any(one.subject.session == session for one in self._live)

    def live(self) -> list[Session]:
        """Those that there are now."""
        return list(self._live)

    def subjects(self) -> list[Subject]:
        """Who reaches what, now."""
        return [session.subject for session in self._live]

    def end(self, where: Callable[[Subject], bool], ending: Ending) -> int:
        """
        End the sessions that ``where`` chooses.

        :return: how many there were.
        """
        chosen = [session for session in self._live if where(session.subject)]
        for session in chosen:
            session.end(ending)
        return len(chosen)

    def end_object(self, key: MachineKey | PoolKey, ending: Ending) -> int:
        """
        End the sessions that depend on an object.

        :return: how many there were.
        """
        return self.end(lambda subject: key.covers(subject, ending), ending)

    def drain(self, clock: IReactorTime, seconds: float, ending: Ending) -> Deferred[None]:
        """
        End all sessions.

        :param seconds: after which those that are left are cut.
        :return: fires when none is left, or with the cut; never fails.
        """
        self.end(lambda _: True, ending)
        if not self._live:
            done: Deferred[None] = Deferred()
            done.callback(None)
            return done
        waiting: Deferred[None] = Deferred()
        self._empty.append(waiting)
        timer = clock.callLater(seconds, self._cut_all, waiting)

        def stop(_: None) -> None:
            if timer.active():
                timer.cancel()

        return waiting.addCallback(stop)

    def _cut_all(self, waiting: Deferred[None]) -> None:
        for session in list(self._live):
            session.cut()
        if waiting in self._empty:
            self._empty.remove(waiting)
            waiting.callback(None)


@dataclass(frozen=True)
class MachineKey:
    """
    The sessions of one machine or Pod.

    :param uid: of the object.  The name is not enough: a new object may have it by now.
    """

    uid: str

    def covers(self, subject: Subject, ending: Ending) -> bool:
        """
        Whether the ending concerns a session.

        A machine that is off still has its log, and followers of the log wait for the next boot.
        """
        keeps = ending.reason == POWERED_OFF and subject.subresource == "log"
        return bool(self.uid) and subject.uid == self.uid and not keeps


@dataclass(frozen=True)
class PoolKey:
    """
    The sessions of all machines of one pool, or of all Pods of one Node.

    :param resource: of these machines, such as ``machines.compute.ironcore.dev``: pools of two
        dialects may have the same name.  Empty matches any.
    """

    name: str
    resource: str = ""

    def covers(self, subject: Subject, ending: Ending) -> bool:
        """Whether the ending concerns a session."""
        same_resource = not self.resource or subject.resource == self.resource
        return bool(self.name) and subject.pool == self.name and same_resource


def machine_deleted(noun: str, name: str) -> Ending:
    """
    The ending of sessions whose machine or Pod is gone.

    :param noun: what users call such an object.
    """
    return Ending(MACHINE_DELETED, f'{noun} "{name}" was deleted')


def machine_powered_off(noun: str, name: str) -> Ending:
    """The ending of sessions whose machine has lost power."""
    return Ending(POWERED_OFF, f'{noun} "{name}" was powered off')


def pool_deleted(noun: str, name: str) -> Ending:
    """The ending of sessions whose pool or Node is gone."""
    return Ending(POOL_DELETED, f'{noun} "{name}" was deleted')


def forwarded_session_id(request: IRequest) -> str | None:
    """
    The session's id as the previous hop gave it (``Audit-Id``).

    To be believed only of a caller that may forward identities.
    """
    return _session_id(request.requestHeaders.getRawHeaders(b"audit-id", [b""])[-1])


def session_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The id under which the next hop keeps a session, by the headers of its answer."""
    told = [value for name, value in headers if name.lower() == b"audit-id"]
    return _session_id(told[-1]) if told else None


def _session_id(value: bytes) -> str | None:
    told = value.decode("ascii", "replace")
    return told if _SESSION_ID.match(told) else None


def ending_query(session: str, ending: Ending) -> bytes:
    """The query of the ``DELETE`` that ends a session at the next hop."""
    message = ending.message[:_MAX_MESSAGE]
    fields = {"session": session, "reason": ending.reason, "message": message}
    return urlencode(fields).encode("ascii")


def parse_ending(args: Mapping[bytes, list[bytes]]) -> tuple[str, Ending]:
    """
    Read that query.

    :param args: as ``request.args``.
    :return: the session's id and the ending; an unknown reason becomes ``INTERNAL``.
    :raises BadRequest: it names no session.
    """
    told = {
        name: args.get(name.encode(), [b""])[0].decode("utf-8", "replace")
        for name in ("session", "reason", "message")
    }
    if not _SESSION_ID.match(told["session"]):
        raise BadRequest("which session is to end? the query has no valid session=")
    reason = told["reason"] if told["reason"] in _WORDS else INTERNAL
    message = "".join(char for char in told["message"][:_MAX_MESSAGE] if char.isprintable())
    return told["session"], Ending(reason, message)
