"""
One-time tokens for consoles, logs and recordings.

A token is the only credential that the stream server requires. So it has 256 random bits and a
short lifetime, works once and for one purpose, and is stored only as its SHA-256. An upgrade
request *reserves* a token; the completed upgrade uses it up, and a failed negotiation releases it.
A used token still identifies its open stream, so that its creator can end it.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import NotFound, TooManyRequests
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.wire.session_terms import Terms

EXEC, LOG, RECORDING = "exec", "log", "recording"
"""Purposes of a token."""

_TOKEN_BYTES = 32
_LONGEST_TOKEN = 128


@dataclass(frozen=True)
class Grant:
    """
    The rights of a token.

    :param machine_id: the runtime's id of the machine; for :data:`RECORDING` the UID of the
        recording.
    :param machine_uid: UID of the API object, or empty if unknown.
    :param user: the user who may use it, or empty if unknown.
    :param session: the session's id in audit records of every hop, or empty.
    """

    machine_id: str
    machine_uid: str = ""
    user: str = ""
    session: str = ""
    purpose: str = EXEC


@dataclass(frozen=True)
class StreamLinks:
    """
    URLs for tokens, which lead to the stream server of a runtime; empty for what it does not serve.

    :param is_awaited: returns whether a session at a machine waits for its user; called with the
        user's name, and the machine's UID or its id in the runtime.
    """

    exec_url: Callable[[str], str]
    log_url: Callable[[str], str] = lambda token: ""
    recording_url: Callable[[str], str] = lambda token: ""
    is_awaited: Callable[[str, str], bool] = lambda user, uid: False


class LiveStream(Protocol):
    """An open stream, such as a :class:`~twisted_exec.streaming.sessions.registry.Session`."""

    def end(self, ending: Ending) -> None:
        """End the stream with a reason."""

    def cut(self, why: str = "") -> None:
        """
        End the stream now, without a reason for its user.

        :param why: for the audit record.
        """

    def limit_to(self, ceiling: Terms) -> None:
        """Change the terms that the hop before holds the session to."""


class TokenReservation:
    """The hold of one request on a token, until :meth:`commit` or :meth:`release`."""

    def __init__(self, cache: RequestCache, digest: bytes, expires: float, grant: Grant) -> None:
        self.grant = grant
        self._cache, self._digest, self._expires = cache, digest, expires

    def commit(self, stream: LiveStream) -> None:
        """Use up the token, because the upgrade is complete."""
        self._cache._commit(self._digest, self.grant, stream)

    def release(self) -> None:
        """
        Make the token usable again until it expires: the upgrade failed, before or after commit.
        """
        self._cache._release(self._digest, self._expires, self.grant)

    def ended(self) -> None:
        """Note the end of the stream; to be called after :meth:`commit`."""
        self._cache._ended(self._digest)


class RequestCache:
    """
    Tokens that are outstanding, and the streams that were opened with one.

    :param ttl_seconds: from :meth:`insert` until a token expires.
    :param user_limit: outstanding tokens of one named user; by default a quarter of ``limit``.
    """

    def __init__(
        self,
        clock: IReactorTime,
        ttl_seconds: float = 60.0,
        limit: int = 1000,
        user_limit: int | None = None,
    ) -> None:
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._limit = limit
        self._user_limit = max(1, limit // 4) if user_limit is None else user_limit
        # Insertion order is order of expiry: every token lives equally long.
        self._waiting: dict[bytes, tuple[float, Grant]] = {}
        self._reserved: dict[bytes, Grant] = {}
        self._live: dict[bytes, tuple[Grant, LiveStream]] = {}
        self._held: Counter[str] = Counter()

    @property
    def outstanding(self) -> int:
        """Number of tokens, including reserved ones, without streams."""
        self._expire()
        return len(self._waiting) + len(self._reserved)

    def insert(self, grant: Grant) -> str:
        """
        Make a token.

        :return: URL-safe, 43 characters.
        :raises TooManyRequests: too many are outstanding, in all or for this user.
        """
        outstanding = self.outstanding
        if outstanding >= self._limit:
            raise TooManyRequests(
                f"{outstanding} consoles are waiting to be opened on this runtime, its limit",
                retry_after_seconds=self._until_free(lambda _: True),
            )
        if grant.user and self._held[grant.user] >= self._user_limit:
            raise TooManyRequests(
                f"{self._held[grant.user]} consoles of {grant.user!r} are waiting to be opened",
                retry_after_seconds=self._until_free(lambda other: other.user == grant.user),
            )
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._waiting[_digest(token)] = self._clock.seconds() + self._ttl_seconds, grant
        self._held[grant.user] += 1
        return token

    def reserve(
        self, token: str, *, user: str = "", machine_uid: str = "", purpose: str = EXEC
    ) -> TokenReservation:
        """
        Reserve a token for one request.

        :raises NotFound: the token is not usable for this request.
        """
        self._expire()
        digest = _digest(token)
        expires, grant = self._waiting.get(digest, (0.0, None))
        if grant is None or grant.purpose != purpose or not _agrees(grant, user, machine_uid):
            raise _unknown()
        del self._waiting[digest]
        self._reserved[digest] = grant
        return TokenReservation(self, digest, expires, grant)

    def stream(
        self, token: str, *, session: str = "", user: str = "", machine_uid: str = ""
    ) -> LiveStream:
        """
        Return the live stream that was opened with a token.

        :raises NotFound: there is none, or its session, user or machine is another.
        """
        grant, stream = self._live.get(_digest(token), (None, None))
        if grant is None or stream is None or not _same(grant.session, session):
            raise _unknown()
        if not (_same(grant.user, user) and _same(grant.machine_uid, machine_uid)):
            raise _unknown()
        return stream

    def forget_machine(self, machine_id: str) -> None:
        """Void the tokens of a machine that is gone, except reserved ones."""
        for digest, (_, grant) in list(self._waiting.items()):
            if grant.machine_id == machine_id:
                del self._waiting[digest]
                self._let_go(grant)

    def _commit(self, digest: bytes, grant: Grant, stream: LiveStream) -> None:
        if self._reserved.pop(digest, None) is not None:
            self._let_go(grant)
            self._live[digest] = grant, stream

    def _release(self, digest: bytes, expires: float, grant: Grant) -> None:
        if self._live.pop(digest, None) is not None:
            self._held[grant.user] += 1
        elif self._reserved.pop(digest, None) is None:
            return
        self._waiting[digest] = expires, grant
        self._waiting = dict(sorted(self._waiting.items(), key=lambda item: item[1][0]))

    def _ended(self, digest: bytes) -> None:
        self._live.pop(digest, None)

    def _expire(self) -> None:
        now = self._clock.seconds()
        while self._waiting:
            digest, (expires, grant) = next(iter(self._waiting.items()))
            if expires > now:
                return
            del self._waiting[digest]
            self._let_go(grant)

    def _let_go(self, grant: Grant) -> None:
        self._held[grant.user] -= 1
        if not self._held[grant.user]:
            del self._held[grant.user]

    def _until_free(self, counts: Callable[[Grant], bool]) -> int:
        for expires, grant in self._waiting.values():
            if counts(grant):
                return max(1, math.ceil(expires - self._clock.seconds()))
        return 1


def _digest(token: str) -> bytes:
    # The time to look up a digest reveals nothing about the token.
    return hashlib.sha256(token[:_LONGEST_TOKEN].encode("utf-8", "replace")).digest()


def _agrees(grant: Grant, user: str, machine_uid: str) -> bool:
    """
    Return whether a request names the user and UID of the token.

    The hop that named them in the Exec names them again; a thief of the token alone cannot.
    """
    return grant.user in ("", user) and grant.machine_uid in ("", machine_uid)


def _same(granted: str, reported: str) -> bool:
    return not granted or not reported or granted == reported


def _unknown() -> NotFound:
    return NotFound("exec", "", message="unknown exec token: used, expired or mistyped")
