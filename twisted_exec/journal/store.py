"""
The journals of one runtime on disk, with their metrics.

A thread writes the output of many journals together (:mod:`.writer`). For a runtime that is killed
before, a file in memory has the output, too (:mod:`.front`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twisted_exec.api.display import listed
from twisted_exec.journal import front
from twisted_exec.journal.awake_journals import AwakeJournals
from twisted_exec.journal.deletion_marks import DeletionMarks
from twisted_exec.journal.directories import Directories, is_key
from twisted_exec.journal.failing import FailingJournals
from twisted_exec.journal.file_access import opened
from twisted_exec.journal.files import JournalFiles, JournalPlace
from twisted_exec.journal.interfaces import Event
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.lifetime import Lifetime
from twisted_exec.journal.program_run import StoreRun, kernel_boot
from twisted_exec.journal.removing import Remover
from twisted_exec.journal.retention import DEFAULT_LIMITS, Retention, StoreLimits
from twisted_exec.journal.sealing import Sealer
from twisted_exec.journal.syncing import Syncer
from twisted_exec.journal.writer import JournalWriter
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.disk_thread import Files as DiskFiles
from twisted_exec.program.tasks import ends_within
from twisted_exec.tls.private_directories import private_directory

FORMAT = "1"
STOP_SECONDS = 5.0
"""Longest wait of a stop for the disk to take the last output."""
_NAMED = 10
"""So many journals are named in a message."""
_IN_MEMORY = "the next start writes the rest, unless this host restarts before"
_NOWHERE = "the next start cannot write the rest, which is not in memory either"
_MEMORY_BYTES, _MEMORY_BYTES_EACH = 64 << 20, (192 << 10, 4 << 20)


class FormatError(Exception):
    """The journals are of a later release."""


class JournalStore:
    """
    All journals of one state directory.

    :param now: the time of day, in nanoseconds since the epoch.
    :ivar failed: called with the key of a journal and the reason when its disk fails.
    :ivar recovered: called with key and number of lost bytes when the disk works again.
    """

    _log = Logger()

    def __init__(
        self,
        path: str,
        clock: Any,
        *,
        limits: StoreLimits = DEFAULT_LIMITS,
        now: Callable[[], int] = time.time_ns,
        in_thread: Callable[[Callable[[], Any]], Deferred[Any]] | None = None,
        thread: DiskFiles | None = None,
        memory: str = front.MEMORY,
        layer: Any = os,
        kernel: str | None = None,
    ) -> None:
        self.path = os.path.abspath(path)
        self.failed: Callable[[str, str], None] = lambda key, reason: None
        self.recovered: Callable[[str, int], None] = lambda key, lost: None
        self._clock, self._now, self._layer = clock, now, layer
        self._slow_thread = DiskThread(clock)
        self.thread: DiskFiles = thread or DiskThread(clock)
        self._journals: dict[str, Journal] = {}
        self._directories = Directories(layer, self.path)
        self._lifetime = Lifetime(clock, in_thread or self._slow_thread.run)
        self.writer = JournalWriter(
            self.path, clock, self.thread, self._lifetime, self._all_written, self._answered
        )
        self._failing = FailingJournals(
            self._lifetime,
            clock,
            self.writer,
            lambda key, reason: self.failed(key, reason),
            lambda key, lost: self.recovered(key, lost),
        )
        self._syncer = Syncer(self._lifetime, self.writer, self._journals)
        self._remover = Remover(
            self._lifetime, clock, now, self._directories, limits, self.writer, self._journals
        )
        self._run = StoreRun(
            self._lifetime,
            layer,
            self.path,
            memory,
            kernel_boot() if kernel is None else kernel,
            now,
        )
        self._awake = AwakeJournals(self._lifetime, self._journals)
        self._marks = DeletionMarks(self._lifetime, self.thread, self._directories)
        self._sealer = Sealer(clock, self._lifetime.in_thread)
        self._parts = _Parts(
            layer,
            self.thread,
            self._lifetime,
            self._run,
            self._directories,
            self.writer,
            self._failing,
            self._awake,
            self._syncer,
            self._sealer,
            self._remover,
        )

    def open(self) -> None:
        """
        Check the directory, and start the timers.

        :raises FormatError: a later release wrote the journals.
        :raises DirectoryError: the directory is not private or cannot be created.
        """
        private_directory(self.path)
        self._check_format()
        self._lifetime.open()
        last = self._run.begin(is_new=not any(self._directories.keys()))
        for key in self._run.keys_left:
            self.journal(key).open_files()
        self._run.took_over()
        self._remover.begin(last.time_ns if last else None)
        self._awake.begin()
        self._syncer.begin()
        self._failing.begin()
        self._marks.begin()

    def _check_format(self) -> None:
        path = self._directories.file("format")
        try:
            with opened(self._layer, path) as descriptor:
                version = self._layer.pread(descriptor, 100, 0).decode("ascii", "replace").strip()
        except FileNotFoundError:
            try:
                with opened(self._layer, path, os.O_WRONLY | os.O_CREAT) as descriptor:
                    self._layer.write(descriptor, f"{FORMAT}\n".encode())
            except OSError:
                pass  # written by a later start; the disk is full
            return
        if version and version != FORMAT:
            raise FormatError(
                f"{self.path} has journals of format {version}, which a later release wrote; "
                f"this release reads format {FORMAT}: use that release, or move the directory away"
            )

    async def close(self) -> None:
        """
        Force everything to the disk, as far as the disk works, and stop the threads.

        Wait for :data:`STOP_SECONDS` at most.
        """
        if not self._lifetime.is_open:
            self._stop_threads()
            return
        self._lifetime.begin_closing()
        try:
            has_finished = await ends_within(STOP_SECONDS, self._clock, self._finish())
        except BaseException:
            self._lifetime.close()
            self._stop_threads()
            raise
        if has_finished:
            self._lifetime.close()
        else:
            self._give_up()
        self._stop_threads()

    async def _finish(self) -> None:
        self._marks.try_again()
        await self._sealer.stop()
        await self._syncer.ended()
        await self._remover.ended()
        await self._failing.ended()
        await self.writer.write_now()
        # A reader may be in the way, and the writes may have begun to force output to the disk.
        while not self._lifetime.is_given_up and not await self.writer.finish(lambda: None):
            pass
        await self._syncer.ended()
        if await self._syncer.force() and not self.writer and not self._failing:
            await self._run.end()

    def _give_up(self) -> None:
        self._lifetime.give_up()
        self._run.give_up()
        is_in_memory = self._run.front is not None and self._run.front.has_file
        self._log.warn(
            "{path}: the disk did not answer for {seconds} s; {outlook}: {rest}",
            path=self.path,
            seconds=STOP_SECONDS,
            outlook=_IN_MEMORY if is_in_memory else _NOWHERE,
            rest=self._rest(),
        )

    def _rest(self) -> str:
        journals = self._journals.items()
        keys = [key for key, journal in journals if journal.is_behind or journal.failure]
        machines = listed(keys, _NAMED)
        return f"output of the machines {machines}" if keys else "the output of the last seconds"

    def _stop_threads(self) -> None:
        for journal in self._journals.values():
            journal.rest()
        self._slow_thread.stop()
        self.writer.close()
        self.thread.stop()

    # Journals.

    def journal(self, key: str, retention: Retention | None = None) -> Journal:
        """
        Return the journal with a key, whose files are opened at the first use.

        :param retention: its limits; those that it had before, if ``None``.
        :raises ValueError: the key is not valid.
        """
        journal = self._journals.get(key)
        if journal is None:
            if not is_key(key):
                raise ValueError(f"{key!r} is not a key of a journal")
            journal = self._journals[key] = Journal(self._now, _Place(self._parts, key))
        if retention is not None:
            self._remover.limit(key, retention)
        return journal

    def has(self, key: str) -> bool:
        """Return whether there is a journal with this key, also of a deleted machine."""
        return key in self._journals or (is_key(key) and os.path.isdir(self._directories.file(key)))

    def of_deleted(self, key: str) -> Journal | None:
        """Return the journal of a deleted machine; ``None`` if it is not retained."""
        if not self.has(key):
            return None
        journal = self.journal(key)
        journal.close()
        return journal

    def deleted_machines(self) -> Iterator[tuple[Journal, Mapping[str, str]]]:
        """Iterate over the retained journals of deleted machines, with the facts about them."""
        for key, facts in self._directories.deleted():
            journal = self.of_deleted(key)
            if journal is not None:
                yield journal, facts

    def revive(self, key: str) -> None:
        """Continue the journal of a machine that exists again."""
        journal = self._journals.get(key)
        if journal is not None and journal.closed:
            if self.writer.settle(journal):
                self._remover.forget(key)  # readers of the old journal have seen its end
            else:
                journal.reopen()
        self._marks.revived(key)

    def deleted(self, key: str, facts: Mapping[str, str] | None = None) -> None:
        """End the journal of a machine that was deleted; it is retained for a while."""
        journal = self._journals.get(key)
        if journal is None:
            return
        journal.close()
        journal.open_files()
        self._marks.deleted(key, facts or {}, self._now())
        journal.close_descriptor()

    @property
    def failing(self) -> int:
        return len(self._failing)

    @property
    def lost_bytes(self) -> int:
        return self._failing.lost_bytes + self.writer.lost_bytes

    @property
    def stalled(self) -> str:
        """Why the disk is not used at present; empty unless it does not answer."""
        return self.writer.stalled

    def _all_written(self) -> None:
        if not self._failing:
            self._run.all_written()

    def _answered(self) -> None:
        self._failing.answered()

    # Recordings.

    def directory(self, key: str) -> str:
        return self._directories.file(key)

    def before_removal(self, removing: Callable[[str], None]) -> None:
        """
        Call a function with each path of a segment before it is removed, maybe in a thread.

        A segment has one of two names, so a file may be missing.  The function may link the file to
        another name, and must not fail.
        """
        self._directories.removing = removing

    async def sync(self) -> None:
        """Force what was printed until now to the disk, as far as the disk works."""
        await self._syncer.sync()

    async def remove_old(self) -> None:
        """Remove old output now."""
        await self._remover.remove_old()


@dataclass(frozen=True)
class _Parts:
    """The parts of a store that its journals use."""

    layer: Any
    thread: DiskFiles
    lifetime: Lifetime
    run: StoreRun
    directories: Directories
    writer: JournalWriter
    failing: FailingJournals
    awake: AwakeJournals
    syncer: Syncer
    sealer: Sealer
    remover: Remover


class _Place:
    """The place of one journal in a store; see :class:`.JournalDisk`."""

    __slots__ = ("_key", "_parts", "thread")

    def __init__(self, parts: _Parts, key: str) -> None:
        self._parts, self._key = parts, key
        self.thread = parts.thread

    def open(self, journal: Journal) -> JournalFiles:
        parts = self._parts
        run = parts.run.present
        place = JournalPlace(
            parts.layer,
            parts.directories.file(self._key),
            run.number,
            run.cut,
            lambda path: parts.directories.removing(path),
            parts.run.begin_writing,
            lambda: parts.lifetime.is_given_up,
        )
        filled = partial(self._segment_filled, journal)
        return JournalFiles(place, journal.now(), filled, journal.memory_epoch)

    def _segment_filled(self, journal: Journal, files: JournalFiles) -> None:
        """Seal the oldest full segment of a journal later, and keep the journal within its size."""
        self._parts.remover.shrink(self._key, journal)
        self._parts.syncer.hurry(files)
        self._parts.sealer.add(files)

    @property
    def most_bytes(self) -> int:
        least, most = _MEMORY_BYTES_EACH
        journals = len(self._parts.writer) + len(self._parts.failing)
        return max(least, min(most, _MEMORY_BYTES // max(1, journals)))

    def left(self, files: JournalFiles) -> Sequence[front.Unwritten]:
        return self._parts.run.left(self._key, files.epoch)

    def printed(self, epoch: bytes, offset: int, time_ns: int, data: bytes) -> None:
        if self._parts.run.front is not None:
            self._parts.run.front.add_output(self._key, epoch, offset, time_ns, data)
        self._parts.writer.printed(len(data))

    def happened(self, epoch: bytes, event: Event) -> None:
        if self._parts.run.front is not None:
            self._parts.run.front.add_event(self._key, epoch, event)

    def behind(self, journal: Journal) -> None:
        self._parts.writer.behind(journal)

    def settle(self, journal: Journal) -> bool:
        return self._parts.writer.settle(journal)

    def try_again(self, journal: Journal) -> None:
        self._parts.failing.try_again(self._key, journal)

    def refused(self, journal: Journal) -> None:
        self._parts.writer.refused(journal)

    def changed(self, journal: Journal) -> None:
        self._parts.awake.changed(journal)

    def failed(self, journal: Journal, reason: str) -> None:
        self._parts.failing.add(self._key, journal, reason)


class JournalMetrics(Collector):
    """``twisted_exec_journals_failing`` and ``twisted_exec_journal_lost_bytes_total``."""

    def __init__(self, registry: CollectorRegistry, store: JournalStore) -> None:
        self._store = store
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "twisted_exec_journals_failing",
            "Consoles whose output is in memory only, because their disk fails or does not answer.",
            self._store.failing,
        )
        yield CounterMetricFamily(
            "twisted_exec_journal_lost_bytes",
            "Console output that was lost because the disk failed or did not answer.",
            self._store.lost_bytes,
        )
