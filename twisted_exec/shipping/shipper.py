"""
Sends the lines of many journals to sinks.

A :class:`Shipper` sends to one sink, and has no queue: it remembers an offset for each journal and
builds a batch from the journals when the sink can take one. So an outage may last as long as the
journals retain output. A cursor on disk follows the accepted offsets; after a crash, lines since
the last save may be sent again.

The work is done in short turns of the reactor, because consoles share the thread.
"""

from __future__ import annotations

import random
from collections import deque
from contextlib import suppress
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.control.backoff import Backoff
from twisted_exec.journal.interfaces import IFollowedJournal
from twisted_exec.program.disk_thread import Unanswered
from twisted_exec.program.service import SUMMARY
from twisted_exec.program.turns import ShortTurns
from twisted_exec.shipping.interfaces import BatchRefused, Labels, Receipt, ShippedLine, SinkError
from twisted_exec.shipping.lines import PARTIAL_SECONDS, read_lines
from twisted_exec.shipping.metrics import SinkMetrics
from twisted_exec.shipping.source import ShippedJournal
from twisted_exec.wire.escape_sequences import strip

GATHER_SECONDS = 0.5
"""Wait after the first new line, so that a batch has more than one."""
SETTLE_SECONDS = (1.0, 5.0)
"""Shortest and longest pause before cursors are saved."""

_STOP_SECONDS = 1.0
_SAVING_SECONDS = 0.004
_SLICE_BYTES = 16 << 10
_FIRST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 60.0
_LONGEST_REQUESTED_SECONDS = 600.0
_NANOSECONDS = 1_000_000_000


class Shipper:
    """
    Ships the lines of all machines to one sink.

    :param newest: begin with the next output of a machine that has no cursor for this sink, instead
        of the oldest retained line.
    """

    _log = Logger()

    def __init__(
        self,
        sink: Any,
        clock: IReactorTime,
        metrics: SinkMetrics,
        *,
        newest: bool = False,
        plain: bool = False,
        max_age_seconds: float = 0.0,
        rng: random.Random | None = None,
    ) -> None:
        self.sink, self._clock, self._metrics = sink, clock, metrics
        self._newest, self._plain, self._max_age_seconds = newest, plain, max_age_seconds
        self.sources: set[ShippedJournal] = set()
        self._unopened: deque[ShippedJournal] = deque()
        self._ready: dict[ShippedJournal, None] = {}
        self._partial: set[ShippedJournal] = set()
        self._unsaved: set[ShippedJournal] = set()
        self._most_bytes = sink.batch_bytes
        self._accepted_since_drop = False
        self._backoff = Backoff(_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS, rng)
        self._rewinds = 0
        self._wake: Deferred[None] | None = None
        self._tasks: list[Deferred[None]] = []
        self._cursors_fail = False
        self.problem = ""

    # Start and stop.

    def start(self) -> None:
        self._tasks = [
            Deferred.fromCoroutine(each).addErrback(self._crashed)
            for each in (self._send_all(), self._settle_all())
        ]

    async def stop(self) -> None:
        """Save the cursors and close the sink, without waiting long for the receiver."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            await task
        await self._save_last()
        for source in [*self.sources, *self._unopened]:
            source.close()
        await self.sink.close()

    async def _save_last(self) -> None:
        sources = self._begin_settling()
        try:
            await self.sink.settle().addTimeout(_STOP_SECONDS, self._clock)
        except (SinkError, TimeoutError):
            return
        for source in sources:
            self._save(source)

    def _crashed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("shipping to {sink}", failure=failure, sink=self.sink.name)

    def add(self, labels: Labels, journal: IFollowedJournal) -> None:
        # Opened later: it reads files, and a start adds thousands.
        self._unopened.append(ShippedJournal(labels, journal, self._awake))
        self._wake_up()

    def _awake(self, source: ShippedJournal) -> None:
        self._ready[source] = None
        self._wake_up()

    def _wake_up(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.callback(None)

    # Sending.

    async def _send_all(self) -> None:
        while True:
            await self._open_all()
            if not self._ready:
                await self._wait_for_output()
                continue
            rewinds = self._rewinds
            batch, ends = await self._collect()
            if not ends:
                continue
            try:
                receipt = await self.sink.send(batch)
            except SinkError as error:
                await self._failed(error, ends)
            except CancelledError:
                raise
            except Exception:
                # A mistake in a sink must not end shipping until the next start.
                self._log.failure("shipping to {sink}", sink=self.sink.name)
                await self._failed(SinkError("answer", "internal error, see the log"), ends)
            else:
                if rewinds == self._rewinds:
                    self._accepted(receipt, batch, ends)

    async def _open_all(self) -> None:
        turns = ShortTurns(self._clock)
        while self._unopened:
            await turns.breathe()
            source = self._unopened.popleft()
            try:
                source.open(f"ship-{self.sink.name}", newest=self._newest)
            except Unanswered:
                self._open_again(source)
                continue
            self.sources.add(source)
            if source.read < source.journal.end or source.journal.closed:
                source.rewind(source.read)
                self._ready[source] = None

    def _open_again(self, source: ShippedJournal) -> None:

        def again() -> None:
            source.journal.unwatch(again)
            self._unopened.append(source)
            self._wake_up()

        source.journal.watch(again)

    async def _wait_for_output(self) -> None:
        self._wake = Deferred()
        due = min((each.partial_due for each in self._partial), default=None)
        call = None
        if due is not None:
            call = self._clock.callLater(max(0.0, due - self._clock.seconds()), self._partials_due)
        try:
            await self._wake
        finally:
            self._wake = None
            if call is not None and call.active():
                call.cancel()
        if not self.problem:
            await deferLater(self._clock, GATHER_SECONDS)

    def _partials_due(self) -> None:
        now = self._clock.seconds()
        for source in [each for each in self._partial if each.partial_due <= now]:
            self._ready[source] = None
        self._wake_up()

    async def _collect(self) -> tuple[Any, dict[ShippedJournal, int]]:
        batch = self.sink.new_batch()
        ends: dict[ShippedJournal, int] = {}
        turns = ShortTurns(self._clock)
        while self._ready and batch.size < self._most_bytes:
            await turns.breathe()
            source = next(iter(self._ready), None)
            if source is None:
                break  # removed meanwhile
            del self._ready[source]
            if source not in self.sources:
                continue
            before = source.read
            # Without an answer of the disk the journal wakes the source when there is one.
            with suppress(OSError):
                self._take(source, batch)
            if source.read > before:
                ends[source] = source.read
                if source.read < source.journal.end:
                    self._ready[source] = None  # behind the others
        return batch, ends

    def _take(self, source: ShippedJournal, batch: Any) -> None:
        journal = source.journal
        self._skip_old(source, batch)
        finish = journal.closed or self._is_due(source)
        most = self._most_bytes
        lines = read_lines(
            journal, source.read, _SLICE_BYTES, self.sink.line_bytes, unfinished=finish
        )
        for line in lines:
            if self._plain:
                line = line._replace(text=strip(line.text))
            batch.add(source.labels, line)
            source.read = line.end
            if line.is_gap:
                self._metrics.gap(line.missing or 0)
            if batch.size >= most:
                break
        self._note_partial(source)
        if source.is_complete:
            self._remove(source)

    def _skip_old(self, source: ShippedJournal, batch: Any) -> None:
        journal = source.journal
        oldest = journal.now() - int(self._max_age_seconds * _NANOSECONDS)
        if not self._max_age_seconds or not 0 < source.waiting_since < oldest:
            return
        first = journal.printed_since(oldest)
        if first > source.read:
            missing = first - source.read
            batch.add(
                source.labels, ShippedLine(source.read, first, journal.now(), 0, b"", missing)
            )
            source.read = first

    def _is_due(self, source: ShippedJournal) -> bool:
        return (
            source.partial_end == source.journal.end and source.partial_due <= self._clock.seconds()
        )

    def _note_partial(self, source: ShippedJournal) -> None:
        end = source.journal.end
        if source.read >= end:
            source.partial_end = -1
            self._partial.discard(source)
        elif source.partial_end != end:
            source.partial_end = end
            source.partial_due = self._clock.seconds() + PARTIAL_SECONDS
            self._partial.add(source)

    def _accepted(self, receipt: Receipt, batch: Any, ends: dict[ShippedJournal, int]) -> None:
        for source, end in ends.items():
            self._metrics.bytes(source.accept(end))
        self._metrics.lines(batch.lines - receipt.rejected)
        self._unsaved.update(ends)
        if receipt.rejected:
            self._metrics.rejected(receipt.rejected)
            self._log.warn(
                "{sink} discarded {count} lines: {why}",
                sink=self.sink.name,
                count=receipt.rejected,
                why=receipt.message,
            )
        self._backoff.reset()
        self._accepted_since_drop = True
        self._most_bytes = min(self.sink.batch_bytes, self._most_bytes * 2)

    def _works(self) -> None:
        if self.problem:
            self.problem = ""
            self._log.info("{sink} works again", sink=self.sink.name, **{SUMMARY: True})

    async def _failed(self, error: SinkError, ends: dict[ShippedJournal, int]) -> None:
        for source in ends:
            source.read = source.accepted
            self._ready[source] = None
        if isinstance(error, BatchRefused):
            await self._refused(error, ends)
        else:
            await self._pause(error)

    async def _refused(self, error: BatchRefused, ends: dict[ShippedJournal, int]) -> None:
        """Find the line that the receiver refuses, by smaller batches, and leave it out."""
        if self._most_bytes > 1:
            self._most_bytes = max(1, self._most_bytes // 4)
            return
        (source,) = ends
        if not self._accepted_since_drop:
            # It may refuse everything, so that leaving out lines would lose them all.
            await self._pause(error)
            return
        self._accepted_since_drop = False
        source.read = ends[source]
        source.accept(source.read)
        self._unsaved.add(source)
        self._metrics.failed(error.kind)
        self._metrics.rejected(1)
        self._log.warn("{sink} refused a line: {why}", sink=self.sink.name, why=str(error))

    async def _pause(self, error: SinkError) -> None:
        # Not a WorkQueue: lines of all machines share batches, and wait for the same receiver.
        self._metrics.failed(error.kind)
        self._note_problem(str(error))
        wait = self._backoff.pause()
        await deferLater(
            self._clock, max(wait, min(error.retry_seconds, _LONGEST_REQUESTED_SECONDS))
        )

    def _note_problem(self, why: str) -> None:
        if not self.problem:
            short = why.rstrip(".")
            self._log.warn("{sink}: {why}; trying again", sink=self.sink.name, why=short)
        self.problem = why

    # Cursors.

    async def _settle_all(self) -> None:
        while True:
            # A runtime that crashes soon after each start must get on; a thousand cursors take time.
            least, most = SETTLE_SECONDS
            delay = min(most, least + len(self._unsaved) * _SAVING_SECONDS)
            await deferLater(self._clock, delay)
            sources = self._begin_settling()
            if not sources and not self.problem:
                continue
            try:
                await self.sink.settle()
            except SinkError as error:
                self._metrics.failed(error.kind)
                self._note_problem(str(error))
                self._rewind()
                continue
            if sources:
                self._works()
            turns = ShortTurns(self._clock)
            for source in sources:
                await turns.breathe()
                self._save(source)

    def _begin_settling(self) -> list[ShippedJournal]:
        sources = list(self._unsaved)
        for source in sources:
            source.settling = source.accepted
        return sources

    def _rewind(self) -> None:
        self._rewinds += 1
        for source in self._unsaved:
            source.rewind(source.saved)
            self._ready[source] = None
        self._unsaved.clear()
        self._wake_up()

    def _save(self, source: ShippedJournal) -> None:
        try:
            source.save()
        except OSError as error:
            if not self._cursors_fail:
                self._cursors_fail = True
                self._log.warn(
                    "{sink}: positions cannot be written: {why}; after a restart lines are repeated",
                    sink=self.sink.name,
                    why=error.strerror,
                )
            return
        self._cursors_fail = False
        if source.saved == source.accepted:
            self._unsaved.discard(source)
        if source.is_complete:
            self._remove(source)

    def _remove(self, source: ShippedJournal) -> None:
        source.close()
        self.sources.discard(source)
        self._partial.discard(source)
        self._ready.pop(source, None)

    # Lag.

    def lag(self) -> tuple[int, float]:
        """Return the bytes that are not accepted yet, and the age of the oldest in seconds."""
        count, oldest, now = 0, 0.0, 0
        for source in self.sources:
            behind = source.journal.end - source.accepted
            if behind > 0:
                count += behind
                now = now or source.journal.now()
                if source.waiting_since:
                    oldest = max(oldest, (now - source.waiting_since) / _NANOSECONDS)
        return count, oldest
