"""
Headers and queries between hops: the id of a session, the UID of its machine, its terms, and its ending.

A hop that ends a session sends the reason *beside* the stream: as the query of a ``DELETE`` of the
path that opened the stream. The modules that end sessions word the reason: for a lost connection
behind this hop, :mod:`twisted_exec.streaming.splice`.

A session that its user resumes, because a hop restarts, has ``restarts=`` in place of ``session=``: release 0.2.0 refuses
that, and would end the session for any reason that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import quote_plus, unquote, urlencode

from twisted.web.iweb import IRequest

from twisted_exec.api.obstacles import named_obstacles
from twisted_exec.api.status import BadRequest
from twisted_exec.streaming.interfaces import INTERNAL, RESTARTING, UID_HEADER, USER_LEFT, Ending
from twisted_exec.wire.endings import HOP_REASONS, MOST_CAUSES
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.keys import SESSION
from twisted_exec.wire.session_terms import FULL, TERMS_HEADER, Terms, parse_terms, stricter
from twisted_exec.wire.upgrade import Headers, last_value

_REASONS = HOP_REASONS | {USER_LEFT, RESTARTING}
_SESSION, _RESTARTS = b"session", b"restarts"
_MAX_MESSAGE = 512
_ENDINGS = 256
"""Number of endings whose encoded form is cached."""


def forwarded_session_id(request: IRequest) -> str | None:
    """
    Return the session's id from the previous hop (``Audit-Id``); ``None`` without a valid id.

    A gate decides later whether the sender of the request may choose it.
    """
    return _session_id(request.requestHeaders.getRawHeaders(b"audit-id", [b""])[-1])


def forwarded_machine_uid(request: IRequest) -> str:
    """Return the UID of the machine that the previous hop means, or empty."""
    value: bytes = request.requestHeaders.getRawHeaders(UID_HEADER, [b""])[-1]
    return unquote(value.decode("ascii", "replace"))


def session_id(headers: Headers) -> str | None:
    """Return the id of a session at the next hop, from its answer."""
    return _session_id(last_value(headers, b"audit-id"))


def _session_id(value: bytes) -> str | None:
    text = value.decode("ascii", "replace")
    return text if is_session_id(text) else None


def is_session_id(text: str) -> bool:
    """Return whether a text can be the id of a session."""
    return SESSION.match(text) is not None


def ending_query(session: str, ending: Ending) -> bytes:
    """Return the query of the ``DELETE`` that ends a session at the next hop."""
    name = _RESTARTS if ending.reason == RESTARTING else _SESSION
    return b"%b=%b&%b" % (name, quote_plus(session).encode("ascii"), _ending_fields(ending))


@lru_cache(maxsize=_ENDINGS)
def _ending_fields(ending: Ending) -> bytes:
    fields = [("reason", ending.reason), ("message", ending.message[:_MAX_MESSAGE])]
    fields += [("user", ending.user[:_MAX_MESSAGE])] if ending.user else []
    fields += [("cause", each) for each in ending.causes]
    return urlencode(fields).encode("ascii")


def parse_ending(args: Mapping[bytes, list[bytes]]) -> tuple[str, Ending]:
    """
    Read the query of a ``DELETE`` that ends a session.

    :return: the session's id and the ending; an unknown reason becomes ``INTERNAL``, and unknown causes are left out.
    :raises BadRequest: the query names no session.
    """
    fields = {
        name: args.get(name.encode(), [b""])[0].decode("utf-8", "replace")
        for name in ("session", "reason", "message", "user")
    }
    if _RESTARTS in args:
        session = args[_RESTARTS][0].decode("ascii", "replace")
        fields |= {"session": session, "reason": RESTARTING}
    if not is_session_id(fields["session"]):
        raise BadRequest("which session is to end? the query has no valid session=")
    causes = named_obstacles(each.decode("ascii", "replace") for each in args.get(b"cause", ()))
    ending = _ending(fields["reason"], _line(fields["message"]), causes, _line(fields["user"]))
    return fields["session"], ending


@lru_cache(maxsize=_ENDINGS)
def _ending(reason: str, message: str, causes: tuple[str, ...], user: str) -> Ending:
    known = reason if reason in _REASONS else INTERNAL
    return Ending(known, message, causes=causes[:MOST_CAUSES], user=user)


def _line(text: str) -> str:
    return "".join(char for char in text[:_MAX_MESSAGE] if char.isprintable())


_MOST = 4
"""Headers of one request; a hop sends one."""


def terms_query(session: str, terms: Terms) -> bytes:
    """Return the query of the ``PATCH`` that changes the terms of a session at the next hop."""
    return urlencode({"session": session, "terms": terms.text()}).encode("ascii")


def parse_terms_query(args: Mapping[bytes, list[bytes]]) -> tuple[str, Terms]:
    """
    Read the query of a ``PATCH`` that changes the terms of a session.

    :raises BadRequest: the query names no session, or this release cannot read the terms.
    """
    session, text = (
        args.get(name, [b""])[0].decode("ascii", "replace") for name in (b"session", b"terms")
    )
    if not is_session_id(session):
        raise BadRequest("the query has no valid session= for the terms to apply to")
    return session, _parsed(text)


def terms_headers(request: IRequest) -> Sequence[bytes]:
    """Return the values of ``X-Twisted-Exec-Terms``."""
    values: Sequence[bytes] = request.requestHeaders.getRawHeaders(TERMS_HEADER.encode(), [])
    return values


def forwarded_terms(values: Sequence[bytes]) -> Terms:
    """
    Return the terms that the previous hop holds the session to.

    Terms only restrict, so they count for every sender.

    :raises BadRequest: there are too many headers, or this release cannot read them.
    """
    if len(values) > _MOST:
        raise BadRequest(f"a request has at most {_MOST} headers {TERMS_HEADER}")
    terms = FULL
    for value in values:
        terms = stricter(terms, _parsed(value.decode("ascii", "replace")))
    return terms


def confirmed_terms(headers: Headers) -> Terms:
    """Return the terms that the next hop has confirmed, or ``FULL``."""
    text = last_value(headers, TERMS_HEADER.encode()).decode("ascii", "replace")
    try:
        return parse_terms(text) if text else FULL
    except RemoteProtocolError:
        return FULL


def _parsed(text: str) -> Terms:
    try:
        return parse_terms(text)
    except RemoteProtocolError as problem:
        raise BadRequest(str(problem)) from None
