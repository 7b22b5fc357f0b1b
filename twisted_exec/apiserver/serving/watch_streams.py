"""
Output streams of watches: a long-lived response, or a WebSocket.

For changes a client that does not read has a limited buffer, and all such clients together share
the server's memory budget.
"""

from __future__ import annotations

from collections import deque

from twisted_exec.api.status import BadRequest
from twisted_exec.streaming.http.memory_budget import Budget
from twisted_exec.streaming.http.paced import Paced, PacedAnswer
from twisted_exec.streaming.http.site import Request, SlowReader
from twisted_exec.streaming.http.upgrade_server import header_pairs, is_upgrade, take_over
from twisted_exec.streaming.http.websocket import ServerSocket, server_factory, start
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.upgrade import (
    BEARER_SUBPROTOCOL,
    WEBSOCKET,
    check_websocket,
    tokens,
    values,
)

_LIMIT_OWED_BYTES = 4 << 20
_HEARD_BYTES = 64 << 10
"""Largest message from a client; messages have no meaning here."""
_LINGER_SECONDS = 10.0


class Lines(Paced):
    """
    Lines to one client at its pace; mixed in before the transport's class.

    :ivar unread: the budget for all clients that do not read.
    :ivar limit_bytes: limit for lines that wait for this client.
    """

    unread: Budget[SlowReader]
    limit_bytes = _LIMIT_OWED_BYTES
    _queue: deque[bytes] | None = None  # None while idle, to save memory
    _owed_bytes = 0

    def send(self, line: bytes) -> None:
        """Queue one or more lines, within the client's limit."""
        if self.gone:
            return
        if not self.paused:
            self.write(line)
            return
        if self._queue is None:
            self._queue = deque()
        self._queue.append(line)
        self.owe(len(line))

    def owe(self, count: int) -> None:
        """Count bytes that wait for the client (negative: fewer).  Beyond the limit it is cut."""
        self._owed_bytes += count
        if count < 0:
            self.unread.release(self, -count)
            return
        self.unread.keep(self, count)
        if self._owed_bytes > self.limit_bytes:
            self.evict()

    def end(self) -> None:
        """As :meth:`Paced.end`."""
        if self._queue:
            self.evict()  # a partial queue must not look complete
        self.unread.release(self)
        super().end()

    def resumeProducing(self) -> None:
        """The client has read."""
        self.paused = False
        while self._queue and not self.paused:
            line = self._queue.popleft()
            self.owe(-len(line))
            self.put(line)
        if not self.paused:
            self._queue = None
            super().resumeProducing()


class LineStream(Lines, PacedAnswer):
    """Lines in a response."""

    def __init__(self, request: Request, limit_bytes: int = _LIMIT_OWED_BYTES) -> None:
        PacedAnswer.__init__(self, request)
        self.unread = request.channel.site.unread
        self.limit_bytes = limit_bytes


class MessageStream(Lines):
    """
    Messages on a WebSocket, one per line.  Messages of the client are ignored.

    :raises BadRequest: the request is no complete handshake.
    """

    def __init__(self, request: Request) -> None:
        super().__init__(request.channel.site.reactor)
        self.unread = request.channel.site.unread
        headers = header_pairs(request.requestHeaders)
        try:
            check_websocket(request.method, headers)
        except RemoteProtocolError as problem:
            raise BadRequest(str(problem)) from None
        (key,) = values(headers, b"sec-websocket-key")
        self._request = request
        self._socket = ServerSocket(key.decode("ascii"), _subprotocol(headers), {})
        self._socket.on_flow(self._flow)

    def begin(self) -> None:
        """Take the connection over."""
        factory = server_factory(self._clock, _HEARD_BYTES)
        take_over(self._request, start(self._socket, factory, self, self._clock, _LINGER_SECONDS))

    def put(self, data: bytes) -> None:
        """As :meth:`Paced.put`; one event is one message."""
        for line in data.splitlines():
            self._socket.send(line, text=True)

    def abort(self) -> None:
        """As :meth:`Paced.abort`."""
        self._socket.abort()

    def end(self) -> None:
        """Close behind everything sent."""
        super().end()
        if not self.gone:
            self._socket.close()
            self._socket.hang_up()

    def _flow(self, full: bool) -> None:
        if full:
            self.pauseProducing()
        else:
            self.resumeProducing()

    # Callbacks of the socket

    def opened(self) -> None:
        """Nothing to do: the watch is running."""

    def message_received(self, message: bytes) -> None:
        """Ignored."""

    def pong_received(self) -> None:
        """Ignored: this end sends no pings."""

    def failing(self, reason: str) -> None:
        """Nothing to do: the socket sends a Close with the reason; ``lost`` follows."""

    def close_received(self, code: int | None) -> None:
        """The client leaves; the socket answers its Close."""
        self.stopProducing()

    def lost(self, reason: str) -> None:
        """The connection is lost."""
        self.stopProducing()


def _subprotocol(headers: list[tuple[bytes, bytes]]) -> str:
    """The client's first offer: a browser that offers some hangs up if none is chosen."""
    offered = tokens(values(headers, b"sec-websocket-protocol"))
    named = (token for token in offered if not token.startswith(BEARER_SUBPROTOCOL))
    return next(named, b"").decode("ascii", "replace")


def stream_of(request: Request) -> LineStream | MessageStream:
    """
    Start the stream for a watch's request.

    :raises BadRequest: a WebSocket handshake is incomplete.
    """
    protocol = is_upgrade(request)
    stream = MessageStream(request) if protocol == WEBSOCKET else LineStream(request)
    stream.begin()
    return stream
