"""
Sessions between hops: ids, terms, resumption and endings, in headers and queries.

A hop that ends a session sends the reason *beside* the stream: as the query of a ``DELETE`` of the
path that opened the stream.  Headers for resuming and rejoining contain secret keys, so they are
neither logged nor recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar
from urllib.parse import quote_plus, unquote, urlencode

from twisted.web.iweb import IRequest

from twisted_exec.api.status import BadGateway, BadRequest
from twisted_exec.streaming.interfaces import INTERNAL, UID_HEADER, USER_LEFT, Ending
from twisted_exec.wire.control_messages import HOP_REASONS
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.keys import SESSION
from twisted_exec.wire.resume import (
    REJOIN_HEADER,
    RESUME_HEADER,
    Rejoin,
    Rejoinable,
    Resumable,
    Resume,
    parse_credit,
    parse_rejoin,
    parse_request,
)
from twisted_exec.wire.session_terms import FULL, TERMS_HEADER, Terms, parse_terms, stricter
from twisted_exec.wire.upgrade import Headers, last_value

_REASONS = HOP_REASONS | {USER_LEFT}
_MAX_MESSAGE = 512
_ENDINGS = 256
"""Number of endings whose encoded form is cached."""
_MOST = 4
"""Headers of one request; a hop sends one."""
RESUME = RESUME_HEADER.encode("ascii")
REJOIN = REJOIN_HEADER.encode("ascii")
CANNOT_RESUME = "this console cannot resume a session"
_Parsed = TypeVar("_Parsed")


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
    return b"session=%b&%b" % (quote_plus(session).encode("ascii"), _ending_fields(ending))


@lru_cache(maxsize=_ENDINGS)
def _ending_fields(ending: Ending) -> bytes:
    message = ending.message[:_MAX_MESSAGE]
    return urlencode({"reason": ending.reason, "message": message}).encode("ascii")


def parse_ending(args: Mapping[bytes, list[bytes]]) -> tuple[str, Ending]:
    """
    Read the query of a ``DELETE`` that ends a session.

    :return: the session's id and the ending; an unknown reason becomes ``INTERNAL``.
    :raises BadRequest: the query names no session.
    """
    fields = {
        name: args.get(name.encode(), [b""])[0].decode("utf-8", "replace")
        for name in ("session", "reason", "message")
    }
    if not is_session_id(fields["session"]):
        raise BadRequest("which session is to end? the query has no valid session=")
    return fields["session"], _ending(fields["reason"], fields["message"][:_MAX_MESSAGE])


@lru_cache(maxsize=_ENDINGS)
def _ending(reason: str, message: str) -> Ending:
    printable = "".join(char for char in message if char.isprintable())
    return Ending(reason if reason in _REASONS else INTERNAL, printable)


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


@dataclass(frozen=True)
class RequestedResumption:
    """
    The header of a client that can resume sessions.

    :param resume: the session to resume; ``None`` for a new one.
    :param credit: bytes of output that the client accepts beyond those that it has taken; 0 for any
        number.
    """

    value: bytes = field(repr=False)
    resume: Resume | None
    credit: int = 0

    @property
    def session(self) -> str:
        """The id of the session to resume; empty for a new one."""
        return self.resume.session if self.resume is not None else ""


def resume_headers(request: IRequest) -> Sequence[bytes]:
    """Return the values of the header for resuming sessions."""
    return _values(request, RESUME)


def requested_resumption(values: Sequence[bytes]) -> RequestedResumption | None:
    """
    Read the header of a request that can resume sessions; ``None`` without the header.

    :raises BadRequest: the header is not valid.
    """
    if not values:
        return None
    resume = _only(RESUME_HEADER, values, parse_request)
    return RequestedResumption(values[0], resume, _only(RESUME_HEADER, values, parse_credit))


def confirmed_resumption(headers: Headers) -> Resumable | None:
    """
    Read the server's answer to a client that can resume sessions; ``None`` without one.

    :raises BadGateway: the header is not valid.
    """
    value = last_value(headers, RESUME)
    if not value:
        return None
    try:
        return Resumable.parse(value.decode("ascii", "replace"))
    except RemoteProtocolError as problem:
        raise BadGateway(f"the server's answer is not valid: {problem}") from None


def rejoin_headers(request: IRequest) -> Sequence[bytes]:
    """Return the values of the header for rejoining streams."""
    return _values(request, REJOIN)


def requested_rejoin(values: Sequence[bytes]) -> tuple[bool, Rejoin | None]:
    """
    Read the header of a request from a hop that rejoins streams.

    :return: whether the previous hop offers to rejoin the stream, and the stream that it rejoins.
    :raises BadRequest: the header is not valid.
    """
    if not values:
        return False, None
    rejoins = _only(REJOIN_HEADER, values, parse_rejoin)
    return rejoins is None, rejoins


def accepted_offer(value: bytes) -> Rejoinable | None:
    """Return the answer of the machine's end to an offer; ``None`` without a valid answer."""
    try:
        return Rejoinable.parse(value.decode("ascii", "replace"))
    except RemoteProtocolError:
        return None


def _values(request: IRequest, name: bytes) -> Sequence[bytes]:
    raw: Sequence[bytes] = request.requestHeaders.getRawHeaders(name, ())
    return raw


def _only(header: str, values: Sequence[bytes], parse: Callable[[str], _Parsed]) -> _Parsed:
    if len(values) > 1:
        raise BadRequest(f"a request has at most one header {header}")
    try:
        return parse(values[0].decode("ascii", "replace"))
    except RemoteProtocolError as problem:
        raise BadRequest(str(problem)) from None
