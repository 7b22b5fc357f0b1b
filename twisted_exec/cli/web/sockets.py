"""
WebSockets of the page, spliced with connections to the API server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IStreamClientEndpoint

from twisted_exec.api.status import BadGateway, BadRequest, GatewayTimeout, ServiceUnavailable
from twisted_exec.cli.web.forwarding import AGENT, with_remedy
from twisted_exec.cli.web.headers import handshake_headers
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.machine_requests import (
    TIMEOUT_SECONDS,
    naming_server,
    request_head,
    with_current_credentials,
)
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRefused, upgrade
from twisted_exec.streaming.http.upgrade_server import header_pairs, take_over
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending
from twisted_exec.streaming.negotiation import chosen_protocol
from twisted_exec.streaming.splice import Splice
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.frame_boundaries import WebSocketFrameBoundaries, frame_boundaries
from twisted_exec.wire.upgrade import (
    WEBSOCKET,
    check_websocket,
    forwarded_response_headers,
    is_answer,
    switching_protocols,
)

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
