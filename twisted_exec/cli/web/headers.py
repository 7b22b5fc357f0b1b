"""
The headers that pass between the page and the API server; no others do.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted_exec.api.status import BadRequest
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import header_pairs
from twisted_exec.streaming.interfaces import IDENTITY_HEADERS
from twisted_exec.web.static import protect
from twisted_exec.wire.upgrade import HeaderSet, forwarded_request_headers

_REQUEST = HeaderSet.of(
    "Accept",
    "Accept-Encoding",
    "Content-Type",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Unmodified-Since",
    "Range",
)
_HANDSHAKE = HeaderSet.of(prefixes=["Sec-WebSocket-"])

_ANSWER = HeaderSet.of(
    "Accept-Ranges",
    "Audit-Id",
    "Console-Log",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Range",
    "Content-Type",
    "ETag",
    "Last-Modified",
    "Retry-After",
    "Vary",
    "Warning",
    prefixes=["X-Kubernetes-", "X-Twisted-Exec-"],
)
"""No cookies, no policies, no other sites' rights, and nothing that makes a browser ask for a password."""


def request_headers(request: Request) -> list[tuple[bytes, bytes]]:
    """
    Return the headers of a request for the API server; the identity is not among them.

    :raises BadRequest: a value is not ASCII.
    """
    return _passed(request, _REQUEST)


def handshake_headers(request: Request) -> list[tuple[bytes, bytes]]:
    """Return the headers of a WebSocket's handshake, without our token."""
    return _passed(request, _HANDSHAKE)


def _passed(request: Request, names: HeaderSet) -> list[tuple[bytes, bytes]]:
    pairs = forwarded_request_headers(header_pairs(request.requestHeaders), IDENTITY_HEADERS)
    passed = [(name, value) for name, value in pairs if name in names]
    if not all(value.isascii() for _, value in passed):
        raise BadRequest("a header of the request cannot be passed on: it is not ASCII")
    return passed


def set_answer_headers(request: Request, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Set the headers of the answer to the page."""
    for name, value in headers:
        if name in _ANSWER:
            request.responseHeaders.addRawHeader(name, value)
    set_own_headers(request)


def set_own_headers(request: Request) -> None:
    """Set the headers of answers outside the page's files, which are not to be stored."""
    protect(request.responseHeaders)
    request.setHeader(b"Cache-Control", b"no-store")
