"""
What a watch is written to: a response that goes on, or a WebSocket.

Of changes, a client that does not read is owed a bounded number of bytes, and all
such clients together what the server's budget for them allows.
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
"""The largest message from a client; there is nothing that it could say."""
_LINGER_SECONDS = 10.0


class Lines(Paced):
    """
    Lines to one client, as fast as it reads them; mixed in before what carries them.

    :ivar unread: what all clients that do not read may keep.
    :ivar limit_bytes: of lines that wait for this one.
    """

    unread: Budget[SlowReader]
    limit_bytes = _LIMIT_OWED_BYTES
    _queue: deque[bytes] | None = None  # an idle watch has none
    _owed_bytes = 0

    def send(self, line: bytes) -> None:
        """One line, or several; bounded by what the client reads."""
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
        """So many more bytes wait for the client; less when negative.  Beyond the limit it is cut."""
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
            self.evict()  # half of the queue would look like all of it
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
    """Lines of a response."""

    def __init__(self, request: Request, limit_bytes: int = _LIMIT_OWED_BYTES) -> None:
        PacedAnswer.__init__(self, request)
        self.unread = request.channel.site.unread
        self.limit_bytes = limit_bytes


class MessageStream(Lines):
    """
    Messages on a WebSocket, a line each.  What the client says is not listened to.

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
        """Close behind what was sent."""
        super().end()
        if not self.gone:
            self._socket.close()
            self._socket.hang_up()

    def _flow(self, full: bool) -> None:
        if full:
            self.pauseProducing()
        else:
            self.resumeProducing()

    # What the socket tells.

    def opened(self) -> None:
        """The watch runs already."""

    def message_received(self, message: bytes) -> None:
        """There is nothing to be said."""

    def pong_received(self) -> None:
        """Nobody asked."""

    def failing(self, reason: str) -> None:
        """A Close says what is wrong; ``lost`` follows."""

    def close_received(self, code: int | None) -> None:
        """The client wants no more; it is answered by the socket."""
        self.stopProducing()

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        self.stopProducing()


def _subprotocol(headers: list[tuple[bytes, bytes]]) -> str:
    """The client's first; a browser hangs up when it offers some and is answered none."""
    offered = tokens(values(headers, b"sec-websocket-protocol"))
    named = (token for token in offered if not token.startswith(BEARER_SUBPROTOCOL))
    return next(named, b"").decode("ascii", "replace")


def stream_of(request: Request) -> LineStream | MessageStream:
    """
    What a watch's request asks to be answered with; it has begun.

    :raises BadRequest: a WebSocket's handshake is not complete.
    """
    wanted = is_upgrade(request)
    stream = MessageStream(request) if wanted == WEBSOCKET else LineStream(request)
    stream.begin()
    return stream
