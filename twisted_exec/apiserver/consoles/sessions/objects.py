"""
The service that maintains the ConsoleSessions of one server.

Each server writes the ConsoleSessions of its sessions (:class:`SessionObjects`), and ends sessions
whose objects a user deletes.

An object is created a moment after its session, and the shortest sessions have none.  A session
that its user can resume keeps its object for some time when the connection is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api import names
from twisted_exec.api.conditions import writers_of
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.events import WARNING
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Conflict,
    Forbidden,
    NotFound,
    one_line,
)
from twisted_exec.apiserver.consoles.sessions.foreign import (
    LEASE_RENEWALS,
    RENEW_SECONDS,
    ForeignObjects,
)
from twisted_exec.apiserver.consoles.sessions.record import RESOURCE, SessionRecord
from twisted_exec.apiserver.serving.namespace_check import check_namespace, is_terminating
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.control.runs import readable
from twisted_exec.kube.recorder import Recorder
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, Listing
from twisted_exec.streaming.interfaces import SESSION_DELETED, Ending
from twisted_exec.streaming.sessions.registry import Session, SessionLife, Sessions
from twisted_exec.streaming.subject import Subject

RENEWALS_PER_SECOND = 20
"""Limit for all renewals together: with many sessions the interval becomes longer."""
LOOK_SECONDS = 5.0
"""
Longest pause before another attempt to write an object, and time until the missing object of an
open session is created again.
"""
NOT_SHOWN = "SessionNotShown"
"""Reason of the Event about a machine if the ConsoleSession of a session cannot be created."""
CREATE_SECONDS = 0.25
"""Delay before the object of a new session is created."""

_ATTEMPTS = 5
_STOP_SECONDS = 3.0
_WORKERS = 64
"""Objects that are written concurrently: a store writes many in one transaction."""


REMOVALS_AT_ONCE = 5
"""Objects that are deleted at once in each :data:`REMOVAL_PAUSE_SECONDS`."""
REMOVAL_PAUSE_SECONDS = 1.0
"""Delay before the first of the other deletions."""
REMOVALS_PER_SECOND = 150
"""Limit for the other deletions."""


class Step(Enum):
    """What to do next for the object of a session."""

    CREATE = auto()
    RENEW = auto()
    END = auto()
    """The user did not come back in time: the session is over."""
    REMOVE = auto()
    FORGET = auto()
    WAIT = auto()


@dataclass(frozen=True)
class SessionState:
    """
    A session of this server, and its object.

    :ivar is_live: the session goes on, or its user may come back.
    :ivar is_stale: the object lacks a change.
    :ivar is_due: the object is to be renewed, so that other servers do not delete it.
    """

    is_live: bool
    is_away_too_long: bool
    has_object: bool
    is_stale: bool
    is_due: bool


def plan(state: SessionState) -> Step:
    """Decide what to do next."""
    if state.is_live and state.is_away_too_long:
        return Step.END
    if not state.is_live:
        return Step.REMOVE if state.has_object else Step.FORGET
    if not state.has_object:
        return Step.CREATE
    return Step.RENEW if state.is_stale or state.is_due else Step.WAIT


class WritePace:
    """
    Pace of one server's writes to objects of sessions that have ended, or whose users are absent.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._due = self._other_due = -math.inf

    def delay(self) -> float:
        """Return the delay before the next such write."""
        now = self._clock.seconds()
        interval = REMOVAL_PAUSE_SECONDS / REMOVALS_AT_ONCE
        due = max(self._due, now - REMOVAL_PAUSE_SECONDS)
        if due + interval / 2 < now:  # not whole intervals, whose sum is rounded
            self._due = due + interval
            return 0.0
        due = max(self._other_due, now + REMOVAL_PAUSE_SECONDS) + 1 / REMOVALS_PER_SECOND
        self._other_due = due
        return due - now


class SessionObjects(StoreFollower):
    """
    Maintains the ConsoleSessions of this server, and deletes those of dead servers.

    :param sessions: this service becomes their watcher.
    :param exclusive: no other server uses the store, so objects from before the start are stale.
    :param machines: the resources whose conditions name the writers of their consoles.
    :param kinds: of machines, by their qualified resource, for Events.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        storage: IStorage,
        sessions: Sessions,
        clock: IReactorTime,
        now: Callable[[], float],
        replica: str,
        recorder: Recorder,
        kinds: Mapping[str, Kind],
        *,
        exclusive: bool = False,
        machines: Sequence[Resource] = (),
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock)
        self._machines = tuple(machines)
        self._writers: dict[str, frozenset[str]] = {}  # by the UID of the machine
        self._is_exclusive = exclusive
        self._sessions, self._clock, self._now = sessions, clock, now
        self.replica = replica
        self._records: dict[Session, SessionRecord] = {}
        self._named: dict[tuple[str, str], SessionRecord] = {}
        self._resumable: dict[str, SessionRecord] = {}  # by the id of the session
        self._queue: WorkQueue[SessionRecord] = WorkQueue(
            self._keep,
            clock,
            self._refused,
            workers=_WORKERS,
            backoff=lambda: Backoff(longest_seconds=LOOK_SECONDS),
            metrics=metrics.of("console-sessions"),
        )
        self._foreign = ForeignObjects(
            storage, clock, self._is_own, self._refused, metrics.of("foreign-console-sessions")
        )
        self._problem = ""
        self._recorder, self._kinds = recorder, kinds
        self._troubled: set[str] = set()
        """Namespaces of which an Event tells that an object cannot be created."""
        self._pace = WritePace(clock)
        sessions.watcher = self

    def resumable(self, session: str, user: str, uid: str) -> Subject | None:
        """
        Return the subject of a session that its user can resume at this server; ``None`` for others,
        also if it began at another server.

        :param session: its id.
        :param uid: of the machine.
        """
        record = self._resumable.get(session)
        if record is None or not record.is_live:
            return None
        subject = record.session.subject
        return subject if (subject.user, subject.uid) == (user, uid) else None

    def startService(self) -> None:
        self._recorder.start()
        self._queue.start()
        self._foreign.start()
        super().startService()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        foreign = self._foreign.stop()
        for record in list(self._records.values()):
            if record.is_live and record.away_since is None:
                self._queue.forget(record)
            else:
                self._queue.hurry(record)
        return Deferred.fromCoroutine(self._finish(foreign))

    async def _finish(self, foreign: Deferred[None]) -> None:
        drained = self._queue.drained()
        await drained.addTimeout(_STOP_SECONDS, self._clock).addErrback(lambda _: None)
        await self._queue.stop()
        await self._recorder.stop()
        await foreign

    def followed(self) -> tuple[Followed, ...]:
        machines = listed_as_added(self._machine_changed)
        return (
            Followed(RESOURCE, self._changed, self._listed),
            *(Followed(resource, self._machine_changed, machines) for resource in self._machines),
        )

    def _listed(self, listing: Listing) -> None:
        for obj in listing.items:
            self._foreign.note(obj, expires=self._is_exclusive)

    # Callbacks of the server's sessions

    def began(self, session: Session) -> None:
        if session.subject.subresource != "exec" or not session.subject.namespace:
            return
        record = self._resumable.get(session.resumes) if session.resumes else None
        if record is not None and record.can_go_on(session):
            del self._records[record.session], self._resumable[record.id]
            record.go_on(session)
        else:
            record = SessionRecord(session)
            self._foreign.resumed(session)
        self._records[session] = record
        if session.resumable_seconds:
            self._resumable[record.id] = record
        self._queue.add_after(record, CREATE_SECONDS if record.stored is None else 0.0)

    def ended(self, session: Session) -> None:
        self._foreign.ended(session)
        record = self._records.get(session)
        if record is None:
            return
        if session.life is SessionLife.LOST or self._sessions.is_being_resumed(session.subject):
            self._lost(record)
        else:
            self._end(record)

    def _lost(self, record: SessionRecord) -> None:
        record.lost(self._now(), self._clock.seconds() + record.wait_seconds)
        is_shown = record.stored is not None
        self._queue.add_after(record, self._delay_of(record) if is_shown else CREATE_SECONDS)

    def _end(self, record: SessionRecord) -> None:
        record.is_live = False
        if record.stored is None and not self._queue.is_running(record):
            self._forget(record)  # it was short, and has no object
            return
        self._queue.add_after(record, self._delay_of(record))

    def _delay_of(self, record: SessionRecord) -> float:
        return self._pace.delay() if record.stored is not None and self.running else 0.0

    # Writes for one record

    async def _keep(self, record: SessionRecord) -> float | None:
        while True:
            step = plan(self._state(record))
            if step is Step.END:
                record.is_live = False
                if seconds := self._delay_of(record):
                    return seconds
            elif step is Step.REMOVE and record.stored is not None:
                await self._remove(record.stored)
                record.stored = None
            elif step is Step.FORGET:
                self._forget(record)
                return None
            else:
                if step is Step.CREATE:
                    await self._create(record)
                elif step is Step.RENEW:
                    await self._renew(record)
                if record.is_live and (step is Step.WAIT or record.stored is None):
                    return self._next_look(record)

    def _state(self, record: SessionRecord) -> SessionState:
        now = self._clock.seconds()
        return SessionState(
            is_live=record.is_live,
            is_away_too_long=record.away_until <= now,
            has_object=record.stored is not None,
            is_stale=self._is_stale(record),
            is_due=bool(self.running and record.renewed_at + self._renew_seconds <= now),
        )

    def _forget(self, record: SessionRecord) -> None:
        self._records.pop(record.session, None)
        if self._resumable.get(record.id) is record:
            del self._resumable[record.id]
        self._unname(record)
        self._queue.forget(record)

    def _next_look(self, record: SessionRecord) -> float | None:
        if not self.running:
            return None
        now = self._clock.seconds()
        renewal = LOOK_SECONDS
        if record.stored is not None:
            renewal = record.renewed_at + self._renew_seconds - now
        return max(0.0, min(renewal, record.away_until - now))

    async def _create(self, record: SessionRecord) -> None:
        for attempt in range(_ATTEMPTS):
            self._name(record)
            try:
                await check_namespace(self._storage, record.namespace)
                obj = record.new_object(self.replica, self._status(record), self._now())
                stored = await self._storage.create(RESOURCE, obj)
            except AlreadyExists:
                self._unname(record)
                if attempt == _ATTEMPTS - 1:
                    raise
            except NotFound:
                return  # the namespace is gone, and the session will end too
            except Forbidden as error:
                if not is_terminating(error):
                    await self._tell_once(record, error)
                return
            except CancelledError:
                raise
            except Exception as error:
                await self._tell_once(record, readable(error))
                raise
            else:
                self._problem = ""
                self._troubled.discard(record.namespace)
                # The object may have been seen and deleted before its creation is acknowledged.
                record.stored = stored if stored["metadata"]["uid"] != record.gone else None
                return

    async def _tell_once(self, record: SessionRecord, error: APIError) -> None:
        """Report the first session of a namespace: others have the same trouble."""
        subject, namespace = record.session.subject, record.namespace
        kind = self._kinds.get(subject.resource)
        if kind is None or namespace in self._troubled:
            return
        self._troubled.add(namespace)
        try:
            machine = await self._storage.get(kind.resource, namespace, subject.machine, stale=True)
        except APIError:
            return
        message = f"console sessions are open that no ConsoleSession shows: {error.message}"
        self._recorder.record(machine, WARNING, NOT_SHOWN, message, resource=kind.resource)

    def _name(self, record: SessionRecord) -> None:
        if not record.name:
            record.name = names.generated(f"{record.session.subject.machine}-")
            self._named[record.namespace, record.name] = record

    def _unname(self, record: SessionRecord) -> None:
        self._named.pop((record.namespace, record.name), None)
        record.name = ""

    def _status(self, record: SessionRecord) -> Object:
        record.renewed_at = self._clock.seconds()
        lease = LEASE_RENEWALS * self._renew_seconds
        return record.status(self._role(record), self._now(), lease)

    @property
    def _renew_seconds(self) -> float:
        return max(RENEW_SECONDS, len(self._records) / RENEWALS_PER_SECOND)

    async def _renew(self, record: SessionRecord) -> None:
        if record.stored is None:
            return
        obj = record.renewed_object(record.stored, self.replica, self._status(record))
        try:
            record.stored = await self._storage.update(RESOURCE, obj)
        except (Conflict, NotFound):
            pass  # it is being deleted, or was; the store reports by whom

    async def _remove(self, stored: Object) -> None:
        for _ in range(_ATTEMPTS):
            try:
                await self._storage.delete(RESOURCE, stored)
                return
            except NotFound:
                return
            except Conflict:
                try:
                    stored = await self._storage.get(RESOURCE, *key_of(stored))
                except NotFound:
                    return

    # Events of the store

    def _changed(self, event: Event) -> None:
        who = event.obj.get("status", {}).get("endedBy")
        if who:
            self._sessions.refuse_resume(
                event.obj["spec"].get("session", ""), _deleted_by(event.obj)
            )
        record = self._record_of(event.obj)
        if record is not None:
            self._own_changed(record, event)
        elif event.type == DELETED:
            self._foreign.forget(event.obj)
        else:
            self._foreign.note(event.obj)

    def _own_changed(self, record: SessionRecord, event: Event) -> None:
        if event.type == DELETED:
            record.stored, record.gone = None, event.obj["metadata"]["uid"]
        is_ended = "endedBy" in event.obj.get("status", {})
        if record.away_since is None:
            if is_ended:
                user = one_line(event.obj["status"]["endedBy"])
                record.session.end(Ending(SESSION_DELETED, _deleted_by(event.obj), user=user))
            elif event.type == DELETED:
                self._queue.add_after(record, LOOK_SECONDS)  # unless the session ends soon
        elif is_ended or event.type == DELETED:
            self._end(record)  # or it was resumed at another server

    def _machine_changed(self, event: Event) -> None:
        uid = event.obj["metadata"].get("uid", "")
        writers = None if event.type == DELETED else writers_of(event.obj)
        if event.type == DELETED:
            self._end_absent(uid)
        if writers == self._writers.get(uid):
            return
        if writers is None:
            del self._writers[uid]
        else:
            self._writers[uid] = writers
        for record in list(self._records.values()):
            if record.session.subject.uid == uid and record.stored is not None:
                self._queue.add(record)

    def _end_absent(self, uid: str) -> None:
        for record in list(self._records.values()):
            if (
                record.away_since is not None
                and record.session.subject.uid == uid
                and record.is_live
            ):
                self._end(record)

    def _is_stale(self, record: SessionRecord) -> bool:
        return record.is_stale(self._role(record))

    def _role(self, record: SessionRecord) -> str | None:
        subject = record.session.subject
        writers = self._writers.get(subject.uid)
        if writers is None:
            return None
        return "Writer" if subject.session in writers else "Observer"

    def _record_of(self, obj: Object) -> SessionRecord | None:
        record = self._named.get(key_of(obj))
        if record is None or not record.is_live:
            return None
        return record if record.describes(obj) else None

    def _is_own(self, obj: Object) -> bool:
        return self._record_of(obj) is not None

    def _refused(self, key: object, error: APIError, failures: int) -> None:
        if not self._problem and self.running:
            self._log.warn("cannot write console sessions: {why}", why=error.message)
        self._problem = error.message


def _deleted_by(obj: Object) -> str:
    return f"{one_line(obj['status']['endedBy'])} deleted the console session {obj['metadata']['name']}"
