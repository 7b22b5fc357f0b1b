"""
The console of the small BMC over WebSocket, as bmcweb's, with the token of a session.

Faults are attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from autobahn.twisted.resource import WebSocketResource
from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from autobahn.websocket.types import ConnectionDeny
from twisted.internet import reactor as _reactor
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

reactor: Any = _reactor

MOST_CONSOLES = 32
"""bmcweb accepts the next one, and closes it with a reason."""


class Console:
    """
    One serial console; by default it echoes.

    :ivar tokens: values of ``X-Auth-Token`` that are accepted.
    :ivar greeting: printed at the start of each connection.
    :ivar answer: the messages that follow from input; by default its echo.
    :ivar most: how many connections there may be.
    :ivar answers: status codes for the next requests, in place of a console.
    :ivar location: of redirects.
    :ivar hangs: do not answer requests.
    :ivar is_deaf: do not answer pings.
    :ivar sockets: the open connections, the newest last.
    :ivar got: all input.
    :ivar requests: paths of all requests.
    """

    def __init__(self) -> None:
        self.tokens: set[str] = set()
        self.greeting = b""
        self.answer: Callable[[bytes], Iterable[bytes]] = lambda data: (data,)
        self.most = MOST_CONSOLES
        self.answers: list[int] = []
        self.location = b""
        self.hangs = False
        self.is_deaf = False
        self.sockets: list[ConsoleSocket] = []
        self.got = b""
        self.requests: list[bytes] = []
        factory = WebSocketServerFactory()
        factory.protocol = lambda: ConsoleSocket(self)
        factory.setProtocolOptions(openHandshakeTimeout=0, closeHandshakeTimeout=0)
        self.factory = factory
        self.resource = ConsoleResource(self)

    @property
    def socket(self) -> ConsoleSocket:
        """The newest connection."""
        return self.sockets[-1]

    def says(self, data: bytes) -> None:
        """Print something at all connections."""
        for socket in self.sockets:
            socket.sendMessage(data, isBinary=True)

    def end(self, reason: str = "") -> None:
        """Close all connections in order."""
        for socket in list(self.sockets):
            socket.sendClose(1000, reason or None)

    def vanish(self) -> None:
        """Cut all connections."""
        for socket in list(self.sockets):
            socket.transport.abortConnection()


class ConsoleSocket(WebSocketServerProtocol):  # type: ignore[misc]
    """One connection."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def onConnect(self, request: Any) -> Any:
        if request.headers.get("x-auth-token") not in self._console.tokens:
            raise ConnectionDeny(401)

    def onOpen(self) -> None:
        if len(self._console.sockets) >= self._console.most:
            self.sendClose(1000, "Max sessions reached")
            return
        self._console.sockets.append(self)
        if self._console.greeting:
            self.sendMessage(self._console.greeting, isBinary=True)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self._console.got += payload
        for message in self._console.answer(payload):
            self.sendMessage(message, isBinary=True)

    def onPing(self, payload: bytes) -> None:
        if not self._console.is_deaf:
            super().onPing(payload)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        if self in self._console.sockets:
            self._console.sockets.remove(self)


class ConsoleResource(Resource):
    """The path of the console; its faults come before the WebSocket."""

    isLeaf = True

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def render(self, request: Request) -> Any:
        console = self._console
        console.requests.append(request.uri)
        if console.hangs:
            return NOT_DONE_YET
        if console.answers:
            request.setResponseCode(console.answers.pop(0))
            if console.location:
                request.setHeader(b"Location", console.location)
            return b"{}"
        return WebSocketResource(console.factory).render(request)
