"""
The journals of one runtime on disk, with their metrics.

A thread writes the output of many journals together (:mod:`.writer`). For a runtime that is killed
before, a file in memory has the output, too (:mod:`.front`).
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from twisted_exec.api.display import listed
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.runs import SingleRun
from twisted_exec.journal import front
from twisted_exec.journal.directories import Directories, is_key
from twisted_exec.journal.file_access import opened
from twisted_exec.journal.files import JournalFiles, JournalPlace
from twisted_exec.journal.interfaces import Event
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.program_run import ProgramRun, kernel_boot, next_run, read_run, write_run
from twisted_exec.journal.records import Checkpoint
from twisted_exec.journal.retention import (
    DEFAULT_LIMITS,
    ClockTrust,
    Removal,
    Retention,
    Space,
    StoreLimits,
    plan,
)
from twisted_exec.journal.sealing import Sealer
from twisted_exec.journal.segments import OpenSegment
from twisted_exec.journal.writer import JournalWriter
from twisted_exec.program.descriptors import descriptor_limit
from twisted_exec.program.disk_thread import DiskThread
from twisted_exec.program.disk_thread import Files as DiskFiles
from twisted_exec.program.tasks import ends_within
from twisted_exec.program.turns import ShortTurns
from twisted_exec.tls.unix import private_directory

FORMAT = "1"
SYNC_SECONDS = 5.0
"""Interval of forcing output to the disk."""
STOP_SECONDS = 10.0
"""Longest wait of a stop for the disk to take the last output."""
_NAMED = 10
"""So many journals are named in a message."""
_IN_MEMORY = "the next start writes the rest, unless this host restarts before"
_NOWHERE = "the next start cannot write the rest, which is not in memory either"
_QUIET_PASSES = 12
_RETENTION_SECONDS = 60.0
_RETRY_SECONDS = 1.0, 30.0
_HURRY_BYTES = 24 << 20
_MEMORY_BYTES, _MEMORY_BYTES_EACH = 64 << 20, (192 << 10, 4 << 20)
_FRONT = re.compile(r"twisted-exec-[0-9a-f]{32}")

_Result = TypeVar("_Result")


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
        self.limits = limits
        self.failed: Callable[[str, str], None] = lambda key, reason: None
        self.recovered: Callable[[str, int], None] = lambda key, lost: None
        self._lost_bytes = 0
        self._clock, self._now, self._layer = clock, now, layer
        self._slow_thread = DiskThread(clock)
        self._run_in_thread = in_thread or self._slow_thread.run
        self.thread: DiskFiles = thread or DiskThread(clock)
        self._memory = memory
        self._front: front.Front | None = None
        self._spare = front.spare_path(memory, self.path)
        self._earlier_fronts: list[str] = []
        self._left: dict[str, list[front.Unwritten]] = {}
        self._kernel = kernel_boot() if kernel is None else kernel
        self._run: ProgramRun | None = None
        self._is_run_written = False
        self._places: dict[str, _Place] = {}
        self._directories = Directories(layer, self.path)
        self._is_closing = self._may_be_clean = False
        self._closing: object = None
        self.writer = JournalWriter(
            self.path, clock, self.thread, self._all_written, self._answered
        )
        self._syncing = SingleRun(self._sync_all, "forcing journals to the disk")
        self._sealer = Sealer(clock, self._in_thread)
        self._removing = SingleRun(self.remove_old, "removing old output of journals")
        self._retrying = SingleRun(self._retry, "writing journals that are not on disk")
        self._active: OrderedDict[Journal, None] = OrderedDict()
        self._failing: dict[str, Journal] = {}
        self._backoff = Backoff(*_RETRY_SECONDS)
        self._timers: dict[Callable[[], None], IDelayedCall] = {}
        self._clock_trust = ClockTrust()
        self._open_limit = max(16, min(1024, descriptor_limit() // 8))

    def open(self) -> None:
        """
        Check the directory, and start the timers; possible again after :meth:`close`.

        :raises FormatError: a later release wrote the journals.
        :raises TLSConfigError: the directory is not private or cannot be created.
        """
        private_directory(self.path)
        self._check_format()
        self._is_closing = self.writer.is_given_up = self._is_run_written = False
        for place in self._places.values():
            place.journal.reread()
        last = read_run(self._layer, self._directories.file("run"))
        is_new = not any(self._directories.keys())
        left = self._read_front(last)
        self._front = front.Front(self._memory)
        for each in left or ():  # before the disk names this file in place of the earlier one
            self._front.add(each)
        self._run = next_run(
            last,
            self._kernel,
            self._now(),
            is_new=is_new,
            front=self._front.name,
            has_lost=left is None,
        )
        try:
            self._write_run()
        except OSError as error:
            self._log.warn("journals are not on disk at present: {why}", why=error.strerror)
        self._take_over(left or (), last)
        self._clock_trust.begin(self._clock.seconds(), self._now(), last.time_ns if last else None)
        self._start_timers()

    def _start_timers(self) -> None:
        self._later(SYNC_SECONDS, self._sync_pass)
        self._later(_RETENTION_SECONDS, self._retention_pass)
        if self._failing:
            self._retry_later()

    def _read_front(self, last: ProgramRun | None) -> Sequence[front.Unwritten] | None:
        if front.is_own(self._spare):  # of a run whose name the disk did not take
            return front.read(self._spare)
        if last is None or last.clean or last.kernel != self._kernel or not last.front:
            return ()
        if not _FRONT.fullmatch(last.front):
            return None
        return front.read(os.path.join(self._memory, last.front))

    def _take_over(self, left: Iterable[front.Unwritten], last: ProgramRun | None) -> None:
        assert self._front is not None
        self._left = {}
        for each in left:
            if is_key(each.key):
                self._left.setdefault(each.key, []).append(each)
        for key in list(self._left):
            self.journal(key).open_files()
        self._earlier_fronts = []
        if last is not None and _FRONT.fullmatch(last.front):
            self._earlier_fronts.append(os.path.join(self._memory, last.front))
        if self._is_run_written:
            self._remove_earlier_fronts()
        else:
            self._front.move(self._spare)

    def _remove_earlier_fronts(self) -> None:
        earlier, self._earlier_fronts = self._earlier_fronts, []
        for each in earlier:
            front.remove(each)
        if front.is_own(self._spare):
            front.remove(self._spare)

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

    def _write_run(self) -> None:
        assert self._run is not None
        write_run(self._layer, self._directories.file("run"), self._run)
        self._is_run_written = True

    async def close(self, *, gives_up: bool = True) -> bool:
        """
        Force everything to the disk, as far as the disk works, and stop the threads.

        Wait for :data:`STOP_SECONDS` at most.  A store whose close is cancelled goes on.

        :param gives_up: stop also if the disk does not answer; otherwise, go on.
        :return: whether the disk has answered.
        """
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._is_closing, self._may_be_clean = True, False
        closing = self._closing = object()
        try:
            has_finished = await ends_within(STOP_SECONDS, self._clock, self._finish(closing))
        except CancelledError:
            self._go_on()
            raise
        except BaseException:
            self._let_go()
            raise
        if not has_finished and not gives_up:
            self._go_on()
            return False
        if not has_finished:
            self._closing, self.writer.is_given_up = None, True
            self._log.warn(
                "{path}: the disk did not answer for {seconds} s; {outlook}: {rest}",
                path=self.path,
                seconds=STOP_SECONDS,
                outlook=_IN_MEMORY if self._front and self._front.has_file else _NOWHERE,
                rest=self._rest(),
            )
        self._let_go()
        return has_finished

    def _go_on(self) -> None:
        self._closing, self._is_closing = None, False
        self._start_timers()
        if self._may_be_clean:  # the thread writes in this order
            self._in_thread(self._write_run).addErrback(
                lambda failure: self._log.warn("journals: {why}", why=failure.getErrorMessage())
            )

    def _let_go(self) -> None:
        for place in self._places.values():
            place.journal.rest()
        self._slow_thread.stop()
        self.writer.close()
        self.thread.stop()

    def _rest(self) -> str:
        places = self._places.items()
        keys = [key for key, place in places if place.journal.is_behind or place.journal.failure]
        machines = listed(keys, _NAMED)
        return f"output of the machines {machines}" if keys else "the output of the last seconds"

    def _in_thread(self, function: Callable[[], _Result]) -> Deferred[_Result]:
        def work() -> _Result:
            if self.writer.is_given_up:
                raise _given_up()
            return function()

        return self._run_in_thread(work)

    async def _finish(self, closing: object) -> None:
        await self._sealer.stop()
        for work in (self._syncing, self._removing, self._retrying):
            await work.ended()
        await self.writer.write_now()
        # A reader may be in the way, and the writes may have begun to force output to the disk.
        while not self.writer.is_given_up and not await self.writer.finish(lambda: None):
            pass
        await self._syncing.ended()
        is_forced = await self._sync() and not self.writer and not self._failing
        if self._run is not None and self._is_run_written and is_forced:
            run = ProgramRun(self._run.number, self._kernel, True, self._run.cut, self._now())
            path = self._directories.file("run")

            def check() -> None:
                if self._closing is not closing:
                    raise _given_up()

            self._may_be_clean = True
            try:
                await self._in_thread(partial(write_run, self._layer, path, run, check))
            except OSError as error:
                self._log.warn("journals: {why}", why=error.strerror)
            else:
                if self._front is not None:
                    self._front.remove()

    # Journals.

    def journal(self, key: str, retention: Retention | None = None) -> Journal:
        """
        Return the journal with a key, whose files are opened at the first use.

        :param retention: its limits; those that it had before, if ``None``.
        :raises ValueError: the key is not valid.
        """
        place = self._places.get(key)
        if place is None:
            if not is_key(key):
                raise ValueError(f"{key!r} is not a key of a journal")
            place = self._places[key] = _Place(self, key)
        if retention is not None:
            place.retention = retention
        return place.journal

    def has(self, key: str) -> bool:
        """Return whether there is a journal with this key, also of a deleted machine."""
        return key in self._places or (is_key(key) and os.path.isdir(self._directories.file(key)))

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
        place = self._places.get(key)
        if place is not None and place.journal.closed:
            if self.writer.settle(place.journal):
                del self._places[key]  # readers of the old journal have seen its end
            else:
                place.journal.reopen()
        unmarking = self.thread.run(partial(self._directories.unmark_deleted, key))
        unmarking.addErrback(lambda failure: None)

    def deleted(self, key: str, facts: Mapping[str, str] | None = None) -> None:
        """End the journal of a machine that was deleted; it is retained for a while."""
        place = self._places.get(key)
        if place is None:
            return
        place.journal.close()
        if place.journal.open_files() is not None:
            mark = partial(self._directories.mark_deleted, key, facts or {}, self._now())
            self.thread.run(mark).addErrback(
                lambda failure: self._log.warn(
                    "journal {key}: {why}", key=key, why=failure.getErrorMessage()
                )
            )
        place.journal.close_descriptor()

    @property
    def failing(self) -> int:
        return len(self._failing)

    @property
    def lost_bytes(self) -> int:
        return self._lost_bytes + self.writer.lost_bytes

    def _require_run(self) -> ProgramRun:
        if self._run is None:
            raise OSError(errno.ENXIO, "the store is not open", self.path)
        return self._run

    def _begin(self) -> None:
        if self._is_run_written:
            return
        assert self._front is not None
        is_spare = self._front.path == self._spare
        if is_spare:
            self._front.add_name(self._memory)
        try:
            self._write_run()
        except OSError:
            if is_spare:
                self._front.remove_name(self._memory)
            raise
        if is_spare:
            self._front.move_back(self._memory)
        self._remove_earlier_fronts()

    # Timers.

    def _later(self, seconds: float, function: Callable[[], None]) -> None:
        def call() -> None:
            self._timers.pop(function, None)
            function()

        if function not in self._timers:
            self._timers[function] = self._clock.callLater(seconds, call)

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
        await self.writer.write_now()
        await self._syncing.ended()
        self._syncing.start()
        await self._syncing.ended()

    def _all_written(self) -> None:
        if self._front is not None and not self._failing:
            self._front.clear()

    def _answered(self) -> None:
        if self._failing and not self.writer.is_late:
            self._retrying.start()

    @property
    def stalled(self) -> str:
        """Why the disk is not used at present; empty unless it does not answer."""
        return self.writer.stalled

    @property
    def most_bytes(self) -> int:
        least, most = _MEMORY_BYTES_EACH
        journals = len(self.writer) + len(self._failing)
        return max(least, min(most, _MEMORY_BYTES // max(1, journals)))

    # Forcing output to the disk.

    def _sync_pass(self) -> None:
        self._later(SYNC_SECONDS, self._sync_pass)
        self._rest_idle()
        self._syncing.start()

    def _rest_idle(self) -> None:
        for place in self._places.values():
            journal = place.journal
            if journal.is_dirty or not journal.is_awake:
                place.quiet_passes = 0
                continue
            place.quiet_passes += 1
            if place.quiet_passes >= _QUIET_PASSES:
                journal.rest()
                self._active.pop(journal, None)

    async def _sync_all(self) -> None:
        await self._sync()

    async def _sync(self) -> bool:
        """Return whether the disk has all output that the files have."""
        if self.writer.is_late:
            return False  # a thread is still writing
        jobs: list[tuple[Journal, OpenSegment, Checkpoint]] = []
        directories: dict[Journal, JournalFiles] = {}
        for place in self._places.values():
            journal = place.journal
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
            errors = await self._in_thread(work) if jobs else []
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
        if self.writer.is_given_up:
            return _given_up()
        try:
            segment.sync(checkpoint)
        except FileNotFoundError:
            return None  # sealed or removed meanwhile
        except OSError as error:
            return error
        return None

    def is_full(self, place: _Place, files: JournalFiles) -> None:
        """Seal the oldest full segment of a journal later, and keep the journal within its size."""
        limit = place.retention.machine_bytes
        if limit:
            place.journal.shrink(limit)
        if files.unsynced_bytes > _HURRY_BYTES:
            self._syncing.start()
        self._sealer.add(files)

    # Failures.

    def fail(self, key: str, journal: Journal, reason: str) -> None:
        if key not in self._failing:
            if not self._failing:  # the others are on the same disk
                self._log.warn("journals are not on disk at present: {why}", why=reason)
            self._failing[key] = journal
            self.failed(key, reason)
        if not self._is_closing:
            self._retry_later()

    def _retry_later(self) -> None:
        if self._retrying.start not in self._timers:
            self._later(self._backoff.pause(), self._retrying.start)

    async def _retry(self) -> None:
        turns = ShortTurns(self._clock)
        for key, journal in list(self._failing.items()):
            await turns.breathe()
            if self._is_closing:
                return
            await self._try_again(key, journal)  # the others may have another problem
        if not self._failing:
            self._log.info("all journals are on disk again")
            self._backoff.reset()
            return
        self._retry_later()

    def try_again(self, key: str, journal: Journal) -> None:
        """Write a journal whose disk has failed, before its next try is due."""
        if not self._is_closing and not self.writer.is_late:
            trying = Deferred.fromCoroutine(self._try_again(key, journal))
            trying.addErrback(lambda failure: self._log.failure("journal {key}", failure, key=key))

    async def _try_again(self, key: str, journal: Journal) -> None:
        lost = await self._write_again(journal) if key in self._failing else None
        if lost is not None and self._failing.pop(key, None) is not None:
            self._lost_bytes += lost
            self.recovered(key, lost)

    async def _write_again(self, journal: Journal) -> int | None:
        lost = 0
        batch = journal.next_batch(is_again=True) if journal.open_again() else None
        if batch is None:
            return None
        while batch is not None:
            if self.writer.is_late or not await self.writer.finish(batch.run):
                return None
            journal.wrote(batch)
            if batch.error is not None:
                return None
            lost += batch.lost
            batch = journal.next_batch()
        journal.works_again()
        return lost

    # Removing.

    def _retention_pass(self) -> None:
        self._later(_RETENTION_SECONDS, self._retention_pass)
        self._removing.start()

    async def remove_old(self) -> None:
        by_age = self._clock_trust.check(self._clock.seconds(), self._now())
        retentions = {key: place.retention for key, place in self._places.items()}
        now = self._now()

        def look() -> list[Removal]:
            filesystem = self._layer.statvfs(self.path)
            unit = filesystem.f_frsize
            space = Space(filesystem.f_blocks * unit, filesystem.f_bavail * unit)
            usages = list(self._directories.usages(retentions))
            return plan(usages, self.limits, space, now, by_age=by_age)

        for removal in await self._in_thread(look):
            if self.writer.is_given_up:
                return
            try:
                await self._remove(removal)
            except OSError as error:
                self._log.warn("journal {key}: {why}", key=removal.key, why=error.strerror)

    async def _remove(self, removal: Removal) -> None:
        place = self._places.get(removal.key)
        if removal.first is None:
            if place is not None:
                place.journal.rest()
                del self._places[removal.key]
                self.writer.forget(place.journal)
            await self._in_thread(partial(self._directories.remove, removal.key))
        elif place is not None:
            place.journal.drop(removal.first)
        else:
            remove = self._directories.remove_segment
            await self._in_thread(partial(remove, removal.key, removal.first))

    # Descriptors.

    def opened(self, journal: Journal) -> None:
        self._active[journal] = None
        self._active.move_to_end(journal)
        if len(self._active) > self._open_limit:
            quiet, _ = self._active.popitem(last=False)
            quiet.close_descriptor()


class _Place:
    __slots__ = ("_key", "_store", "journal", "quiet_passes", "retention", "thread")

    def __init__(self, store: JournalStore, key: str) -> None:
        self._store, self._key = store, key
        self.thread = store.thread
        self.retention = Retention()
        self.quiet_passes = 0
        self.journal = Journal(store._now, self)

    def open(self, journal: Journal) -> JournalFiles:
        run = self._store._require_run()
        place = JournalPlace(
            self._store._layer,
            self._store._directories.file(self._key),
            run.number,
            run.cut,
            lambda path: self._store._directories.removing(path),
            self._store._begin,
            lambda: self._store.writer.is_given_up,
        )
        return JournalFiles(place, journal.now(), self._is_full, journal.memory_epoch)

    def _is_full(self, files: JournalFiles) -> None:
        self._store.is_full(self, files)

    @property
    def most_bytes(self) -> int:
        return self._store.most_bytes

    def left(self, files: JournalFiles) -> Sequence[front.Unwritten]:
        left = self._store._left.pop(self._key, ())
        return [each for each in left if each.epoch == files.epoch]

    def printed(self, epoch: bytes, offset: int, time_ns: int, data: bytes) -> None:
        if self._store._front is not None:
            self._store._front.add_output(self._key, epoch, offset, time_ns, data)
        self._store.writer.printed(len(data))

    def happened(self, epoch: bytes, event: Event) -> None:
        if self._store._front is not None:
            self._store._front.add_event(self._key, epoch, event)

    def behind(self, journal: Journal) -> None:
        self._store.writer.behind(journal)

    def settle(self, journal: Journal) -> bool:
        return self._store.writer.settle(journal)

    def try_again(self, journal: Journal) -> None:
        self._store.try_again(self._key, journal)

    def refused(self, journal: Journal) -> None:
        self._store.writer.refused(journal)

    def changed(self, journal: Journal) -> None:
        self._store.opened(journal)

    def failed(self, journal: Journal, reason: str) -> None:
        self._store.fail(self._key, journal, reason)


def _sync_names(files: JournalFiles) -> OSError | None:
    try:
        files.sync_directory()
    except FileNotFoundError:
        return None  # removed meanwhile
    except OSError as error:
        return error
    return None


def _given_up() -> OSError:
    return OSError(errno.ECANCELED, "the stop has not waited for the disk")


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
