"""
HTTP responses with the log of a console.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from twisted.logger import Logger

from twisted_exec.api.logs import LogOptions
from twisted_exec.journal.interfaces import IJournal
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.interfaces import COMPLETED, INTERNAL, MACHINE_DELETED, Ending
from twisted_exec.streaming.text.responses import PacedResponse

from .log import LogReader


class LogStream(PacedResponse):
    """
    One reader's response.

    :param machine: its name, for messages.
    :raises BadRequest: the journal does not have the boot or the offset.
    """

    most_pieces: ClassVar[int] = 8
    _log = Logger()

    def __init__(
        self, request: Request, journal: IJournal, options: LogOptions, machine: str = ""
    ) -> None:
        super().__init__(request)
        self._journal, self._reader = journal, LogReader(journal, options, machine)
        self._framed = options.frames

    def _headers(self) -> Sequence[tuple[bytes, bytes]]:
        return [self._reader.framing.header()] if self._framed else ()

    async def _open(self) -> None:
        self._journal.watch(self._pump)
        self._pump()

    def _close(self) -> None:
        self._journal.unwatch(self._pump)
        super()._close()

    def _write_piece(self) -> bool:
        text = self._reader.read()
        if text is None:
            return False
        if self._framed:
            text = self._reader.frame(text).encode()
        if text:
            self._text.write(text)
        return True

    def _reason_of_end(self) -> str:
        if not self._reader.over:
            return ""
        return MACHINE_DELETED if self._journal.closed else COMPLETED

    def _failed(self, problem: Exception) -> None:
        # The journal calls the response, and must not fail with its readers.
        self._log.failure("a journal cannot be read")
        self._end(Ending(INTERNAL, "the journal cannot be read"))

    def _end(self, ending: Ending) -> None:
        # A reader of frames continues elsewhere, or reads the reason when it tries.
        self._text.break_off(ending.reason, None if self._framed else ending)
