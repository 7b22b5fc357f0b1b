"""
Sessions that outlive their connections: their keys, and how long each waits for its user.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain

from prometheus_client import CollectorRegistry, Counter, Gauge
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import APIError, NotFound, TooManyRequests
from twisted_exec.iri.request_cache import LiveStream
from twisted_exec.program.window_limit import WindowLimit
from twisted_exec.runtimes.serving.absences import Absences
from twisted_exec.runtimes.serving.resume_keys import Holder, ResumeKeys
from twisted_exec.streaming.interfaces import RESUMED, Ending, IResumableAttachment, Position
from twisted_exec.streaming.remotecommand.resumable import ResumableServer, Resumption
from twisted_exec.streaming.sessions.time_limits import LastInput
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.keys import digest as digest_of
from twisted_exec.wire.resume import UNCONFIRMED_SECONDS, Resumable, Resume

_MOST_REFUSALS = 10
_REFUSAL_SECONDS = 60.0
_MOST_REFUSED_USERS = 10_000
_MOST_USED_KEYS = 1 << 16
_SUPERSEDED = Ending(RESUMED, "this session goes on over another connection")


class KeptSession:
    """
    One session of a user at a machine.

    :ivar seconds: how long it waits for its user.
    :ivar stream: the present one; ``None`` before the first, and while the user is away.
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
        self.stream: KeptStream | None = None
        self._sessions, self._earlier = sessions, earlier
        self._last_input = LastInput(sessions.clock.seconds())
        self._settled = None if earlier else 0
        self._is_confirmed = self._had_stream = bool(earlier)  # the client has a key
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
    ) -> Resumption:
        """
        Return the beginning of a stream.

        :param session: the id of the stream.
        :param resume: the request to resume; ``None`` for a new session.
        """
        key, answer = self._sessions.issue(self, session)
        keys, position = {key: session}, None
        settled = self._settled if self.stream is None else self.stream.settled
        if resume is not None:
            # The old key stays valid until the client sends something: it may not have got the new
            # one.
            keys[digest_of(resume.key)] = resume.session
            position = resume.position
        stream = KeptStream(self, keys, key, live)
        return Resumption(answer, stream, position, settled, credit, self._last_input)

    # Called by streams.

    def connected(self, stream: KeptStream) -> None:
        """Use a stream in place of an older one."""
        older, self.stream = self.stream, stream
        self.use_keys(stream.keys)
        if self._had_stream:
            self._sessions.resumed(self, self._earlier)
        self._had_stream, self._earlier = True, b""
        if older is not None:
            older.supersede()

    def use_keys(self, keys: dict[bytes, str]) -> None:
        """Let these keys resume the session, and no others."""
        self._sessions.replace_keys(self, self._keys, keys)
        self._keys = keys

    def confirmed(self, stream: KeptStream) -> None:
        """The client has sent something over a stream, so it has the stream's key."""
        self._is_confirmed = True
        self.use_keys(stream.keys)

    def lost(self, stream: KeptStream) -> None:
        self._settled, self.stream = stream.settled, None
        self.attachment.away()
        sessions = self._sessions
        (sessions.absences if self._is_confirmed else sessions.unconfirmed).add(self)

    def give_up(self, reason: str) -> None:
        """End the session; called once."""
        self.stream = None
        self.use_keys({})
        self.attachment.detached(reason)


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
    One stream of a kept session: a :class:`.StreamSession`.

    :ivar keys: the keys that resume the session until the user sends something over this stream,
        by digest.
    """

    def __init__(
        self, session: KeptSession, keys: dict[bytes, str], key: bytes, live: LiveStream
    ) -> None:
        self.keys, self._key = keys, key
        self._session, self._live = session, live
        self._server: ResumableServer | None = None
        self._is_over = False

    @property
    def settled(self) -> int | None:
        assert self._server is not None
        return self._server.known_settled

    @property
    def _is_present(self) -> bool:
        return self._session.stream is self

    def supersede(self) -> None:
        """End the stream: the session has a newer one."""
        self._is_over = True
        self._live.end(_SUPERSEDED)

    # StreamSession

    def connected(self, stream: ResumableServer) -> None:
        self._server = stream
        self._session.connected(self)

    def heard(self) -> None:
        if self._is_present:
            self.keys = {self._key: self.keys[self._key]}
            self._session.confirmed(self)

    def lost(self) -> None:
        if self._is_present:
            self._is_over = True
            self._session.lost(self)

    def over(self, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            if self._session.stream in (self, None):
                self._session.give_up(reason)
