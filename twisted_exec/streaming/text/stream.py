"""
Long-lived text responses, written at the reader's pace.

The end is all that a reader can check: a complete log ends like a complete HTTP body; an incomplete
one (the permission was withdrawn, a hop is lost) ends without that, behind a line with the reason
if this hop knows it.  Clients report such a body as broken.

A :class:`TextAnswer` is an HTTP response; :mod:`~twisted_exec.streaming.text.websocket` is the form
for pages in a browser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.interfaces import Ending

Flow = Callable[[], None]


class TextStream:
    """
    Common part of all forms.

    :param pause: called when the reader's buffer is full.
    :param resume: called when it has room again.
    :ivar sent: bytes of text so far, with the heads of frames.
    :ivar done: fires at the end of the stream, with the reason for audit.
    """

    def __init__(self, pause: Flow, resume: Flow) -> None:
        self._pause, self._resume = pause, resume
        self._begins_line = True
        self.sent = 0
        self.done: Deferred[str] = Deferred()

    def begin(self, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """
        Send the head, which tells the client that the text was found.

        :param headers: more headers.
        """
        raise NotImplementedError

    def watch(self) -> None:
        """
        Let :attr:`done` fire with ``client closed`` when the reader leaves, instead of cancelling.

        For callers without a coroutine that waits.  Called once, after :meth:`begin`.
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
        """
        End an incomplete text, so that the client notices.  Only the first end counts.

        :param ending: a reason to send to the reader.
        """
        if ending is not None and self._is_open():
            self._put(ending_mark(ending, begins_line=self._begins_line))
        self._end(reason, self._breaking)

    def cut(self, reason: str) -> None:
        """Close at once, discarding what is unsent.  Only the first end counts."""
        self._end(reason, self._cutting)

    def release(self) -> None:
        """
        Break reference cycles after the end: their memory would wait for the garbage collector.
        """
        self._pause = self._resume = _nothing

    def _end(self, reason: str, ending: Callable[[], Callable[[], object]]) -> None:
        if not self._is_open():
            return
        close = ending()
        # Fire first: closing looks like the reader's leaving.
        self.done.callback(reason)
        close()

    def _left(self, reason: str) -> None:
        """The reader has left."""
        if not self.done.called:
            self.done.callback(reason)

    def _is_open(self) -> bool:
        """Return whether something can be written."""
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
    """
    The body of an HTTP response.

    A reader that leaves cancels the coroutine that waits for :attr:`done`, as in all handlers;
    or see :meth:`watch`.
    """

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
    """The line with the reason that ends an incomplete text."""
    text = f"{ending.reason}: {ending.message}" if ending.message else ending.reason
    before = "" if begins_line else "\r\n"
    return f"{before}[twisted-exec: {text}]\r\n".encode()
