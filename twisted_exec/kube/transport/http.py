"""
HTTP requests to one API server, limited in time and size.

This module adds to Twisted's Agent what treq also lacks.  The time limit covers
the whole exchange, not only the head of the response.  A cancelled or timed-out exchange
aborts its connection, because TLS's orderly close waits for a peer that may
be dead.  If the server had just closed a pooled connection, a repeatable request is
sent once more.

A server that answers 401 has not begun the request.  So any request is sent once more if the
credential plugin then returns another credential.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar, cast

from hyperlink import EncodedURL
from treq.client import HTTPClient
from treq.cookies import IndexableCookieJar
from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IConsumer, IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import (
    URI,
    Agent,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseDone,
    ResponseFailed,
    ResponseNeverReceived,
)
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer
from zope.interface import implementer

from twisted_exec.api.status import APIError, BadGateway, GatewayTimeout, message_of
from twisted_exec.kube.credentials.cache import renewed, settled
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.transport.connection import connection_stamp, endpoint, identity_headers
from twisted_exec.kube.transport.limits import Head

T = TypeVar("T")

USER_AGENT = "twisted-exec"

IDLE_CONNECTIONS = 32
"""
Kept for later requests: as many as the guard of sessions uses at once, because a handshake costs more
than a request.
"""

# Shorter than the idle timeout of known servers (kube-apiserver 90 s and more, ours
# 60 s), so that a server rarely closes a connection just as we use it.
IDLE_SECONDS = 30

_URLS = 64
"""URLs that are remembered in their encoded form: reviews have the same one each time."""

Answer = tuple[int, Mapping[str, str], bytes]
"""Code, selected headers, body."""

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""Exceptions of Twisted's response parser, other than its own classes."""

_TOLD = ("retry-after", "content-type", "cache-control", "date")


@dataclass(frozen=True)
class Request:
    """
    One request.

    :param target: path and query, percent-encoded.
    :param repeatable: sending it twice does no harm.
    :param headers: further headers; they may be secret.
    """

    method: str
    target: str
    body: bytes = field(default=b"", repr=False)
    content_type: str = "application/json"
    repeatable: bool = False
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)


class HTTPTransport:
    """
    Sends requests to the server of ``config``.

    Connections persist and are shared; when the configuration or a PEM file
    changes, new requests use new connections and the old ones close as they
    become idle.

    :param renew: returns the configuration for each request.
    :param agent: the program's name for ``User-Agent``.
    :param peer: name of the server in errors.
    """

    def __init__(
        self,
        config: ClientConfig,
        reactor: Any,
        *,
        connect_seconds: float = 10.0,
        server: IStreamClientEndpoint | None = None,
        renew: Callable[[], ClientConfig] | None = None,
        agent: str = USER_AGENT,
        peer: str = "the API server",
    ) -> None:
        self.config, self._peer = config, peer
        self._agent = agent.encode("ascii")
        self._shown = config  # with credentials of plugins
        self._renew = renew
        self._changes = 0
        self._reactor = reactor
        self._connect_seconds, self._given_server = connect_seconds, server
        self._server = self._endpoint()
        self._pool = self._new_pool()
        self._stamp = connection_stamp(config)

    def _endpoint(self) -> IStreamClientEndpoint:
        return self._given_server or endpoint(
            self._shown, self._reactor, timeout_seconds=self._connect_seconds
        )

    def close(self) -> Deferred[None]:
        """Close idle connections; fires when they are closed."""
        # A caller that cancels must not cancel the close itself: its failure would be unhandled.
        closed: Deferred[None] = Deferred()
        closing = self._pool.closeCachedConnections()
        closing.addBoth(lambda _: None if closed.called else closed.callback(None))
        return closed

    async def collect(
        self, request: Request, *, timeout_seconds: float, limit_bytes: int
    ) -> Answer:
        """
        Send a request and return the whole answer.

        :raises BadGateway: the connection failed or broke, or the body exceeds ``limit_bytes``.
        :raises GatewayTimeout: the answer was not complete in time.
        """

        def exchange() -> Deferred[Answer]:
            once = Deferred.fromCoroutine(self._collect_twice(request, limit_bytes))
            return once.addTimeout(timeout_seconds, self._reactor)

        return await self._answered(exchange, request)

    async def stream(
        self,
        request: Request,
        receive: Callable[[bytes], None],
        *,
        begun: Callable[[], None],
        head_seconds: float,
        total_seconds: float,
        limit_bytes: int,
    ) -> Answer:
        """
        Deliver the body of a 200 to ``receive``, chunk by chunk, until it ends.

        ``begun`` is called first, when the head has arrived.

        Any other answer is collected and returned, as :meth:`collect` does;
        after a stream the returned body is empty.  Errors are those of
        :meth:`collect`; an exception of ``receive`` ends the stream and is raised.
        """

        def exchange() -> Deferred[Answer]:
            once = Deferred.fromCoroutine(
                self._stream(request, receive, begun, head_seconds, limit_bytes)
            )
            return once.addTimeout(total_seconds, self._reactor)

        return await self._answered(exchange, request)

    async def _answered(self, exchange: Callable[[], Deferred[Answer]], request: Request) -> Answer:
        """Run an exchange with credentials; a plugin's run time does not count for the time limit."""
        asking = Deferred.fromCoroutine(self._shown_again(exchange))
        return await self._translated(asking, request)

    async def _shown_again(self, exchange: Callable[[], Deferred[Answer]]) -> Answer:
        config = self._current()
        settled_config = await settled(config, self._reactor)
        self._follow(settled_config)
        answer = await exchange()
        if answer[0] != 401:
            return answer
        other = await renewed(config, self._reactor, settled_config)
        if other is None:
            return answer
        self._follow(other)
        return await exchange()

    async def _collect_twice(self, request: Request, limit_bytes: int) -> Answer:
        try:
            return await self._collect(request, limit_bytes)
        except (ResponseNeverReceived, RequestTransmissionFailed):
            if not request.repeatable:
                raise
        return await self._collect(request, limit_bytes)

    async def _collect(self, request: Request, limit_bytes: int) -> Answer:
        use = _Use(self._pool)
        response = await self._send(request, use)
        return await _collected(response, limit_bytes, use)

    async def _stream(
        self,
        request: Request,
        receive: Callable[[bytes], None],
        begun: Callable[[], None],
        head_seconds: float,
        limit_bytes: int,
    ) -> Answer:
        # A stream has a connection of its own, which closes with it.
        use = _Use(HTTPConnectionPool(self._reactor, persistent=False))
        head = self._send(request, use)
        response = await head.addTimeout(head_seconds, self._reactor)
        if response.code != 200:
            return await _collected(response, limit_bytes, use)
        begun()
        body = _Body(receive, use.abort)
        response.deliverBody(body)
        await body.done
        return response.code, {}, b""

    def _send(self, request: Request, use: _Use) -> Deferred[Any]:
        headers = Headers({b"User-Agent": [self._agent], b"Accept": [b"application/json"]})
        for name, value in identity_headers(self._shown):
            headers.addRawHeader(name, value)
        for further, text in request.headers:
            headers.setRawHeaders(further, [text])
        if request.body:
            headers.setRawHeaders(b"Content-Type", [request.content_type.encode("ascii")])
        client = HTTPClient(
            Agent.usingEndpointFactory(self._reactor, _Fixed(self._server), use),
            _NO_COOKIES,
            data_to_body_producer=_Bytes,
        )
        sent: Deferred[Any] = client.request(
            request.method,
            _url(self._shown.server + request.target),
            headers=headers,
            data=request.body or None,
            cookies=_NO_COOKIES,
            allow_redirects=False,
            unbuffered=True,
            reactor=self._reactor,
        )
        return sent.addBoth(use.answered).addErrback(self._refused, use)

    def _refused(self, failure: Failure, use: _Use) -> Failure:
        if use.problem:
            return Failure(BadGateway(f"{self._peer} {self.config.server}: {use.problem}"))
        return _plain_cancellation(failure)

    def _new_pool(self) -> HTTPConnectionPool:
        pool = HTTPConnectionPool(self._reactor, persistent=True)
        pool.maxPersistentPerHost = IDLE_CONNECTIONS
        pool.cachedConnectionTimeout = IDLE_SECONDS
        # The pool must not retry: it would hide which connection is in use, and abort() needs it.
        pool.retryAutomatically = False
        return pool

    def look(self) -> int:
        """Read the configuration again; return how often it has changed."""
        with suppress(APIError):  # credentials may be missing at the moment
            self._current()
        return self._changes

    def _current(self) -> ClientConfig:
        if self._renew is not None:
            config = self._renew()
            self._changes += config != self.config
            self.config = config
        return self.config

    def _follow(self, settled_config: ClientConfig) -> None:
        """Use new connections if the configuration or identity has changed."""
        self._shown = settled_config
        stamp = connection_stamp(settled_config)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        self._server = self._endpoint()
        self._pool.closeCachedConnections()
        self._pool = self._new_pool()

    async def _translated(self, exchange: Deferred[Answer], request: Request) -> Answer:
        """Turn every failure into one of two API errors."""
        try:
            return await exchange
        except (APIError, CancelledError):
            raise
        except (error.TimeoutError, TimeoutError):
            raise GatewayTimeout(
                f"{self._peer} {self.config.server} did not answer "
                f"{request.method} {_path_only(request.target)} in time"
            ) from None
        except _Misuse as wrapped:
            raise wrapped.cause from None
        except Exception as failed:
            # TCP, TLS and proxies raise many unrelated types; for the caller all of them
            # mean that the server cannot be reached.
            raise BadGateway(
                f"cannot reach {self._peer} {self.config.server}: {_why(failed)}"
            ) from None


def _plain_cancellation(failure: Failure) -> Failure:
    """Unwrap a cancellation, which Twisted wraps as ResponseNeverReceived."""
    reasons = getattr(failure.value, "reasons", [])
    return next((reason for reason in reasons if reason.check(CancelledError)), failure)


def _path_only(target: str) -> str:
    return target.partition("?")[0]


def _why(failed: BaseException) -> str:
    """Return one line for an error, with wrapped reasons unwrapped."""
    if isinstance(failed, (ResponseFailed, RequestTransmissionFailed)):
        return _why_no_answer(failed.reasons[0].value) if failed.reasons else "no answer"
    if isinstance(failed, KubeConfigError):
        return str(failed)
    if isinstance(failed, (error.ConnectionDone, error.ConnectionLost)):
        return "connection lost"
    return message_of(failed)


def _why_no_answer(failed: BaseException) -> str:
    """
    Return one line for an error after the request was sent.

    A malformed response is not quoted: the server got our credentials, and may echo them to a user
    who chose the server and must not see them.
    """
    if isinstance(failed, _UNREADABLE) or type(failed).__module__.startswith("twisted.web."):
        return "what it answers is no HTTP"
    return _why(failed)


async def _collected(response: Any, limit_bytes: int, use: _Use) -> Answer:
    collector = _Collector(limit_bytes)
    body = _Body(collector.add, use.abort)
    response.deliverBody(body)
    try:
        await body.done
    except _Misuse as wrapped:
        raise wrapped.cause from None
    headers = {name: (response.headers.getRawHeaders(name) or [""])[0] for name in _TOLD}
    return response.code, headers, b"".join(collector.chunks)


class _Misuse(Exception):
    """The receiver of a body raised ``cause``."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Collector:
    def __init__(self, limit_bytes: int) -> None:
        self.chunks: list[bytes] = []
        self._left = limit_bytes
        self._limit = limit_bytes

    def add(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            raise BadGateway(f"the server's answer is larger than {self._limit} bytes")
        self.chunks.append(data)


class _Body(Protocol):
    """
    Gives a response's body to ``receive``.

    ``done`` fires at its end; cancelling it, or an exception of ``receive``,
    aborts the connection.
    """

    def __init__(self, receive: Callable[[bytes], None], abort: Callable[[], object]) -> None:
        self._receive = receive
        self._abort = abort
        self.done: Deferred[None] = Deferred(lambda _: self._give_up(Failure(CancelledError())))

    def dataReceived(self, data: bytes) -> None:
        if self.done.called:
            return
        try:
            self._receive(data)
        except Exception as cause:
            # Raised into the HTTP parser, it would become a broken response; the
            # caller must see the original.
            self._give_up(Failure(_Misuse(cause)))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if reason.check(ResponseDone, PotentialDataLoss):
            self._settle(None)
        else:
            self._settle(reason)

    def _give_up(self, why: Failure) -> None:
        self._settle(why)  # before the abort, because connectionLost has a less specific reason
        self._abort()

    def _settle(self, outcome: Failure | None) -> None:
        if self.done.called:
            return
        if outcome is None:
            self.done.callback(None)
        else:
            self.done.errback(outcome)


class _Use:
    """
    A pool for one exchange, which remembers the connection in order to abort it.

    It takes the place of the pool in Agent.
    """

    def __init__(self, pool: HTTPConnectionPool) -> None:
        self._pool = pool
        self.persistent = pool.persistent
        self._protocol: Any = None
        self._head: Head | None = None
        self.problem = ""

    def getConnection(self, key: object, endpoint: IStreamClientEndpoint) -> Deferred[Any]:
        connecting: Deferred[Any] = self._pool.getConnection(key, endpoint)
        return connecting.addCallback(self._connected)

    def _connected(self, protocol: Any) -> Any:
        self._protocol = protocol
        self._head = Head(protocol, self._refuse)
        protocol.dataReceived = self._head.received
        return protocol

    def _refuse(self, problem: str) -> None:
        self.problem = problem
        self.abort()

    def answered(self, response: T) -> T:
        """Stop counting the head: it is complete."""
        head, self._head = self._head, None  # they refer to each other
        if head is not None:
            head.is_complete = True
            self._protocol.__dict__.pop("dataReceived", None)
        return response

    def abort(self) -> None:
        """End the connection now, without waiting for the peer."""
        if self._protocol is not None:
            transport = self._protocol.transport
            self._protocol.abort()
            # loseConnection would wait until the peer has sent everything.
            if transport is not None:
                transport.abortConnection()


class _NoCookies(IndexableCookieJar):
    """A cookie jar that stays empty: cookies would tie our requests together, and cost time."""

    def add_cookie_header(self, request: Any) -> None:
        """Send no cookie."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Keep no cookie."""


_NO_COOKIES = _NoCookies()


class _ReadyURL(EncodedURL):
    """A URL that is percent-encoded already: treq encodes each URL, in a tenth of a request's time."""

    text = ""

    def to_uri(self) -> _ReadyURL:
        """As :meth:`hyperlink.URL.to_uri`."""
        return self

    def to_text(self, with_password: bool = False) -> str:
        """As :meth:`hyperlink.URL.to_text`."""
        return self.text


@lru_cache(maxsize=_URLS)
def _url(text: str) -> EncodedURL:
    url: Any = _ReadyURL.from_text(text)
    url.text = EncodedURL.from_text(text).to_uri().to_text()
    return cast(EncodedURL, url)


@implementer(IAgentEndpointFactory)
class _Fixed:
    """An endpoint factory that returns the same server for every URL."""

    def __init__(self, server: IStreamClientEndpoint) -> None:
        self._server = server

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        return self._server


@implementer(IBodyProducer)
class _Bytes:
    """A request body from memory, written at once, without a Cooperator."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Everything is written already."""

    def resumeProducing(self) -> None:
        """Everything is written already."""

    def stopProducing(self) -> None:
        """Everything is written already."""
