"""
A long-lived text response over a connection that HTTP has left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import take_over
from twisted_exec.streaming.text.stream import Flow, TextStream
from twisted_exec.streaming.transports import close_behind

LINGER_SECONDS = 10.0
"""Time limit for a reader to receive the rest."""
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Content-Type-Options: nosniff\r\n"
    b"Cache-Control: no-cache, private\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\nAudit-Id: %b\r\n%b\r\n"
)


def can_carry(request: Request) -> bool:
    """Return whether the client supports chunked bodies."""
    return bool(request.clientproto == b"HTTP/1.1")


class TextConnection(TextStream):
    """
    The body of an HTTP response that owns its connection, chunked (RFC 9112 section 7.1).

    The request is released.
    """

    def __init__(self, request: Request, pause: Flow, resume: Flow) -> None:
        super().__init__(pause, resume)
        self._request: Request | None = request
        self._end_of_line: _End | None = None
        self._clock: IReactorTime = request.channel.site.reactor

    def begin(self, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        request, self._request = self._request, None
        assert request is not None
        end = self._end_of_line = _End(self)
        more = b"".join(b"%b: %b\r\n" % header for header in headers)
        take_over(request, end, _HEAD % (request.subject.session.encode("ascii"), more))

    def release(self) -> None:
        super().release()
        end, self._end_of_line = self._end_of_line, None
        if end is not None:
            end.text = None

    def lost(self) -> None:
        self._left("client closed")

    def pause(self) -> None:
        self._pause()

    def resume(self) -> None:
        self._resume()

    def _connection(self) -> _End:
        assert self._end_of_line is not None
        return self._end_of_line

    def _put(self, data: bytes) -> None:
        # A chunk of no bytes would be the last one (RFC 9112 section 7.1).
        self._connection().transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _completing(self) -> Callable[[], object]:
        self._connection().transport.write(b"0\r\n\r\n")
        return self._breaking()

    def _breaking(self) -> Callable[[], object]:
        end, clock = self._connection(), self._clock
        return lambda: end.close(clock)

    def _cutting(self) -> Callable[[], object]:
        abort: Callable[[], object] = self._connection().transport.abortConnection
        return abort


@implementer(IPushProducer)
class _End(Protocol):
    transport: Any
    _late: IDelayedCall | None = None

    def __init__(self, text: TextConnection) -> None:
        self.text: TextConnection | None = text

    def connectionMade(self) -> None:
        self.transport.registerProducer(self, True)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._late is not None and self._late.active():
            self._late.cancel()
        if self.text is not None:
            self.text.lost()

    def close(self, clock: IReactorTime) -> None:
        self._late = clock.callLater(LINGER_SECONDS, self.transport.abortConnection)
        self.transport.unregisterProducer()
        close_behind(self.transport)

    def pauseProducing(self) -> None:
        if self.text is not None:
            self.text.pause()

    def resumeProducing(self) -> None:
        if self.text is not None:
            self.text.resume()

    def stopProducing(self) -> None:
        """The connection is dying; ``connectionLost`` follows."""
