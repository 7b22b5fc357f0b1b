"""
HTTP responses with the content of a recording.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from twisted_exec.program.tasks import TURN_SECONDS
from twisted_exec.recording.chain import InvalidRecording
from twisted_exec.recording.ranges import MissingOutput
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import COMPLETED
from twisted_exec.streaming.sessions.session import Session
from twisted_exec.streaming.text.stream import TextAnswer


class RecordingStream:
    """
    One reader's response.

    The text is rendered only when the client accepts more, in short turns.  A response that ends properly
    is complete up to a signed head; else the connection is closed in the middle.

    :param prepare: returns the pieces of the text, which may be empty; called once the response has begun.
    """

    _log = Logger()
    _text: TextAnswer

    def __init__(
        self, request: Request, uid: str, prepare: Callable[[], Awaitable[Iterator[bytes]]]
    ) -> None:
        self._request, self._uid, self._prepare = request, uid, prepare
        self._pieces: Iterator[bytes] | None = None
        self._clock = request.channel.site.reactor
        self._is_paused = self._is_pumping = False
        self._soon: IDelayedCall | None = None

    async def run(self, session: Session) -> None:
        """
        Send the response and report its end to ``session``.

        :raises CancelledError: the client disconnected.
        """
        text = self._text = TextAnswer(self._request, self._pause, self._resume)
        try:
            text.begin()
            session.carry(lambda ending: text.break_off(ending.reason), lambda: text.cut("cut"))
            self._pieces = await self._prepare()
            self._pump()
            session.over(await text.done, bytes_to_user=text.sent)
        except CancelledError:
            session.over("client closed", bytes_to_user=text.sent)
            raise
        finally:
            if self._soon is not None:
                self._soon.cancel()
            text.release()

    def _pause(self) -> None:
        self._is_paused = True

    def _resume(self) -> None:
        self._is_paused = False
        self._pump()

    def _pump(self) -> None:
        """Write until the end, the transport pauses this producer, or the turn is over."""
        if self._pieces is None or self._is_pumping or self._soon is not None:
            return
        self._is_pumping = True  # a write may call _pause and _resume synchronously
        try:
            until = self._clock.seconds() + TURN_SECONDS
            while not self._is_paused:
                piece = next(self._pieces, None)
                if piece is None:
                    self._text.finish(COMPLETED)
                    return
                if piece:
                    self._text.write(piece)
                if self._clock.seconds() >= until:
                    self._soon = self._clock.callLater(0, self._next_turn)
                    return
        except (MissingOutput, InvalidRecording, OSError) as error:
            self._log.error("recording {uid}: {why}", uid=self._uid, why=str(error))
            self._text.break_off("the recording is no longer complete")
        except Exception:
            self._log.failure("recording {uid} cannot be read", uid=self._uid)
            self._text.break_off("the recording cannot be read")
        finally:
            self._is_pumping = False

    def _next_turn(self) -> None:
        self._soon = None
        self._pump()
