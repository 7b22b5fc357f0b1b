"""
Long-lived text responses, written at the reader's pace, over HTTP or WebSockets.

An incomplete text does not end like a complete body, so that clients report it as broken.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.program.turns import TURN_SECONDS, SharedTurns
from twisted_exec.streaming.flow import close_behind
from twisted_exec.streaming.http.pages import OutputSocketUser, connect_socket, output_socket
from twisted_exec.streaming.http.responses import CLIENT_LEFT
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import take_over
from twisted_exec.streaming.http.websocket import NORMAL
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.sessions.stream import SessionStream
from twisted_exec.wire.upgrade import (
    BEARER_SUBPROTOCOL,
    Headers,
    negotiate,
    tokens,
    values,
)

Flow = Callable[[], None]


class TextStream:
    """
    Common part of the forms of a text.

    :ivar done: fires at the end of the stream, with the reason for audit.
    :ivar sent: bytes of text so far, with the heads of frames.
    """

    def __init__(self, pause: Flow, resume: Flow) -> None:
        self._pause, self._resume = pause, resume
        self._begins_line = True
        self.sent = 0
        self.done: Deferred[str] = Deferred()

    def begin(self, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Send the head."""
        raise NotImplementedError

    def watch(self) -> None:
        """
        Let :attr:`done` fire when the reader leaves, instead of cancelling; once, after
        :meth:`begin`.
        """

    def write(self, data: bytes) -> None:
        """Write text now; 1 byte or more."""
        if self._is_open():
            self._begins_line = data.endswith(b"\n")
            self.sent += len(data)
            self._put(data)

    def finish(self, reason: str) -> None:
        """End a complete text.  Only the first end counts."""
        self._end(reason, self._completing)

    def break_off(self, reason: str, ending: Ending | None = None) -> None:
        """End an incomplete text, so that the client notices.  Only the first end counts."""
        if ending is not None and self._is_open():
            self._put(ending_mark(ending, begins_line=self._begins_line))
        self._end(reason, self._breaking)

    def cut(self, reason: str) -> None:
        """Close, discarding what is unsent.  Only the first end counts."""
        self._end(reason, self._cutting)

    def release(self) -> None:
        """Break reference cycles after the end, which hold memory."""
        self._pause = self._resume = _nothing

    def _end(self, reason: str, ending: Callable[[], Callable[[], object]]) -> None:
        if not self._is_open():
            return
        close = ending()
        # Fire first: closing looks like the reader's leaving.
        self.done.callback(reason)
        close()

    def _left(self, reason: str) -> None:
        if not self.done.called:
            self.done.callback(reason)

    def _is_open(self) -> bool:
        return not self.done.called

    # Implemented by subclasses; the last three prepare an end and return the call that makes it

    def _put(self, data: bytes) -> None:
        raise NotImplementedError

    def _completing(self) -> Callable[[], object]:
        raise NotImplementedError

    def _breaking(self) -> Callable[[], object]:
        raise NotImplementedError

    def _cutting(self) -> Callable[[], object]:
        raise NotImplementedError


@implementer(IPushProducer)
class TextAnswer(TextStream):
    """The body of an HTTP response."""

    def __init__(self, request: Request, pause: Flow, resume: Flow) -> None:
        super().__init__(pause, resume)
        self._request: Request | None = request

    def begin(self, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        request = self._response()
        request.setHeader(b"Content-Type", b"text/plain")  # without charset: it is unknown
        # A machine could make its log a script, with which another site reads the lines between its own.
        request.setHeader(b"X-Content-Type-Options", b"nosniff")
        request.setHeader(b"Cache-Control", b"no-cache, private")
        request.setHeader(b"Audit-Id", request.subject.session.encode("ascii"))
        for name, value in headers:
            request.setHeader(name, value)
        request.registerProducer(self, True)
        # twisted.web writes the head with the first call, also of no bytes.
        request.write(b"")

    def watch(self) -> None:
        self._response().notifyFinish().addErrback(lambda _: self._left("client closed"))

    def release(self) -> None:
        super().release()
        self._request = None

    def _is_open(self) -> bool:
        request = self._request
        return request is not None and not request.gone and super()._is_open()

    def _response(self) -> Request:
        assert self._request is not None
        return self._request

    def _put(self, data: bytes) -> None:
        self._response().write(data)

    def _completing(self) -> Callable[[], object]:
        self._response().unregisterProducer()
        return self._response().finish

    def _breaking(self) -> Callable[[], object]:
        self._response().unregisterProducer()
        # ``finish`` would send the last chunk (RFC 9112 7.1), with which a text is complete.
        return self._response().channel.loseConnection

    def _cutting(self) -> Callable[[], object]:
        abort: Callable[[], object] = self._response().channel.transport.abortConnection
        return abort

    def pauseProducing(self) -> None:
        self._pause()

    def resumeProducing(self) -> None:
        self._resume()

    def stopProducing(self) -> None:
        """The client has left; its request is notified."""


def _nothing() -> None:
    """Replaces the source's callbacks after the end."""


def ending_mark(ending: Ending, *, begins_line: bool) -> bytes:
    """Return the line with the reason that ends an incomplete text."""
    text = f"{ending.reason}: {ending.message}" if ending.message else ending.reason
    before = "" if begins_line else "\r\n"
    return f"{before}[twisted-exec: {text}]\r\n".encode()


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


class TextResponse(SessionStream):
    """One reader's response."""

    _text: TextAnswer

    def __init__(self, request: Request) -> None:
        self._request: Request | None = request
        self._clock = request.channel.site.reactor

    async def run(self, session: Session) -> None:
        """
        Send the response and report its end to ``session``.

        :raises APIError: there is no text; the session is over, and the response is not begun.
        :raises CancelledError: the client disconnected.
        """
        assert self._request is not None
        try:
            await self._begin()
        except APIError as error:
            session.over(error.message, code=error.code)
            raise
        except CancelledError:
            session.over("client closed", code=CLIENT_LEFT)
            raise
        text = self._text = TextAnswer(self._request, self._pause, self._resume)
        self._request = None
        try:
            text.begin(self._headers())
            session.carry(self)
            await self._open()
            session.over(await text.done, bytes_to_user=text.sent)
        except CancelledError:
            session.over("client closed", bytes_to_user=text.sent)
            raise
        finally:
            self._close()
            text.release()

    # Implemented by subclasses.

    async def _begin(self) -> None:
        """Find the text."""

    def _headers(self) -> Sequence[tuple[bytes, bytes]]:
        return ()

    async def _open(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        """Release the source; called in any case."""
        raise NotImplementedError

    def end(self, ending: Ending) -> None:
        self._text.break_off(ending.reason)

    def cut(self) -> None:
        self._text.cut("cut")

    def _pause(self) -> None:
        raise NotImplementedError

    def _resume(self) -> None:
        raise NotImplementedError


class PacedResponse(TextResponse):
    """The response with a text whose parts are read in short turns of the reactor."""

    most_pieces: ClassVar[int] = 1000

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._is_paused = self._is_pumping = False
        self._turns: SharedTurns = request.channel.site.turns
        self._user = request.subject.user

    # Implemented by subclasses.

    def _write_piece(self) -> bool:
        """Write the next piece; return whether there may be more now."""
        raise NotImplementedError

    def _reason_of_end(self) -> str:
        """Return how the text has ended, for audit; empty while it has not."""
        raise NotImplementedError

    def _failed(self, problem: Exception) -> None:
        """Handle an error of :meth:`_write_piece`, in its ``except`` block: end the response."""
        raise NotImplementedError

    def _pause(self) -> None:
        self._is_paused = True

    def _resume(self) -> None:
        self._is_paused = False
        self._turns.soon(self._pump, self._user)

    def _pump(self) -> None:
        if self._is_pumping or self._pump in self._turns:
            return
        self._is_pumping = True  # a write may call _pause and _resume synchronously
        try:
            until = self._clock.seconds() + TURN_SECONDS
            for _ in range(self.most_pieces):
                if self._is_paused or not self._write_piece():
                    break
                if self._clock.seconds() >= until:
                    self._turns.soon(self._pump, self._user)
                    break
            else:
                self._turns.soon(self._pump, self._user)
        except Exception as problem:
            self._failed(problem)
            return
        finally:
            self._is_pumping = False
        if reason := self._reason_of_end():
            self._text.finish(reason)

    def _close(self) -> None:
        self._turns.cancel(self._pump)
