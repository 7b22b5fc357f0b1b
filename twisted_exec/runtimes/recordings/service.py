"""
Records the consoles of a runtime.

Heads are signed periodically, for readers, and at the end. A head covers only what is on the disk,
so that a power cut does not make it untrue.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger

from twisted_exec.api.display import listed
from twisted_exec.api.kinds.consolerecordings import CLOSED, FAILED
from twisted_exec.api.status import BadRequest, Conflict, NotFound, ServiceUnavailable
from twisted_exec.control.runs import SingleRun
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.store import JournalStore
from twisted_exec.program.disk_thread import DiskThread, Unanswered
from twisted_exec.program.tasks import ends_within
from twisted_exec.program.turns import ShortTurns
from twisted_exec.recording.growing import GrowingRecording, render
from twisted_exec.recording.proof_lines import InvalidRecording
from twisted_exec.recording.signatures import HeadSigner
from twisted_exec.runtimes.recordings.beginning import (
    Beginning,
    RecordedMachine,
    Refusal,
    without_output,
)
from twisted_exec.runtimes.recordings.heads import RETRY_SECONDS, HeadParts, Heads
from twisted_exec.runtimes.recordings.recording import (
    Recording,
    RecordingFacts,
    RecordingFiles,
    changed,
)
from twisted_exec.runtimes.recordings.retained import RetainedSegments
from twisted_exec.runtimes.recordings.statuses import Statuses
from twisted_exec.runtimes.recordings.storing import MakeUploads, Storing
from twisted_exec.wire.session_terms import RECORDED_INPUT

STOP_SECONDS = 1.0
"""Longest wait of a stop for the last signatures."""
_NAMED = 10
"""So many recordings are named in a message."""
HEAD_SECONDS = 60.0
"""Interval of signing the newest head."""
READ_SECONDS = 1.0
"""Least age of the newest head when a reader causes another head."""
READ_WAIT_SECONDS = 2.0
"""Longest time that a reader waits for this head."""


class ConsoleRecordings:
    """The recordings of one runtime."""

    _log = Logger()

    def __init__(
        self,
        path: str,
        journals: JournalStore,
        reactor: Any,
        signer: Callable[[], HeadSigner],
        now_nanoseconds: Callable[[], int],
        *,
        limit_bytes: int = 0,
        in_thread: Callable[[Callable[[], Any]], Deferred[Any]] | None = None,
        layer: Any = os,
        make_uploads: MakeUploads = lambda: None,
    ) -> None:
        self._journals, self._reactor = journals, reactor
        self._now = now_nanoseconds
        self._files = RecordingFiles(path, layer)
        self.retained = RetainedSegments(os.path.join(path, "segments"), limit_bytes, layer)
        self.statuses = Statuses(reactor)
        self._recordings: dict[str, Recording] = {}
        self._machines: dict[str, RecordedMachine] = {}
        self._by_machine: defaultdict[str, dict[str, Recording]] = defaultdict(dict)
        self._beginning = Beginning(
            self._files,
            signer,
            now_nanoseconds,
            reactor,
            self._recordings.__len__,
            journals.thread,
        )
        self._desired = DesiredRecordings(self._carry_out_desired, reactor)
        self._refused: dict[str, Refusal] = {}
        """The first refusal to begin each recording that has not begun."""
        self._changed: list[Callable[[str], None]] = []
        self._thread = DiskThread(reactor)
        self._heads = Heads(
            HeadParts(
                self._recordings,
                journals,
                self._journal,
                self._files,
                self.retained,
                signer,
                in_thread or self._thread.run,
                reactor,
                now_nanoseconds,
                layer,
            ),
            report=self.statuses.changed,
            needs_changed=lambda recording: self._needs_changed(recording.facts.key),
            closed=lambda uid: self.storing.closed(uid),
        )
        self.storing = Storing(
            make_uploads(),
            self._recordings,
            self.content,
            self._save,
            self.statuses.changed,
            reactor,
        )
        self._timer: IDelayedCall | None = None
        self._is_running = False

    # Start and stop.

    def start(self) -> None:
        """
        Go on with the recordings on disk.

        :raises DirectoryError: the directory is not private, or cannot be created.
        """
        for stored in self._files.open():
            self._add(Recording(stored))
        self.retained.open()
        for key in list(self._by_machine):
            self._needs_changed(key)
        self._journals.before_removal(self.retained.removing)
        self._is_running = True
        self._timer = self._reactor.callLater(HEAD_SECONDS, self._tick)
        for recording in list(self._recordings.values()):
            if recording.facts.is_released:
                self._release(recording)
                continue
            if recording.facts.is_ended:
                self._end(recording)
            self.storing.closed(recording.uid)

    async def stop(self) -> None:
        """Sign the recordings once more, for :data:`STOP_SECONDS` at most, and stop."""
        if not self._is_running:
            return
        if not await ends_within(STOP_SECONDS, self._reactor, self._sign_all()):
            names = [each.uid for each in self._recordings.values() if self._is_unsigned(each)]
            if names:
                self._log.warn(
                    "the next start signs the rest of the recordings {names}: "
                    "that has taken longer than {seconds} s",
                    seconds=STOP_SECONDS,
                    names=listed(names, _NAMED),
                )
        self._is_running = False
        self._desired.stop()
        self._heads.stop()
        self._files.close()
        self.storing.stop()
        self.statuses.stop()
        self._thread.stop()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._machines.clear()

    def _is_unsigned(self, recording: Recording) -> bool:
        machine = self._machines.get(recording.facts.key)
        end = None if machine is None else (machine.journal.end, machine.journal.last_time)
        return recording.is_open and recording.covered != end

    async def _sign_all(self) -> None:
        await self._heads.ended()
        self._heads.sign_all()
        await self._heads.ended()

    def _tick(self) -> None:
        # Not a PokedLoop: stop() must wait for the signatures that a tick begins, not cancel them.
        self._timer = self._reactor.callLater(HEAD_SECONDS, self._tick)
        self._desired.go_on()
        self._heads.sign_all()

    def _add(self, recording: Recording) -> None:
        facts = recording.facts
        self._recordings[facts.uid] = self._by_machine[facts.key][facts.uid] = recording
        self.statuses.changed(recording)

    def on_change(self, changed: Callable[[str], None]) -> None:
        """Call a function with the key of a machine when its recordings may have changed."""
        self._changed.append(changed)

    def _needs_changed(self, key: str) -> None:
        ranges = [each.needed for each in self._machine_recordings(key)]
        needed = {**self.retained.needed, key: [each for each in ranges if each is not None]}
        if not needed[key]:
            del needed[key]
        self.retained.needed = needed
        for function in list(self._changed):
            function(key)

    def _machine_recordings(self, key: str) -> Collection[Recording]:
        return self._by_machine[key].values() if key in self._by_machine else ()

    # Machines.

    def add(self, machine: RecordedMachine) -> None:
        self._machines[machine.key] = machine
        self._desired.go_on()

    def remove(self, key: str) -> None:
        """End the recordings of a deleted machine, whose journal is complete."""
        self._machines.pop(key, None)
        for recording in self._machine_recordings(key):
            self._end(recording)

    def _end(self, recording: Recording) -> None:
        if recording.is_open and self._is_running:
            self._heads.sign(recording)

    def open_of(self, key: str) -> list[Recording]:
        return [each for each in self._machine_recordings(key) if each.is_open]

    def _journal(self, key: str) -> Journal | None:
        machine = self._machines.get(key)
        if machine is not None:
            return machine.journal
        return self._journals.journal(key) if self._journals.has(key) else None

    # Begin.

    def require(self, uid: str, input: str, key: str) -> None:
        """
        Record a machine from now on, for a session that needs it.

        :param input: at least so much.
        :raises Conflict: the recording cannot go on.
        :raises ServiceUnavailable: the machine cannot be recorded now, or the recording is not what
            the session needs.
        """
        recording = self._recordings.get(uid)
        if why := self._unreadable(uid):
            raise Conflict(why)
        if recording is None:
            machine = self._machines.get(key)
            if machine is None:
                raise ServiceUnavailable("the console cannot be recorded now: try again")
            desired = pb.DesiredRecording(uid=uid, machine_uid=key, input=input)
            recording = self._begin(desired, machine, owner="")
        if problem := self.problem(uid, input, key):
            raise Conflict(problem) if not recording.is_open else ServiceUnavailable(problem)

    def problem(self, uid: str, input: str, key: str) -> str:
        """Return why a machine is not recorded as a session needs it; empty if it is."""
        recording, machine = self._recordings.get(uid), self._machines.get(key)
        if recording is None or machine is None:
            return "the console is not recorded"
        if recording.facts.key != key:
            return "the recording is of another console"
        if recording.state == FAILED:
            return f"the recording of the console has failed: {recording.facts.failure}"
        if recording.state == CLOSED or recording.facts.is_ended:
            return "the recording of the console has ended: open a new session"
        if RECORDED_INPUT.index(input) > RECORDED_INPUT.index(recording.facts.input):
            return (
                f"the recording of the console has {recording.facts.input} input, and not {input}"
            )
        if trouble := self._trouble(recording, machine.journal):
            return f"the console cannot be recorded: {trouble}"
        return ""

    def _trouble(self, recording: Recording, journal: Journal) -> str:
        """Look at the disk for this input; what has failed before gets another try."""
        if not journal.write_missing():
            return without_output(journal)
        if recording.trouble:
            self._heads.sign(recording)
            return recording.trouble
        try:
            self._journals.thread.call(partial(self._files.require, recording.uid))
        except Unanswered:
            pass  # it has failed when the journal says so
        except OSError as error:
            self._heads.not_on_disk(recording, error)
            self._heads.sign(recording)
            return recording.trouble
        return self._beginning.unusable_certificate()

    def _begin(
        self, desired: pb.DesiredRecording, machine: RecordedMachine, owner: str
    ) -> Recording:
        recording = self._beginning.begin(desired, machine, owner, self._refused.get(desired.uid))
        recording.policies = tuple(desired.policies)
        self._refused.pop(desired.uid, None)
        self._add(recording)
        self._needs_changed(machine.key)
        self._log.info("recording {uid} of {key} begins", uid=recording.uid, key=machine.key)
        return recording

    # IConsoleRecordings.

    def set_recordings(self, request: pb.SetRecordingsRequest) -> Deferred[Any]:
        for desired in request.recordings:
            if desired.input not in RECORDED_INPUT or not desired.uid:
                raise BadRequest("a recording needs a UID, and none, masked or all input")
        self.statuses.generation(request.owner, request.generation)
        for desired in request.recordings:
            self._desired.set(desired, request.owner)
        self._desired.go_on()
        return succeed(pb.SetRecordingsResponse())

    def _carry_out_desired(self, desired: pb.DesiredRecording, owner: str) -> bool:
        """Begin, change or end a recording; return false to try again later."""
        recording = self._recordings.get(desired.uid)
        if recording is None:
            return self._carry_out_new(desired, owner)
        if desired.released:
            self._release(recording)
            return True
        facts = changed(
            recording.facts,
            owner=owner,
            is_ended=recording.facts.is_ended or desired.ended,
            user=desired.user or recording.facts.user,
        )
        policies = tuple(desired.policies)
        if (facts, policies) == (recording.facts, recording.policies):
            return True
        recording.policies = policies
        try:
            self._files.save(facts)
        except OSError as error:
            self._log.warn("recording {uid}: {why}", uid=desired.uid, why=error.strerror)
            return False
        recording.facts = facts
        self.statuses.changed(recording)
        # The user of a recording that a session began is known only now.
        self._needs_changed(facts.key)
        if facts.is_ended:
            self._end(recording)
        return True

    def _carry_out_new(self, desired: pb.DesiredRecording, owner: str) -> bool:
        if desired.released:
            if desired.uid in self._files.unreadable:
                self._files.remove(desired.uid)
            self.statuses.forget(desired.uid)
            self._refused.pop(desired.uid, None)
            return True
        why = self._unreadable(desired.uid)
        if desired.ended and not why:
            why = "the recording ended before the runtime could begin it"
        if why:
            self.statuses.waiting(owner, desired, why, FAILED)
            self._refused.pop(desired.uid, None)
            return True
        machine = self._machines.get(desired.machine_uid)
        if machine is None:
            return False
        try:
            self._begin(desired, machine, owner)
        except ServiceUnavailable as error:
            if self.statuses.waiting(owner, desired, error.message):
                self._log.warn("recording {uid}: {why}", uid=desired.uid, why=error.message)
            self._refused.setdefault(desired.uid, Refusal(self._now(), error.message))
            self._desired.try_again(desired.uid)
            return False
        return True

    def _unreadable(self, uid: str) -> str:
        if why := self._files.unreadable.get(uid):
            return f"the files of the recording cannot be read on the runtime's host: {why}"
        return ""

    def _save(self, recording: Recording, facts: RecordingFacts) -> None:
        self._files.save(facts)
        recording.facts = facts
        self.statuses.changed(recording)
        self._needs_changed(facts.key)
        try:
            self.retained.release()
        except OSError as error:
            self._log.warn("recording {uid}: {why}", uid=recording.uid, why=error.strerror)

    def _release(self, recording: Recording) -> None:
        try:
            deleted = self.storing.delete(recording)
        except OSError as error:
            self._log.warn("recording {uid}: {why}", uid=recording.uid, why=error.strerror)
            return
        self.statuses.forget(recording.uid)
        deleted.addCallback(self._forget, recording)

    def _forget(self, _: object, recording: Recording) -> None:
        if self._recordings.get(recording.uid) is not recording:
            return
        try:
            self._files.remove(recording.uid)
            del self._recordings[recording.uid]
            self._forget_of_machine(recording)
            self.statuses.forget(recording.uid)
            self._needs_changed(recording.facts.key)
            self.retained.release()
        except OSError as error:
            self._log.warn("recording {uid}: {why}", uid=recording.uid, why=error.strerror)

    def _forget_of_machine(self, recording: Recording) -> None:
        of_machine = self._by_machine[recording.facts.key]
        del of_machine[recording.uid]
        if not of_machine:
            del self._by_machine[recording.facts.key]

    def list_recordings(
        self, request: pb.ListRecordingsRequest
    ) -> Deferred[pb.ListRecordingsResponse]:
        return self.statuses.list(request)

    # Reading.

    def facts(self, uid: str) -> RecordingFacts:
        """:raises NotFound: there is no such recording."""
        recording = self._recordings.get(uid)
        if recording is None or recording.facts.is_released:
            message = f"the runtime has no recording {uid!r}: it has not begun, or was deleted"
            raise NotFound("consolerecordings", uid, message=message)
        return recording.facts

    async def read(self, uid: str) -> Iterator[bytes]:
        """
        Sign what was printed until now, and return :meth:`content`.

        If signing fails, or takes longer than :data:`READ_WAIT_SECONDS`, the text ends with the
        previous head.
        """
        recording = self._recordings.get(uid)
        if recording is not None and recording.is_open:
            age_seconds = self._now() / 1e9 - recording.last.time / 1e3
            if 0 <= age_seconds < READ_SECONDS:
                await deferLater(self._reactor, READ_SECONDS - age_seconds)
        if recording is not None and recording.is_open and self._is_running:
            await self._heads.newest(recording, READ_WAIT_SECONDS)
        return self.content(uid)

    def content(self, uid: str) -> Iterator[bytes]:
        """
        Iterate over the text of a recording up to its newest head; pieces may be empty.

        :raises NotFound: there is no such recording.
        :raises MissingOutput: the journal no longer has all of it.
        :raises InvalidRecording: the journal is not as it was when a head was signed.
        :raises OSError: a file cannot be read.
        """
        facts = self.facts(uid)
        first = next(self._files.heads(uid), None)
        if first is None:
            raise InvalidRecording("its signed heads were changed on the disk")
        growing: GrowingRecording = facts.growing
        reader = self._heads.reader(facts, first.position)
        return render(growing, self._files.heads(uid), reader)

    @property
    def heads(self) -> int:
        return self._heads.signed

    @property
    def failures(self) -> int:
        """Number of times that a recording could not begin, could not be written, or failed."""
        return self._beginning.refusals + self._heads.failures

    def count(self, state: str) -> int:
        return sum(each.state == state for each in self._recordings.values())


class DesiredRecordings:
    """Carries out what owners have set, one recording after the other, in short turns."""

    def __init__(self, carry_out: Callable[[pb.DesiredRecording, str], bool], reactor: Any) -> None:
        self._carry_out, self._reactor = carry_out, reactor
        self._desired: dict[str, tuple[pb.DesiredRecording, str]] = {}
        self._refused: dict[str, None] = {}
        self._retry: IDelayedCall | None = None
        self._is_due = self._is_stopped = False
        self._running = SingleRun(self._run, "beginning and ending recordings")

    def set(self, desired: pb.DesiredRecording, owner: str) -> None:
        self._desired[desired.uid] = desired, owner

    def go_on(self) -> None:
        """Carry out everything that is not done; some of it may still not be possible."""
        self._is_due = True
        self._running.start()

    def try_again(self, uid: str) -> None:
        """Carry out soon what was refused."""
        self._refused[uid] = None
        if self._retry is None and not self._is_stopped:
            self._retry = self._reactor.callLater(RETRY_SECONDS, self._try_one)

    def _try_one(self) -> None:
        # One at a time: there may be thousands, which have the same problem.
        self._retry = None
        uid = next(iter(self._refused))
        del self._refused[uid]
        if uid in self._desired and self._carry_out(*self._desired[uid]):
            del self._desired[uid]
            self._refused.clear()
            self.go_on()
        elif self._refused:
            self.try_again(next(iter(self._refused)))

    def stop(self) -> None:
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def _run(self) -> None:
        turns = ShortTurns(self._reactor)
        while self._is_due:
            self._is_due = False
            for uid, each in list(self._desired.items()):
                await turns.breathe()
                # It may have been set again meanwhile.
                is_current = self._desired.get(uid) is each and not self._is_stopped
                if is_current and self._carry_out(*each):
                    del self._desired[uid]
