"""
HTTP responses with the content of a recording that is in a store.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.recording.stores.interfaces import ReadText, StoreError
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import COMPLETED
from twisted_exec.streaming.sessions.session import Session
from twisted_exec.streaming.text.stream import TextAnswer

_READ_BYTES = 256 << 10


class StoredStream:
    """
    One reader's response, as that of :class:`.RecordingStream`.

    The next piece is read when the client accepts more.
    """

    _log = Logger()

    def __init__(self, request: Request, uid: str, read: ReadText) -> None:
        self._request, self._uid, self._read = request, uid, read
        self._paused: Deferred[None] | None = None
        self._is_paused = False

    async def run(self, session: Session) -> None:
        """
        Send the response and report its end to ``session``.

        :raises ServiceUnavailable: the store cannot be read; nothing was answered.
        :raises CancelledError: the client disconnected.
        """
        try:
            first = await self._read(0, _READ_BYTES)
        except StoreError as error:
            raise ServiceUnavailable(f"the recording cannot be read: {error}") from None
        text = TextAnswer(self._request, self._pause, self._resume)
        copying: Deferred[None] | None = None
        try:
            text.begin()
            session.carry(lambda ending: text.break_off(ending.reason), lambda: text.cut("cut"))
            copying = Deferred.fromCoroutine(self._copy(text, first))
            copying.addErrback(self._failed, text)
            session.over(await text.done, bytes_to_user=text.sent)
        except CancelledError:
            session.over("client closed", bytes_to_user=text.sent)
            raise
        finally:
            if copying is not None:
                copying.cancel()
            text.release()

    async def _copy(self, text: TextAnswer, data: bytes) -> None:
        offset = 0
        while data:
            text.write(data)
            offset += len(data)
            if self._is_paused:
                self._paused = Deferred()
                await self._paused
            data = await self._read(offset, _READ_BYTES)
        text.finish(COMPLETED)

    def _failed(self, failure: Failure, text: TextAnswer) -> None:
        if failure.check(CancelledError):
            return
        why = failure.getErrorMessage()
        self._log.error("recording {uid} cannot be read: {why}", uid=self._uid, why=why)
        text.break_off("the recording cannot be read")

    def _pause(self) -> None:
        self._is_paused = True

    def _resume(self) -> None:
        self._is_paused = False
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.callback(None)
