"""
Journals whose disk fails: their output is in memory until they are written again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twisted_exec.control.backoff import Backoff
from twisted_exec.control.runs import SingleRun
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.lifetime import Lifetime
from twisted_exec.journal.writer import JournalWriter
from twisted_exec.program.service import SUMMARY
from twisted_exec.program.turns import ShortTurns

_RETRY_SECONDS = 1.0, 30.0


class FailingJournals:
    """
    The journals of one store that are not on disk at present.

    :param failed: called with the key of a journal and the reason when its disk fails.
    :param recovered: called with key and number of lost bytes when the disk works again.
    :ivar lost_bytes: output that was lost while a disk failed.
    """

    _log = Logger()

    def __init__(
        self,
        lifetime: Lifetime,
        clock: Any,
        writer: JournalWriter,
        failed: Callable[[str, str], None],
        recovered: Callable[[str, int], None],
    ) -> None:
        self._lifetime, self._clock, self._writer = lifetime, clock, writer
        self._failed, self._recovered = failed, recovered
        self.lost_bytes = 0
        self._journals: dict[str, Journal] = {}
        self._retrying = SingleRun(self._retry, "writing journals that are not on disk")
        self._backoff = Backoff(*_RETRY_SECONDS)

    def __len__(self) -> int:
        return len(self._journals)

    def begin(self) -> None:
        if self._journals:
            self._retry_later()

    def add(self, key: str, journal: Journal, reason: str) -> None:
        if key not in self._journals:
            if not self._journals:  # the others are on the same disk
                self._log.warn("journals are not on disk at present: {why}", why=reason)
            self._journals[key] = journal
            self._failed(key, reason)
        self._retry_later()

    def _retry_later(self) -> None:
        if self._lifetime.is_open and not self._lifetime.is_due(self._retrying.start):
            self._lifetime.later(self._backoff.pause(), self._retrying.start)

    def answered(self) -> None:
        """Write to a disk that answers again, before the next try is due."""
        if self._journals and not self._writer.is_late:
            self._retrying.start()

    async def ended(self) -> None:
        """Wait for a try that is under way."""
        await self._retrying.ended()

    async def _retry(self) -> None:
        turns = ShortTurns(self._clock)
        for key, journal in list(self._journals.items()):
            await turns.breathe()
            if not self._lifetime.is_open:
                return
            await self._try_again(key, journal)  # the others may have another problem
        if not self._journals:
            self._log.info("all journals are on disk again", **{SUMMARY: True})
            self._backoff.reset()
            return
        self._retry_later()

    def try_again(self, key: str, journal: Journal) -> None:
        """Write a journal whose disk has failed, before its next try is due."""
        if self._lifetime.is_open and not self._writer.is_late:
            trying = Deferred.fromCoroutine(self._try_again(key, journal))
            trying.addErrback(lambda failure: self._log.failure("journal {key}", failure, key=key))

    async def _try_again(self, key: str, journal: Journal) -> None:
        lost = await self._write_again(journal) if key in self._journals else None
        if lost is not None and self._journals.pop(key, None) is not None:
            self.lost_bytes += lost
            self._recovered(key, lost)

    async def _write_again(self, journal: Journal) -> int | None:
        lost = 0
        batch = journal.next_batch(is_again=True) if journal.open_again() else None
        if batch is None:
            return None
        while batch is not None:
            if self._writer.is_late or not await self._writer.finish(batch.run):
                return None
            journal.wrote(batch)
            if batch.error is not None:
                return None
            lost += batch.lost
            batch = journal.next_batch()
        journal.works_again()
        return lost
