"""
Streams of watches: lines in a response, or messages on a WebSocket.

A client that does not read has a limited buffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from twisted_exec.apiserver.serving.encoding import gathered
from twisted_exec.streaming.http.memory_budget import Budget, SlowReader
from twisted_exec.streaming.http.output_websocket import (
    OutputSocketUser,
    connect_socket,
    output_socket,
)
from twisted_exec.streaming.http.paced import Paced, PacedAnswer
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import requested_protocol
from twisted_exec.wire.upgrade import (
    BEARER_SUBPROTOCOL,
    WEBSOCKET,
    Headers,
    tokens,
    values,
)

_LIMIT_OWED_BYTES = 4 << 20


class WatchLines(Paced):
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
        """Count bytes that wait for the client.  Beyond the limit the client is cut off."""
        self._owed_bytes += count
        if count < 0:
            self.unread.release(self, -count)
            return
        self.unread.keep(self, count)
        if self._owed_bytes > self.limit_bytes:
            self.evict()

    def end(self) -> None:
        if self._queue:
            self.evict()  # a partial queue must not look complete
        self.unread.release(self)
        super().end()

    def resumeProducing(self) -> None:
        self.paused = False
        while self._queue and not self.paused:
            piece = next(gathered(_drained(self._queue)))
            self.owe(-len(piece))
            self.put(piece)
        if not self.paused:
            self._queue = None
            super().resumeProducing()


def _drained(queue: deque[bytes]) -> Iterator[bytes]:
    while queue:
        yield queue.popleft()


class LineStream(WatchLines, PacedAnswer):
    """Lines in a response."""

    def __init__(self, request: Request, limit_bytes: int = _LIMIT_OWED_BYTES) -> None:
        PacedAnswer.__init__(self, request)
        self.unread = request.channel.site.unread
        self.limit_bytes = limit_bytes


class MessageStream(WatchLines, OutputSocketUser):
    """
    Messages on a WebSocket, one per line.

    :raises BadRequest: the request is no complete handshake.
    """

    def __init__(self, request: Request) -> None:
        super().__init__(request.channel.site.reactor)
        self.unread = request.channel.site.unread
        self._request = request
        self._socket = output_socket(request, _subprotocol, {})
        self._socket.on_flow(self._flow)

    def begin(self) -> None:
        connect_socket(self._request, self._socket, self)

    def put(self, data: bytes) -> None:
        for line in data.splitlines():
            self._socket.send(line, text=True)

    def abort(self) -> None:
        self._socket.abort()

    def end(self) -> None:
        super().end()
        if not self.gone:
            self._socket.close()
            self._socket.hang_up()

    def _flow(self, full: bool) -> None:
        if full:
            self.pauseProducing()
        else:
            self.resumeProducing()

    def client_left(self, reason: str) -> None:
        self.stopProducing()


def _subprotocol(headers: Headers) -> str:
    """The client's first offer: a browser that offers some hangs up if none is chosen."""
    offered = tokens(values(headers, b"sec-websocket-protocol"))
    named = (token for token in offered if not token.startswith(BEARER_SUBPROTOCOL))
    return next(named, b"").decode("ascii", "replace")


def stream_of(request: Request) -> LineStream | MessageStream:
    """
    Start the stream for a watch's request.

    :raises BadRequest: a WebSocket handshake is incomplete.
    """
    protocol = requested_protocol(request)
    stream = MessageStream(request) if protocol == WEBSOCKET else LineStream(request)
    stream.begin()
    return stream
