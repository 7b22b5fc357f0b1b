"""
The HTTP server of the programs, with limits for its connections, requests and buffers.

twisted.web's timeout restarts with every byte.  :class:`HTTPChannel` gives each stage of a request
an *absolute* deadline.
"""

from __future__ import annotations

import ipaddress
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import lru_cache, partial
from io import BytesIO
from typing import Any, Protocol, cast

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web import http, resource, server
from twisted.web.http_headers import Headers
from zope.interface import implementer

from twisted_exec.api.status import (
    APIError,
    BadRequest,
    RequestEntityTooLarge,
    RequestTimeout,
    ServiceUnavailable,
)
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.program.turns import SharedTurns
from twisted_exec.streaming.http.documents import render
from twisted_exec.streaming.http.memory_budget import Budget, SlowReader
from twisted_exec.streaming.lifecycle import Living
from twisted_exec.streaming.subject import Subject
from twisted_exec.streaming.transports import close_behind, unread
from twisted_exec.tls.deadlines import Deadline
from twisted_exec.tls.fast.descriptor import TLSOnDescriptor
from twisted_exec.tls.fast.names import is_usable
from twisted_exec.tls.fast.reuse import (
    OLDEST_SECONDS,
    CarriedStream,
    ReusedTLS,
    acceptance,
    offer,
)
from twisted_exec.tls.turns import SLICE_BYTES, IFramed
from twisted_exec.wire.blocks import Mark
from twisted_exec.wire.resume import Resumable
from twisted_exec.wire.upgrade import MISDIRECTED, SESSIONS_HEADER

MAX_HEAD_BYTES = 64 << 10
"""Tokens with many groups exceed twisted.web's 16 KiB."""

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that RFC 9110 section 5.5 forbids in field values."""

_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")
"""Characters of ``uri-host [":" port]``, as Go's ``httpguts.ValidHostHeader``."""

_EAGER_BYTES = 16 << 10
"""Limit for pipelined requests that arrive before an answer."""

_LINES_BYTES = 1 << 10
"""Bytes of a head, or of a chunked body, that are handled at once."""

_TOGETHER_BYTES = 64 << 10
"""Largest body that is written together with its head."""


class _HeadCollector:
    def __init__(self, parts: list[bytes]) -> None:
        self.writeSequence = parts.extend


class RequestHeaderFieldsTooLarge(APIError):
    """The request line and headers exceed :data:`MAX_HEAD_BYTES` (431)."""

    code, reason = 431, "RequestHeaderFieldsTooLarge"


class ChannelLife(Enum):
    """What a connection waits for; none of it changes when it is refused or closed."""

    UNUSED = "for a first byte"
    SPARE = "for a first byte, longer than others"
    RECEIVING = "for the rest of a request"
    HANDLING = "for a handler"
    ANSWERED = "for the client to read the response"
    IDLE = "for another request"


@implementer(IFramed)
class HTTPChannel(http.HTTPChannel, Living[ChannelLife]):
    """
    One connection, with one deadline at a time and none while a handler works; see :class:`Site`.

    :ivar refused: an answer was written that is the last, whatever a handler still does.
    :ivar stalled: the client does not read the answer of the handler.
    """

    transitions = {
        ChannelLife.UNUSED: frozenset({ChannelLife.SPARE, ChannelLife.RECEIVING}),
        ChannelLife.SPARE: frozenset({ChannelLife.RECEIVING}),
        ChannelLife.RECEIVING: frozenset({ChannelLife.HANDLING}),
        ChannelLife.HANDLING: frozenset({ChannelLife.ANSWERED}),
        ChannelLife.ANSWERED: frozenset({ChannelLife.IDLE}),
        ChannelLife.IDLE: frozenset({ChannelLife.RECEIVING}),
    }
    life = ChannelLife.UNUSED

    site: Site
    transport: Any
    totalHeadersSize = MAX_HEAD_BYTES
    MAX_LENGTH = MAX_HEAD_BYTES
    _deadline: Deadline | None = None
    _unread: http.Request | None = None
    # Each of these may be true in several phases of the life, and beside the others.
    refused = False
    stalled = False
    _has_buffered = False  # some of its bytes have counted in a budget of the site
    _is_blocked = False  # the transport takes no more output at present
    _is_receiving = False
    _is_closing = False
    _is_http_1_1 = False
    _head_bytes = 0
    _body_rest = 0  # of a Content-Length
    _head: list[bytes] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._early = bytearray()  # behind the request that is handled

    def connectionMade(self) -> None:
        super().connectionMade()
        self.site.connections[self] = None
        self._arm(self.site.header_seconds)

    def dataReceived(self, data: bytes) -> None:
        # A client that has left gets no response; the requests behind are not carried out.
        if self.refused or self._is_closing or not getattr(self.transport, "connected", True):
            return
        # It was accepted for an earlier session; meanwhile a certificate may have changed.
        is_next = self._is_unused and isinstance(self.transport, ReusedTLS)
        if is_next and not self.site.keeps(self.transport):
            self.end_idle()
            return
        self._begin()
        if self._is_receiving:
            super().dataReceived(data)
            return
        self._is_receiving = True
        try:
            super().dataReceived(data)
            if b"\n" in data and self._is_in_head():
                self._look_for_bare_line_feed()
        finally:
            self._is_receiving = False

    def _is_in_head(self) -> bool:
        is_elsewhere = self.paused or self.refused or not self.line_mode
        return not is_elsewhere and not self.transport.disconnecting

    def _look_for_bare_line_feed(self) -> None:
        rest = self.clearLineBuffer()
        if b"\n" in rest:
            self._refuse_malformed()
        elif rest:
            super().dataReceived(rest)  # less than a line: it waits for its end

    def frame_rest(self, size: int) -> int | None:
        if self.refused or self._has_request:
            return None  # discarded, or buffered
        if self.line_mode or self.length is None:
            return _LINES_BYTES - SLICE_BYTES
        return self._body_rest

    @property
    def _is_unused(self) -> bool:
        return self.life in (ChannelLife.UNUSED, ChannelLife.SPARE)

    @property
    def _has_request(self) -> bool:
        """Return whether a request is complete, and its response is not yet with the transport."""
        return self.life in (ChannelLife.HANDLING, ChannelLife.ANSWERED)

    def _begin(self) -> None:
        if self._is_unused or self.life is ChannelLife.IDLE:
            self._become(ChannelLife.RECEIVING)
            self._arm(self.site.header_seconds)

    def lineReceived(self, line: bytes) -> None:
        if self.refused or self._is_closing:
            return
        if not self._head_bytes:
            self._begin()  # a pipelined request starts here, without dataReceived
            self._is_http_1_1 = line.endswith(b" HTTP/1.1")
        self._head_bytes += len(line)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.lineLengthExceeded(line)
        elif _CONTROL.search(line) or line.startswith((b" ", b"\t")):
            # twisted.web refuses only NUL; other controls would reach the next hop or a terminal.
            # It unfolds lines; a proxy in front may take them for something else (RFC 9112, 5.2).
            self._refuse_malformed()
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
        if not self._has_request:
            if self.length is not None:
                self._early += data[self._body_rest :]
                data = data[: self._body_rest]
                self._body_rest -= len(data)
            super().rawDataReceived(data)
            return
        self._early += data
        if len(self._early) > _EAGER_BYTES:
            # twisted.web does not pause while it waits for the transport, and buffers without limit.
            self.transport.pauseProducing()

    def allHeadersReceived(self) -> None:
        self._head_bytes = 0
        if self.refused:
            return
        problem = _ambiguity(self.requests[-1].requestHeaders, self._is_http_1_1)
        if problem:
            self.refuse(BadRequest(problem))
            return
        if self.length is not None and self.length > self.site.max_body_bytes:
            self.refuse(self.too_large())
            return
        if self.length != 0:
            self._arm(self.site.body_seconds)
        self._body_rest = self.length or 0
        super().allHeadersReceived()

    def allContentReceived(self) -> None:
        if not self.refused:
            self._disarm()
            if self._has_buffered:
                self.site.receiving.release(self)
            self._become(ChannelLife.HANDLING)
            super().allContentReceived()

    def checkPersistence(self, request: http.Request, version: bytes) -> bool:
        if self.site.closing:
            request.responseHeaders.setRawHeaders(b"Connection", [b"close"])
            return False
        return cast(bool, super().checkPersistence(request, version))

    def requestDone(self, request: http.Request) -> None:
        self._become(ChannelLife.ANSWERED)
        self._arm(self.site.idle_seconds)
        if self._is_blocked and self.persistent:
            # Pipelined requests would be answered into the same full buffer.
            self._unread = request
        else:
            self._finish(request)

    def _finish(self, request: http.Request) -> None:
        super().requestDone(request)
        if self.persistent:
            self._become(ChannelLife.IDLE)
            rest = self.clear_early()
            if rest:
                unread(self.transport, self, rest, later=True)

    def setLineMode(self, extra: bytes = b"") -> None:
        self._early[:0] = extra  # twisted.web has kept what came behind a chunked body
        super().setLineMode()

    def clear_early(self) -> bytes:
        """Return what has arrived behind the request, and forget it."""
        # A request that is answered late leaves such bytes in the first, one answered at once in
        # the second.
        early = b"".join((self._early, self.clearLineBuffer()))
        self._early.clear()
        return early

    def received(self, length: int) -> None:
        """Account for a part of a body, which occupies memory until it is complete."""
        self._has_buffered = True
        self.site.receiving.keep(self, length)

    def answered(self, length: int) -> None:
        """Account for a response, which occupies memory until the client reads it."""
        if self._is_blocked:
            self._has_buffered = True
            self.site.unread.keep(self, length)

    def pauseProducing(self) -> None:
        self._is_blocked = True
        super().pauseProducing()

    def resumeProducing(self) -> None:
        self._is_blocked = False
        super().resumeProducing()
        self.site.unread.release(self)
        request, self._unread = self._unread, None
        if request is not None:
            self._finish(request)

    @property
    def evictable(self) -> bool:
        """Return whether closing interrupts no handler at work."""
        return self.refused or not self._has_request or self._unread is not None or self.stalled

    def evict(self) -> None:
        self.leave()
        self.transport.abortConnection()

    def too_long(self) -> None:
        self.refuse(
            ServiceUnavailable("too many requests are being received", retry_after_seconds=1)
        )

    def too_large(self) -> APIError:
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
        self.refused = True
        self.site.receiving.release(self)
        for request in self.requests:
            request.content = BytesIO()  # free what has arrived, rather than after the linger time
        self.transport.write(response)
        self._hang_up()

    def _refuse_malformed(self) -> None:
        self.refuse(BadRequest("the request is not well-formed HTTP"))

    def _respondToBadRequestAndDisconnect(self) -> None:
        # twisted.web calls this for anything that it cannot parse; its own answer has no Status, and
        # gets lost if more is sent behind the request.
        self._refuse_malformed()

    def _hang_up(self) -> None:
        # First, or a TLS transport would wait for its producer and never begin its shutdown.
        self.transport.unregisterProducer()
        self._arm(self.site.linger_seconds)
        close_behind(self.transport)

    def write_at_once(self, request: Request, body: bytes) -> None:
        """Write head and body, together if the body is small: each write costs a TLS record."""
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
        self._is_closing = True
        self._arm(self.site.linger_seconds)
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

    def _arm(self, seconds: float) -> None:
        if self._deadline is None:
            self._deadline = Deadline(self.site.reactor, seconds, self._late)
        else:
            self._deadline.restart(seconds)

    def _disarm(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _late(self, _: float) -> None:
        if self._is_closing or self.refused:
            self.transport.abortConnection()
        elif getattr(self.transport, "is_shaking", False):
            self._arm(self.site.header_seconds)
        elif self.life is ChannelLife.RECEIVING:
            self.refuse(RequestTimeout("the request did not arrive in time"))
        elif self.life is ChannelLife.UNUSED and (seconds := self._spare_seconds()):
            self._become(ChannelLife.SPARE)
            self._arm(seconds)
        else:
            self.end_idle()

    def _spare_seconds(self) -> float:
        spare_seconds = self.site.spare_seconds
        return 0.0 if spare_seconds is None else spare_seconds(self.transport)

    @property
    def is_kept(self) -> bool:
        """Return whether it has served a request, and waits for another one."""
        return self.life in (ChannelLife.ANSWERED, ChannelLife.IDLE) and not self.requests

    def end_idle(self) -> None:
        is_shaking = getattr(self.transport, "is_shaking", False)
        if self._is_unused and self.site.spare_seconds is not None and not is_shaking:
            why = "the connection was closed without a request: repeat yours over another one"
            self.refuse(APIError(why, code=MISDIRECTED, reason="MisdirectedRequest"))
        else:
            self.loseConnection()


def _ambiguity(headers: Headers, is_http_1_1: bool) -> str:
    """
    Return what two parsers could read differently in a head (RFC 9112, 3.2 and 6.1), or nothing.
    """
    hosts = headers.getRawHeaders(b"Host", [])
    if len(hosts) > 1 or (not hosts and is_http_1_1):
        return "the request must have exactly one Host header"
    if hosts and not _HOST.fullmatch(hosts[0]):
        return "the request's Host header is not well-formed"
    encodings = headers.getRawHeaders(b"Transfer-Encoding")
    if encodings is None:
        return ""
    if not is_http_1_1 or [each.lower() for each in encodings] != [b"chunked"]:
        return "the only Transfer-Encoding is chunked, in HTTP/1.1"
    return ""


def _phrase(code: int) -> str:
    return http.RESPONSES.get(code, b"Refused").decode("ascii")


LONGEST_AGENT = 256
"""In characters."""

MAX_CHUNKS = 4096
"""Limit for the chunks of one body, besides one for each :data:`_CHUNK_BYTES`."""

_CHUNK_BYTES = 16


class Page(Protocol):
    """A page in a browser that opens a session, as an answer sees it."""

    reads_refusals: bool

    def greeting(self, session: str, resumable: Resumable) -> bytes:
        """Return what the page gets behind the 101 of a session that it can resume."""

    def refuse(self, request: Request, error: APIError) -> None:
        """Answer the request with an error that the page can read."""


class Request(server.Request):
    """
    One request.

    :ivar gone: no response can be sent: the client left, or the connection was upgraded.
    :ivar subject: the facts of the session, as far as they are known; see :meth:`learn`.
    :ivar credentials: the client's, taken out of the headers
        (:mod:`twisted_exec.auth.credentials`).
    :ivar is_forwarded: a trusted proxy is known to have sent the request for its user.
    :ivar offer: to carry the session, and another one after it (:mod:`twisted_exec.wire.blocks`).
    :ivar page: how to answer a page in a browser, if one asks; see
        :mod:`twisted_exec.streaming.http.browser_websocket`.
    """

    channel: HTTPChannel
    content: Any
    credentials: Any = None
    is_forwarded = False
    page: Page | None = None
    gone = False
    offer = b""

    def __init__(self, channel: HTTPChannel, *args: Any, **more: Any) -> None:
        # Otherwise a form in the body would add to the arguments of the query.
        super().__init__(channel, *args, parsePOSTFormSubmission=False, **more)
        self.subject = Subject(session=str(uuid.uuid4()))
        self._chunks = 0

    def gotLength(self, length: int | None) -> None:
        # twisted.web would use a temporary file for a body of unknown length.
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        if self.gone or self.channel.refused:
            return  # the decoder may still deliver what it has buffered
        if self.content.tell() + len(data) > self.channel.site.max_body_bytes:
            self.channel.refuse(self.channel.too_large())
            return
        self.content.write(data)
        self.channel.received(len(data))
        self._chunks += 1
        is_chunked = self.channel.length is None
        if is_chunked and self._chunks > MAX_CHUNKS + self.content.tell() // _CHUNK_BYTES:
            self.channel.refuse(BadRequest("the request's body comes in too many small chunks"))

    def learn(self, **facts: str) -> None:
        """
        Add facts to the subject.

        They become known one after the other, and a refusal is recorded with those known by then.
        """
        self.subject = replace(self.subject, **facts)

    def laid_out(self, body: bytes, content_type: str) -> tuple[bytes, str]:
        """Format a whole response body; programs override this, such as for ``?pretty``."""
        return body, content_type

    def process(self) -> None:
        self.site = self.channel.site
        agent = (self.getHeader(b"user-agent") or b"").decode("latin-1")
        self.learn(agent=agent[:LONGEST_AGENT], address=self.client_host)
        self.offer = self.getHeader(SESSIONS_HEADER) or b""
        self.requestHeaders.removeHeader(SESSIONS_HEADER)  # it is no concern of the next hop
        # RFC 9110, section 6.6.1; clients compare their clock with it.
        self.setHeader(b"Date", _date(int(time.time())))
        self.site.resource.render(self)

    @property
    def client_host(self) -> str:
        return str(getattr(self.getClientAddress(), "host", ""))

    def getClientAddress(self) -> IAddress:
        """Return the user's address, which a trusted proxy may have forwarded."""
        address: IAddress = super().getClientAddress()
        if not self.is_forwarded:
            return address
        lines = self.requestHeaders.getRawHeaders(b"x-forwarded-for", [b""])
        # The proxy appends its client; entries before that are the client's own claims.
        forwarded = lines[-1].rpartition(b",")[2].strip().decode("ascii", "replace")
        return _forwarded_address(forwarded) or address

    def connectionLost(self, reason: Failure) -> None:
        self.gone = True
        super().connectionLost(reason)


@lru_cache
def _forwarded_address(host: str) -> IAddress | None:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    address_type = IPv4Address if version == 4 else IPv6Address
    address: IAddress = address_type("TCP", host, 0)
    return address


@lru_cache(maxsize=1)
def _date(seconds: int) -> bytes:
    date: bytes = http.datetimeToString(seconds)
    return date


class _TurnedAway(TwistedProtocol):
    transport: Any

    def connectionMade(self) -> None:
        self.transport.abortConnection()


class Site(server.Site):
    """
    A server factory for one resource.

    :param header_seconds: from the connection to the first byte, and from there to the end of the
        headers.
    :param body_seconds: from there to the end of the body.
    :param idle_seconds: between two requests of one connection.
    :param spare_seconds: returns how much longer the client of a transport may keep a connection
        without a byte; with 0 the connection carries no second session either.  ``None``: the
        clients keep no spare connections.
    :param max_connections: open connections, without upgraded ones.  A further connection evicts
        the oldest for which no handler works, so that silent clients cannot lock others out.
        ``None``: as many as ``fitting`` returns.
    :param fitting: returns how many connections fit into the process's file descriptors now.
    :param receiving_bytes: total of the incomplete request bodies.
    :param unread_bytes: total of what clients have not read, without logs and consoles.
    """

    protocol = HTTPChannel  # type: ignore[assignment]
    noisy = False
    closing = False
    requestFactory = Request

    def __init__(
        self,
        resource: resource.Resource,
        reactor: IReactorTime,
        *,
        header_seconds: float = 30,
        body_seconds: float = 30,
        idle_seconds: float = 90,
        spare_seconds: Callable[[Any], float] | None = None,
        linger_seconds: float = 10,
        max_body_bytes: int = 3 << 20,
        max_connections: int | None = None,
        fitting: Callable[[], int] | None = None,
        receiving_bytes: int = 64 << 20,
        unread_bytes: int = 256 << 20,
    ) -> None:
        super().__init__(resource, reactor=reactor, timeout=None)
        is_usable("refusals", {"HTTPChannel": http.HTTPChannel})
        self.header_seconds = header_seconds
        self.body_seconds = body_seconds
        self.idle_seconds = idle_seconds
        self.spare_seconds = spare_seconds
        self.linger_seconds = linger_seconds
        self.max_body_bytes = max_body_bytes
        self._max_connections = max_connections
        self._fitting = fitting or partial(SessionLimits.fitting().connections_beside, 0)
        self.connections: dict[HTTPChannel, None] = {}  # the oldest first
        self.turns = SharedTurns(reactor)
        self.receiving: Budget[HTTPChannel] = Budget(receiving_bytes, HTTPChannel.too_long)
        self.unread: Budget[SlowReader] = Budget(unread_bytes, lambda slow: slow.evict())

    def buildProtocol(self, addr: IAddress | None) -> Any:
        # None would say "close" as well, but TLS factories cannot wrap it.
        while len(self.connections) >= self.max_connections:
            oldest = next((each for each in self.connections if each.evictable), None)
            if oldest is None:
                return _TurnedAway()
            oldest.evict()
        return super().buildProtocol(addr)

    def accepts(self, request: Request, transport: Any) -> bytes:
        """Return the header that accepts another session after this one; empty to refuse."""
        if not request.offer or not isinstance(transport, TLSOnDescriptor):
            return b""
        is_kept = request.offer == offer(transport) and self.keeps(transport)
        return acceptance(transport) if is_kept else b""

    def carry(self, transport: TLSOnDescriptor) -> None:
        """Carry a session from now on, and then another one."""
        transport.carry(CarriedStream(self._following, is_server=True))

    def _following(self, transport: TLSOnDescriptor, mark: Mark) -> Any:
        """Return the protocol of a connection whose session is over; ``None`` to close it."""
        protocol = self.buildProtocol(transport.getPeer()) if self.keeps(transport) else None
        return None if isinstance(protocol, _TurnedAway) else protocol

    def keeps(self, transport: TLSOnDescriptor) -> bool:
        """Return whether a connection may carry another session."""
        if self.closing or self.spare_seconds is None or transport.age_seconds >= OLDEST_SECONDS:
            return False
        return self.spare_seconds(transport) > 0

    @property
    def max_connections(self) -> int:
        """The limit of open connections; it may sink while sessions open."""
        return self._fitting() if self._max_connections is None else self._max_connections

    def startFactory(self) -> None:
        """No access log: it would contain query strings."""

    def stopFactory(self) -> None:
        """Nothing to stop."""

    def log(self, request: http.Request) -> None:
        """No access log: it would contain query strings."""

    def acceptableProtocols(self) -> list[bytes]:
        # HTTP/2 has no upgrade (RFC 9113 8.6).
        return [b"http/1.1"]

    def drain(self) -> None:
        """Close each connection after its response, and idle ones at once."""
        self.closing = True
        for channel in list(self.connections):
            channel.persistent = False
            if not channel.requests:
                channel.end_idle()
