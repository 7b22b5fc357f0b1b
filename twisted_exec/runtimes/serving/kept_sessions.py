"""
Sessions that outlive their connections: their keys, and how long each waits for its user.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge
from twisted.internet.interfaces import IReactorTime
from zope.interface import directlyProvides, providedBy

from twisted_exec.api.status import APIError, NotFound, TooManyRequests
from twisted_exec.iri.request_cache import LiveStream
from twisted_exec.program.window_limit import WindowLimit
from twisted_exec.runtimes.serving.absences import Absences
from twisted_exec.runtimes.serving.resume_keys import Holder, ResumeKeys
from twisted_exec.streaming.interfaces import (
    RESUMED,
    Break,
    Ending,
    IMarkTransport,
    IResumableAttachment,
    Position,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.resumable import Resumption
from twisted_exec.streaming.sessions.time_limits import LastInput
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.keys import digest as digest_of
from twisted_exec.wire.resume import UNCONFIRMED_SECONDS, Resumable, Resume
from twisted_exec.wire.session_terms import Terms

_MOST_REFUSALS = 10
_REFUSAL_SECONDS = 60.0
_MOST_REFUSED_USERS = 10_000
_MOST_USED_KEYS = 1 << 16
_SUPERSEDED = Ending(RESUMED, "this session goes on over another connection")


class KeptSession:
    """
    One session of a user at a machine.

    :ivar seconds: how long it waits for its user.
    :ivar connection: the present stream; ``None`` before the first one, and while the user is away.
    """

    def __init__(
        self,
        sessions: KeptSessions,
        user: str,
        machine: str,
        subject: Subject,
        attachment: IResumableAttachment,
        earlier: bytes = b"",
    ) -> None:
        self.user, self.machine, self.subject = user, machine, subject
        self.attachment, self.seconds = attachment, sessions.seconds
        self.connection: KeptStream | None = None
        self._sessions, self._earlier = sessions, earlier
        self._last_input = LastInput(sessions.clock.seconds())
        self._settled = None if earlier else 0
        self._is_confirmed = bool(earlier)  # the client has a key
        self._keys: dict[bytes, str] = {}

    def has_key(self, key: bytes, session: str) -> bool:
        """Return whether a key resumes this session, and was issued for a stream with this id."""
        return self._keys.get(key) == session

    def connect(
        self,
        session: str,
        live: LiveStream,
        resume: Resume | None = None,
        credit: int = 0,
    ) -> tuple[KeptStream, Resumption]:
        """
        Create the attachment for a stream.

        :param resume: the request to resume; ``None`` for a new session.
        :return: the attachment, and the beginning of its stream.
        """
        key, answer = self._sessions.issue(self, session)
        keys, position = {key: session}, None
        settled = self._settled if self.connection is None else self.connection.settled
        if resume is not None:
            # The old key stays valid until the client sends something: it may not have got the new
            # one.
            keys[digest_of(resume.key)] = resume.session
            position = resume.position
        connection = KeptStream(self, keys, key, settled, live)
        return connection, Resumption(answer, position, settled, credit, self._last_input)

    def give_up(self, reason: str) -> None:
        """End the session; called once."""
        self.connection = None
        self.use_keys({})
        self.attachment.detached(reason)

    # Called by connections.

    def connected(self, connection: KeptStream, *, is_resumed: bool) -> None:
        """Use a stream in place of an older one."""
        older, self.connection = self.connection, connection
        self.use_keys(connection.keys)
        if is_resumed:
            self._sessions.resumed(self, self._earlier)
        self._earlier = b""
        if older is not None:
            older.supersede()

    def use_keys(self, keys: dict[bytes, str]) -> None:
        """Let these keys resume the session, and no others."""
        self._sessions.replace_keys(self, self._keys, keys)
        self._keys = keys

    def confirmed(self, connection: KeptStream) -> None:
        """The client has sent something over a stream, so it has the stream's key."""
        self._is_confirmed = True
        self.use_keys(connection.keys)

    def lost(self, connection: KeptStream) -> None:
        self._settled, self.connection = connection.settled, None
        self.attachment.away()
        sessions = self._sessions
        (sessions.absences if self._is_confirmed else sessions.unconfirmed).add(self)


class KeptSessions:
    """
    The sessions of one stream server that can be resumed.

    :param seconds: how long a session waits for its user.
    """

    def __init__(self, clock: IReactorTime, seconds: int, registry: CollectorRegistry) -> None:
        self.clock, self.seconds = clock, seconds
        self.absences = Absences(clock, seconds)
        self.unconfirmed = Absences(clock, min(seconds, UNCONFIRMED_SECONDS))
        self._by_key: dict[bytes, KeptSession] = {}
        self._keys = ResumeKeys()
        self._earlier_until = 0.0  # keys of an earlier process are valid until then
        self._earlier_used: set[bytes] = set()
        self._refusals = WindowLimit[str](
            clock.seconds,
            window_seconds=_REFUSAL_SECONDS,
            most_keys=_MOST_REFUSED_USERS,
        )
        self._results = Counter(
            "twisted_exec_resume_requests",
            "Requests to resume a session, by result.",
            ["result"],
            registry=registry,
        )
        for result in ("resumed", "restarted", "refused", "limited"):
            self._results.labels(result)
        absent = Gauge(
            "twisted_exec_absent_sessions",
            "Sessions that wait for their users after the loss of a connection.",
            registry=registry,
        )
        absent.set_function(lambda: float(self.absent))

    def start(self, secret: bytes) -> None:
        """Accept the keys of earlier processes from now on, for as long as a session waits."""
        self._keys = ResumeKeys(secret)
        self._earlier_until = self.clock.seconds() + self.seconds

    def close(self, reason: str) -> None:
        self._earlier_until = 0.0
        for each in self._waiting:
            each.close(reason)

    @property
    def absent(self) -> int:
        """Number of sessions that wait for their users."""
        return sum(map(len, self._waiting))

    @property
    def _waiting(self) -> Sequence[Absences]:
        return self.absences, self.unconfirmed

    def new(
        self, user: str, machine: str, subject: Subject, attachment: IResumableAttachment
    ) -> KeptSession:
        return KeptSession(self, user, machine, subject, attachment)

    def find(self, resume: Resume, user: str, machine: str) -> KeptSession | None:
        """Return the session that a user's request resumes, if it is in this process."""
        key = digest_of(resume.key)
        session = self._by_key.get(key)
        if session is None or (session.user, session.machine) != (user, machine):
            return None
        return session if session.has_key(key, resume.session) else None

    def find_earlier(self, resume: Resume, user: str, machine: str) -> Position | None:
        """
        Check a request to resume a session of an earlier process.

        :return: the position of the oldest output that the session may read; ``None`` if there is
            no such session.
        """
        if self.clock.seconds() >= self._earlier_until:
            self._earlier_used.clear()
            return None
        if digest_of(resume.key) in self._earlier_used or len(self._earlier_used) > _MOST_USED_KEYS:
            return None
        return self._keys.recognise(resume.key, Holder(user, machine, resume.session))

    def from_earlier(
        self,
        resume: Resume,
        user: str,
        machine: str,
        subject: Subject,
        attachment: IResumableAttachment,
        oldest: Position,
    ) -> KeptSession:
        """Create the session that continues one of an earlier process."""
        attachment.oldest = oldest
        return KeptSession(self, user, machine, subject, attachment, digest_of(resume.key))

    def waits_for(self, user: str, machine: str) -> bool:
        """Return whether a session of this user at this machine waits."""
        waiting = chain.from_iterable(each.of_user(user) for each in self._waiting)
        return any(isinstance(each, KeptSession) and each.machine == machine for each in waiting)

    def refusal(self, user: str) -> APIError:
        """Count a request that is refused, and return the error."""
        if self._refusals.allow(user, _MOST_REFUSALS):
            self._results.labels("refused").inc()
            return NotFound("exec", "", message="there is no such session to resume")
        self._results.labels("limited").inc()
        seconds = max(1, math.ceil(self._refusals.rest_seconds(user)))
        return TooManyRequests(
            "too many requests to resume sessions were refused", retry_after_seconds=seconds
        )

    # Called by sessions.

    def issue(self, session: KeptSession, id: str) -> tuple[bytes, Resumable]:
        """Issue a key; return its digest, and the answer to the client."""
        holder = Holder(session.user, session.machine, id)
        key = self._keys.issue(holder, session.attachment.oldest)
        return digest_of(key), Resumable(key, self.seconds)

    def replace_keys(
        self, session: KeptSession, old: Mapping[bytes, str], new: Mapping[bytes, str]
    ) -> None:
        for each in old:
            self._by_key.pop(each, None)
        for each in new:
            self._by_key[each] = session

    def resumed(self, session: KeptSession, earlier: bytes) -> None:
        """
        Take note that a session has another stream.

        :param earlier: the digest of the key if the session is from an earlier process; else empty.
        """
        for each in self._waiting:
            each.remove(session)
        if earlier:
            self._earlier_used.add(earlier)
        self._results.labels("restarted" if earlier else "resumed").inc()


class KeptStream:
    """
    The attachment of one stream of a kept session.

    :param keys: the keys that resume the session until the user sends something over this stream,
        by digest.
    """

    _transport: IMarkTransport | None = None

    def __init__(
        self,
        session: KeptSession,
        keys: dict[bytes, str],
        key: bytes,
        settled: int | None,
        live: LiveStream,
    ) -> None:
        self.keys, self._settled_before = keys, settled
        self._key, self._is_heard = key, False
        self._session, self._live = session, live
        self._inner: Any = session.attachment
        self._sent_before = int(self._inner.bytes_to_machine)
        self._sent: int | None = None  # once the stream is over
        directlyProvides(self, *providedBy(self._inner))

    @property
    def _is_present(self) -> bool:
        return self._session.connection is self

    @property
    def settled(self) -> int | None:
        """
        Number of settled pieces of the session's input; ``None`` if the client may count
        differently.
        """
        if self._transport is None or (self._settled_before is None and not self._is_heard):
            return self._settled_before
        return int(self._transport.settled)

    def supersede(self) -> None:
        """End the stream: the session has a newer one."""
        self._stop()
        self._live.end(_SUPERSEDED)

    def _stop(self) -> None:
        self._sent = self.bytes_to_machine
        self._transport = None

    # IResumableAttachment and IOperable

    @property
    def bytes_to_machine(self) -> int:
        """Input of this stream that the machine got."""
        if self._sent is not None:
            return self._sent
        return int(self._inner.bytes_to_machine) - self._sent_before

    def admit(self, terms: Terms) -> None:
        self._inner.admit(terms)

    def check(self, position: Position) -> None:
        self._inner.check(position)

    def attached(self, transport: IMarkTransport) -> None:
        self._transport = transport
        self._session.connected(self, is_resumed=False)
        self._inner.attached(transport)

    def resumed(self, transport: IMarkTransport, position: Position) -> None:
        self._transport = transport
        self._session.connected(self, is_resumed=True)
        self._inner.resumed(transport, position)

    def heard(self) -> None:
        if self._is_present:
            self._is_heard = True
            self.keys = {self._key: self.keys[self._key]}
            self._session.confirmed(self)
            self._inner.heard()

    def answered(self) -> None:
        if self._is_present:
            self._inner.answered()

    def data_received(self, data: bytes) -> None:
        if self._is_present:
            self._inner.data_received(data)

    def window_changed(self, size: TerminalSize) -> None:
        if self._is_present:
            self._inner.window_changed(size)

    def input_ended(self) -> None:
        if self._is_present:
            self._inner.input_ended()

    def wished(self, wish: Break | Role) -> None:
        if self._is_present:
            self._inner.wished(wish)

    def said(self, text: str) -> None:
        if self._is_present:
            self._inner.said(text)

    def input_refused(self) -> None:
        if self._is_present:
            self._inner.input_refused()

    def terms_changed(self, terms: Terms) -> None:
        if self._is_present:
            self._inner.terms_changed(terms)

    def away(self) -> None:
        if self._is_present:
            self._session.lost(self)
            self._stop()

    def detached(self, reason: str) -> None:
        if self._sent is None:  # not superseded
            self._stop()
            if self._is_present or self._session.connection is None:
                self._session.give_up(reason)
