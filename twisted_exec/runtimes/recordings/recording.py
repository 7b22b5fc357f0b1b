"""
One recording of a runtime.
"""

from __future__ import annotations

from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.recording.chain import MILLISECOND
from twisted_exec.recording.ranges import SignedHead

from .files import Facts, Stored
from .retained import Needed

RECORDING, CLOSED, FAILED = "Recording", "Closed", "Failed"


class Recording:
    """
    A recording that exists.

    :ivar facts: as on disk.
    :ivar last: the newest signed head.
    :ivar certificate: of that head, in DER.
    :ivar trouble: why it cannot be written at present; else empty.
    :ivar waiting: why the store does not have it yet; else empty.
    :ivar number: grows with each change of the status, see ``RecordingStatus``.
    :ivar covered: the end of the journal and the time of its newest entry, when a head was signed last.
    :ivar is_due: a head is to be signed soon.
    """

    def __init__(self, stored: Stored) -> None:
        self.facts: Facts = stored.facts
        self.last, self.certificate = stored.last, stored.certificate
        self._is_closed = stored.last.is_closed
        self.trouble = self.waiting = ""
        self.number = 0
        self.covered = -1, 0
        self.is_due = False

    def head_signed(self, head: SignedHead) -> None:
        """Take over a head that is on disk."""
        self.last, self.certificate = head, head.certificate or self.certificate
        self._is_closed = head.is_closed
        self.trouble = ""

    @property
    def uid(self) -> str:
        return self.facts.uid

    @property
    def state(self) -> str:
        """Recording, Closed or Failed."""
        if self.facts.failure:
            return FAILED
        return CLOSED if self._is_closed else RECORDING

    @property
    def is_open(self) -> bool:
        """True until the recording is closed or has failed."""
        return self.state == RECORDING

    @property
    def needed(self) -> Needed | None:
        """The range of the journal; ``None`` if the recording does not need it any more."""
        if self.facts.location or self.facts.is_released:
            return None
        end = None if self.is_open else self.last.position.offset
        return Needed(self.facts.first, end)

    def status(self) -> pb.RecordingStatus:
        """Return the status for the owner."""
        return pb.RecordingStatus(
            number=self.number,
            uid=self.uid,
            machine_uid=self.facts.key,
            state=self.state,
            message=self.facts.failure or self.trouble or self.facts.message or self.waiting,
            epoch=self.facts.epoch,
            first=self.facts.first,
            end=self.last.position.offset,
            head=self.last.progress.head,
            start_time=self.facts.start_ns,
            end_time=self.last.time * MILLISECOND,
            owner=self.facts.owner,
            location=self.facts.location,
        )
