"""
A long-lived text response over a WebSocket.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

from twisted_exec.api.status import Forbidden
from twisted_exec.streaming.http.output_websocket import (
    OutputSocketUser,
    connect_socket,
    output_socket,
)
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.websocket import NORMAL
from twisted_exec.streaming.text.stream import Flow, TextStream
from twisted_exec.wire.upgrade import (
    BEARER_SUBPROTOCOL,
    Headers,
    negotiate,
    tokens,
    values,
)

BINARY, BASE64 = "binary.k8s.io", "base64.binary.k8s.io"
PROTOCOLS = (BINARY, BASE64)
_BROKEN = 1011  # of RFC 6455 7.4.1: the server cannot go on
_MESSAGE_BYTES = 32 << 10


class TextSocket(TextStream, OutputSocketUser):
    """
    One WebSocket.

    The protocols are those of ``k8s.io/apiserver/pkg/util/wsstream``, ``stream.go``:
    ``binary.k8s.io``, or none, in binary messages, and ``base64.binary.k8s.io`` in text messages of
    base64 each. The first message is empty. A complete text ends with Close 1000.

    :raises BadRequest: the request is no complete handshake.
    :raises Forbidden: the request offers only other protocols.
    """

    def __init__(self, request: Request, pause: Flow, resume: Flow) -> None:
        super().__init__(pause, resume)
        self._request: Request | None = request
        self._headers = {"Audit-Id": request.subject.session}
        self._socket = output_socket(request, self._choose, self._headers)

    def _choose(self, headers: Headers) -> str:
        protocol = _protocol(headers)
        self._as_text = protocol == BASE64
        return protocol

    def begin(self, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        request, self._request = self._request, None
        assert request is not None
        for name, value in headers:
            self._headers[name.decode("ascii")] = value.decode("ascii")
        self._socket.on_flow(self._flow)
        connect_socket(request, self._socket, self)
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

    def client_left(self, reason: str) -> None:
        self._left(reason)


def _protocol(headers: Headers) -> str:
    offered = tokens(values(headers, b"sec-websocket-protocol"))
    named = [token for token in offered if not token.startswith(BEARER_SUBPROTOCOL)]
    if not named:
        return ""
    chosen = negotiate(named, PROTOCOLS)
    if chosen is None:
        raise Forbidden(f"no subprotocol in common; for a text there are {', '.join(PROTOCOLS)}")
    return chosen
