"""
Writing the output of a store's journals to their files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twisted_exec.control.runs import SingleRun
from twisted_exec.control.timers import Timers
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.lifetime import Lifetime
from twisted_exec.journal.write_batch import WriteBatch
from twisted_exec.program.disk_thread import Files, Unanswered
from twisted_exec.program.turns import ShortTurns

WRITE_SECONDS = 0.1
"""Output is written to files after this time, or sooner if there is much."""
STALL_SECONDS = 1.0
"""A disk that does not answer for this time has failed."""
_SLICE_BYTES, _SLICE_JOURNALS = 128 << 10, 64


class _Disk(Enum):
    """Whether the disk answers."""

    ANSWERS = "answers"
    LATE = "late"
    STALLED = "stalled"
    """It has not answered for :data:`STALL_SECONDS`: journals that print fail."""


class JournalWriter:
    """
    Writes output soon after it was printed, for many journals with one call of the thread.

    :ivar lost_bytes: output for which there was not enough memory.
    """

    _log = Logger()

    def __init__(
        self,
        path: str,
        clock: Any,
        thread: Files,
        lifetime: Lifetime,
        written: Callable[[], None],
        answered: Callable[[], None],
    ) -> None:
        self._path, self._clock, self._thread = path, clock, thread
        self._lifetime = lifetime
        self._all_written, self._goes_on = written, answered
        self.lost_bytes = 0
        self._disk = _Disk.ANSWERS
        self._behind: dict[Journal, None] = {}
        self._due: dict[Journal, None] = {}
        self._refused: dict[Journal, None] = {}
        self._waiting: list[Deferred[None]] = []
        self._printed_bytes = 0
        self._writing = SingleRun(self._write, "writing journals")
        self._timers = Timers(clock)  # also while the store closes
        thread.late, thread.answered = self._late, self._answered

    def __len__(self) -> int:
        return len(self._behind) + len(self._due)

    def close(self) -> None:
        self._timers.cancel_all()

    def printed(self, size: int) -> None:
        self._printed_bytes += size
        if self._printed_bytes > _SLICE_BYTES:
            self._printed_bytes = 0
            self._timers.later(0, self._hurry)

    def _hurry(self) -> None:
        self._writing.start()

    def behind(self, journal: Journal) -> None:
        if self._disk is _Disk.STALLED:
            journal.fail(Unanswered())
            return
        self._behind[journal] = None
        self._timers.later(WRITE_SECONDS, self._writing.start)

    async def _write(self) -> None:
        turns = ShortTurns(self._clock, is_urgent=True)
        self._printed_bytes = 0
        self._due, self._behind = self._behind, {}
        while self._due:
            await turns.breathe()
            batches = [] if self._lifetime.is_given_up else self._next()
            is_finished = not batches or await self.finish(partial(self._run, batches))
            if self._lifetime.is_given_up:
                return
            if not is_finished:
                continue  # the same is due again
            for journal, batch in batches:
                journal.wrote(batch)
                if batch.lost and not batch.error:
                    self._lost(batch.lost)
                if batch.is_all or journal.failure:
                    self._due.pop(journal, None)
                    if journal.still_behind():
                        self._behind[journal] = None
        if self._behind:
            self._timers.later(WRITE_SECONDS, self._writing.start)
        else:
            self._all_written()

    def _run(self, batches: Iterable[tuple[Journal, WriteBatch]]) -> None:
        for _, batch in batches:
            if not self._lifetime.is_given_up:
                batch.run()

    def _next(self) -> list[tuple[Journal, WriteBatch]]:
        found: list[tuple[Journal, WriteBatch]] = []
        size = 0
        for journal in list(self._due):
            batch = None if journal.failure else journal.next_batch()
            if batch is None:
                del self._due[journal]
                journal.still_behind()
                continue
            found.append((journal, batch))
            size += batch.size
            if size > _SLICE_BYTES or len(found) > _SLICE_JOURNALS:
                break
        return found

    async def finish(self, function: Callable[[], None]) -> bool:
        """
        Call a function in the thread; return false, after a wait, if an earlier call was in its
        way.
        """
        if self._lifetime.is_given_up:
            return False
        try:
            self._thread.call(function)
        except Unanswered as late:
            if late.answer is None:
                answered: Deferred[None] = Deferred()
                self._waiting.append(answered)
                await answered
                return False
            await late.answer
        return True

    def _lost(self, lost: int) -> None:
        self.lost_bytes += lost
        self._log.warn(
            "{path}: the disk was too slow; {lost} bytes lost", path=self._path, lost=lost
        )

    # A disk that does not answer.

    @property
    def is_late(self) -> bool:
        """Whether the disk does not answer at present."""
        return self._disk is not _Disk.ANSWERS

    def _late(self) -> None:
        self._disk = _Disk.LATE
        self._timers.later(STALL_SECONDS, self._stalled)

    def _stalled(self) -> None:
        if self.is_late:
            self._disk = _Disk.STALLED
            self._log.warn("{path}: {why}", path=self._path, why=Unanswered().strerror)
            for journal in [*self._due, *self._behind]:
                if not journal.failure:
                    journal.fail(Unanswered())

    def _answered(self) -> None:
        self._disk = _Disk.ANSWERS
        self._timers.cancel(self._stalled)
        # Later, because the call that waited longest goes on first.
        self._timers.later(0, self._go_on)

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)
        refused, self._refused = self._refused, {}
        for journal in refused:
            journal.became_readable()
        self._goes_on()

    def refused(self, journal: Journal) -> None:
        """Tell the readers of a journal when the disk answers."""
        self._refused[journal] = None

    @property
    def stalled(self) -> str:
        """Why the disk is not used at present; empty unless it does not answer."""
        return (Unanswered().strerror or "") if self._disk is _Disk.STALLED else ""

    async def write_now(self) -> None:
        await self._writing.ended()
        self._writing.start()
        await self._writing.ended()

    def settle(self, journal: Journal) -> bool:
        """Write what the files of a journal lack; return whether they lack nothing."""
        while journal.is_behind and (batch := journal.next_batch()) is not None:
            try:
                self._thread.call(batch.run)
            except Unanswered as late:
                if late.answer is not None:
                    late.answer.addCallback(partial(_wrote, journal, batch))
                return False
            journal.wrote(batch)
        self._behind.pop(journal, None)
        if journal.still_behind():
            self._behind[journal] = None
        return journal not in self._due and not journal.failure

    def forget(self, journal: Journal) -> None:
        self._behind.pop(journal, None)


def _wrote(journal: Journal, batch: WriteBatch, _: object) -> None:
    journal.wrote(batch)
