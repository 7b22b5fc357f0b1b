"""
Sealing the full segments of journals: compressed, they replace the segments that were written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from twisted_exec.api.display import reason_of
from twisted_exec.control.runs import SingleRun
from twisted_exec.journal.blocks import FAST_LEVEL, LEVEL
from twisted_exec.journal.files import JournalFiles
from twisted_exec.journal.records import Damaged
from twisted_exec.journal.segments import seal

SEAL_SECONDS = 60.0
"""A full segment is sealed after this time."""


class Sealer:
    """Seals one segment after another."""

    _log = Logger()

    def __init__(self, clock: Any, in_thread: Callable[[Callable[[], Any]], Deferred[Any]]) -> None:
        self._clock, self._in_thread = clock, in_thread
        self._sealing = SingleRun(self._seal, "sealing journals")
        self._full: deque[tuple[float, JournalFiles]] = deque()
        self._timer: IDelayedCall | None = None
        self._sealed_at = 0.0

    def add(self, files: JournalFiles) -> None:
        """Seal the oldest full segment of a journal later."""
        # Later, because a line that prints without end loses the segment before it is worth the work.
        self._full.append((self._clock.seconds() + SEAL_SECONDS, files))
        self._wait(SEAL_SECONDS)

    async def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._full.clear()
        await self._sealing.ended()

    def _wait(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._clock.callLater(seconds, self._start)

    def _start(self) -> None:
        self._timer = None
        self._sealing.start()

    async def _seal(self) -> None:
        while self._full and self._full[0][0] <= self._clock.seconds():
            _, files = self._full.popleft()
            if files.pending:
                await self._seal_oldest(files)
        if self._full:
            self._wait(self._full[0][0] - self._clock.seconds())

    async def _seal_oldest(self, files: JournalFiles) -> None:
        first = next(iter(files.pending))
        try:
            await self._in_thread(partial(_seal_one, files, first, self._level()))
        except FileNotFoundError:
            return  # removed meanwhile
        except (OSError, Damaged) as error:
            # The open segment is as good; the next full segment, or start, tries again.
            why = reason_of(error)
            self._log.warn("journal {path}: {why}", path=files.place.path, why=why)
            return
        path = files.sealed(first)
        if path is not None:
            try:
                await self._in_thread(partial(files.place.layer.unlink, path))
            except OSError as error:  # the next start removes it
                self._log.warn("journal {path}: {why}", path=path, why=reason_of(error))

    def _level(self) -> int:
        before, self._sealed_at = self._sealed_at, self._clock.seconds()
        return FAST_LEVEL if self._sealed_at - before < 1 else LEVEL


def _seal_one(files: JournalFiles, first: int, level: int) -> None:
    seal(
        files.place.layer,
        files.path(first, "open"),
        files.path(first, "sealed"),
        first,
        files.epoch,
        level,
    )
