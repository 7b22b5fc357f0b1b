"""
Headers between hops for resuming sessions and rejoining streams.

They contain secret keys, so they are neither logged nor recorded. Pages in browsers cannot set
headers: :mod:`twisted_exec.streaming.http.browser_websocket` reads theirs from a subprotocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from twisted.web.iweb import IRequest

from twisted_exec.api.status import BadGateway, BadRequest
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.rejoin import REJOIN_HEADER, Rejoin, Rejoinable, parse_rejoin
from twisted_exec.wire.resume import RESUME_HEADER, Resumable, Resume, parse_credit, parse_request
from twisted_exec.wire.upgrade import Headers, last_value

RESUME = RESUME_HEADER.encode("ascii")
REJOIN = REJOIN_HEADER.encode("ascii")
CANNOT_RESUME = "this console cannot resume a session"
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True)
class RequestedResumption:
    """
    The header of a client that can resume sessions.

    :param value: for the next hop: without the machine, which has another UID in another cluster.
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
    fields = [each.strip() for each in values[0].split(b";")]
    value = b"; ".join(each for each in fields if not each.startswith(b"machine="))
    return RequestedResumption(value, resume, _only(RESUME_HEADER, values, parse_credit))


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
