"""
HTTP responses with a text of this process: a log, a recording.

They read from their source only when the client accepts more.  They need no buffer of their own, and
the source never waits for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from twisted.internet.defer import CancelledError

from twisted_exec.program.tasks import TURN_SECONDS, SharedTurns
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.sessions.session import Session
from twisted_exec.streaming.text.stream import TextAnswer


class TextResponse:
    """
    One reader's response.

    :ivar _text: once the response has begun.
    """

    _text: TextAnswer

    def __init__(self, request: Request) -> None:
        self._request: Request | None = request
        self._clock = request.channel.site.reactor

    async def run(self, session: Session) -> None:
        """
        Send the response and report its end to ``session``.

        :raises CancelledError: the client disconnected.
        """
        assert self._request is not None
        text = self._text = TextAnswer(self._request, self._pause, self._resume)
        self._request = None
        try:
            text.begin(self._headers())
            session.carry(self._end, lambda: text.cut("cut"))
            await self._open()
            session.over(await text.done, bytes_to_user=text.sent)
        except CancelledError:
            session.over("client closed", bytes_to_user=text.sent)
            raise
        finally:
            self._close()
            text.release()

    # Implemented by subclasses.

    def _headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Return more headers of the response."""
        return ()

    async def _open(self) -> None:
        """Begin to send the text."""
        raise NotImplementedError

    def _close(self) -> None:
        """Release the source; called in any case."""
        raise NotImplementedError

    def _end(self, ending: Ending) -> None:
        """End before the text is complete."""
        self._text.break_off(ending.reason)

    def _pause(self) -> None:
        raise NotImplementedError

    def _resume(self) -> None:
        raise NotImplementedError


class PacedResponse(TextResponse):
    """
    The response with a text that comes in pieces, which are read in short turns.

    :cvar most_pieces: in one turn.  A transport that takes them all, or pieces that are empty, must not
        hold others up.
    """

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
        """Write until the source has no more, the transport pauses this producer, or the turn is over."""
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
