"""
Sessions that outlive their connections.

A :class:`KeptSession` stands between an attachment and the streams of its user, of which there is
one at a time.  When the stream is lost, the session waits for another one; when a newer stream comes
first, the older one ends.

A stream has a key, by which the next one finds the session.  The key by which a stream came stays
valid until its client sends something, because the client may not have got the new key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import APIError, NotFound, TooManyRequests
from twisted_exec.iri.request_cache import LiveStream
from twisted_exec.program.window_limit import WindowLimit
from twisted_exec.runtimes.serving.absences import Absences
from twisted_exec.runtimes.serving.attachments import Connection
from twisted_exec.runtimes.serving.resume_keys import Holder, ResumeKeys, digest
from twisted_exec.streaming.interfaces import (
    IResumableAttachment,
    Position,
    Subject,
)
from twisted_exec.streaming.remotecommand.resumable import Resumption
from twisted_exec.streaming.sessions.time_limits import LastInput
from twisted_exec.wire.resume import Resumable, Resume

if TYPE_CHECKING:
    from twisted_exec.runtimes.handover.bridged import Bridged

MOVING_SECONDS = 60
"""How long a session waits that a predecessor of this process has handed over."""

_MOST_REFUSALS = 10
_REFUSAL_SECONDS = 60.0
_MOST_REFUSED_USERS = 10_000
_MOST_USED_KEYS = 1 << 16


class KeptSession:
    """
    One session of a user at a machine.

    :param user: the user's name.
    :param machine: the UID to which keys are bound, see :class:`.Holder`.
    :param subject: the names of the machine.
    :param earlier: the digest of the key by which it is resumed, if it was in an earlier process.
    :ivar connection: the present stream; ``None`` before the first one, and while the user is away.
    :ivar bridged: the stream that a predecessor of this process serves, if the user cannot resume.
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
        self.attachment = attachment
        self.bridged: Bridged | None = None
        self.connection: Connection | None = None
        self._sessions, self._earlier = sessions, earlier
        self._last_input = LastInput(sessions.clock.seconds())
        self._settled = None if earlier else 0
        self._keys: dict[bytes, str] = {}

    @property
    def keys(self) -> Mapping[bytes, str]:
        """The digests of the keys that resume the session, each with the session id of its stream."""
        return self._keys

    @property
    def settled(self) -> int | None:
        """Settled pieces of input; ``None`` if unknown."""
        return self._settled if self.connection is None else self.connection.settled

    def restore(
        self, keys: Mapping[bytes, str], settled: int | None, *, is_away: bool = False
    ) -> None:
        """
        Continue a session of a predecessor, which waits for its next stream.

        :param is_away: its user was away before.
        """
        self._settled = settled
        self.use_keys(dict(keys))
        self._wait(is_moving=not is_away)

    def has_key(self, key: bytes, session: str) -> bool:
        """Return whether a key resumes this session, and was issued for a stream with this id."""
        return self._keys.get(key) == session

    def connect(
        self,
        session: str,
        live: LiveStream,
        ended: Callable[[], None],
        resume: Resume | None = None,
        credit: int = 0,
    ) -> tuple[Connection, Resumption]:
        """
        Create the attachment for a stream.

        :param session: the id of the stream's session, the same at all hops.
        :param live: ends the stream.
        :param ended: is called at the end of the stream.
        :param resume: the request to resume; ``None`` for a new session.
        :param credit: as of :class:`~twisted_exec.streaming.remotecommand.resumable.Resumption`.
        :return: the attachment, and the beginning of its stream.
        """
        key, answer = self._sessions.issue(self, session)
        keys, position, settled = {key: session}, None, self.settled
        if resume is not None:
            keys[digest(resume.key)] = resume.session
            position = resume.position
        connection = Connection(self, keys, key, settled, live, ended)
        return connection, Resumption(answer, position, settled, credit, self._last_input)

    def give_up(self, reason: str) -> None:
        """End the session; called once."""
        self.connection = None
        self.use_keys({})
        if self.bridged is not None:
            self.bridged.over()
        self.attachment.detached(reason)

    # Called by connections.

    def connected(self, connection: Connection, *, is_resumed: bool) -> None:
        """
        A stream is up; it takes the place of an older one.

        :param is_resumed: it is not the session's first one.
        """
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

    def lost(self, connection: Connection) -> None:
        """The present stream is lost."""
        self._settled, self.connection = connection.settled, None
        self.attachment.away()
        self._wait(is_moving=False)

    def _wait(self, *, is_moving: bool) -> None:
        # The limits of users do not concern the streams that a predecessor serves.
        is_moving = is_moving or self.bridged is not None
        (self._sessions.moving if is_moving else self._sessions.absences).add(self)


class KeptSessions:
    """
    The sessions of one stream server that can be resumed.

    :param clock: tells the time for the sessions, too.
    :param seconds: how long a session waits for its user; 0 if none can be resumed.
    :ivar absences: those that wait.
    :ivar moving: those that a predecessor of this process has handed over, and that it cuts.
    """

    def __init__(self, clock: IReactorTime, seconds: int, registry: CollectorRegistry) -> None:
        self.clock, self._seconds = clock, seconds
        self.absences = Absences(clock, seconds)
        self.moving = Absences(clock, max(seconds, MOVING_SECONDS), math.inf, math.inf)
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
        absent.set_function(lambda: float(len(self.absences) + len(self.moving)))

    def start(self, secret: bytes) -> None:
        """
        Accept the keys of earlier processes from now on, for as long as a session waits.

        :param secret: see :class:`.ResumeKeys`.
        """
        self._keys = ResumeKeys(secret)
        self._earlier_until = self.clock.seconds() + self._seconds

    def close(self, reason: str) -> None:
        """End the sessions that wait, and those whose streams are lost from now on."""
        self._earlier_until = 0.0
        self.absences.close(reason)
        self.moving.close(reason)

    def export(self) -> dict[str, Any]:
        """Return what another process needs to know besides the sessions, as JSON values."""
        return {
            "processes": [each.hex() for each in self._keys.processes],
            "earlierSeconds": max(0.0, self._earlier_until - self.clock.seconds()),
            "earlierUsed": [each.hex() for each in self._earlier_used],
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """
        Continue the sessions of a predecessor; called after :meth:`start`.

        :param values: see :meth:`export`.
        :raises ValueError: the values are not valid.
        """
        self._keys.succeed(bytes.fromhex(each) for each in values["processes"])
        self._earlier_until = self.clock.seconds() + float(values["earlierSeconds"])
        self._earlier_used = {bytes.fromhex(each) for each in values["earlierUsed"]}

    @property
    def all(self) -> Sequence[KeptSession]:
        """The sessions that can be resumed now."""
        return list(dict.fromkeys(self._by_key.values()))

    @property
    def is_enabled(self) -> bool:
        """Return whether sessions can be resumed."""
        return self._seconds > 0

    def new(
        self, user: str, machine: str, subject: Subject, attachment: IResumableAttachment
    ) -> KeptSession:
        """Create a session; the parameters are those of :class:`KeptSession`."""
        return KeptSession(self, user, machine, subject, attachment)

    def find(self, resume: Resume, user: str, machine: str) -> KeptSession | None:
        """Return the session that a user's request resumes; ``None`` if there is none in this process."""
        key = digest(resume.key)
        session = self._by_key.get(key)
        if session is None or (session.user, session.machine) != (user, machine):
            return None
        return session if session.has_key(key, resume.session) else None

    def find_earlier(self, resume: Resume, user: str, machine: str) -> Position | None:
        """
        Check a request to resume a session of an earlier process.

        :return: the position of the oldest output that the session may read; ``None`` if there is no
            such session.
        """
        if self.clock.seconds() >= self._earlier_until:
            self._earlier_used.clear()
            return None
        if digest(resume.key) in self._earlier_used or len(self._earlier_used) > _MOST_USED_KEYS:
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
        """
        Create the session that continues one of an earlier process.

        :param oldest: see :meth:`find_earlier`.
        """
        attachment.oldest = oldest
        return KeptSession(self, user, machine, subject, attachment, digest(resume.key))

    def waits_for(self, user: str, machine: str) -> bool:
        """Return whether a session of this user at this machine waits."""
        waiting = [*self.absences.of_user(user), *self.moving.of_user(user)]
        return any(isinstance(each, KeptSession) and each.machine == machine for each in waiting)

    def refusal(self, user: str) -> APIError:
        """Count a request that is refused, and return the error."""
        if self._refusals.allows(user, _MOST_REFUSALS):
            self._results.labels("refused").inc()
            return NotFound("exec", "", message="there is no such session to resume")
        self._results.labels("limited").inc()
        seconds = max(1, math.ceil(self._refusals.rest_seconds(user)))
        return TooManyRequests(
            "too many requests to resume sessions were refused", retry_after_seconds=seconds
        )

    # Called by sessions.

    def issue(self, session: KeptSession, id: str) -> tuple[bytes, Resumable]:
        """
        Issue a key.

        :param id: of the stream for which it is.
        :return: the digest of the key, and the answer to the client.
        """
        holder = Holder(session.user, session.machine, id)
        key = self._keys.issue(holder, session.attachment.oldest)
        return digest(key), Resumable(key, self._seconds or MOVING_SECONDS)

    def replace_keys(
        self, session: KeptSession, old: Mapping[bytes, str], new: Mapping[bytes, str]
    ) -> None:
        """Let other keys resume a session."""
        for each in old:
            self._by_key.pop(each, None)
        for each in new:
            self._by_key[each] = session

    def resumed(self, session: KeptSession, earlier: bytes) -> None:
        """
        Take note that a session has another stream.

        :param earlier: the digest of its key, if the session was in an earlier process.
        """
        self.absences.remove(session)
        self.moving.remove(session)
        if earlier:
            self._earlier_used.add(earlier)
        self._results.labels("restarted" if earlier else "resumed").inc()
