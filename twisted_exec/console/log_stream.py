"""
HTTP responses with the log of a console.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError

from twisted_exec.api.logs import LogOptions
from twisted_exec.journal.interfaces import IJournal
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import COMPLETED, MACHINE_DELETED, Ending
from twisted_exec.streaming.sessions.registry import Session
from twisted_exec.streaming.text.stream import TextAnswer

from .log import LogReader


class LogStream:
    """
    One reader's response.

    It reads from the journal only when the client accepts more.  It needs no buffer of its own, and
    the console never waits for it.
    """

    def __init__(self, request: Request, journal: IJournal, options: LogOptions) -> None:
        self._journal, self._reader = journal, LogReader(journal, options)
        self._text = TextAnswer(request, self._pause, self._resume)
        self._paused = self._pumping = False

    async def run(self, session: Session) -> None:
        """
        Send the response and report its end to ``session``.

        :raises CancelledError: the client disconnected.
        """
        text = self._text
        try:
            text.begin()
            session.carry(self._end, lambda: text.cut("cut"))
            self._journal.watch(self._pump)
            self._pump()
            session.over(await text.done, bytes_to_user=text.sent)
        except CancelledError:
            session.over("client closed", bytes_to_user=text.sent)
            raise
        finally:
            self._journal.unwatch(self._pump)
            text.release()

    def _pause(self) -> None:
        self._paused = True

    def _resume(self) -> None:
        self._paused = False
        self._pump()

    def _pump(self) -> None:
        """Write until the log has no more or the transport pauses this producer."""
        if self._pumping:
            return
        self._pumping = True  # a write may call _pause and _resume synchronously
        try:
            while not self._paused and (data := self._reader.read()):
                self._text.write(data)
        finally:
            self._pumping = False
        if self._reader.over:
            self._text.finish(MACHINE_DELETED if self._journal.closed else COMPLETED)

    def _end(self, ending: Ending) -> None:
        self._text.break_off(ending.reason, ending)
