"""
Forcing the output of a store's journals to the disk.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted_exec.control.runs import SingleRun
from twisted_exec.journal.files import JournalFiles
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.lifetime import Lifetime, given_up
from twisted_exec.journal.records import Checkpoint
from twisted_exec.journal.segments import OpenSegment
from twisted_exec.journal.writer import JournalWriter

SYNC_SECONDS = 5.0
"""Interval of forcing output to the disk."""
_HURRY_BYTES = 24 << 20


class Syncer:
    """
    Forces output to the disk at an interval.

    :param journals: by their keys.
    """

    def __init__(
        self, lifetime: Lifetime, writer: JournalWriter, journals: Mapping[str, Journal]
    ) -> None:
        self._lifetime, self._writer, self._journals = lifetime, writer, journals
        self._syncing = SingleRun(self._run, "forcing journals to the disk")

    def begin(self) -> None:
        self._lifetime.later(SYNC_SECONDS, self._pass)

    def _pass(self) -> None:
        self.begin()
        self._syncing.start()

    def hurry(self, files: JournalFiles) -> None:
        """Force the output of all journals now, if the disk lacks much of this one."""
        if files.unsynced_bytes > _HURRY_BYTES:
            self._syncing.start()

    async def sync(self) -> None:
        """Force what was printed until now to the disk, as far as the disk works."""
        await self._writer.write_now()
        await self.ended()
        self._syncing.start()
        await self.ended()

    async def ended(self) -> None:
        """Wait for a run that is under way."""
        await self._syncing.ended()

    async def _run(self) -> None:
        await self.force()

    async def force(self) -> bool:
        """Force what the files have to the disk; return whether the disk has all of it."""
        if self._writer.is_late:
            return False  # a thread is still writing
        jobs: list[tuple[Journal, OpenSegment, Checkpoint]] = []
        directories: dict[Journal, JournalFiles] = {}
        for journal in self._journals.values():
            files = journal.open_files() if journal.is_dirty and not journal.failure else None
            if files is None:
                continue
            journal.is_dirty = False
            for segment in [*files.unsynced.values(), files.open]:
                jobs.append((journal, segment, segment.checkpoint()))
            if files.has_new_names:
                files.has_new_names = False
                directories[journal] = files

        def work() -> list[OSError | None]:
            broken = {journal: _sync_names(files) for journal, files in directories.items()}
            return [
                broken.get(journal) or self._sync_one(segment, checkpoint)
                for journal, segment, checkpoint in jobs
            ]

        unforced = {journal for journal, _, _ in jobs}
        try:
            errors = await self._lifetime.in_thread(work) if jobs else []
            unforced = {job[0] for job, problem in zip(jobs, errors, strict=True) if problem}
        finally:  # also if nobody waits any more
            for journal in unforced:
                journal.is_dirty = True
                if journal in directories:
                    directories[journal].has_new_names = True
        for (journal, segment, checkpoint), problem in zip(jobs, errors, strict=True):
            if problem is not None and not journal.failure:
                journal.fail(problem)
            elif problem is None and (files := journal.open_files()) is not None:
                segment.synchronized(checkpoint)
                files.synchronized(segment)
        return not unforced

    def _sync_one(self, segment: OpenSegment, checkpoint: Checkpoint) -> OSError | None:
        if self._lifetime.is_given_up:
            return given_up()
        try:
            segment.sync(checkpoint)
        except FileNotFoundError:
            return None  # sealed or removed meanwhile
        except OSError as error:
            return error
        return None


def _sync_names(files: JournalFiles) -> OSError | None:
    try:
        files.sync_directory()
    except FileNotFoundError:
        return None  # removed meanwhile
    except OSError as error:
        return error
    return None
