"""
HTTP responses with the content of a recording that is in a journal, or in a store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.recording.journal_ranges import MissingOutput
from twisted_exec.recording.proof_lines import InvalidRecording
from twisted_exec.recording.stores.interfaces import ReadText, StoreError
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import COMPLETED
from twisted_exec.streaming.text.stream import PacedResponse, TextResponse

_READ_BYTES = 256 << 10


class StoredStream(TextResponse):
    """One reader's response with a recording that is in a store."""

    _log = Logger()

    def __init__(self, request: Request, uid: str, read: ReadText) -> None:
        super().__init__(request)
        self._uid, self._read = uid, read
        self._paused: Deferred[None] | None = None
        self._is_paused = False
        self._first = b""
        self._copying: Deferred[None] | None = None

    async def _begin(self) -> None:
        try:
            self._first = await self._read(0, _READ_BYTES)
        except StoreError as error:
            raise ServiceUnavailable(f"the recording cannot be read: {error}") from None

    async def _open(self) -> None:
        first, self._first = self._first, b""
        self._copying = Deferred.fromCoroutine(self._copy(first)).addErrback(self._failed)

    def _close(self) -> None:
        if self._copying is not None:
            self._copying.cancel()

    async def _copy(self, data: bytes) -> None:
        offset = 0
        while data:
            self._text.write(data)
            offset += len(data)
            if self._is_paused:
                self._paused = Deferred()
                await self._paused
            data = await self._read(offset, _READ_BYTES)
        self._text.finish(COMPLETED)

    def _failed(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        why = failure.getErrorMessage()
        self._log.error("recording {uid} cannot be read: {why}", uid=self._uid, why=why)
        self._text.break_off("the recording cannot be read")

    def _pause(self) -> None:
        self._is_paused = True

    def _resume(self) -> None:
        self._is_paused = False
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.callback(None)


class RecordingStream(PacedResponse):
    """
    One reader's response with a recording that is in a journal.

    A response that ends properly is complete up to a signed head; else the connection is closed in
    the middle.
    """

    _log = Logger()

    def __init__(
        self, request: Request, uid: str, prepare: Callable[[], Awaitable[Iterator[bytes]]]
    ) -> None:
        super().__init__(request)
        self._uid, self._prepare = uid, prepare
        self._pieces: Iterator[bytes] | None = None
        self._is_complete = False

    async def _open(self) -> None:
        try:
            self._pieces = await self._prepare()
        except OSError as problem:
            self._failed(problem)
            return
        self._pump()

    def _write_piece(self) -> bool:
        if self._pieces is None:
            return False
        piece = next(self._pieces, None)
        if piece:
            self._text.write(piece)
        self._is_complete = piece is None
        return not self._is_complete

    def _reason_of_end(self) -> str:
        return COMPLETED if self._is_complete else ""

    def _failed(self, problem: Exception) -> None:
        if isinstance(problem, (MissingOutput, InvalidRecording)):
            self._log.error("recording {uid}: {why}", uid=self._uid, why=str(problem))
            self._text.break_off("the recording is no longer complete")
            return
        if isinstance(problem, OSError):
            self._log.error(
                "recording {uid} cannot be read: {why}", uid=self._uid, why=str(problem)
            )
        else:
            self._log.failure("recording {uid} cannot be read", uid=self._uid)
        self._text.break_off("the recording cannot be read")
