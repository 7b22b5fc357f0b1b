"""
The controller that ends ConsoleRecordings, and deletes them after their retention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import (
    CONSOLERECORDINGS,
    CONSOLESESSIONS,
    Object,
)
from twisted_exec.api.kinds.consolerecordings import CLOSED, FAILED, end_of, ended_spec
from twisted_exec.api.kinds.events import WARNING
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.api.times import seconds
from twisted_exec.apiserver.controllers.expiry import (
    DAY_SECONDS,
    ExpiryCandidates,
    ExpiryController,
    delete_all,
)
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.kube.recorder import Recorder
from twisted_exec.storage.follower import Followed
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage, Listing

GRACE_SECONDS = 60.0
"""Time without sessions after which a recording ends, at the next look."""
UNCLOSED_SECONDS = 300.0
"""Time after its end in which the runtime should have closed a recording."""
NOT_CLOSED = "RecordingNotClosed"
NOT_ENDED = "RecordingNotEnded"


@dataclass(frozen=True)
class Surroundings:
    """
    What the controller knows of a recording's machine.

    :param without_seconds: since when it has no session.
    """

    has_machine: bool
    has_sessions: bool
    without_seconds: float


class Unclosed(Enum):
    """A step: report that the runtime has not closed the recording."""

    REPORT = auto()


def plan(recording: Mapping[str, Any], around: Surroundings, now: float) -> str | Unclosed | None:
    """
    Decide what to do with a recording.

    :param now: seconds since the epoch.
    :return: why to end it, or the report; ``None`` for nothing.
    """
    spec, ended = recording["spec"], recording["spec"].get("endedTime")
    if recording.get("status", {}).get("phase") in (CLOSED, FAILED):
        return None
    if spec.get("ended"):
        is_late = ended and now - seconds(ended) >= UNCLOSED_SECONDS
        return Unclosed.REPORT if is_late else None
    if not around.has_machine:
        return "the machine was deleted"
    if not spec.get("endsWithSessions") or around.has_sessions:
        return None
    # The object of a session comes a moment after the session, which is noted in the recording.
    joined_seconds = now - seconds(spec["lastSessionTime"])
    if min(joined_seconds, around.without_seconds) < GRACE_SECONDS:
        return None
    return f"no session has been open for {GRACE_SECONDS:.0f} seconds"


class ConsoleRecordingsController(ExpiryController):
    """
    The controller of ConsoleRecordings; runs on the leader only.

    It ends recordings whose sessions or machine are gone, and deletes them after their retention.

    :param now: seconds since the epoch.
    """

    _log = Logger()
    controller = "console-recordings"
    trouble = "cannot update console recordings"

    def __init__(
        self,
        dialects: Sequence[Dialect],
        storage: IStorage,
        clock: IReactorTime,
        now: Callable[[], float],
        recorder: Recorder,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock, metrics)
        self._now, self._recorder = now, recorder
        self._unclosed: set[str] = set()
        """UIDs of recordings with an Event; a new leader repeats it."""
        self._machine_resources = [each.workload for each in dialects]
        self._recordings: dict[Key, Object] = {}
        self._machines: set[str] = set()
        self._sessions: dict[Key, str] = {}
        self._numbers: Counter[str] = Counter()
        """Numbers of sessions, by UID of the machine."""
        self._without_since: dict[str, float] = {}
        """When the last session left a machine, by the monotonic clock."""
        self._unlisted: set[Resource] = set()
        self._expired = ExpiryCandidates[Key](clock)
        self._queue: WorkQueue[Key] = WorkQueue(
            self._carry_out, clock, self._waits, metrics=metrics.of(self.controller)
        )
        self.add_part(self._recorder)
        self.add_part(self._queue)

    def stopService(self) -> Deferred[None]:
        for facts in (self._recordings, self._sessions, self._numbers, self._without_since):
            facts.clear()
        self._machines.clear()
        self._unclosed.clear()
        self._expired.clear()
        return super().stopService()

    def followed(self) -> list[Followed]:
        followed = [
            (CONSOLERECORDINGS.resource, self._recording_changed),
            (CONSOLESESSIONS.resource, self._session_changed),
            *((each, self._machine_changed) for each in self._machine_resources),
        ]
        self._unlisted = {resource for resource, _ in followed}
        return [self._follow(*each) for each in followed]

    def _follow(self, resource: Resource, changed: Callable[[Event], None]) -> Followed:
        def listed(listing: Listing) -> None:
            for obj in listing.items:
                changed(Event(ADDED, obj, None, listing.version))
            self._unlisted.discard(resource)

        return Followed(resource, changed, listed)

    def _recording_changed(self, event: Event) -> None:
        if event.type == DELETED:
            self._recordings.pop(key_of(event.obj), None)
            self._unclosed.discard(event.obj["metadata"]["uid"])
        else:
            self._recordings[key_of(event.obj)] = event.obj

    def _session_changed(self, event: Event) -> None:
        key, uid = key_of(event.obj), event.obj["spec"].get("machineUID", "")
        if event.type != DELETED and key not in self._sessions:
            self._sessions[key] = uid
            self._numbers[uid] += 1
            self._without_since.pop(uid, None)
        elif event.type == DELETED and key in self._sessions:
            uid = self._sessions.pop(key)
            self._numbers[uid] -= 1
            if not self._numbers[uid]:
                del self._numbers[uid]
                self._without_since[uid] = self._clock.seconds()

    def _machine_changed(self, event: Event) -> None:
        uid = event.obj["metadata"]["uid"]
        if event.type == DELETED:
            self._machines.discard(uid)
        else:
            self._machines.add(uid)

    async def _look(self) -> None:
        if self._unlisted:  # sessions that are not known yet would seem to be gone
            return
        open_ = [each for each in self._recordings.values() if not _is_over(each)]
        machines = {each["spec"].get("machineUID", "") for each in open_}
        now = self._clock.seconds()
        self._without_since = {
            uid: self._without_since.get(uid, now) for uid in machines if uid not in self._numbers
        }
        for key, recording in self._recordings.items():
            if recording.get("status", {}).get("phase") not in (CLOSED, FAILED):
                self._queue.add(key)
        await self._delete_expired()

    async def _carry_out(self, key: Key) -> None:
        recording = self._recordings.get(key)
        if recording is None:
            return
        uid, now = recording["spec"].get("machineUID", ""), self._clock.seconds()
        without = now - self._without_since.get(uid, now)
        around = Surroundings(uid in self._machines, uid in self._numbers, without)
        step = plan(recording, around, self._now())
        if step is Unclosed.REPORT:
            await self._report_unclosed(recording)
        elif step is not None:
            await self._end(recording, step)

    def _waits(self, key: Key, error: APIError, failures: int) -> None:
        recording = self._recordings.get(key)
        if failures == 1 and recording is not None:
            name = "/".join(key)
            self._log.warn("recording {name} waits: {why}", name=name, why=error.message)
            message = f"the recording should end, which cannot be written: {error.message}"
            self._recorder.record(recording, WARNING, NOT_ENDED, message)

    async def _end(self, recording: Object, why: str) -> None:
        spec = ended_spec(recording["spec"], self._now(), why)
        ended = {**recording, "metadata": {**recording["metadata"]}, "spec": spec}
        try:
            await self._storage.update(CONSOLERECORDINGS.resource, ended)
        except (Conflict, NotFound):
            pass  # a session has just joined it, or it was deleted

    async def _report_unclosed(self, recording: Object) -> None:
        uid, ended = recording["metadata"]["uid"], recording["spec"]["endedTime"]
        if uid in self._unclosed:
            return
        self._unclosed.add(uid)
        pool = recording["spec"].get("pool", "")
        message = (
            f"the recording ended at {ended}, and its runtime has not closed it: nothing is proven about output "
            f'after the newest head in its status; check the poollet and the runtime of pool "{pool}"'
        )
        self._recorder.record(recording, WARNING, NOT_CLOSED, message)

    async def _delete_expired(self) -> None:
        now = self._now()
        over = self._expired.due(
            key
            for key, each in self._recordings.items()
            if (ended := end_of(each)) is not None
            and ended + each["spec"]["retentionDays"] * DAY_SECONDS <= now
        )
        await delete_all(self._storage, CONSOLERECORDINGS.resource, over)


def _is_over(recording: Object) -> bool:
    phase = recording.get("status", {}).get("phase")
    return bool(recording["spec"].get("ended")) or phase in (CLOSED, FAILED)
