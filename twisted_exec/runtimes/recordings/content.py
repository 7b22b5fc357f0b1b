"""
HTTP responses with the content of a recording that is in a journal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from twisted.logger import Logger

from twisted_exec.recording.journal_ranges import MissingOutput
from twisted_exec.recording.proof_lines import InvalidRecording
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import COMPLETED
from twisted_exec.streaming.text.stream import PacedResponse


class RecordingStream(PacedResponse):
    """
    One reader's response.

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
