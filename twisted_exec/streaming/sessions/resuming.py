"""
Resuming sessions: the header ``X-Twisted-Exec-Resume`` between hops.

See :mod:`twisted_exec.wire.resume`.  Its value has a key, so it is neither logged nor recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from twisted.web.iweb import IRequest

from twisted_exec.api.status import BadGateway, BadRequest
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.resume import (
    RESUME_HEADER,
    Resumable,
    Resume,
    parse_answer,
    parse_request,
)

HEADER = RESUME_HEADER.encode("ascii")

CANNOT_RESUME = "this console cannot resume a session"


@dataclass(frozen=True)
class Resumption:
    """
    The header of a client that can resume sessions.

    :param value: of the header, as sent.
    :param resume: the session to resume; ``None`` for a new one.
    """

    value: bytes = field(repr=False)
    resume: Resume | None

    @property
    def session(self) -> str:
        """The id of the session to resume; empty for a new one."""
        return self.resume.session if self.resume is not None else ""


def resume_headers(request: IRequest) -> Sequence[bytes]:
    """Return the values of the header of a request."""
    values: Sequence[bytes] = request.requestHeaders.getRawHeaders(HEADER, ())
    return values


def requested_resumption(values: Sequence[bytes]) -> Resumption | None:
    """
    Read the header of a request.

    :param values: see :func:`resume_headers`.
    :return: ``None`` without the header.
    :raises BadRequest: it is not valid.
    """
    if not values:
        return None
    if len(values) > 1:
        raise BadRequest(f"a request has at most one header {RESUME_HEADER}")
    try:
        resume = parse_request(values[0].decode("ascii", "replace"))
    except RemoteProtocolError as problem:
        raise BadRequest(str(problem)) from None
    return Resumption(values[0], resume)


def confirmed_resumption(headers: Iterable[tuple[bytes, bytes]]) -> Resumable | None:
    """
    Read the header of the next hop's answer.

    :return: ``None`` without the header: the session cannot be resumed.
    :raises BadGateway: it is not valid.
    """
    values = [value for name, value in headers if name.lower() == HEADER.lower()]
    if not values:
        return None
    try:
        return parse_answer(values[-1].decode("ascii", "replace"))
    except RemoteProtocolError as problem:
        raise BadGateway(f"the next hop's answer is not valid: {problem}") from None
