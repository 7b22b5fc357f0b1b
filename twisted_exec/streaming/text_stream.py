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
        self._request, self._pause, self._resume = request, pause, resume
        self._begins_line = True
        self.sent = 0
        self.done: Deferred[str] = Deferred()

    def begin(self) -> None:
        """Send the head; the client then knows that it has a log."""
        request = self._request
        request.setHeader(b"Content-Type", b"text/plain")  # in whatever it was printed
        request.setHeader(b"Cache-Control", b"no-cache, private")
        request.setHeader(b"Audit-Id", request.subject.session.encode("ascii"))
        request.registerProducer(self, True)
        request.write(b"")

    def write(self, data: bytes) -> None:
        """Send more, at once; 1 byte or more."""
        if self._is_over():
            return
        self._begins_line = data.endswith(b"\n")
        self.sent += len(data)
        self._request.write(data)

    def finish(self, reason: str) -> None:
        """It is complete.  Only the first end counts."""
        if self._is_over():
            return
        self._request.unregisterProducer()
        self.done.callback(reason)
        self._request.finish()

    def break_off(self, reason: str, ending: Ending | None = None) -> None:
        """
        It is not complete, and the client is to notice.  Only the first end counts.

        :param ending: to be told to the reader.
        """
        if self._is_over():
            return
        if ending is not None:
            self._request.write(ending_mark(ending, begins_line=self._begins_line))
        self._request.unregisterProducer()
        # First: a connection that is lost cancels whoever waits.
        self.done.callback(reason)
        self._request.channel.loseConnection()

    def cut(self, reason: str) -> None:
        """End it now, whatever is still on its way.  Only the first end counts."""
        if self._is_over():
            return
        self.done.callback(reason)
        self._request.channel.transport.abortConnection()

    def _is_over(self) -> bool:
        return self.done.called or self._request.gone

    def pauseProducing(self) -> None:
        self._pause()

    def resumeProducing(self) -> None:
        self._resume()

    def stopProducing(self) -> None:
        """The client has left; its request is told so."""


def ending_mark(ending: Ending, *, begins_line: bool) -> bytes:
    """The line that says why a text is not complete."""
    told = f"{ending.reason}: {ending.message}" if ending.message else ending.reason
    before = "" if begins_line else "\r\n"
    return f"{before}[twisted-exec: {told}]\r\n".encode()
