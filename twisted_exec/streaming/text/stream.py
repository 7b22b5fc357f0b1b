"""
Long-lived text responses, written at the reader's pace.

An incomplete text does not end like a complete body, so that clients report it as broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from twisted_exec.program.turns import TURN_SECONDS, SharedTurns
from twisted_exec.streaming.http.responses import outcome
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.sessions.stream import SessionStream

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
        except Exception as problem:
            session.failed(problem)
            raise
        text = self._text = TextAnswer(self._request, self._pause, self._resume)
        self._request = None
        try:
            text.begin(self._headers())
            session.carry(self)
            await self._open()
            session.over(await text.done, bytes_to_user=text.sent)
        except Exception as problem:
            _, reason = outcome(problem)
            session.over(reason, bytes_to_user=text.sent)
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
