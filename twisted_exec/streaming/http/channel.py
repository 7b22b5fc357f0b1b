"""
One connection of a client, with limits.

twisted.web trusts its clients in three ways that we do not.  Its timeout restarts with every byte,
so a client that sends one byte a minute keeps its connection for ever; it reads bodies of any size;
and it answers bad requests with text that kubectl cannot display.  :class:`Channel` gives each
stage of a request an *absolute* deadline, refuses a body that is too large before buffering it, and
answers with JSON ``Status`` documents.  It handles one pipelined request in a turn of the reactor.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.http_headers import Headers
from zope.interface import implementer

from twisted_exec.api.status import (
    APIError,
    BadRequest,
    RequestEntityTooLarge,
    RequestTimeout,
    ServiceUnavailable,
)
from twisted_exec.streaming.flow import close_behind, unread
from twisted_exec.streaming.http.responses import render
from twisted_exec.tls.deadlines import Deadline
from twisted_exec.tls.turns import SLICE_BYTES, IFramed

if TYPE_CHECKING:
    from twisted_exec.streaming.http.request import Request
    from twisted_exec.streaming.http.site import Site

MAX_HEAD_BYTES = 64 << 10
"""Limit for request line and headers.  Tokens with many groups exceed twisted.web's 16 KiB."""

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that RFC 9110 section 5.5 forbids in field values; and nobody needs in a request line."""

_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")
"""Characters of ``uri-host [":" port]``, as Go's ``httpguts.ValidHostHeader``."""

_EAGER_BYTES = 16 << 10
"""Limit for pipelined requests that arrive before the current one is answered."""

_LINES_BYTES = 1 << 10
"""
Bytes of a head that are handled at once.  Requests have many lines, and one in a turn is the limit
anyway.
"""

_TOGETHER_BYTES = 64 << 10
"""Largest body that is copied in order to be written together with its head."""


class _HeadCollector:
    """Collects a head, to be written together with its body."""

    def __init__(self, parts: list[bytes]) -> None:
        self.writeSequence = parts.extend


class RequestHeaderFieldsTooLarge(APIError):
    """The request line and headers exceed :data:`MAX_HEAD_BYTES` (431)."""

    code, reason = 431, "RequestHeaderFieldsTooLarge"


@implementer(IFramed)
class Channel(http.HTTPChannel):
    """
    One connection, with one deadline at a time.

    :ivar refused: the request was answered before it was complete; further input is discarded.
    :ivar stalled: a long response waits for the client.

    Deadlines: ``idle_seconds`` for the first byte of a further request; ``header_seconds`` from
    the connection or that byte to the end of the headers, or once more from there if the TLS
    handshake, which has a limit of its own, was still under way then;
    ``body_seconds`` from there to the end of the body.  None while a handler works on a request.
    """

    site: Site
    transport: Any
    _networkProducer: Any
    totalHeadersSize = MAX_HEAD_BYTES
    MAX_LENGTH = MAX_HEAD_BYTES
    _deadline: Deadline | None = None
    _begun = False
    _unread: http.Request | None = None
    refused = False
    stalled = False
    _has_buffered = False  # some of its bytes have counted in a budget of the site
    _head_bytes = 0
    _head: list[bytes] | None = None

    def connectionMade(self) -> None:
        super().connectionMade()
        self.site.connections[self] = None
        self._arm(self.site.header_seconds)

    def dataReceived(self, data: bytes) -> None:
        # A client that has left gets no response; the requests behind are not carried out.
        if self.refused or not getattr(self.transport, "connected", True):
            return
        self._begin()
        super().dataReceived(data)
        if b"\n" in data and self._has_bare_line_feed():
            self._respondToBadRequestAndDisconnect()

    def _has_bare_line_feed(self) -> bool:
        """
        Return whether a line that has arrived is not ended by CR LF.

        Twisted waits for CR LF, so such a client would wait for its deadline without an answer.
        """
        is_elsewhere = self._busyReceiving or self.paused or self.refused or not self.line_mode
        return not is_elsewhere and not self.transport.disconnecting and b"\n" in self._buffer

    def frame_rest(self) -> int | None:
        if self.refused or self._handlingRequest:
            return None  # discarded, or buffered
        if self.line_mode:
            return _LINES_BYTES - SLICE_BYTES
        body: Any = self._transferDecoder
        if isinstance(body, http._ChunkedTransferDecoder):
            return body.length if body.state == "BODY" else 0
        rest: int | None = body.contentLength
        return rest

    def _begin(self) -> None:
        """Start the deadline at the first bytes of a request."""
        if not self._begun and not self._handlingRequest:
            self._begun = True
            self._arm(self.site.header_seconds)

    def lineReceived(self, line: bytes) -> None:
        if self.refused:
            return
        self._begin()  # a pipelined request starts here, without dataReceived
        self._head_bytes += len(line)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.lineLengthExceeded(line)
        elif _CONTROL.search(line) or line.startswith((b" ", b"\t")):
            # twisted.web refuses only NUL; other controls would reach the next hop or a terminal.
            # It unfolds lines; a proxy in front may take them for something else (RFC 9112, 5.2).
            self._respondToBadRequestAndDisconnect()
        else:
            super().lineReceived(line)

    def lineLengthExceeded(self, line: bytes) -> None:
        self.refuse(
            RequestHeaderFieldsTooLarge(
                f"the request's headers are larger than {MAX_HEAD_BYTES} bytes"
            )
        )

    def rawDataReceived(self, data: bytes) -> None:
        if self.refused:
            return
        super().rawDataReceived(data)
        if self._handlingRequest and sum(map(len, self._dataBuffer)) > _EAGER_BYTES:
            # twisted.web does not pause while it waits for the transport, and buffers without limit.
            self._networkProducer.pauseProducing()

    def allHeadersReceived(self) -> None:
        self._head_bytes = 0
        if self.refused:
            return
        problem = _ambiguity(self.requests[-1].requestHeaders, self._version)
        if problem:
            self.refuse(BadRequest(problem))
            return
        if self.length is not None and self.length > self.site.max_body_bytes:
            self.refuse(self.too_large())
            return
        self._arm(self.site.body_seconds)
        super().allHeadersReceived()

    def allContentReceived(self) -> None:
        if not self.refused:
            self._disarm()
            if self._has_buffered:
                self.site.receiving.release(self)
            super().allContentReceived()

    def checkPersistence(self, request: http.Request, version: bytes) -> bool:
        if self.site.closing:
            request.responseHeaders.setRawHeaders(b"Connection", [b"close"])
            return False
        return cast(bool, super().checkPersistence(request, version))

    def requestDone(self, request: http.Request) -> None:
        self._begun = False
        self._arm(self.site.idle_seconds)
        if self._waitingForTransport and self.persistent:
            # Pipelined requests would be answered into the same full buffer.
            self._unread = request
        else:
            self._finish(request)

    def _finish(self, request: http.Request) -> None:
        """Finish a request; a pipelined one is handled in a later turn."""
        rest = b"".join(self._dataBuffer) + self.clearLineBuffer()
        self._dataBuffer = []
        super().requestDone(request)
        if rest and self.persistent:
            unread(self.transport, self, rest, later=True)

    def received(self, length: int) -> None:
        """Account for a part of a body: it occupies memory until the body is complete."""
        self._has_buffered = True
        self.site.receiving.keep(self, length)

    def answered(self, length: int) -> None:
        """Account for a written response: it occupies memory until the client reads it."""
        if self._waitingForTransport:
            self._has_buffered = True
            self.site.unread.keep(self, length)

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self.site.unread.release(self)
        request, self._unread = self._unread, None
        if request is not None:
            self._finish(request)

    @property
    def evictable(self) -> bool:
        """Return whether no handler works for this client: it is silent, or sends or reads slowly."""
        return self.refused or not self._handlingRequest or self._unread is not None or self.stalled

    def evict(self) -> None:
        """Close to make room for other clients."""
        self.leave()
        self.transport.abortConnection()

    def too_long(self) -> None:
        """Refuse this body, the oldest of too many that are being received."""
        self.refuse(
            ServiceUnavailable("too many requests are being received", retry_after_seconds=1)
        )

    def too_large(self) -> APIError:
        """The error for a body beyond the limit."""
        return RequestEntityTooLarge(
            f"the request's body is larger than {self.site.max_body_bytes} bytes"
        )

    def refuse(self, error: APIError) -> None:
        """Answer an incomplete request with ``error``, and hang up."""
        if self.refused:
            return
        body = render(error.to_status())
        head = (
            f"HTTP/1.1 {error.code} {_phrase(error.code)}\r\n"
            "Content-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self.answer_last(head.encode() + body)

    def answer_last(self, response: bytes) -> None:
        """
        Write a whole response, and hang up; further input is discarded.

        Unlike an upgraded connection this one still counts, and may be evicted.
        """
        self.refused = True
        self.site.receiving.release(self)
        for request in self.requests:
            request.content = BytesIO()  # free what has arrived, rather than after the linger time
        self.transport.write(response)
        self._hang_up()

    def _respondToBadRequestAndDisconnect(self) -> None:
        # twisted.web calls this for anything that it cannot parse.
        self.refuse(BadRequest("the request is not well-formed HTTP"))

    def _hang_up(self) -> None:
        """Close so that the client can still read the response; further input is discarded."""
        # First, or a TLS transport would wait for its producer and never begin its shutdown.
        self._networkProducer.unregisterProducer()
        self._arm(self.site.linger_seconds)
        close_behind(self.transport)

    def write_at_once(self, request: Request, body: bytes) -> None:
        """Write head and body together: each write costs a TLS record and a system call."""
        if len(body) > _TOGETHER_BYTES:
            request.write(body)
            return
        self._head = []
        try:
            request.write(body)
        finally:
            head, self._head = self._head, None
            self.transport.writeSequence(head)

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Headers) -> None:
        transport = self.transport
        if self._head is not None:
            # twisted.web writes the head straight to the transport, so the transport is replaced.
            self.transport = _HeadCollector(self._head)
        try:
            super().writeHeaders(version, code, reason, headers)
        finally:
            self.transport = transport

    def write(self, data: bytes) -> None:
        if self._head is not None:
            self._head.append(data)
        else:
            super().write(data)

    def loseConnection(self) -> None:
        self._arm(self.site.linger_seconds, closing=True)
        super().loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.leave()
        if self._unread is not None:
            self.requests.remove(self._unread)  # already finished: it must not be notified
        super().connectionLost(reason)

    def leave(self) -> None:
        """Stop counting this connection: it was lost, or upgraded."""
        self._disarm()
        self.site.connections.pop(self, None)
        if self._has_buffered:
            self.site.receiving.release(self)
            self.site.unread.release(self)

    def _arm(self, seconds: float, closing: bool = False) -> None:
        self._disarm()
        closing = closing or self.refused
        late = self._abort if closing else self._late
        self._deadline = Deadline(self.site.reactor, seconds, lambda _: late())

    def _disarm(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _late(self) -> None:
        self._deadline = None
        if getattr(self.transport, "is_shaking", False):
            self._arm(self.site.header_seconds)
        elif self._begun:
            self.refuse(RequestTimeout("the request did not arrive in time"))
        else:
            self.loseConnection()

    def _abort(self) -> None:
        self._deadline = None
        self.transport.abortConnection()


def _ambiguity(headers: Headers, version: bytes) -> str:
    """Return what two parsers could read differently in a head (RFC 9112, 3.2 and 6.1), or nothing."""
    hosts = headers.getRawHeaders(b"Host", [])
    if len(hosts) > 1 or (not hosts and version == b"HTTP/1.1"):
        return "the request must have exactly one Host header"
    if hosts and not _HOST.fullmatch(hosts[0]):
        return "the request's Host header is not well-formed"
    encodings = headers.getRawHeaders(b"Transfer-Encoding")
    if encodings is None:
        return ""
    if version != b"HTTP/1.1" or [each.lower() for each in encodings] != [b"chunked"]:
        return "the only Transfer-Encoding is chunked, in HTTP/1.1"
    return ""


def _phrase(code: int) -> str:
    return http.RESPONSES.get(code, b"Refused").decode("ascii")
