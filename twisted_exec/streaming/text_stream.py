"""
A text that goes on, as an HTTP answer: written as it comes, as fast as its reader takes it.

How it ends is all that a reader can tell from it, so it matters: a log that is complete ends as an
HTTP body does; one that is not (the permission was withdrawn, a hop is lost) ends without that, behind
a line that says why where this hop knows.  Clients report such a body as broken.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.site import Request


@implementer(IPushProducer)
class TextStream:
    """
    One answer.

    :param pause: called when the reader takes no more for now.
    :param resume: called when it does again.
    :ivar sent: bytes of text so far.
    :ivar done: fires when the stream was ended from this side, with the reason for audit.
        A reader that leaves cancels whoever waits, as everywhere in a site.
    """

    def __init__(
        self, request: Request, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._request: Request | None = request
        self._pause, self._resume = pause, resume
        self._begins_line = True
        self.sent = 0
        self.done: Deferred[str] = Deferred()

    def begin(self) -> None:
        """Send the head; the client then knows that it has a log."""
        request = self._request
        assert request is not None
        request.setHeader(b"Content-Type", b"text/plain")  # in whatever it was printed
        request.setHeader(b"Cache-Control", b"no-cache, private")
        request.setHeader(b"Audit-Id", request.subject.session.encode("ascii"))
        request.registerProducer(self, True)
        request.write(b"")

    def write(self, data: bytes) -> None:
        """Send more, at once; 1 byte or more."""
        request = self._open()
        if request is not None:
            self._begins_line = data.endswith(b"\n")
            self.sent += len(data)
            request.write(data)

    def finish(self, reason: str) -> None:
        """It is complete.  Only the first end counts."""
        request = self._open()
        if request is not None:
            request.unregisterProducer()
            self.done.callback(reason)
            request.finish()

    def break_off(self, reason: str, ending: Ending | None = None) -> None:
        """
        It is not complete, and the client is to notice.  Only the first end counts.

        :param ending: to be told to the reader.
        """
        request = self._open()
        if request is None:
            return
        if ending is not None:
            request.write(ending_mark(ending, begins_line=self._begins_line))
        request.unregisterProducer()
        # First: a connection that is lost cancels whoever waits.
        self.done.callback(reason)
        request.channel.loseConnection()

    def cut(self, reason: str) -> None:
        """End it now, whatever is still on its way.  Only the first end counts."""
        request = self._open()
        if request is not None:
            self.done.callback(reason)
            request.channel.transport.abortConnection()

    def release(self) -> None:
        """
        It is over, however it ended.  What held it and its connection together is cut: their
        memory would wait for the garbage collector.
        """
        self._request = None
        self._pause = self._resume = _nothing

    def _open(self) -> Request | None:
        """The request, while something can be written to it."""
        request = self._request
        return None if request is None or request.gone or self.done.called else request

    def pauseProducing(self) -> None:
        self._pause()

    def resumeProducing(self) -> None:
        self._resume()

    def stopProducing(self) -> None:
        """The client has left; its request is told so."""


def _nothing() -> None:
    """What a stream asks of its source when it has none any more."""


def ending_mark(ending: Ending, *, begins_line: bool) -> bytes:
    """The line that says why a text is not complete."""
    told = f"{ending.reason}: {ending.message}" if ending.message else ending.reason
    before = "" if begins_line else "\r\n"
    return f"{before}[twisted-exec: {told}]\r\n".encode()
