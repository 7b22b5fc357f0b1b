"""
WebSockets over which only the server sends, such as logs and watches.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted_exec.api.status import BadRequest
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import header_pairs, take_over
from twisted_exec.streaming.http.websocket import ServerSocket, server_factory, start
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.upgrade import Headers, check_websocket, values

_RECEIVED_BYTES = 64 << 10
_LINGER_SECONDS = 10.0


def output_socket(
    request: Request, choose: Callable[[Headers], str], headers: dict[str, str]
) -> ServerSocket:
    """
    Return the socket for a request; :func:`connect_socket` connects it.

    :param headers: of the answer; the caller may add to them until then.
    :raises BadRequest: the request is no complete handshake.
    """
    received = header_pairs(request.requestHeaders)
    try:
        check_websocket(request.method, received)
    except RemoteProtocolError as problem:
        raise BadRequest(str(problem)) from None
    (key,) = values(received, b"sec-websocket-key")
    return ServerSocket(key.decode("ascii"), choose(received), headers)


def connect_socket(request: Request, socket: ServerSocket, user: OutputSocketUser) -> None:
    """Take the request's connection over."""
    clock = request.channel.site.reactor
    factory = server_factory(clock, _RECEIVED_BYTES)
    take_over(request, start(socket, factory, user, clock, _LINGER_SECONDS))


class OutputSocketUser:
    """Callbacks of a socket over which only the server sends."""

    def client_left(self, reason: str) -> None:
        """Handle the client's Close, or the loss of the connection; both may happen."""
        raise NotImplementedError

    def opened(self) -> None:
        """Nothing to do: output follows."""

    def message_received(self, message: bytes) -> None:
        """Ignored."""

    def pong_received(self) -> None:
        """Ignored: this end sends no pings."""

    def failing(self, reason: str) -> None:
        """Nothing to do: ``lost`` follows."""

    def close_received(self, code: int | None, reason: str) -> None:
        self.client_left("client closed")

    def lost(self, reason: str) -> None:
        self.client_left("client lost")
