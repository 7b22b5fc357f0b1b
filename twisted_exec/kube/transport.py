"""
HTTP requests to one API server, limited in time and size.

The time limit covers the whole exchange, except for :meth:`HTTPTransport.open`. A cancelled or
timed-out exchange aborts its connection. Compressed answers are decompressed in pieces, so that the
limit of size holds for the decompressed body, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure
from twisted.web.client import (
    URI,
    Agent,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
)
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import APIError, BadGateway, GatewayTimeout
from twisted_exec.kube.answer_heads import AnswerHead
from twisted_exec.kube.bodies import Body, BodyBytes, Gunzip, Misuse
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.connection import connection_stamp, endpoint
from twisted_exec.kube.kubeconfig.credentials import renewed, settled
from twisted_exec.kube.kubeconfig.headers import identity_headers
from twisted_exec.streaming.http.upgrade_client import connection_obstacle, connection_problem

T = TypeVar("T")
USER_AGENT = "twisted-exec"

IDLE_CONNECTIONS = 32
"""Idle connections that are kept for later requests."""

# Shorter than the idle timeout of known servers (kube-apiserver 90 s and more, ours
# 60 s), so that a server rarely closes a connection just as we use it.
IDLE_SECONDS = 30

Answer = tuple[int, Mapping[str, str], bytes]
"""Code, selected headers, body."""

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""Exceptions of Twisted's response parser, other than its own classes."""

_GZIP = b"gzip"
_SELECTED_HEADERS = ("retry-after", "content-type", "cache-control", "date")


class Incoming:
    """
    An answer whose head has arrived; its body is paused.

    :ivar headers: without those of the connection, such as ``Transfer-Encoding``.
    :ivar length: bytes of the body, if known.
    """

    def __init__(self, response: Any, use: Use) -> None:
        self._response, self._use = response, use
        self.code: int = response.code
        self.headers: Sequence[tuple[bytes, bytes]] = [
            (name, value)
            for name, values in response.headers.getAllRawHeaders()
            for value in values
        ]
        length = response.length
        self.length: int | None = length if isinstance(length, int) else None
        self._body: Body | None = None
        self._is_paused = False

    def deliver(self, data: Callable[[bytes], None], ended: Callable[[bool], None]) -> None:
        """
        Start delivery.

        :param ended: called with whether the body is complete, but not after :meth:`abort`.
        """
        body = self._body = Body(data, self._use.abort)
        body.done.addCallbacks(lambda _: ended(True), self._failed, errbackArgs=(ended,))
        self._response.deliverBody(body)
        if self._is_paused:  # during the first pieces: deliverBody resumes the connection
            self.pause()

    def _failed(self, failure: Failure, ended: Callable[[bool], None]) -> None:
        if not failure.check(CancelledError):
            ended(False)

    def pause(self) -> None:
        """Stop reading the connection; bytes already read are still delivered."""
        self._flow("pauseProducing", True)

    def resume(self) -> None:
        self._flow("resumeProducing", False)

    def _flow(self, call: str, is_paused: bool) -> None:
        self._is_paused = is_paused
        # Without a body there is no connection any more.
        if self._body is not None and self._body.transport is not None:
            getattr(self._body.transport, call)()

    def abort(self) -> None:
        """Discard the rest, and end the connection."""
        if self._body is None:
            self._use.abort()
        else:
            self._body.done.cancel()


class Use:
    """A pool for one exchange, which can abort it."""

    def __init__(self, pool: HTTPConnectionPool) -> None:
        self._pool = pool
        self.persistent = pool.persistent
        self._protocol: Any = None
        self._head: AnswerHead | None = None
        self.problem = ""

    def getConnection(self, key: object, endpoint: IStreamClientEndpoint) -> Deferred[Any]:
        connecting: Deferred[Any] = self._pool.getConnection(key, endpoint)
        return connecting.addCallback(self._connected)

    def _connected(self, protocol: Any) -> Any:
        self._protocol = protocol
        self._head = AnswerHead(protocol, self._refuse)
        protocol.dataReceived = self._head.received
        return protocol

    def _refuse(self, problem: str) -> None:
        self.problem = problem
        self.abort()

    def answered(self, response: T) -> T:
        head, self._head = self._head, None  # they refer to each other
        if head is not None:
            head.is_complete = True
            self._protocol.__dict__.pop("dataReceived", None)
        return response

    def abort(self) -> None:
        if self._protocol is not None:
            transport = self._protocol.transport
            self._protocol.abort()
            # loseConnection would wait until the peer has sent everything.
            if transport is not None:
                transport.abortConnection()


@implementer(IAgentEndpointFactory)
class FixedServer:
    """An endpoint factory that returns the same server for every URL."""

    def __init__(self, server: IStreamClientEndpoint) -> None:
        self._server = server

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        return self._server


Opened = tuple[int, Incoming]
"""Code and answer."""

A = TypeVar("A", Answer, Opened)


@dataclass(frozen=True)
class Request:
    """
    One request.

    :param repeatable: sending it twice does no harm.
    :param headers: further headers, which may be secret.
    :param kept_headers: names, in lower case, of further headers of the answer that are returned;
        they may be secret.
    :param target: path and query, percent-encoded.
    """

    method: str
    target: str
    body: bytes = field(default=b"", repr=False)
    content_type: str = "application/json"
    repeatable: bool = False
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    kept_headers: Sequence[str] = ()


class IdleConnections:
    """
    Idle connections that are kept for later requests, of one transport or of several.

    Transports share them that differ only in the user whom they impersonate, or in the token: each request has these,
    and the connection has only the client certificate.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._stamp: Hashable = None
        self._pool = self._new_pool()

    def pool(self, stamp: Hashable) -> HTTPConnectionPool:
        """
        Return the pool for connections; those with other settings than the last are closed.

        :param stamp: as of :func:`.connection_stamp`.
        """
        if stamp != self._stamp:
            self.close()
            self._stamp, self._pool = stamp, self._new_pool()
        return self._pool

    def close(self) -> Deferred[None]:
        """Close those that are idle, and each other after its request; fires when the former are closed."""
        self._pool.cachedConnectionTimeout = 0
        closing: Deferred[None] = self._pool.closeCachedConnections()
        return closing

    def _new_pool(self) -> HTTPConnectionPool:
        pool = HTTPConnectionPool(self._reactor, persistent=True)
        pool.maxPersistentPerHost = IDLE_CONNECTIONS
        pool.cachedConnectionTimeout = IDLE_SECONDS
        # The pool must not retry: it would hide which connection is in use, and abort() needs it.
        pool.retryAutomatically = False
        return pool


class HTTPTransport:
    """
    Sends requests to the server of ``config``.

    Connections are persistent and shared, but not those of streams. New requests use new
    connections after a change of server, proxy, TLS settings or PEM files.

    :param connections: those of several transports, whose owner closes them; ``None`` for its own.
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
        connections: IdleConnections | None = None,
    ) -> None:
        self.config, self._peer = config, peer
        self._agent = agent.encode("ascii")
        self._settled_config = config  # with credentials of plugins
        self._renew = renew
        self._changes = 0
        self._reactor = reactor
        self._connect_seconds, self._given_server = connect_seconds, server
        self._server = self._endpoint()
        self._is_sharing = connections is not None
        self._connections = connections or IdleConnections(reactor)
        self._stamp = connection_stamp(config)

    def _endpoint(self) -> IStreamClientEndpoint:
        return self._given_server or endpoint(
            self._settled_config, self._reactor, timeout_seconds=self._connect_seconds
        )

    def close(self) -> Deferred[None]:
        """Close its own idle connections; fires when they are closed."""
        if self._is_sharing:
            return succeed(None)
        # A caller that cancels must not cancel the close itself: its failure would be unhandled.
        closed: Deferred[None] = Deferred()
        closing = self._connections.close()
        closing.addBoth(lambda _: None if closed.called else closed.callback(None))
        return closed

    async def collect(
        self, request: Request, *, timeout_seconds: float, limit_bytes: int
    ) -> Answer:
        """
        Send a request and return the whole answer.

        :raises BadGateway: the server is unreachable, there are no usable credentials, or the
            answer is not valid or too large.
        :raises GatewayTimeout: the answer was not complete in time.
        """

        def exchange() -> Deferred[Answer]:
            once = Deferred.fromCoroutine(self._collect_twice(request, limit_bytes))
            return once.addTimeout(timeout_seconds, self._reactor)

        return await self._with_credentials(exchange)

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

        Other answers are collected and returned, as by :meth:`collect`. After a stream the returned
        body is empty.
        """

        def exchange() -> Deferred[Answer]:
            once = Deferred.fromCoroutine(
                self._stream(request, receive, begun, head_seconds, limit_bytes)
            )
            return once.addTimeout(total_seconds, self._reactor)

        return await self._with_credentials(exchange)

    async def open(self, request: Request, *, head_seconds: float | None) -> Incoming:
        """
        Send a request, and return the answer when its head has arrived.

        Its body is not decoded. Errors are those of :meth:`collect`.
        """

        def exchange() -> Deferred[Opened]:
            once = Deferred.fromCoroutine(self._open_twice(request))
            return once if head_seconds is None else once.addTimeout(head_seconds, self._reactor)

        _, incoming = await self._with_credentials(exchange)
        return incoming

    async def _with_credentials(self, exchange: Callable[[], Deferred[A]]) -> A:
        """
        Run an exchange with credentials; the time of a plugin does not count for the time limit.
        """
        asking = Deferred.fromCoroutine(self._with_renewed_credentials(exchange))
        return await self._translated(asking)

    async def _with_renewed_credentials(self, exchange: Callable[[], Deferred[A]]) -> A:
        config = self._current()
        settled_config = await settled(config, self._reactor)
        self._follow(settled_config)
        answer = await exchange()
        if answer[0] != 401:
            return answer
        # Even a write may be sent again: a server that answers 401 has not begun it.
        other = await renewed(config, self._reactor, settled_config)
        if other is None:
            return answer
        if isinstance(answer[1], Incoming):
            answer[1].abort()
        self._follow(other)
        return await exchange()

    async def _collect_twice(self, request: Request, limit_bytes: int) -> Answer:
        try:
            return await self._collect(request, limit_bytes)
        except (ResponseNeverReceived, RequestTransmissionFailed):
            if not request.repeatable:
                raise
        return await self._collect(request, limit_bytes)

    async def _open_twice(self, request: Request) -> Opened:
        try:
            return await self._open(request)
        except (ResponseNeverReceived, RequestTransmissionFailed):
            if not request.repeatable:
                raise
        return await self._open(request)

    async def _open(self, request: Request) -> Opened:
        use = Use(self._connections.pool(self._stamp))
        response = await self._send(request, use, self._headers(request))
        return response.code, Incoming(response, use)

    async def _collect(self, request: Request, limit_bytes: int) -> Answer:
        use = Use(self._connections.pool(self._stamp))
        headers = self._headers(request)
        headers.setRawHeaders(b"Accept-Encoding", [_GZIP])
        response = await self._send(request, use, headers)
        return await _collected(response, limit_bytes, use, request.kept_headers)

    async def _stream(
        self,
        request: Request,
        receive: Callable[[bytes], None],
        begun: Callable[[], None],
        head_seconds: float,
        limit_bytes: int,
    ) -> Answer:
        # A stream has a connection of its own, which closes with it.
        use = Use(HTTPConnectionPool(self._reactor, persistent=False))
        # Not compressed: a few bytes could become many megabytes of events in one turn.
        head = self._send(request, use, self._headers(request))
        response = await head.addTimeout(head_seconds, self._reactor)
        if response.code != 200:
            return await _collected(response, limit_bytes, use)
        begun()
        body = Body(receive, use.abort)
        response.deliverBody(body)
        await body.done
        return response.code, {}, b""

    def _headers(self, request: Request) -> Headers:
        headers = Headers({b"User-Agent": [self._agent], b"Accept": [b"application/json"]})
        for name, value in identity_headers(self._settled_config):
            headers.addRawHeader(name, value)
        for further, text in request.headers:
            headers.setRawHeaders(further, [text])
        if request.body:
            headers.setRawHeaders(b"Content-Type", [request.content_type.encode("ascii")])
        return headers

    def _send(self, request: Request, use: Use, headers: Headers) -> Deferred[Any]:
        agent = Agent.usingEndpointFactory(self._reactor, FixedServer(self._server), use)
        sent: Deferred[Any] = agent.request(
            request.method.encode("ascii"),
            (self._settled_config.server + request.target).encode("ascii"),
            headers,
            BodyBytes(request.body) if request.body else None,
        )
        return sent.addBoth(use.answered).addErrback(self._refused, use)

    def _refused(self, failure: Failure, use: Use) -> Failure:
        if use.problem:
            return Failure(BadGateway(f"{self._peer} {self.config.server}: {use.problem}"))
        return _plain_cancellation(failure)

    def look(self) -> int:
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
        self._settled_config = settled_config
        stamp = connection_stamp(settled_config)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        self._server = self._endpoint()

    async def _translated(self, exchange: Deferred[A]) -> A:
        try:
            return await exchange
        except (APIError, CancelledError):
            raise
        except (error.TimeoutError, TimeoutError) as problem:
            late = GatewayTimeout(f"{self._peer} {self.config.server} did not answer in time")
            obstacle = connection_obstacle(problem)
            raise because(Obstacle.SERVER_UNREACHABLE, because(obstacle, late)) from None
        except Misuse as wrapped:
            raise wrapped.cause from None
        except KubeConfigError as problem:  # the credential plugin failed
            raise BadGateway(str(problem)) from None
        except Exception as failed:
            # TCP, TLS and proxies raise many unrelated types; for the caller all of them
            # mean that the server cannot be reached.
            obstacle, why = _why(failed)
            unreached = BadGateway(f"cannot reach {self._peer} {self.config.server}: {why}")
            raise because(Obstacle.SERVER_UNREACHABLE, because(obstacle, unreached)) from None


def _plain_cancellation(failure: Failure) -> Failure:
    """Unwrap a cancellation, which Twisted wraps as ResponseNeverReceived."""
    reasons = getattr(failure.value, "reasons", [])
    return next((reason for reason in reasons if reason.check(CancelledError)), failure)


def _why(failed: BaseException) -> tuple[Obstacle | None, str]:
    if isinstance(failed, (ResponseFailed, RequestTransmissionFailed)):
        if failed.reasons:
            return _why_no_answer(failed.reasons[0].value)
        return Obstacle.NO_ANSWER, "no answer"
    if isinstance(failed, (error.ConnectionDone, error.ConnectionLost)):
        return Obstacle.CONNECTION_LOST, "connection lost"
    return connection_obstacle(failed), connection_problem(failed)


def _why_no_answer(failed: BaseException) -> tuple[Obstacle | None, str]:
    """
    Return one line for an error after the request was sent.

    A malformed response is not quoted: the server got our credentials, and may echo them to a user
    who must not see them.
    """
    if isinstance(failed, _UNREADABLE) or type(failed).__module__.startswith("twisted.web."):
        return Obstacle.NO_HTTP, "what it answers is no HTTP"
    return _why(failed)


async def _collected(
    response: Any, limit_bytes: int, use: Use, kept_headers: Sequence[str] = ()
) -> Answer:
    encoding = (response.headers.getRawHeaders(b"content-encoding") or [b""])[-1]
    is_compressed = encoding.strip().lower() == _GZIP
    if not is_compressed and isinstance(response.length, int) and response.length > limit_bytes:
        use.abort()
        raise _too_large(limit_bytes)
    collector = _Collector(limit_bytes)
    gunzip = Gunzip(collector.add) if is_compressed else None
    body = Body(collector.add if gunzip is None else gunzip.feed, use.abort)
    response.deliverBody(body)
    try:
        await body.done
        if gunzip is not None:
            gunzip.finish()
        content = bytes(collector.content)
    except Misuse as wrapped:
        raise wrapped.cause from None
    finally:
        # The frames of an error's traceback refer to it, and callers keep errors.
        collector.content = bytearray()
    headers = {
        name: (response.headers.getRawHeaders(name) or [""])[0]
        for name in (*_SELECTED_HEADERS, *kept_headers)
    }
    return response.code, headers, content


def _too_large(limit_bytes: int) -> BadGateway:
    return BadGateway(f"the server's answer is larger than {limit_bytes} bytes")


class _Collector:
    def __init__(self, limit_bytes: int) -> None:
        # One block, which the system gets back; not a list, in which a piece of two bytes takes fifty.
        self.content = bytearray()
        self._limit = limit_bytes

    def add(self, data: bytes) -> None:
        if len(self.content) + len(data) > self._limit:
            raise _too_large(self._limit)
        self.content += data
