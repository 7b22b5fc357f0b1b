"""
The beginnings of a runtime's recordings.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.display import reason_of
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.api.times import NANOSECONDS, timestamp
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.journal.interfaces import EventKind
from twisted_exec.journal.journal import Journal
from twisted_exec.program.disk_thread import Files, Unanswered
from twisted_exec.recording.journal_ranges import JournalPosition
from twisted_exec.recording.signatures import HeadSigner, UnusableCertificate
from twisted_exec.runtimes.recordings.heads import end_of
from twisted_exec.runtimes.recordings.recording import (
    Recording,
    RecordingFacts,
    RecordingFiles,
    StoredRecording,
)

LOOK_SECONDS = 1.0
"""Interval of checks of the certificate while users type."""
MOST_RECORDINGS = 10_000
"""Recordings that a runtime retains."""
_SIZE_BYTES = 1 << 20
"""The terminal's size at an earlier beginning is looked for in so much output before it."""
_NAMES = ("namespace", "name", "uid")


class RecordedMachine:
    """
    A machine that can be recorded.

    :param names: ``namespace``, ``name`` and ``uid``, as far as known.
    """

    def __init__(
        self,
        key: str,
        journal: Journal,
        names: dict[str, str],
        size: Callable[[], tuple[int, int] | None] = lambda: None,
    ) -> None:
        self.key, self.journal, self.size = key, journal, size
        self.names = {name: names[name] for name in _NAMES if names.get(name)}


@dataclass(frozen=True)
class Refusal:
    """
    Why a recording could not begin.

    :param time_ns: in nanoseconds since the epoch.
    """

    time_ns: int
    why: str


class Beginning:
    """
    Begins recordings.

    :param now: the time of day, in nanoseconds since the epoch.
    """

    def __init__(
        self,
        files: RecordingFiles,
        signer: Callable[[], HeadSigner],
        now: Callable[[], int],
        clock: IReactorTime,
        count: Callable[[], int],
        thread: Files,
    ) -> None:
        self._files, self._signer, self._now, self._thread = files, signer, now, thread
        self._clock, self._count = clock, count
        self._unusable, self._next_look = "", 0.0
        self._disk_problem = ""  # of the last beginning that the disk has answered
        self.refusals = 0

    def unusable_certificate(self) -> str:
        """Return why the certificate cannot be used; empty if it can."""
        if self._clock.seconds() >= self._next_look:
            self._next_look = self._clock.seconds() + LOOK_SECONDS
            try:
                self._signer().require_valid(self._now() // 1_000_000)
                self._unusable = ""
            except UnusableCertificate as error:
                self._unusable = str(error)
        return self._unusable

    def begin(
        self,
        desired: pb.DesiredRecording,
        machine: RecordedMachine,
        owner: str,
        refusal: Refusal | None = None,
    ) -> Recording:
        """
        Store a new recording.

        :param refusal: the first one, if it could not begin when it was set.
        """
        journal = machine.journal
        try:
            if self._count() >= MOST_RECORDINGS:
                raise OSError(f"the runtime has {MOST_RECORDINGS} recordings, the limit")
            signer = self._signer()
            position, size = self._first(journal, machine, desired.since)
            files = journal.open_files()
            if files is None or journal.failure:
                raise OSError(without_output(journal))
            facts = RecordingFacts(
                uid=desired.uid,
                key=machine.key,
                machine=machine.names,
                input=desired.input,
                epoch=files.epoch.hex(),
                first=position.offset,
                start_ns=desired.since or self._now(),
                columns=size[0],
                rows=size[1],
                secret=secrets.token_hex(32),
                owner=owner,
                user=desired.user,
                message="" if refusal is None else _missing(desired, refusal, self._now()),
            )
            head = facts.growing.begin(position, signer, self._now())
            self._thread.call(partial(self._files.create, facts, head), is_long=True)
        except (UnusableCertificate, OSError) as error:
            why = reason_of(error)
            if isinstance(error, Unanswered):
                why = self._disk_problem or why  # a full disk may be slow, too
            elif isinstance(error, OSError):
                if error.strerror:  # of the system, whose words do not say who may not do what
                    why = f"the runtime cannot write its files: {why}"
                self._disk_problem = why
            self.refusals += 1
            raise ServiceUnavailable(f"the console cannot be recorded: {why}") from None
        self._disk_problem = ""
        return Recording(StoredRecording(facts, head, head.certificate))

    def _first(
        self, journal: Journal, machine: RecordedMachine, since: int
    ) -> tuple[JournalPosition, tuple[int, int]]:
        if not since or since >= self._now():
            return end_of(journal), machine.size() or (80, 24)
        offset = journal.next_available(journal.printed_since(since))
        before = sum(1 for each in journal.events(offset, offset) if each.time_ns < since)
        size = machine.size() or (80, 24)
        first = max(journal.start, offset - _SIZE_BYTES)
        for event in journal.events(first, offset - 1, EventKind.SIZE):
            size = event.data["columns"], event.data["rows"]
        return JournalPosition(offset, before), size


def without_output(journal: Journal) -> str:
    """Return why a machine is not recorded whose journal is not on disk."""
    return ": ".join(("its output is not on disk", *filter(None, [journal.failure])))


def _missing(desired: pb.DesiredRecording, refusal: Refusal, now: int) -> str:
    """Return what a recording that begins late does not have; empty if it has everything."""
    # The journal has the output of the time before, but no input.
    parts = ["output"] * (not desired.since) + ["input"] * (desired.input != "none")
    if not parts:
        return ""
    began, refused = (timestamp(each / NANOSECONDS) for each in (now, refusal.time_ns))
    return (
        f"it began late: it has no {' and '.join(parts)} from {refused} to {began}: {refusal.why}"
    )
