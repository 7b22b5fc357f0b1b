"""
The HTTP server under every program: limits, and one place for answers.

twisted.web trusts its clients in three ways that we do not.  Its timeout starts
again with every byte, so a client that sends one byte a minute keeps its
connection for ever; it reads bodies of any size; and it answers bad requests
with text that kubectl cannot show.  :class:`Channel` gives each stage of a
request an *absolute* deadline, refuses what is too large before keeping it,
and answers in JSON ``Status`` documents.

Only HTTP/1.1 is offered: HTTP/2 has no upgrade.

A connection that was taken over (:mod:`twisted_exec.streaming.http.upgrade_server`)
stops counting here; from then on it is a session, and
:mod:`twisted_exec.streaming.sessions.registry` bounds those.
"""

from __future__ import annotations

import json
import re
import resource as limits
import uuid
from dataclasses import replace
from io import BytesIO
from typing import Any, Protocol, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http, resource, server
from twisted.web.http_headers import Headers

from twisted_exec.api.status import (
    APIError,
    BadRequest,
    InternalError,
    RequestEntityTooLarge,
    RequestTimeout,
    ServiceUnavailable,
)
from twisted_exec.streaming.flow import close_behind
from twisted_exec.streaming.http.memory_budget import Budget
from twisted_exec.streaming.interfaces import Subject

MAX_HEAD_BYTES = 64 << 10
LONGEST_AGENT = 256
"""Request line and headers together.  Tokens with many groups need more than twisted.web's 16 KiB."""


_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What no header may hold: see RFC 9110 section 5.5."""

_EAGER_BYTES = 16 << 10
"""Of requests that come behind the one that is being answered."""


_TOGETHER_BYTES = 64 << 10
"""Of a body that is worth a copy to go out with its head."""


class _Kept:
    """What a head is written to that waits for its body."""

    def __init__(self, parts: list[bytes]) -> None:
        self.writeSequence = parts.extend


class SlowReader(Protocol):
    """Keeps bytes that its client does not read."""

    def evict(self) -> None:
        """Make room for others, at once."""


class RequestHeaderFieldsTooLarge(APIError):
    """The request line and headers exceed :data:`MAX_HEAD_BYTES` (431)."""

    code, reason = 431, "RequestHeaderFieldsTooLarge"


class Request(server.Request):
    """
    One request.

    :ivar gone: nobody reads an answer any more: the client left, or the
        connection was taken over.
    :ivar subject: what is known about who reaches what; locators refine it.
    :ivar credentials: what the client presented to say who it is, once that has been taken out of
        the headers (:mod:`twisted_exec.auth.credentials`).
    :ivar evidence: what the gate let the request in by; a session keeps it, to be reviewed.
    """

    evidence: object = None
    channel: Channel
    content: Any
    credentials: Any = None
    gone = False

    def __init__(self, channel: Channel, *args: Any, **more: Any) -> None:
        super().__init__(channel, *args, parsePOSTFormSubmission=False, **more)
        self.subject = Subject(session=str(uuid.uuid4()))

    def gotLength(self, length: int | None) -> None:
        # twisted.web would put a body of unknown length into a temporary file.
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        if self.gone or self.channel.refused:
            return  # the decoder goes on with what it has
        if self.content.tell() + len(data) > self.channel.site.max_body_bytes:
            self.channel.refuse(self.channel.too_large())
        else:
            self.content.write(data)
            self.channel.site.receiving.keep(self.channel, len(data))

    def laid_out(self, body: bytes, content_type: str) -> bytes:
        """A whole body as this request wants it written; a program may ask for more than this."""
        return body

    def process(self) -> None:
        self.site = self.channel.site
        agent = (self.getHeader(b"user-agent") or b"").decode("latin-1")
        self.subject = replace(self.subject, agent=agent[:LONGEST_AGENT])
        self.site.resource.render(self)

    def connectionLost(self, reason: Failure) -> None:
        self.gone = True
        super().connectionLost(reason)


class Channel(http.HTTPChannel):
    """
    One connection, with one deadline at a time.

    :ivar refused: the request was answered before it was complete; what still
        comes is not read.
    :ivar stalled: a long answer waits for the client.

    Waiting for the first byte of another request: ``idle_seconds``.  From the
    connection (TLS handshake included) or that first byte to the end of the
    headers: ``header_seconds``.  From there to the end of the body:
    ``body_seconds``.  While a request is handled: none, that is the handler's.
    """

    site: Site
    transport: Any
    _networkProducer: Any
    totalHeadersSize = MAX_HEAD_BYTES
    MAX_LENGTH = MAX_HEAD_BYTES
    _deadline: IDelayedCall | None = None
    _begun = False
    _unread: http.Request | None = None
    refused = False
    stalled = False
    _head_bytes = 0
    _head: list[bytes] | None = None

    def connectionMade(self) -> None:
        super().connectionMade()
        self.site.connections[self] = None
        self._arm(self.site.header_seconds)

    def dataReceived(self, data: bytes) -> None:
        if not self.refused:
            self._begin()
            super().dataReceived(data)

    def _begin(self) -> None:
        """The first bytes of a request are there: its time runs."""
        if not self._begun and not self._handlingRequest:
            self._begun = True
            self._arm(self.site.header_seconds)

    def lineReceived(self, line: bytes) -> None:
        if self.refused:
            return
        self._begin()  # a pipelined request gets here without dataReceived
        self._head_bytes += len(line)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.lineLengthExceeded(line)
        else:
            super().lineReceived(line)

    def headerReceived(self, line: bytes) -> bool:
        if _CONTROL.search(line):
            # twisted.web lets all but NUL pass, for the next hop or a terminal to trip over.
            self._respondToBadRequestAndDisconnect()
            return False
        return bool(super().headerReceived(line))

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
            # twisted.web does not when it waits for the transport, and collects without end.
            self._networkProducer.pauseProducing()

    def allHeadersReceived(self) -> None:
        self._head_bytes = 0
        if self.length is not None and self.length > self.site.max_body_bytes:
            self.refuse(self.too_large())
            return
        self._arm(self.site.body_seconds)
        super().allHeadersReceived()

    def allContentReceived(self) -> None:
        if not self.refused:
            self._disarm()
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
            # Requests that came behind it would be answered into the same full buffer.
            self._unread = request
        else:
            super().requestDone(request)

    def answered(self, length: int) -> None:
        """An answer of so many bytes was written: it is kept until the client reads."""
        if self._waitingForTransport:
            self.site.unread.keep(self, length)

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self.site.unread.release(self)
        request, self._unread = self._unread, None
        if request is not None:
            super().requestDone(request)

    @property
    def evictable(self) -> bool:
        """Nobody here works for this client: it is silent, or sends or reads slowly."""
        return not self._handlingRequest or self._unread is not None or self.stalled

    def evict(self) -> None:
        """Make room for others."""
        self.leave()
        self.transport.abortConnection()

    def too_long(self) -> None:
        """Too many bodies are being received; this one the longest."""
        self.refuse(
            ServiceUnavailable("too many requests are being received", retry_after_seconds=1)
        )

    def too_large(self) -> APIError:
        """The error for a body beyond the limit."""
        return RequestEntityTooLarge(
            f"the request's body is larger than {self.site.max_body_bytes} bytes"
        )

    def refuse(self, error: APIError) -> None:
        """Answer ``error`` to a request that never became complete, and hang up."""
        if self.refused:
            return
        self.refused = True
        self.site.receiving.release(self)
        for request in self.requests:
            request.content = BytesIO()
        body = _render(error.to_status())
        head = (
            f"HTTP/1.1 {error.code} {_phrase(error.code)}\r\n"
            "Content-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self._hang_up()

    def _respondToBadRequestAndDisconnect(self) -> None:
        # twisted.web calls this for whatever it cannot parse.
        self.refuse(BadRequest("the request is not well-formed HTTP"))

    def _hang_up(self) -> None:
        """Close so that the client can still read the answer; what comes is thrown away."""
        self._networkProducer.unregisterProducer()
        self._arm(self.site.linger_seconds)
        close_behind(self.transport)

    def write_at_once(self, request: Request, body: bytes) -> None:
        """Head and body together: each write is a TLS record and a system call of its own."""
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
            self.transport = _Kept(self._head)
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
            self.requests.remove(self._unread)  # it is done, and is not to be told
        super().connectionLost(reason)

    def leave(self) -> None:
        """This connection is no longer the site's: it is lost, or taken over."""
        self._disarm()
        self.site.connections.pop(self, None)
        self.site.receiving.release(self)
        self.site.unread.release(self)

    def _arm(self, seconds: float, closing: bool = False) -> None:
        self._disarm()
        closing = closing or self.refused
        late = self._abort if closing else self._late
        self._deadline = self.site.reactor.callLater(seconds, late)

    def _disarm(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None and deadline.active():
            deadline.cancel()

    def _late(self) -> None:
        self._deadline = None
        if self._begun:
            self.refuse(RequestTimeout("the request did not arrive in time"))
        else:
            self.loseConnection()

    def _abort(self) -> None:
        self._deadline = None
        self.transport.abortConnection()


class _TurnedAway(TwistedProtocol):
    """A connection beyond the limit, when all others are being answered."""

    transport: Any

    def connectionMade(self) -> None:
        self.transport.abortConnection()


class Site(server.Site):
    """
    A server factory for one resource.

    :param resource: a leaf, usually a :class:`Dispatcher`.
    :param header_seconds: from the connection to the end of the headers.
    :param body_seconds: from there to the end of the body.
    :param idle_seconds: between two requests of one connection.
    :param linger_seconds: for a client to read the last answer.
    :param max_body_bytes: larger bodies are refused with 413.
    :param max_connections: at once, without those taken over.  A further one takes
        the place of the oldest for which nobody works, so that a crowd of silent
        ones shuts nobody out.  ``None``: 4096, and at most half of the
        descriptors that this process may have.
    :param receiving_bytes: of all bodies that are not complete yet.
    :param unread_bytes: of all answers, and changes of watches, that clients do not read.
    """

    protocol = Channel  # type: ignore[assignment]
    noisy = False
    closing = False
    requestFactory = Request

    def __init__(
        self,
        resource: resource.Resource,
        reactor: IReactorTime,
        *,
        header_seconds: float = 10,
        body_seconds: float = 30,
        idle_seconds: float = 90,
        linger_seconds: float = 10,
        max_body_bytes: int = 3 << 20,
        max_connections: int | None = None,
        receiving_bytes: int = 64 << 20,
        unread_bytes: int = 256 << 20,
    ) -> None:
        super().__init__(resource, reactor=reactor, timeout=None)
        self.header_seconds = header_seconds
        self.body_seconds = body_seconds
        self.idle_seconds = idle_seconds
        self.linger_seconds = linger_seconds
        self.max_body_bytes = max_body_bytes
        self.max_connections = max_connections or _most_connections()
        self.connections: dict[Channel, None] = {}  # the oldest first
        self.receiving: Budget[Channel] = Budget(receiving_bytes, Channel.too_long)
        self.unread: Budget[SlowReader] = Budget(unread_bytes, lambda slow: slow.evict())

    def buildProtocol(self, addr: IAddress | None) -> Any:
        # None would say "close" as well, but TLS factories cannot wrap it.
        if len(self.connections) >= self.max_connections:
            oldest = next((one for one in self.connections if one.evictable), None)
            if oldest is None:
                return _TurnedAway()
            oldest.evict()
        return super().buildProtocol(addr)

    def startFactory(self) -> None:
        """No access log: it would hold query strings.  Audit is the record."""

    def stopFactory(self) -> None:
        """Nothing was started."""

    def log(self, request: http.Request) -> None:
        """No access log, see :meth:`startFactory`."""

    def acceptableProtocols(self) -> list[bytes]:
        return [b"http/1.1"]

    def drain(self) -> None:
        """From now on connections close after their answer, and idle ones at once."""
        self.closing = True
        for channel in list(self.connections):
            channel.persistent = False
            if not channel.requests:
                channel.loseConnection()


class Dispatcher(resource.Resource):
    """
    A leaf that answers every request in one coroutine.

    A client that leaves cancels it.
    """

    isLeaf = True
    _log = Logger()

    async def dispatch(self, request: Request) -> None:
        """
        Answer ``request``.

        :raises APIError: becomes a JSON Status.  Any other exception is our
            bug: it is logged, and the user gets 500 without its text.
        """
        raise NotImplementedError

    def render(self, request: Request) -> int:
        answering = Deferred.fromCoroutine(self._answer(request))
        if not answering.called:
            request.notifyFinish().addErrback(lambda _: answering.cancel())
        return server.NOT_DONE_YET

    async def _answer(self, request: Request) -> None:
        try:
            await self.dispatch(request)
        except APIError as error:
            respond_status(request, error)
        except CancelledError:
            if not request.gone:
                respond_status(request, InternalError("the request was cancelled"))
        except Exception:  # the last place that can: nobody calls us
            session = request.subject.session
            self._log.failure("request {session} failed", session=session)
            respond_status(request, InternalError(f"internal error, see the log for {session}"))


def respond_json(request: Request, code: int, body: Any) -> None:
    """
    Answer with a JSON document and finish; a client that left gets nothing.

    :param body: anything :func:`json.dumps` takes, or ``bytes`` of JSON.
    """
    respond(request, code, body if isinstance(body, bytes) else _render(body), "application/json")


def respond_text(request: Request, code: int, text: str) -> None:
    """Answer with plain text, as probes expect it."""
    respond(request, code, text.encode(), "text/plain; charset=utf-8")


def respond(request: Request, code: int, body: bytes, content_type: str) -> None:
    """Answer with a whole body and finish; a client that left gets nothing."""
    if request.gone or request.finished:
        return
    body = request.laid_out(body, content_type)
    request.setResponseCode(code)
    request.setHeader(b"Content-Type", content_type.encode())
    request.setHeader(b"Content-Length", b"%d" % len(body))
    if not request.responseHeaders.hasHeader(b"Cache-Control"):
        request.setHeader(b"Cache-Control", b"no-cache, private")
    request.channel.write_at_once(request, body)
    request.channel.answered(len(body))
    if not request.gone:
        request.finish()


def respond_status(request: Request, error: APIError) -> None:
    """
    Answer with the error's ``Status``.

    When the answer has already begun (a watch), only closing tells the client.
    """
    if request.gone or request.finished:
        return
    if request.startedWriting:
        request.channel.transport.abortConnection()
        return
    if error.code == http.UNAUTHORIZED:
        request.setHeader(b"WWW-Authenticate", b"Bearer")
    if error.retry_after_seconds is not None:
        request.setHeader(b"Retry-After", b"%d" % error.retry_after_seconds)
    respond_json(request, error.code, error.to_status())


def _render(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _most_connections() -> int:
    descriptors, _ = limits.getrlimit(limits.RLIMIT_NOFILE)
    # Consoles, the store and certificates need some, too.
    return 4096 if descriptors == limits.RLIM_INFINITY else min(4096, descriptors // 2)


def _phrase(code: int) -> str:
    return http.RESPONSES.get(code, b"Refused").decode("ascii")
