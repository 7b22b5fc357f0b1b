"""
The common part of the routes at all sockets of a runtime.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from twisted.internet.error import ConnectionDone

from twisted_exec.api.status import (
    APIError,
    Forbidden,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.observe.metrics import CONTENT_TYPE
from twisted_exec.streaming.enduring_streams import Offer
from twisted_exec.streaming.http.control import FurtherRequest
from twisted_exec.streaming.http.outcomes import CLIENT_LEFT
from twisted_exec.streaming.http.probes import respond_ready
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.http.responses import Dispatcher, respond, respond_text
from twisted_exec.streaming.http.routes import Routes
from twisted_exec.streaming.interfaces import (
    IAttachment,
)
from twisted_exec.streaming.remotecommand.resumable import Resumption as StreamResumption
from twisted_exec.streaming.remotecommand.server import serve
from twisted_exec.streaming.sessions.session import Session as LiveSession
from twisted_exec.tls.unix import peer_uid

if TYPE_CHECKING:
    from twisted_exec.runtimes.serving.server import TokenServer


class SocketRoutes(Dispatcher):
    """
    The routes of a socket, for users who may use it.

    :param allowed_uids: users besides root and the server's own that may use a UNIX socket.
    """

    serves_while_frozen = False
    """Answer requests even while another process takes the place of this one."""

    def __init__(self, server: TokenServer, allowed_uids: Collection[int] = ()) -> None:
        super().__init__()
        self._server = server
        self._allowed = {0, os.getuid(), *allowed_uids}
        self._routes = Routes()

    async def dispatch(self, request: Request) -> None:
        """See :meth:`Dispatcher.dispatch`."""
        if self._server.is_frozen and not self.serves_while_frozen:
            raise ServiceUnavailable("this runtime is being replaced", retry_after_seconds=1)
        self._check_peer(request)
        await self._routes.dispatch(request)

    def _check_peer(self, request: Request) -> None:
        """
        Check the user at the other end of a UNIX socket.

        :raises Forbidden: this user may not use the socket.
        """
        transport = request.channel.transport
        plug = getattr(transport, "getHandle", lambda: None)()
        if getattr(plug, "family", None) == socket.AF_UNIX:
            uid = peer_uid(transport)
            if uid not in self._allowed:
                raise Forbidden(f"user {uid} may not open consoles on this socket")

    def _serve(
        self,
        request: Request,
        attachment: IAttachment,
        live: LiveSession,
        resumption: StreamResumption | None = None,
        offer: Offer | None = None,
    ) -> bool:
        """
        Serve a console over the connection of a request.

        :return: false if the client has left; the session is over then.
        :raises APIError: the request cannot be served; the session is over.
        """
        try:
            serve(
                request,
                attachment,
                session=live.subject.session,
                user=live.subject.user,
                clock=self._server.clock,
                record=live,
                terms=live.terms,
                resumption=resumption,
                offer=offer,
            )
        except APIError as error:
            live.over(error.message, code=error.code)
            raise
        except ConnectionDone:
            live.over("client closed", code=CLIENT_LEFT)
            return False
        return True


class ServerRoutes(SocketRoutes):
    """The routes of every public server: probes and metrics."""

    def __init__(self, server: TokenServer) -> None:
        super().__init__(server, server.listening.allowed_uids)
        self._routes.add(["GET"], "/healthz", self._healthz)
        self._routes.add(["GET"], "/livez", self._healthz)
        self._routes.add(["GET"], "/readyz", self._readyz)
        self._routes.add(["GET"], "/metrics", self._metrics)

    async def _healthz(self, request: Request, names: Mapping[str, str]) -> None:
        respond_text(request, 200, "ok")

    async def _readyz(self, request: Request, names: Mapping[str, str]) -> None:
        await respond_ready(request, self._server.health)

    async def _metrics(self, request: Request, names: Mapping[str, str]) -> None:
        respond(request, 200, await self._server.registry.scrape(), CONTENT_TYPE)


def header_text(request: Request | FurtherRequest, header: bytes) -> str:
    """
    Decode a percent-encoded header; return an empty text if it is missing.

    :raises NotFound: the header occurs twice or is not ASCII; no token matches it.
    """
    values: Sequence[bytes] = request.requestHeaders.getRawHeaders(header, [])
    if not values:
        return ""
    try:
        (value,) = values
        return unquote(value.decode("ascii"), errors="strict")
    except ValueError:
        raise NotFound("exec", "", message=f"header {header.decode()} cannot be read") from None
