"""
Sessions of this process whose streams a predecessor serves.

A stock client cannot resume its session, so its stream stays in the process that it was opened in.
That process is the client of the session here, by the protocol with which our own clients resume
theirs.  Other hops know the session by the tokens with which the stream was opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from twisted_exec.iri.request_cache import Grant, RequestCache, grant_from
from twisted_exec.streaming.enduring_streams import Owner
from twisted_exec.streaming.interfaces import USER_LEFT, Ending, Subject
from twisted_exec.streaming.sessions.session import Session
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.session_terms import Terms, parse_terms


class Bridged:
    """
    A stream that another process of this runtime serves, for the hops that end or limit it.

    :param cache: gets the tokens of the stream.
    :param tokens: the digests of the tokens that name the stream, each with its grant.
    :param terms: those of the session.
    :param rejoin: the digest of the key with which the hop before rejoins the stream, in hexadecimal
        digits; empty if it cannot.
    :param socket: path of the socket at which the process accepts that; empty if it does not.
    """

    def __init__(
        self,
        cache: RequestCache,
        subject: Subject,
        tokens: Sequence[tuple[bytes, Grant]],
        terms: Terms,
        rejoin: str = "",
        socket: str = "",
    ) -> None:
        self.subject, self.rejoin, self.socket = subject, rejoin, socket
        self._cache, self._tokens, self._terms = cache, list(tokens), terms
        self.is_over = False
        self._live: Session | None = None
        self._ending: Ending | None = None
        for digest, grant in tokens:
            cache.expect(digest, grant, self)

    @classmethod
    def restore(cls, cache: RequestCache, values: Mapping[str, Any]) -> Bridged:
        """
        Continue the stream of a predecessor.

        :param values: from :func:`values_of`.
        :raises ValueError: they are not valid.
        """
        tokens = [(bytes.fromhex(each), grant_from(grant)) for each, grant in values["tokens"]]
        try:
            terms = parse_terms(values["terms"])
            subject = Subject(**values["subject"])
        except (RemoteProtocolError, TypeError) as problem:
            raise ValueError(str(problem)) from None
        return cls(cache, subject, tokens, terms, values["rejoin"], values["socket"])

    def export(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return values_of(self.subject, self._tokens, self.terms, self.rejoin, self.socket)

    @property
    def terms(self) -> Terms:
        """The terms of the session at present."""
        return self._terms if self._live is None else self._live.terms

    def opened(self, live: Session) -> None:
        """The other process has a connection to the session."""
        self._live = live
        if self._ending is not None:
            live.end(self._ending)

    def closed(self, live: Session) -> None:
        """The other process has lost its connection to the session."""
        if live is self._live:
            self._terms, self._live = live.terms, None

    def add_token(self, digest: bytes, grant: Grant) -> None:
        """Take note of one more token, with which the stream was rejoined."""
        self._tokens.append((digest, grant))
        self._cache.expect(digest, grant, self)

    @property
    def owner(self) -> Owner:
        """The session, user and machine of the stream."""
        return Owner(self.subject.session, self.subject.user, self.subject.uid)

    def over(self) -> None:
        """The session is over."""
        self.is_over = True
        for digest, _ in self._tokens:
            self._cache.forget(digest)

    # LiveStream

    def end(self, ending: Ending) -> None:
        """End the session with a reason, now or when the other process is connected."""
        self._ending = ending
        if self._live is not None:
            self._live.end(ending)

    def cut(self, why: str = "") -> None:
        """End the session: its user has left."""
        self.end(Ending(USER_LEFT, "the user has left"))

    def limit_to(self, ceiling: Terms) -> None:
        """Change the terms that the hop before holds the session to."""
        self._terms = ceiling
        if self._live is not None:
            self._live.limit_to(ceiling)


def values_of(
    subject: Subject,
    tokens: Sequence[tuple[bytes, Grant]],
    terms: Terms,
    rejoin: str,
    socket: str,
) -> dict[str, Any]:
    """Return the parameters of :class:`Bridged` as JSON values."""
    return {
        "subject": asdict(subject),
        "tokens": [[digest.hex(), asdict(grant)] for digest, grant in tokens],
        "terms": terms.text(),
        "rejoin": rejoin,
        "socket": socket,
    }
