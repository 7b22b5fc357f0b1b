"""
Text over a WebSocket, for pages in a browser: without CORS they cannot send a token in a header of
a plain request.

The protocols are Kubernetes' own for read-only streams (``k8s.io/apiserver/pkg/util/wsstream``,
``stream.go``): ``binary.k8s.io``, or none, in binary messages, and ``base64.binary.k8s.io`` in text
messages of base64 each.  The first message is empty.  Messages of the client are ignored.  A
complete text ends with Close 1000, an incomplete one with 1011.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

from twisted_exec.api.status import BadRequest, Forbidden
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import header_pairs, take_over
from twisted_exec.streaming.http.websocket import NORMAL, ServerSocket, server_factory, start
from twisted_exec.streaming.text.stream import Flow, TextStream
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.upgrade import (
    BEARER_SUBPROTOCOL,
    Headers,
    check_websocket,
    negotiate,
    tokens,
    values,
)

BINARY, BASE64 = "binary.k8s.io", "base64.binary.k8s.io"
PROTOCOLS = (BINARY, BASE64)

_BROKEN = 1011
_MESSAGE_BYTES = 32 << 10
_HEARD_BYTES = 64 << 10
_LINGER_SECONDS = 10.0


class TextSocket(TextStream):
    """
    One WebSocket.

    :raises BadRequest: the request is no complete handshake.
    :raises Forbidden: it offers only other protocols.
    """

    def __init__(self, request: Request, pause: Flow, resume: Flow) -> None:
        super().__init__(pause, resume)
        headers = header_pairs(request.requestHeaders)
        try:
            check_websocket(request.method, headers)
        except RemoteProtocolError as problem:
            raise BadRequest(str(problem)) from None
        (key,) = values(headers, b"sec-websocket-key")
        protocol = _protocol(headers)
        self._as_text = protocol == BASE64
        self._request: Request | None = request
        self._clock = request.channel.site.reactor
        self._headers = {"Audit-Id": request.subject.session}
        self._socket = ServerSocket(key.decode("ascii"), protocol, self._headers)

    def begin(self, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        request, self._request = self._request, None
        assert request is not None
        for name, value in headers:
            self._headers[name.decode("ascii")] = value.decode("ascii")
        self._socket.on_flow(self._flow)
        factory = server_factory(self._clock, _HEARD_BYTES)
        take_over(request, start(self._socket, factory, self, self._clock, _LINGER_SECONDS))
        self._socket.send(b"", text=self._as_text)

    def _put(self, data: bytes) -> None:
        for at in range(0, len(data), _MESSAGE_BYTES):
            piece = data[at : at + _MESSAGE_BYTES]
            self._socket.send(base64.b64encode(piece) if self._as_text else piece, self._as_text)

    def _completing(self) -> Callable[[], object]:
        return lambda: self._close(NORMAL)

    def _breaking(self) -> Callable[[], object]:
        return lambda: self._close(_BROKEN)

    def _cutting(self) -> Callable[[], object]:
        return self._socket.abort

    def _close(self, code: int) -> None:
        self._socket.close(code)
        self._socket.hang_up()

    def _flow(self, full: bool) -> None:
        if full:
            self._pause()
        else:
            self._resume()

    # Callbacks of the socket

    def opened(self) -> None:
        """Nothing to do: the first message follows."""

    def message_received(self, message: bytes) -> None:
        """Ignored."""

    def pong_received(self) -> None:
        """Ignored: this end sends no pings."""

    def failing(self, reason: str) -> None:
        """Nothing to do: the socket sends a Close with the reason; ``lost`` follows."""

    def close_received(self, code: int | None) -> None:
        """The client leaves; the socket answers its Close."""
        self._left("client closed")

    def lost(self, reason: str) -> None:
        """The connection is lost."""
        self._left("client lost")


def _protocol(headers: Headers) -> str:
    """
    Return the client's first protocol that we speak; empty if it offers only its token.

    :raises Forbidden: we speak none of them.
    """
    offered = tokens(values(headers, b"sec-websocket-protocol"))
    named = [token for token in offered if not token.startswith(BEARER_SUBPROTOCOL)]
    if not named:
        return ""
    chosen = negotiate(named, PROTOCOLS)
    if chosen is None:
        raise Forbidden(f"no subprotocol in common; for a text there are {', '.join(PROTOCOLS)}")
    return chosen
