"""
Headers of hops: to resume a client's session, and to rejoin a stream behind its client's back.

See :mod:`twisted_exec.wire.resume` and :mod:`twisted_exec.wire.rejoin`.  Their values have keys, so
they are neither logged nor recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from twisted.web.iweb import IRequest

from twisted_exec.api.status import BadGateway, BadRequest
from twisted_exec.wire import rejoin
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.rejoin import REJOIN_HEADER, Rejoin, Rejoinable
from twisted_exec.wire.resume import (
    RESUME_HEADER,
    Resumable,
    Resume,
    parse_answer,
    parse_credit,
    parse_request,
)
from twisted_exec.wire.upgrade import Headers, last_value

RESUME = RESUME_HEADER.encode("ascii")
REJOIN = REJOIN_HEADER.encode("ascii")

CANNOT_RESUME = "this console cannot resume a session"

_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True)
class Resumption:
    """
    The header of a client that can resume sessions.

    :param value: of the header, as sent.
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
    """Return the values of the header of a request that can resume sessions."""
    return _values(request, RESUME)


def requested_resumption(values: Sequence[bytes]) -> Resumption | None:
    """
    Read the header of a request that can resume sessions.

    :param values: see :func:`resume_headers`.
    :return: ``None`` without the header.
    :raises BadRequest: it is not valid.
    """
    if not values:
        return None
    resume = _only(RESUME_HEADER, values, parse_request)
    return Resumption(values[0], resume, _only(RESUME_HEADER, values, parse_credit))


def confirmed_resumption(headers: Headers) -> Resumable | None:
    """
    Read the header of the next hop's answer to a client that can resume sessions.

    :return: ``None`` without the header: the session cannot be resumed.
    :raises BadGateway: it is not valid.
    """
    value = last_value(headers, RESUME)
    if not value:
        return None
    try:
        return parse_answer(value.decode("ascii", "replace"))
    except RemoteProtocolError as problem:
        raise BadGateway(f"the next hop's answer is not valid: {problem}") from None


def rejoin_headers(request: IRequest) -> Sequence[bytes]:
    """Return the values of the header of a request from a hop that rejoins streams."""
    return _values(request, REJOIN)


def requested_rejoin(values: Sequence[bytes]) -> tuple[bool, Rejoin | None]:
    """
    Read the header of a request from a hop that rejoins streams.

    :param values: see :func:`rejoin_headers`.
    :return: whether the hop before offers to rejoin the stream, and the stream that it rejoins.
    :raises BadRequest: the header is not valid.
    """
    if not values:
        return False, None
    rejoins = _only(REJOIN_HEADER, values, rejoin.parse_request)
    return rejoins is None, rejoins


def accepted_offer(value: bytes) -> Rejoinable | None:
    """Return the machine's end's answer to an offer; ``None`` if it does not accept."""
    try:
        return rejoin.parse_offer_answer(value.decode("ascii", "replace"))
    except RemoteProtocolError:
        return None


def _values(request: IRequest, name: bytes) -> Sequence[bytes]:
    raw: Sequence[bytes] = request.requestHeaders.getRawHeaders(name, ())
    return raw


def _only(header: str, values: Sequence[bytes], parse: Callable[[str], _Parsed]) -> _Parsed:
    """
    Parse the header, which a request has once.

    :raises BadRequest: the request has several, or the value is not valid.
    """
    if len(values) > 1:
        raise BadRequest(f"a request has at most one header {header}")
    try:
        return parse(values[0].decode("ascii", "replace"))
    except RemoteProtocolError as problem:
        raise BadRequest(str(problem)) from None
