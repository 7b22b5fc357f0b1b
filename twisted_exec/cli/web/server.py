"""
The server of ``twisted-exec web``, on 127.0.0.1.

A page of another site can make the user's browser send requests here, and with a name that resolves
to 127.0.0.1 read the answers (DNS rebinding).  So ``Host`` must be ours, and ``Origin`` and
``Sec-Fetch-Site``, which pages cannot set, must not be another site's; for the page's files only
``Host`` is checked.  The token proves the user: without it a request can only read these files, and
log in.

Only listed headers pass.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import CannotListenError, ConnectionDone
from twisted.internet.interfaces import IPushProducer, IReactorTime, IStreamClientEndpoint
from twisted.web import http
from zope.interface import implementer

from twisted_exec import __version__
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    BadRequest,
    Forbidden,
    GatewayTimeout,
    ServiceUnavailable,
    Unauthorized,
    UnsupportedMediaType,
)
from twisted_exec.kube import transport as transport
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.machine_requests import (
    TIMEOUT_SECONDS,
    naming_server,
    request_head,
    with_current_credentials,
)
from twisted_exec.kube.transport import Incoming
from twisted_exec.streaming.http.pages import recognise_page
from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.routes import WrongMethod, not_found, split_path
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRefused, upgrade
from twisted_exec.streaming.http.upgrade_server import header_pairs, is_upgrade, take_over
from twisted_exec.streaming.interfaces import IDENTITY_HEADERS, SHUTTING_DOWN, Ending
from twisted_exec.streaming.negotiation import chosen_protocol
from twisted_exec.streaming.splice import Splice
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.web.static import ROOT, Page, protect
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.frame_boundaries import WebSocketFrameBoundaries, frame_boundaries
from twisted_exec.wire.upgrade import (
    WEBSOCKET,
    HeaderSet,
    check_websocket,
    forwarded_request_headers,
    forwarded_response_headers,
    is_answer,
    subprotocol_token,
    switching_protocols,
    values,
)

_MOST_CONNECTIONS = 256
"""Limit of connections besides WebSockets; a browser opens six for all tabs."""


class LocalServer:
    """
    The server on 127.0.0.1.

    :param place: where the page is: ``cluster``, ``namespace`` and ``machine``.
    :param timeout_seconds: time limit to connect to the API server, and again for the head of an
        answer; ``None`` for the defaults.
    :param server: the endpoint of the API server, instead of that of ``config``.
    :ivar login: exchanges the secret of the URL.
    """

    def __init__(
        self,
        config: Callable[[], ClientConfig],
        place: Mapping[str, Any],
        reactor: Any,
        *,
        timeout_seconds: float | None = None,
        server: IStreamClientEndpoint | None = None,
    ) -> None:
        self._reactor = reactor
        self.login = Login(reactor)
        self._forwarder = Forwarder(config, reactor, timeout_seconds, server)
        self._sockets = SocketForwarder(config, reactor, timeout_seconds, server)
        page = Page(lambda: {"local": True, "login": [], "oidc": []}, __version__)
        self._console = LocalConsole(page, self.login, place, self._forwarder, self._sockets)
        self.site = Site(self._console, reactor, max_connections=_MOST_CONNECTIONS)
        self._listening: Any = None

    async def listen(self, port: int) -> None:
        """
        Start the server.

        :param port: 0 for a free one.
        :raises ServiceUnavailable: the port is not free, or not permitted.
        """
        endpoint = server_endpoint(self._reactor, f"tcp:{port}:interface=127.0.0.1")
        try:
            self._listening = await endpoint.listen(self.site)
        except CannotListenError as problem:
            reason = os.strerror(getattr(problem.socketError, "errno", None) or 0)
            raise ServiceUnavailable(
                f"cannot listen on 127.0.0.1:{port}: {reason}; choose another --port"
            ) from None
        self.serve_at(self._listening.getHost().port)

    def serve_at(self, port: int) -> None:
        self._console.port = port

    def new_url(self) -> str:
        return f"http://127.0.0.1:{self._console.port}/console/#secret={self.login.new_secret()}"

    async def close(self) -> None:
        if self._listening is not None:
            await self._listening.stopListening()
        await self._sockets.close()
        self.site.drain()
        self._forwarder.close()  # not awaited: a server that is lost would hold up the end


_FORWARDED = ("api", "apis", "version")
"""Paths of the API server that the page uses."""

_TARGET = re.compile(rb"[\x21\x22\x24-\x7e]+")

_LOGIN = [ROOT, "login"]
_LONGEST_LOGIN = 1024


class LocalConsole(Dispatcher):
    """
    The resource of the server.

    :param page: serves the page's files.
    """

    port = 0

    def __init__(
        self,
        page: Page,
        login: Login,
        place: Mapping[str, Any],
        forwarder: Forwarder,
        sockets: SocketForwarder,
    ) -> None:
        super().__init__()
        self._page, self._login, self._place = page, login, place
        self._forwarder, self._sockets = forwarder, sockets

    async def dispatch(self, request: Request) -> None:
        set_own_headers(request)
        check_host(request, self.port)
        segments = split_path(request.path)
        if segments == _LOGIN:
            check_origin(request)
            self._log_in(request)
        elif segments in ([], [ROOT]):
            self._page.redirect(request)
        elif segments[0] == ROOT:
            self._page.respond(request, "/".join(segments[1:]))
        else:
            check_origin(request)
            recognise_page(request)
            check_token(request, self._login)
            await self._forward(request, segments)

    def _log_in(self, request: Request) -> None:
        if request.method != b"POST":
            raise _wrong_method(request, [b"POST"])
        # A page of another site cannot send this type without asking first.
        if (request.getHeader(b"Content-Type") or b"").partition(b";")[0] != b"application/json":
            raise UnsupportedMediaType("the login is application/json")
        try:
            document = json.loads(request.content.read(_LONGEST_LOGIN))
        except (ValueError, RecursionError):
            document = None
        secret = document.get("secret") if isinstance(document, dict) else None
        if not isinstance(secret, str):
            raise BadRequest('the login is a JSON object such as {"secret": "..."}')
        respond_json(request, 200, {"token": self._login.exchange(secret), **self._place})

    async def _forward(self, request: Request, segments: list[str]) -> None:
        if request.method not in METHODS:
            raise _wrong_method(request, METHODS)
        if segments[0] not in _FORWARDED:
            raise not_found()
        # The path goes to the API server behind its own one: it must not say more than it seems to.
        if "" in segments[:-1] or not _TARGET.fullmatch(request.uri):
            raise BadRequest("the path has a segment that is not a name")
        upgrade = is_upgrade(request)
        if upgrade and upgrade != WEBSOCKET:
            raise BadRequest("only WebSockets are passed on, no other upgrades")
        if upgrade:
            await self._sockets.forward(request)
        else:
            await self._forwarder.forward(request)


def _wrong_method(request: Request, allowed: list[bytes] | tuple[bytes, ...]) -> WrongMethod:
    error = WrongMethod(request.method, allowed)
    request.setHeader(b"Allow", error.allowed)
    return error


VALID_SECONDS = 30.0

_BYTES = 32
"""
Bytes of the secret, too many to guess. Wrong guesses do not make it void, because any program could
send them.
"""

REMEDY = "press Enter in the terminal where the web console runs, and open the new URL"


class Login:
    """
    The current secret, and the token.

    Every user's programs can connect to 127.0.0.1.  The URL, which only this user sees, has a
    secret in its fragment.  The page exchanges it for the token, once and soon: URLs stay in a
    browser's history and in a terminal's scrollback.

    :ivar token: valid until the program ends.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.token = secrets.token_urlsafe(_BYTES)
        self._secret = b""
        self._until = 0.0

    def new_secret(self) -> str:
        secret = secrets.token_urlsafe(_BYTES)
        self._secret = secret.encode("ascii")
        self._until = self._clock.seconds() + VALID_SECONDS
        return secret

    def exchange(self, presented: str) -> str:
        """
        Return the token for a secret, which is void afterwards.

        :raises Forbidden: the secret is wrong, was used, or is too old.
        """
        if self._clock.seconds() >= self._until:
            self._secret = b""
        if not self._secret or not _equal(presented.encode("utf-8", "replace"), self._secret):
            raise Forbidden(
                f"This URL was used already, is older than {VALID_SECONDS:.0f} s, or is incomplete: "
                f"{REMEDY}"
            )
        self._secret = b""
        return self.token

    def is_token(self, presented: bytes) -> bool:
        return _equal(presented, self.token.encode("ascii"))


def _equal(first: bytes, second: bytes) -> bool:
    return hmac.compare_digest(first, second)


_NAMES = (b"127.0.0.1", b"localhost")
_HTTP_PORT = 80
_OWN_SITES = (b"same-origin", b"none")
"""Values of ``Sec-Fetch-Site`` of our page, and of URLs that the user typed."""


class MisdirectedRequest(APIError):
    """The request names another server (421)."""

    code, reason = 421, "MisdirectedRequest"


class NoToken(Unauthorized):
    """The request has no token of this program."""

    def __init__(self) -> None:
        super().__init__(
            f"this page is not logged in to the web console on this computer: {REMEDY}"
        )


def check_host(request: Request, port: int) -> None:
    """
    Refuse requests for other names than ours.

    :raises MisdirectedRequest: ``Host`` is not ours.
    """
    hosts = request.requestHeaders.getRawHeaders(b"Host", [])
    if len(hosts) != 1 or hosts[0].lower() not in _our_hosts(port):
        raise MisdirectedRequest(f"this is the web console at http://127.0.0.1:{port}/console/")


def _our_hosts(port: int) -> list[bytes]:
    hosts = [name + b":%d" % port for name in _NAMES]
    return [*hosts, *_NAMES] if port == _HTTP_PORT else hosts  # browsers omit the default port


def check_origin(request: Request) -> None:
    """
    Refuse requests of pages of other sites; ``Host`` has been checked.

    :raises Forbidden: a page of another site sent the request, or may have sent it.
    """
    headers = request.requestHeaders
    host = headers.getRawHeaders(b"Host", [b""])[0].lower()
    origins = headers.getRawHeaders(b"Origin", [])
    sites = headers.getRawHeaders(b"Sec-Fetch-Site", [])
    is_ours = all(origin.lower() == b"http://" + host for origin in origins)
    if not is_ours or not all(site.lower() in _OWN_SITES for site in sites):
        raise Forbidden("a page of another site may not use the web console on this computer")


def check_token(request: Request, login: Login) -> None:
    """
    Refuse requests without the token.

    :raises BadRequest: the token among the subprotocols is malformed.
    :raises Unauthorized: there is no token, or another one.
    """
    pairs = header_pairs(request.requestHeaders)
    try:
        token = subprotocol_token(pairs)
    except RemoteProtocolError as problem:
        raise BadRequest(str(problem)) from None
    authorizations = values(pairs, b"authorization")
    if token is None and len(authorizations) == 1:
        scheme, _, credentials = authorizations[0].partition(b" ")
        token = credentials.strip() if scheme.lower() == b"bearer" else None
    if token is None or not login.is_token(token):
        raise NoToken


AGENT = "twisted-exec-web"
_CONNECT_SECONDS = 10.0
HEAD_SECONDS = 60.0
"""Longest wait for the head of an answer, as a kube-apiserver's own limit for short requests."""

_LONG = (b"follow", b"watch")
"""Parameters of requests that may be answered only when something happens."""

METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE")


class Forwarder:
    """
    Forwards plain requests to the API server with the credentials of a kubeconfig.

    A redirect would carry them elsewhere, so none is followed or passed on.
    """

    def __init__(
        self,
        config: Callable[[], ClientConfig],
        reactor: Any,
        timeout_seconds: float | None = None,
        server: IStreamClientEndpoint | None = None,
    ) -> None:
        self._head_seconds = timeout_seconds or HEAD_SECONDS
        self._http = transport.HTTPTransport(
            config(),
            reactor,
            connect_seconds=timeout_seconds or _CONNECT_SECONDS,
            server=server,
            renew=config,
            agent=AGENT,
        )

    async def forward(self, request: Request) -> None:
        """
        Answer a request with the answer of the API server.

        :raises APIError: the request cannot be passed on, or has no answer to pass.
        """
        is_long = any(name in request.args for name in _LONG)
        try:
            incoming = await self._http.open(
                _outgoing(request), head_seconds=None if is_long else self._head_seconds
            )
        except (BadGateway, GatewayTimeout) as problem:
            raise with_remedy(problem) from None
        if 300 <= incoming.code < 400 and incoming.code != http.NOT_MODIFIED:
            incoming.abort()
            raise BadGateway(
                f"the API server answered {incoming.code}; redirects are not followed: "
                "check the server in the kubeconfig"
            )
        answer = _Answer(request, incoming)
        await answer.done

    def close(self) -> Deferred[None]:
        return self._http.close()


def with_remedy(problem: APIError) -> APIError:
    """Say what to do about a server that cannot be reached."""
    message = f"{problem.message}; check the network and the kubeconfig"
    return APIError(message, code=problem.code, reason=problem.reason)


def _outgoing(request: Request) -> transport.Request:
    headers: dict[str, list[str]] = {}
    for name, value in request_headers(request):
        headers.setdefault(name.decode("ascii").lower(), []).append(value.decode("ascii"))
    # Without it the client would not say that it understands compressed answers, but some servers
    # compress what was not asked for.
    headers.setdefault("accept-encoding", ["identity"])
    content_type = ", ".join(headers.pop("content-type", ["application/json"]))
    method = request.method.decode("ascii")
    return transport.Request(
        method,
        request.uri.decode("ascii"),
        request.content.read(),
        content_type,
        repeatable=method in ("GET", "HEAD"),
        headers=[(name, ", ".join(values)) for name, values in headers.items()],
    )


@implementer(IPushProducer)
class _Answer:
    """
    An answer on its way to the page.

    :ivar done: fires at its end, or when the page has left; cancelling ends the answer.
    """

    def __init__(self, request: Request, incoming: Incoming) -> None:
        self._request, self._incoming = request, incoming
        self.done: Deferred[None] = Deferred(lambda _: incoming.abort())
        request.setResponseCode(incoming.code)
        set_answer_headers(request, incoming.headers)
        if incoming.length is not None and request.method != b"HEAD":
            request.setHeader(b"Content-Length", b"%d" % incoming.length)
        request.registerProducer(self, True)
        request.write(b"")  # a watch may have no event for a long time
        incoming.deliver(self._received, self._ended)

    def _received(self, data: bytes) -> None:
        if not self._request.gone:
            self._request.write(data)

    def _ended(self, complete: bool) -> None:
        request = self._request
        if not request.gone:
            request.unregisterProducer()
            if complete:
                request.finish()
            else:  # an incomplete answer must not end as if it were complete
                request.channel.transport.abortConnection()
        if not self.done.called:
            self.done.callback(None)

    def pauseProducing(self) -> None:
        self._incoming.pause()

    def resumeProducing(self) -> None:
        self._incoming.resume()

    def stopProducing(self) -> None:
        self._incoming.abort()


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


MOST_SOCKETS = 400
"""Limit of open WebSockets; a tab has one for each terminal and for each watch."""

_END_SECONDS = 0.5
"""Time for the browser and the API server to close a WebSocket."""

_COMMANDS = (b"exec", b"attach", b"console")

_STOPPED = Ending(
    "WebConsoleStopped",  # the page opens a new session after its next login
    "the web console on this computer was stopped; start it again and open its new URL",
)


@dataclass(frozen=True)
class _Socket:
    boundaries: WebSocketFrameBoundaries
    last_words: bytes


class SocketForwarder:
    """Splices WebSockets of the page, such as consoles, with connections to the API server."""

    def __init__(
        self,
        config: Callable[[], ClientConfig],
        reactor: Any,
        timeout_seconds: float | None = None,
        server: IStreamClientEndpoint | None = None,
    ) -> None:
        self._config, self._reactor, self._server = config, reactor, server
        self._timeout_seconds = timeout_seconds or TIMEOUT_SECONDS
        self._open: dict[Splice, _Socket] = {}
        self._opening = 0
        self._all_closed: Deferred[None] | None = None

    async def forward(self, request: Request) -> None:
        """
        Open a WebSocket at the API server, and give it to the page.

        :raises APIError: the handshake is not valid, too many WebSockets are open, or the API
            server refuses or cannot be reached.
        """
        try:
            check_websocket(request.method, header_pairs(request.requestHeaders))
        except RemoteProtocolError as problem:
            raise BadRequest(str(problem)) from None
        if len(self._open) + self._opening >= MOST_SOCKETS:
            raise ServiceUnavailable(
                f"{MOST_SOCKETS} terminals and watches are open here: close some tabs"
            )
        self._opening += 1
        try:
            upgraded = await self._upgraded(request)
        finally:
            self._opening -= 1
        self._join(request, upgraded)

    async def _upgraded(self, request: Request) -> Upgraded:
        path, _, query = request.uri.partition(b"?")
        ours = [(b"Connection", b"Upgrade"), (b"Upgrade", WEBSOCKET), *handshake_headers(request)]

        async def opened(config: ClientConfig) -> Upgraded:
            head = request_head(config, path.decode("ascii"), query, AGENT)
            head = replace(head, headers=[*head.headers, *ours])
            server = self._server or endpoint(
                config, self._reactor, timeout_seconds=self._timeout_seconds
            )
            try:
                with naming_server(config):
                    upgraded = await upgrade(
                        server, head, clock=self._reactor, timeout_seconds=self._timeout_seconds
                    )
            except UpgradeRefused as refused:
                raise refused.as_api_error() from None
            except (BadGateway, GatewayTimeout) as problem:
                raise with_remedy(problem) from None
            if not is_answer(upgraded.headers, head.headers):
                upgraded.abort()
                raise BadGateway("the API server answered with a protocol that was not offered")
            return upgraded

        try:
            return await with_current_credentials(self._config(), self._reactor, opened)
        except KubeConfigError as problem:
            raise with_remedy(BadGateway(str(problem))) from None

    def _join(self, request: Request, upgraded: Upgraded) -> None:
        # Without the protocol's status: if the API server is lost, the page must see the loss of its
        # connection, or it would not resume the session.
        boundaries = WebSocketFrameBoundaries(None)
        splice = Splice(self._reactor, lambda _: self._closed(splice))
        splice.follow(boundaries)
        headers, request_path = forwarded_response_headers(upgraded.headers), request.path
        try:
            take_over(request, splice.user, switching_protocols(WEBSOCKET, headers))
        except ConnectionDone:
            upgraded.abort()
            raise CancelledError from None
        command = request_path.rpartition(b"/")[2] in _COMMANDS
        protocol = chosen_protocol(upgraded.headers)
        last_words = frame_boundaries(WEBSOCKET, protocol, commands=command).last_words(_STOPPED)
        self._open[splice] = _Socket(boundaries, last_words)
        upgraded.hand_over(splice.machine)

    def _closed(self, splice: Splice) -> None:
        self._open.pop(splice, None)
        if not self._open and self._all_closed is not None:
            self._all_closed.callback(None)

    async def close(self) -> None:
        """Tell every page that the program ends, and close."""
        if not self._open:
            return
        self._all_closed = Deferred()
        closing = self._all_closed
        for splice, socket in list(self._open.items()):
            if socket.boundaries.at_edge:
                # The browser answers with a Close, which reaches the API server: that ends the
                # session there, instead of keeping it for a page that comes back.
                splice.user.transport.write(socket.last_words)
                splice.machine.drop()  # the API server answers with a Close, too
            else:
                splice.say(_STOPPED)
        limit = self._reactor.callLater(_END_SECONDS, self._sever)
        await closing
        if limit.active():
            limit.cancel()

    def _sever(self) -> None:
        for splice in list(self._open):
            browser = splice.user.transport
            splice.sever(SHUTTING_DOWN)
            browser.abortConnection()
