"""
The machine's end of a console in a browser.

A page cannot stop reading its WebSocket, and what it has not shown yet waits in its memory.  So it
names a credit with its request, and reports what it has taken (:mod:`twisted_exec.wire.marks`).

A browser answers the pings of a WebSocket before the page has seen what came before them, and hides
them from the page.  So a question to the client is a mark here, and only reports are signs of the
page.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.streaming.http.websocket import GOING_AWAY
from twisted_exec.streaming.interfaces import INTERNAL, Ending
from twisted_exec.streaming.remotecommand.resumable import ResumableServer, Resumption
from twisted_exec.wire.channel import MAX_PAYLOAD_BYTES, Channel
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.marks import Answer, Question, Report, Taken, parse_report


class PageServer(ResumableServer):
    """
    A session's stream to a page, made by
    :func:`~twisted_exec.streaming.remotecommand.server.serve`.

    An attachment writes at most 32 KiB at once and nothing while it is paused.  It is paused as soon
    as the rest of the credit is smaller than that.
    """

    def __init__(self, resumption: Resumption, *arguments: Any, **more: Any) -> None:
        super().__init__(resumption, *arguments, **more)
        self._credit = resumption.credit
        self._taken = 0
        self._questions = 0
        self._unanswered: int | None = None  # the page's latest question, while output is blocked

    def write(self, data: bytes) -> None:
        super().write(data)
        if not self._is_spent and self._rest < MAX_PAYLOAD_BYTES:
            self._is_spent = True
            if self._producer is not None:
                self._producer.pauseProducing()

    @property
    def _rest(self) -> int:
        """The number of bytes that the page accepts now."""
        return self._taken + self._credit - self.bytes_to_user

    def received(self, channel: Channel, data: bytes) -> None:
        if channel is Channel.RESIZE and not self._ending:
            try:
                report = parse_report(data)
                if report is not None:
                    self._hear()
                    self._reported(report)
                    return
            except RemoteProtocolError as problem:
                self.end(Ending(INTERNAL, f"the client broke the protocol: {problem}"))
                return
        super().received(channel, data)

    def _reported(self, report: Report) -> None:
        """Handle a report; unlike input, it is no sign of a user at the page."""
        if isinstance(report, Taken):
            self._take(report.count)
        elif isinstance(report, Question):
            self._unanswered = report.number
            self._answer()
        elif report.number == self._questions:
            super().pong_received()

    def _take(self, count: int) -> None:
        if not self._taken <= count <= self.bytes_to_user:
            raise RemoteProtocolError(
                f"{count} bytes of output are taken, of {self._taken} to {self.bytes_to_user}"
            )
        self._taken = count
        if self._is_spent and self._rest >= MAX_PAYLOAD_BYTES:
            self._is_spent = False
            if self._producer is not None and not self._carrier.blocked:
                self._producer.resumeProducing()

    def _answer(self) -> None:
        if self._unanswered is not None and not self._carrier.blocked:
            number, self._unanswered = self._unanswered, None
            self._send_mark(Answer(number))

    def _flow(self, full: bool) -> None:
        super()._flow(full)
        self._answer()

    def _send_ping(self) -> bool:
        if not super()._send_ping():
            return False
        self._questions += 1
        self._send_mark(Question(self._questions))
        return True

    def close_received(self, code: int | None = None) -> None:
        """
        Treat the end of the page as a loss: it may be a reload.

        Browsers then close each WebSocket with 1001 (RFC 6455, section 7.4.1), and no page can prevent
        it; a page that leaves its session says 1000.  Without an answer all hops see a loss as well.
        """
        if code == GOING_AWAY and not self._ending:
            self._carrier.abort()
        else:
            super().close_received(code)

    def pong_received(self) -> None:
        """Do nothing: the browser has answered, and not the page."""
