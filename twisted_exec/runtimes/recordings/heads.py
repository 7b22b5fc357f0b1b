"""
The signed heads of a runtime's recordings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds.consolerecordings import FAILED
from twisted_exec.control.runs import SingleRun
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.snapshot import Snapshot
from twisted_exec.journal.store import JournalStore
from twisted_exec.program.disk_thread import Unanswered
from twisted_exec.program.turns import ShortTurns
from twisted_exec.recording.journal_ranges import JournalPosition, MissingOutput, RangeReader
from twisted_exec.recording.proof_lines import InvalidRecording
from twisted_exec.recording.signatures import HeadSigner, UnusableCertificate
from twisted_exec.runtimes.recordings.recording import (
    Recording,
    RecordingFacts,
    RecordingFiles,
    changed,
)
from twisted_exec.runtimes.recordings.retained import RetainedSegments

RETRY_SECONDS = 1.0
"""After this time a recording that could not be written is tried again."""


@dataclass(frozen=True)
class HeadParts:
    """
    The parts of a runtime's recordings that signing needs.

    :param now: the time of day, in nanoseconds since the epoch.
    """

    recordings: dict[str, Recording]
    journals: JournalStore
    journal: Callable[[str], Journal | None]
    files: RecordingFiles
    retained: RetainedSegments
    signer: Callable[[], HeadSigner]
    in_thread: Callable[[Callable[[], Any]], Deferred[Any]]
    clock: IReactorTime
    now: Callable[[], int]
    layer: Any


@dataclass(frozen=True)
class _Target:
    position: JournalPosition
    covered: tuple[int, int]
    is_last: bool


class Heads:
    """Signs the heads that are due."""

    _log = Logger()

    def __init__(
        self,
        parts: HeadParts,
        *,
        report: Callable[[Recording], None],
        needs_changed: Callable[[Recording], None],
        closed: Callable[[str], object],
    ) -> None:
        self._parts, self._report = parts, report
        self._needs_changed, self._closed = needs_changed, closed
        self.signed = self.failures = 0
        self._readers: dict[Recording, list[Deferred[None]]] = {}
        self._troubled: dict[Recording, None] = {}
        self._retry: IDelayedCall | None = None
        self._is_stopped = False
        self._signing = SingleRun(self._sign_due, "signing recordings")

    def sign(self, recording: Recording) -> None:
        """Sign the next head of a recording soon."""
        recording.is_due = True
        self._signing.start()

    def newest(self, recording: Recording, seconds: float) -> Deferred[None]:
        """Sign the next head of a recording soon; fires when that is over, or after ``seconds``."""
        waiting: Deferred[None] = Deferred()
        waiting.addTimeout(seconds, self._parts.clock)
        self._readers.setdefault(recording, []).append(waiting)
        self.sign(recording)
        return waiting.addErrback(lambda failure: failure.trap(TimeoutError) and None)

    def _over(self, recording: Recording) -> None:
        if not recording.is_due:
            for waiting in self._readers.pop(recording, ()):
                if not waiting.called:
                    waiting.callback(None)

    def stop(self) -> None:
        """Sign nothing any more; a signature that is under way is not reported."""
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for recording in list(self._readers):
            recording.is_due = False
            self._over(recording)

    def sign_all(self) -> None:
        """Sign the next head of each open recording with something new."""
        for recording in self._parts.recordings.values():
            recording.is_due = recording.is_open
        self._signing.start()

    def ended(self) -> Deferred[None]:
        return self._signing.ended()

    async def _sign_due(self) -> None:
        turns = ShortTurns(self._parts.clock)
        while due := [each for each in self._parts.recordings.values() if each.is_due]:
            if self._is_stopped:
                return
            self._take_lost()
            targets: dict[Recording, _Target] = {}
            for recording in due:
                recording.is_due = False
                await turns.breathe()
                if self._is_stopped:
                    return
                target = None
                try:
                    target = self._target(recording) if recording.is_open else None
                except OSError as error:
                    self.not_on_disk(recording, error)
                if target is not None:
                    targets[recording] = target
                else:
                    self._over(recording)
            if targets:
                await self._parts.journals.sync()
            # A recording with gigabytes of output takes minutes: all others come first.
            for recording in sorted(targets, key=lambda each: _unsigned(each, targets[each])):
                if self._is_stopped:
                    return
                target = targets[recording]
                if recording.is_open:
                    await self._try_to_sign(recording, target, turns)
                self._over(recording)

    def _target(self, recording: Recording) -> _Target | None:
        journal, is_over = self._parts.journal(recording.facts.key), self._is_over(recording)
        if journal is None:
            return _Target(recording.last.position, recording.covered, True)
        covered = journal.end, journal.last_time
        # Do not read files here: that would wake the journal.
        if covered == recording.covered and not (is_over or recording.trouble):
            return None
        return _Target(end_of(journal), covered, is_over)

    def _is_over(self, recording: Recording) -> bool:
        journal = self._parts.journal(recording.facts.key)
        return recording.facts.is_ended or journal is None or journal.closed

    async def _try_to_sign(self, recording: Recording, target: _Target, turns: ShortTurns) -> None:
        try:
            await self._sign(recording, target, turns)
        except (MissingOutput, InvalidRecording) as error:
            if not self._is_stopped:
                self._fail(recording, str(error))
        except UnusableCertificate as error:
            if not self._is_stopped:
                self._in_trouble(recording, str(error))
        except OSError as error:
            if not self._is_stopped:
                self.not_on_disk(recording, error)
        else:
            if self._is_stopped:
                return
            recording.covered = target.covered
            if target.is_last:
                self._log.info("recording {uid} is closed", uid=recording.uid)
                self._needs_changed(recording)
                self._closed(recording.uid)

    async def _sign(self, recording: Recording, target: _Target, turns: ShortTurns) -> None:
        facts, journal = recording.facts, self._parts.journal(recording.facts.key)
        if journal is not None and not journal.closed and not journal.write_missing():
            raise OSError(journal.failure)
        files = None if journal is None else journal.open_files()
        if files is not None and files.epoch.hex() != facts.epoch:
            raise MissingOutput("the journal of the machine was replaced by another one")
        signer = self._parts.signer()
        next_head = facts.growing.next_head(recording.last, signer, recording.certificate)
        for entry in self.reader(facts, recording.last.position).until(target.position):
            next_head.add(entry)
            await turns.breathe()
            if self._is_stopped:
                return
        now = max(self._parts.now(), recording.last.time * 1_000_000)
        head = next_head.end(target.position, signer, now, closed=target.is_last)
        had_trouble = bool(recording.trouble)
        if had_trouble:
            await self._parts.in_thread(partial(self._parts.files.restore, recording))
        await self._parts.in_thread(partial(self._parts.files.append, facts.uid, head))
        if self._is_stopped:
            return
        recording.head_signed(head)
        self.signed += 1
        self._report(recording)
        if had_trouble:
            self._needs_changed(recording)
            self._sign_troubled()  # the others are on the same disk

    def reader(self, facts: RecordingFacts, position: JournalPosition) -> RangeReader:
        snapshot = Snapshot(
            self._parts.journals.directory(facts.key),
            self._parts.layer,
            retained=(self._parts.retained.directory(facts.key),),
            epoch=facts.epoch,
        )
        return RangeReader(snapshot.entries(position.offset), position)

    def _take_lost(self) -> None:
        while self._parts.retained.lost:
            lost = self._parts.retained.lost.pop(0)
            why = f"output from offset {lost.first} on is no longer retained: {lost.why}"
            for recording in list(self._parts.recordings.values()):
                if recording.facts.key != lost.key or recording.state == FAILED:
                    continue
                if recording.needed and recording.needed.overlaps(lost.first, lost.end):
                    self._fail(recording, why)

    def _fail(self, recording: Recording, why: str) -> None:
        self._log.error("recording {uid} has failed: {why}", uid=recording.uid, why=why)
        self.failures += 1
        field = "failure" if recording.is_open else "message"
        facts = changed(recording.facts, **{field: why[:1000]})
        recording.facts = facts
        self._report(recording)
        self._needs_changed(recording)
        try:
            self._parts.files.save(facts)
        except OSError as error:
            # The next start notices again that the output is missing.
            self._log.warn("recording {uid}: {why}", uid=recording.uid, why=error.strerror)

    def not_on_disk(self, recording: Recording, error: OSError) -> None:
        """Note why the disk does not take a recording; it is tried again soon."""
        why = f"not on disk: {error.strerror or error}"
        if isinstance(error, Unanswered):
            why = recording.trouble or why  # a full disk may be slow, too
        self._in_trouble(recording, why)

    def _in_trouble(self, recording: Recording, why: str) -> None:
        self._troubled[recording] = None
        self._retry_later()
        if recording.trouble != why:
            self._log.warn("recording {uid}: {why}", uid=recording.uid, why=why)
            self.failures += not recording.trouble
            recording.trouble = why
            self._report(recording)
            self._needs_changed(recording)

    def _try_again(self) -> None:
        # Not a WorkQueue: a success lets all others be signed at once.
        self._retry = None
        if not self._troubled:
            return
        # One at a time: there may be thousands, which have the same problem.
        recording = next(iter(self._troubled))
        del self._troubled[recording]
        if recording.is_open and recording.trouble:
            self.sign(recording)
        if self._troubled:
            self._retry_later()

    def _retry_later(self) -> None:
        if self._retry is None and not self._is_stopped:
            self._retry = self._parts.clock.callLater(RETRY_SECONDS, self._try_again)

    def _sign_troubled(self) -> None:
        troubled, self._troubled = self._troubled, {}
        for recording in troubled:
            recording.is_due = recording.is_open and bool(recording.trouble)


def _unsigned(recording: Recording, target: _Target) -> int:
    return target.position.offset - recording.last.position.offset


def end_of(journal: Journal) -> JournalPosition:
    """Return the end of a journal."""
    end = journal.end
    return JournalPosition(end, sum(1 for _ in journal.events(end, end)))
