"""
A runtime's recordings with journals in a directory of the test, and a clock that the test moves.
"""

from __future__ import annotations

import io
import os
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import close_segments
from tests.recording.support import NOW, SECOND, signer, trust
from tests.recording.test_writer import played
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.journal.journal import Journal
from twisted_exec.journal.retention import StoreLimits
from twisted_exec.journal.store import JournalStore
from twisted_exec.program.disk_thread import AtOnce, Files
from twisted_exec.recording.proof_lines import HeadContent, decode_head
from twisted_exec.recording.signatures import HeadSigner, UnusableCertificate
from twisted_exec.recording.verification import Report, verify
from twisted_exec.runtimes.recordings.beginning import RecordedMachine
from twisted_exec.runtimes.recordings.service import ConsoleRecordings

KEY = "0b3f6c3a-52c1-4b43-9a39-3f4d2a6c8f10"
OTHER = "0b3f6c3a-52c1-4b43-9a39-3f4d2a6c8f11"
UID = "6f000000-0000-4000-8000-000000000001"


def at_once(function: Any) -> Deferred[Any]:
    """Run a function that may wait."""
    return maybeDeferred(function)


class Case(SynchronousTestCase):
    """A runtime with one machine, :data:`KEY`, and its recordings."""

    limit_bytes = 0
    make_uploads: Any = staticmethod(lambda: None)
    in_thread: Any = staticmethod(at_once)

    def setUp(self) -> None:
        self.addCleanup(close_segments)
        self.path = os.path.abspath(self.mktemp())
        os.makedirs(self.path)
        self.clock = Clock()
        self.layer: Any = os
        self.thread: Files = AtOnce()
        self.problem = ""
        self.signer = signer()
        self.store: JournalStore
        self.recordings: ConsoleRecordings
        self.start()

    def now(self) -> int:
        return NOW + int(self.clock.seconds() * SECOND)

    def recorder(self) -> HeadSigner:
        if self.problem:
            raise UnusableCertificate(self.problem)
        return self.signer

    def start(self) -> None:
        """Start the runtime, after a stop or as if the earlier one was killed."""
        self.store = JournalStore(
            os.path.join(self.path, "consoles"),
            self.clock,
            limits=StoreLimits(total_bytes=1 << 40, free_bytes=0),
            now=self.now,
            in_thread=at_once,
            thread=self.thread,
            memory=self.path,
            layer=self.layer,
            kernel="k1",
        )
        self.store.open()
        self.recordings = ConsoleRecordings(
            os.path.join(self.path, "recordings"),
            self.store,
            self.clock,
            self.recorder,
            lambda: self.now(),
            limit_bytes=self.limit_bytes,
            in_thread=lambda function: self.in_thread(function),
            layer=self.layer,
            make_uploads=self.make_uploads,
        )
        self.recordings.start()
        self.add(KEY)

    def kill(self) -> None:
        """The process is gone; nothing of it runs again."""
        for call in list(self.clock.getDelayedCalls()):
            call.cancel()
        close_segments()

    def add(self, key: str) -> None:
        names = {"namespace": "default", "name": "vm-1", "uid": key}
        self.recordings.add(RecordedMachine(key, self.store.journal(key), names, lambda: (132, 43)))

    @property
    def journal(self) -> Journal:
        return self.store.journal(KEY)

    def wait(self, seconds: float = 60.0) -> None:
        """Let time pass in short steps."""
        until = self.clock.seconds() + seconds
        while self.clock.seconds() < until:
            self.clock.advance(1)

    # The calls of a poollet.

    def set(self, **fields: Any) -> None:
        """Set one recording."""
        desired = {"uid": UID, "machine_uid": KEY, "input": "none"} | fields
        request = pb.SetRecordingsRequest(
            owner="pool", generation="g", recordings=[pb.DesiredRecording(**desired)]
        )
        self.successResultOf(self.recordings.set_recordings(request))

    def list(self, acknowledged: int = 0, instance: str = "") -> pb.ListRecordingsResponse:
        request = pb.ListRecordingsRequest(
            owner="pool", instance=instance, acknowledged=acknowledged
        )
        answer: pb.ListRecordingsResponse = self.successResultOf(
            self.recordings.list_recordings(request)
        )
        return answer

    def status(self, uid: str = UID) -> pb.RecordingStatus:
        (found,) = [each for each in self.list().recordings if each.uid == uid]
        return found

    def end(self, uid: str = UID) -> None:
        """End a recording."""
        self.set(uid=uid, ended=True)
        self.wait(1)

    # What is recorded.

    def text(self, uid: str = UID) -> bytes:
        return b"".join(self.recordings.content(uid))

    def output(self, uid: str = UID) -> bytes:
        return played(self.text(uid))

    def report(self, uid: str = UID) -> Report:
        """Verify a recording, with the head that its owner has."""
        return verify(io.BytesIO(self.text(uid)), trust(), head_of(self.status(uid)))


def head_of(status: pb.RecordingStatus) -> HeadContent:
    """Return the head of a status."""
    return decode_head(status.head.encode() + b"\n")[0]
