"""
HTTP responses with the log of a console.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from twisted_exec.api.logs import LogOptions
from twisted_exec.journal.interfaces import IJournal
from twisted_exec.program.tasks import TURN_SECONDS
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import COMPLETED, INTERNAL, MACHINE_DELETED, Ending
from twisted_exec.streaming.sessions.session import Session
from twisted_exec.streaming.text.stream import TextAnswer

from .log import LogReader

_READS = 8
"""Pieces per turn; a transport that takes them all, or plain text that is empty, must not hold others up."""


class LogStream:
    """
    One reader's response.

    It reads from the journal only when the client accepts more.  It needs no buffer of its own, and
    the console never waits for it.

    :param machine: its name, for messages.
    :raises BadRequest: the journal does not have the boot or the offset.
    """

    _log = Logger()
    _text: TextAnswer

    def __init__(
        self, request: Request, journal: IJournal, options: LogOptions, machine: str = ""
    ) -> None:
        self._journal, self._reader = journal, LogReader(journal, options, machine)
        self._framed, self._clock = options.frames, request.channel.site.reactor
        self._request = request
        self._paused = self._pumping = False
        self._soon: IDelayedCall | None = None

    async def run(self, session: Session) -> None:
        """
        Send the response and report its end to ``session``.

        :raises CancelledError: the client disconnected.
        """
        text = self._text = TextAnswer(self._request, self._pause, self._resume)
        del self._request
        try:
            text.begin([self._reader.framing.header()] if self._framed else ())
            session.carry(self._end, lambda: text.cut("cut"))
            self._journal.watch(self._pump)
            self._pump()
            session.over(await text.done, bytes_to_user=text.sent)
        except CancelledError:
            session.over("client closed", bytes_to_user=text.sent)
            raise
        finally:
            self._journal.unwatch(self._pump)
            if self._soon is not None:
                self._soon.cancel()
            text.release()

    def _pause(self) -> None:
        self._paused = True

    def _resume(self) -> None:
        self._paused = False
        self._pump()

    def _pump(self) -> None:
        """Write until the log has no more, the transport pauses this producer, or the turn is over."""
        if self._pumping or self._soon is not None:
            return
        self._pumping = True  # a write may call _pause and _resume synchronously
        try:
            until = self._clock.seconds() + TURN_SECONDS
            for _ in range(_READS):
                if self._paused or not self._pump_one():
                    break
                if self._clock.seconds() >= until:
                    self._go_on()
                    break
            else:
                self._go_on()
        except Exception:  # the console calls this, too, and must not fail with its readers
            self._log.failure("a journal cannot be read")
            self._end(Ending(INTERNAL, "the journal cannot be read"))
            return
        finally:
            self._pumping = False
        if self._reader.over:
            self._text.finish(MACHINE_DELETED if self._journal.closed else COMPLETED)

    def _go_on(self) -> None:
        self._soon = self._clock.callLater(0, self._next_turn)

    def _next_turn(self) -> None:
        self._soon = None
        self._pump()

    def _pump_one(self) -> bool:
        """Write one piece; return whether there may be more."""
        text = self._reader.read()
        if text is None:
            return False
        if self._framed:
            text = self._reader.frame(text).encode()
        if text:
            self._text.write(text)
        return True

    def _end(self, ending: Ending) -> None:
        # A reader of frames continues elsewhere, or reads the reason when it tries.
        self._text.break_off(ending.reason, None if self._framed else ending)
