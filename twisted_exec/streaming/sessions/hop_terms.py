"""
The terms of a session between hops.

The request that opens a session has them in a header; a ``PATCH`` that changes them has them in its
query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from twisted.web.iweb import IRequest

from twisted_exec.api.status import BadRequest
from twisted_exec.streaming.sessions.hop_messages import is_session_id
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.session_terms import FULL, TERMS_HEADER, Terms, parse_terms, stricter
from twisted_exec.wire.upgrade import Headers, last_value

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
