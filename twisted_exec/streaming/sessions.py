"""
The live sessions of one hop: how many there may be, and how they are ended.

A session that ends from this side ends with a reason.  Only the hop where bytes
are decoded can put that reason into the stream, so hops in the middle hand the
:class:`~twisted_exec.streaming.interfaces.Ending` on to the next one *beside*
the stream: ``DELETE`` of the very path that opened it, with the ending as its
query (:func:`ending_query`, :func:`parse_ending`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol as Typing
from urllib.parse import urlencode

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IRequest

from twisted_exec.api.status import BadRequest, TooManyRequests
from twisted_exec.streaming.interfaces import (
    INTERNAL,
    LINE_LOST,
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    SHUTTING_DOWN,
    Ending,
    Subject,
)

_WORDS = frozenset(
    {MACHINE_DELETED, POOL_DELETED, POWERED_OFF, LINE_LOST, SHUTTING_DOWN, REVOKED, INTERNAL}
)
_SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_MAX_MESSAGE = 512


class Metrics(Typing):
    """What is counted about sessions."""

    def opened(self) -> None:
        """A session was let in."""

    def closed(self, bytes_to_machine: int, bytes_to_user: int) -> None:
        """A session that was let in is over."""

    def refused(self, code: int) -> None:
        """A session was not let in."""


class Session:
    """
    One live session; :meth:`Sessions.open` makes it.

    :ivar ending: why it was asked to end from this side, if it was.
    """

    def __init__(self, subject: Subject, forget: Callable[[Session], None]) -> None:
        self.subject = subject
        self.ending: Ending | None = None
        self._forget = forget
        self._end: Callable[[Ending], None] | None = None
        self._cut: Callable[[], None] | None = None
        self._over = False

    def carry(self, end: Callable[[Ending], None], cut: Callable[[], None]) -> None:
        """
        The stream is up.

        :param end: ends it in the protocol's order, saying why; bounded in time.
        :param cut: ends it now.
        """
        self._end, self._cut = end, cut
        if self.ending is not None:
            end(self.ending)

    def end(self, ending: Ending) -> None:
        """End the session, as soon as it has a stream to say so in.  The first ending counts."""
        if self.ending is not None or self._over:
            return
        self.ending = ending
        if self._end is not None:
            self._end(ending)

    def cut(self) -> None:
        """End the session without a word."""
        if self._cut is not None and not self._over:
            self._cut()

    def over(self) -> None:
        """Whoever carries the session says that it is gone.  Repeated calls do nothing."""
        if not self._over:
            self._over = True
            self._end = self._cut = None
            self._forget(self)


class Sessions:
    """
    The sessions of one hop.

    :param limit: at once.
    :param limit_per_user: at once, by user name.
    """

    def __init__(self, *, limit: int = 4096, limit_per_user: int = 1024) -> None:
        self._limit, self._limit_per_user = limit, limit_per_user
        self._live: dict[Session, None] = {}
        self._per_user: Counter[str] = Counter()
        self._empty: list[Deferred[None]] = []

    def __len__(self) -> int:
        return len(self._live)

    def open(self, subject: Subject) -> Session:
        """
        Let a session in.  It counts from now on, until it is :meth:`~Session.over`.

        :raises TooManyRequests: there are too many, in all or of this user.
        """
        if len(self._live) >= self._limit:
            raise TooManyRequests("too many sessions are open here", retry_after_seconds=10)
        if self._per_user[subject.user] >= self._limit_per_user:
            raise TooManyRequests(
                f"user {subject.user!r} has {self._limit_per_user} sessions open, the most allowed",
                retry_after_seconds=10,
            )
        session = Session(subject, self._forget)
        self._live[session] = None
        self._per_user[subject.user] += 1
        return session

    def _forget(self, session: Session) -> None:
        self._live.pop(session, None)
        self._per_user[session.subject.user] -= 1
        if self._per_user[session.subject.user] <= 0:
            del self._per_user[session.subject.user]
        if not self._live:
            waiting, self._empty = self._empty, []
            for one in waiting:
                one.callback(None)

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


def forwarded_session_id(request: IRequest) -> str | None:
    """
    The session's id as the previous hop gave it (``Audit-Id``).

    To be believed only of a caller that may forward identities.
    """
    value = request.requestHeaders.getRawHeaders(b"audit-id", [b""])[-1]
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
