"""
Controllers of console objects: ConsoleRequests, ConsoleRecordings and DeletedConsoles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import (
    CONSOLERECORDINGS,
    CONSOLEREQUESTS,
    CONSOLESESSIONS,
    DELETEDCONSOLES,
    Object,
    machine_kind,
)
from twisted_exec.api.kinds.consolerecordings import CLOSED, FAILED, end_of, ended_spec
from twisted_exec.api.kinds.consolerequests import expiry
from twisted_exec.api.kinds.deletedconsoles import name_of
from twisted_exec.api.kinds.events import NORMAL, WARNING
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import AlreadyExists, APIError, Conflict, Forbidden, NotFound
from twisted_exec.api.times import seconds, timestamp
from twisted_exec.apiserver.controllers.expiry import ExpiryCandidates, ExpiryController, delete_all
from twisted_exec.apiserver.serving.client import own_recorder
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.verbs import OURSELVES, RequestTarget, Verbs, is_terminating
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.kube.recorder import Recorder
from twisted_exec.storage.follower import Followed, listed_as_added
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage, Listing

RETENTION_DAYS = 7
"""Days for which a request is kept after its end."""

_DAY_SECONDS = 86_400

ReadOnlyObject = Mapping[str, Any]


_Message = tuple[Object, str, str, str]
"""An object, and the level, reason and text of an Event about it."""


class ConsoleRequests(ExpiryController):
    """
    The controller of ConsoleRequests; runs on the leader only.

    :param verbs: without admission.
    :param now: seconds since the epoch.
    """

    _log = Logger()
    controller = "console-requests"
    trouble = "cannot update console requests"

    def __init__(
        self,
        dialects: Sequence[Dialect],
        storage: IStorage,
        verbs: Verbs,
        clock: IReactorTime,
        now: Callable[[], float],
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock, metrics)
        self._now = now
        self._machines = {each.workload.qualified: machine_kind(each) for each in dialects}
        self._recorder = own_recorder(
            verbs, clock, now, about=CONSOLEREQUESTS.resource, component="console-requests"
        )
        self._ends: dict[Key, float] = {}
        self._expired = ExpiryCandidates[Key](clock)
        self._unreported: dict[Key, list[_Message]] = {}
        # Only Events wait in it, and these tell users nothing about themselves.
        self._queue: WorkQueue[Key] = WorkQueue(
            self._report, clock, metrics=metrics.of(self.controller)
        )
        self.add_part(self._recorder)
        self.add_part(self._queue)

    def stopService(self) -> Deferred[None]:
        self._ends.clear()
        self._expired.clear()
        self._unreported.clear()
        return super().stopService()

    def followed(self) -> list[Followed]:
        listed = listed_as_added(self._noted)
        return [Followed(CONSOLEREQUESTS.resource, self._changed, listed)]

    def _noted(self, event: Event) -> None:
        key = key_of(event.obj)
        if event.type == DELETED:
            self._ends.pop(key, None)
        else:
            decided = event.obj.get("status", {}).get("decisionTime")
            ends = expiry(event.obj)
            if event.obj.get("status", {}).get("denied") and decided:
                ends = seconds(decided)
            self._ends[key] = ends

    def _changed(self, event: Event) -> None:
        self._noted(event)
        key, message = key_of(event.obj), None
        if event.type == DELETED:
            self._unreported.pop(key, None)
        else:
            message = _message(event)
        if message is not None:
            self._unreported.setdefault(key, []).append((event.obj, *message))
            self._queue.add(key)

    async def _report(self, key: Key) -> None:
        while messages := self._unreported.get(key):
            request, level, reason, message = messages[0]
            objects = [(CONSOLEREQUESTS.resource, request), *await self._machine_of(request)]
            for resource, obj in objects:
                self._recorder.record(obj, level, reason, message, resource=resource)
            del messages[0]
        self._unreported.pop(key, None)

    async def _machine_of(self, request: Object) -> list[tuple[Resource, Object]]:
        spec = request["spec"]
        kind = self._machines.get(spec.get("machineResource", ""))
        if kind is None:
            return []
        namespace = request["metadata"]["namespace"]
        try:
            machine = await self._storage.get(kind.resource, namespace, spec["machine"])
        except NotFound:
            return []
        is_same = machine["metadata"]["uid"] == spec.get("machineUID")
        return [(kind.resource, machine)] if is_same else []

    async def _look(self) -> None:
        oldest = self._now() - RETENTION_DAYS * _DAY_SECONDS
        due = self._expired.due(key for key, ends in self._ends.items() if ends <= oldest)
        await delete_all(self._storage, CONSOLEREQUESTS.resource, due)


def _message(event: Event) -> tuple[str, str, str] | None:
    spec, status = event.obj["spec"], event.obj.get("status", {})
    before = (event.previous or {}).get("status", {})
    name, user, right = event.obj["metadata"]["name"], spec.get("user", ""), spec["right"]
    because = f": {spec['reason']}" if spec.get("reason") else ""
    by = status.get("decidedBy", "")
    if event.type == ADDED:
        text = f'user "{user}" asks for approval to {right} the console, request "{name}"{because}'
        return NORMAL, "ConsoleRequested", text
    if status.get("denied") and not before.get("denied"):
        verb = "withdrew the approval of" if before.get("approved") else "denied"
        return WARNING, "ConsoleDenied", f'user "{by}" {verb} request "{name}" of user "{user}"'
    if status.get("approved") and not before.get("approved"):
        until = status.get("expirationTime", "")
        text = f'user "{by}" approved that user "{user}" may {right} the console until {until}, request "{name}"'
        return NORMAL, "ConsoleApproved", f"{text}{because}"
    if status.get("session") and not before.get("session"):
        text = f'session {status["session"]} of user "{user}" used the approval "{name}" by user "{by}"'
        return NORMAL, "ConsoleApprovalUsed", text
    return None


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


def plan(recording: ReadOnlyObject, around: Surroundings, now: float) -> str | Unclosed | None:
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
            and ended + each["spec"]["retentionDays"] * _DAY_SECONDS <= now
        )
        await delete_all(self._storage, CONSOLERECORDINGS.resource, over)


def _is_over(recording: Object) -> bool:
    phase = recording.get("status", {}).get("phase")
    return bool(recording["spec"].get("ended")) or phase in (CLOSED, FAILED)


MOST_OBJECTS = 20_000
"""Limit for all namespaces together; beyond it the oldest are deleted early."""
DEFAULT_DAYS = 7


NOT_KEPT = "ConsoleNotKept"
"""Reason of the Event about a deleted machine without a DeletedConsole."""

_OPTIONS = WriteOptions(manager=MANAGER)


def plan_console(dialect: Dialect, machine: Object, now: float, days: int) -> Object | None:
    """
    Return the DeletedConsole that a machine needs whose deletion has begun; ``None`` for none.

    :param now: seconds since the epoch.
    """
    metadata, pool = machine["metadata"], dialect.pool_name(machine)
    if not pool or days <= 0:
        return None
    return {
        "metadata": {"name": name_of(machine), "namespace": metadata["namespace"]},
        "spec": {
            "machine": metadata["name"],
            "machineResource": dialect.workload.qualified,
            "machineUID": metadata["uid"],
            "pool": pool,
            "deletionTime": metadata.get("deletionTimestamp") or timestamp(now),
            "expirationTime": timestamp(now + days * _DAY_SECONDS),
        },
    }


def plan_removals(expiries: Mapping[Key, float], due: Sequence[Key], most: int) -> list[Key]:
    """
    Return the objects to delete: those that are due, and the oldest beyond a number.

    :param expiries: of all objects.
    """
    surplus = len(expiries) - len(due) - most
    rest = sorted(expiries.keys() - set(due), key=expiries.__getitem__) if surplus > 0 else []
    return [*due, *rest[: max(0, surplus)]]


@dataclass(frozen=True)
class _Missing:
    draft: Object
    machines: Resource
    """The kind of the machine."""
    machine: Object


class DeletedConsoles(ExpiryController):
    """
    Creates and expires DeletedConsoles; runs on the leader only.

    An object is created when the deletion of a machine with a pool begins.

    :param verbs: without admissions.
    :param now: seconds since the epoch.
    """

    _log = Logger()
    controller = "deleted-consoles"
    trouble = "cannot update the consoles of deleted machines"

    def __init__(
        self,
        dialects: Sequence[Dialect],
        storage: IStorage,
        verbs: Verbs,
        clock: IReactorTime,
        now: Callable[[], float],
        *,
        days: int = DEFAULT_DAYS,
        most_objects: int = MOST_OBJECTS,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock, metrics)
        self._dialects, self._verbs = dialects, verbs
        self._now, self._days = now, days
        self._most_objects = most_objects
        self._recorder = own_recorder(
            verbs, clock, now, about=DELETEDCONSOLES.resource, component="deleted-consoles"
        )
        self._missing: dict[Key, _Missing] = {}
        self._troubled: set[str] = set()
        """Namespaces of which an Event tells that an object cannot be created."""
        self._expiries: dict[Key, float] = {}  # oldest first
        self._expired = ExpiryCandidates[Key](clock)
        self._queue: WorkQueue[Key] = WorkQueue(
            self._create, clock, self._not_created, metrics=metrics.of(self.controller)
        )
        self.add_part(self._recorder)
        self.add_part(self._queue)

    def stopService(self) -> Deferred[None]:
        self._missing.clear()
        self._troubled.clear()
        self._expiries.clear()
        self._expired.clear()
        return super().stopService()

    def followed(self) -> list[Followed]:
        own = Followed(DELETEDCONSOLES.resource, self._changed, listed_as_added(self._changed))
        machines = [
            (dialect.workload, partial(self._machine_changed, dialect))
            for dialect in self._dialects
        ]
        # Its own objects first: they say which ones are missing.
        return [own, *(Followed(each, take, listed_as_added(take)) for each, take in machines)]

    def _changed(self, event: Event) -> None:
        key = key_of(event.obj)
        if event.type == DELETED:
            self._expiries.pop(key, None)
        else:
            self._expiries[key] = seconds(event.obj["spec"]["expirationTime"])

    def _machine_changed(self, dialect: Dialect, event: Event) -> None:
        machine = event.obj
        if event.type != DELETED and "deletionTimestamp" not in machine["metadata"]:
            return
        draft = plan_console(dialect, machine, self._now(), self._days)
        if draft is not None and (key := key_of(draft)) not in self._expiries:
            self._missing[key] = _Missing(draft, dialect.workload, machine)
            self._queue.add(key)

    async def _create(self, key: Key) -> None:
        missing = self._missing.get(key)
        if missing is None:
            return
        namespace, _ = key
        try:
            target = RequestTarget(DELETEDCONSOLES, namespace)
            await self._verbs.create(OURSELVES, target, missing.draft, _OPTIONS)
            self._troubled.discard(namespace)
        except (AlreadyExists, NotFound):
            pass  # made before, or the namespace is gone
        except Forbidden as error:
            if not is_terminating(error):  # its users expect that all of it goes
                self._tell_once(missing, error)
        self._missing.pop(key, None)
        if len(self._expiries) > self._most_objects:
            self._loop.poke()

    def _tell_once(self, missing: _Missing, error: APIError) -> None:
        """Report the first machine of a namespace: others have the same trouble."""
        namespace = missing.machine["metadata"]["namespace"]
        if namespace not in self._troubled:
            self._troubled.add(namespace)
            message = (
                f"the console of this machine, and perhaps of others, is not kept: {error.message}"
            )
            self._recorder.record(
                missing.machine, WARNING, NOT_KEPT, message, resource=missing.machines
            )

    def _not_created(self, key: Key, error: APIError, failures: int) -> None:
        if failures == 1:
            name, message = "/".join(key), "the console of deleted machine {name} waits: {why}"
            self._log.warn(message, name=name, why=error.message)
            if (missing := self._missing.get(key)) is not None:
                self._tell_once(missing, error)

    async def _look(self) -> None:
        now = self._now()
        over = self._expired.due(key for key, until in self._expiries.items() if until <= now)
        over = plan_removals(self._expiries, over, self._most_objects)
        await delete_all(self._storage, DELETEDCONSOLES.resource, over)
