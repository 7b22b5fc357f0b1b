"""
The server of ``twisted-exec web``, on 127.0.0.1.

It checks ``Host`` of all requests, the origin of those for the login and for the API server, and
the token of the latter.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec import __version__
from twisted_exec.api.status import BadRequest, ServiceUnavailable, UnsupportedMediaType
from twisted_exec.cli.web.forwarding import METHODS, Forwarder
from twisted_exec.cli.web.headers import set_own_headers
from twisted_exec.cli.web.login import Login, check_token
from twisted_exec.cli.web.origin import check_host, check_origin
from twisted_exec.cli.web.sockets import SocketForwarder
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.streaming.http.browser_websocket import recognise_page
from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.routes import WrongMethod, not_found, split_path
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.web.static import ROOT, Page
from twisted_exec.wire.upgrade import WEBSOCKET

_MOST_CONNECTIONS = 256
"""Limit of connections besides WebSockets; a browser opens six for all tabs."""

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
        upgrade = requested_protocol(request)
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
