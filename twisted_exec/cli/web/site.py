"""
The HTTP server of ``twisted-exec web``: the page, its login, and the API behind it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from twisted_exec.api.status import BadRequest, UnsupportedMediaType
from twisted_exec.cli.web.forwarding import METHODS, Forwarder
from twisted_exec.cli.web.headers import set_own_headers
from twisted_exec.cli.web.login import Login
from twisted_exec.cli.web.origin import check_host, check_origin, check_token
from twisted_exec.cli.web.sockets import Sockets
from twisted_exec.streaming.http.pages import recognise_page
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.routes import WrongMethod, not_found, split_path
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.web.static import ROOT, Page
from twisted_exec.wire.upgrade import WEBSOCKET

_FORWARDED = ("api", "apis", "version")
"""First segments of the API server's paths that the page uses."""

_TARGET = re.compile(rb"[\x21\x22\x24-\x7e]+")
"""A path with a query: no fragment, no spaces, only ASCII."""

_LOGIN = [ROOT, "login"]
_LONGEST_LOGIN = 1024


class LocalConsole(Dispatcher):
    """
    Answers every request.

    :param page: serves the page's files, to every user of this computer.
    :param place: see :class:`~twisted_exec.cli.web.server.LocalServer`.
    :ivar port: the port of this server, once it listens.
    """

    port = 0

    def __init__(
        self,
        page: Page,
        login: Login,
        place: Mapping[str, Any],
        forwarder: Forwarder,
        sockets: Sockets,
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
