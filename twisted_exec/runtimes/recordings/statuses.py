"""
The statuses of recordings that their owners, poollets, have not acknowledged.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall

from twisted_exec.api.kinds.consolerecordings import NOT_STARTED
from twisted_exec.api.status import BadRequest, ServiceUnavailable, TooManyRequests
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.runtimes.recordings.recording import Recording

MOST_LISTED = 100
MOST_OWNERS = 16
MOST_WAIT_SECONDS = 25
_LONGEST_NAME = 256


@dataclass(eq=False)
class _Owner:
    generation: str = ""
    acknowledged: int = 0
    waiting: dict[str, pb.RecordingStatus] = field(default_factory=dict)
    listing: Deferred[pb.ListRecordingsResponse] | None = None
    limit: IDelayedCall | None = None


class Statuses:
    """The statuses of all recordings of a runtime."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._instance = secrets.token_hex(8)
        self._number = 0
        self._owners: dict[str, _Owner] = {}
        self._recordings: dict[str, Recording] = {}
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True
        for owner in self._owners:
            self._answer(owner)

    def changed(self, recording: Recording) -> None:
        self._number += 1
        recording.number = self._number
        # The order of the mapping is that of the numbers.
        self._recordings.pop(recording.uid, None)
        self._recordings[recording.uid] = recording
        for name, owner in self._owners.items():
            owner.waiting.pop(recording.uid, None)
            if recording.facts.owner in ("", name):
                self._answer(name)

    def waiting(self, owner: str, desired: pb.DesiredRecording, why: str, state: str = "") -> bool:
        """Report why a recording has not begun; return whether that is new."""
        before = self._owner(owner).waiting.get(desired.uid)
        if before is not None and (before.message, before.state) == (why, state):
            return False
        self._number += 1
        self._owner(owner).waiting[desired.uid] = pb.RecordingStatus(
            number=self._number,
            uid=desired.uid,
            machine_uid=desired.machine_uid,
            state=state,
            reason=state or NOT_STARTED,
            message=why,
        )
        self._answer(owner)
        return True

    def forget(self, uid: str) -> None:
        self._recordings.pop(uid, None)
        for owner in self._owners.values():
            owner.waiting.pop(uid, None)

    def generation(self, owner: str, generation: str) -> None:
        self._owner(owner).generation = generation

    def list(self, request: pb.ListRecordingsRequest) -> Deferred[pb.ListRecordingsResponse]:
        owner = self._owner(request.owner)
        is_own = request.instance == self._instance
        owner.acknowledged = request.acknowledged if is_own else 0
        for uid, status in list(owner.waiting.items()):
            if status.state and status.number <= owner.acknowledged:
                del owner.waiting[uid]
        self._answer(request.owner)
        if self._is_stopped:
            raise ServiceUnavailable("the machine runtime is shutting down")
        response = self._response(request.owner)
        if response.recordings or not request.wait_seconds:
            return succeed(response)
        owner.listing = Deferred()
        seconds = min(request.wait_seconds, MOST_WAIT_SECONDS)
        owner.limit = self._reactor.callLater(seconds, self._answer, request.owner)
        return owner.listing

    def _owner(self, name: str) -> _Owner:
        if not name or len(name) > _LONGEST_NAME:
            raise BadRequest("the owner of recordings needs a name")
        if name not in self._owners:
            if len(self._owners) >= MOST_OWNERS:
                raise TooManyRequests(f"{MOST_OWNERS} owners have recordings here, the limit", 60)
            self._owners[name] = _Owner()
        return self._owners[name]

    def _response(self, name: str) -> pb.ListRecordingsResponse:
        owner = self._owners[name]
        statuses = [each for each in owner.waiting.values() if each.number > owner.acknowledged]
        for recording in reversed(self._recordings.values()):
            if recording.number <= owner.acknowledged:
                break
            if recording.facts.owner in ("", name):
                statuses.append(recording.status())
        statuses.sort(key=lambda each: each.number)
        return pb.ListRecordingsResponse(
            instance=self._instance,
            generation=owner.generation,
            recordings=statuses[:MOST_LISTED],
        )

    def _answer(self, name: str) -> None:
        owner = self._owners[name]
        listing, owner.listing = owner.listing, None
        if owner.limit is not None and owner.limit.active():
            owner.limit.cancel()
        if listing is not None:
            listing.callback(self._response(name))
