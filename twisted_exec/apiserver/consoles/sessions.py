"""
ConsoleSession objects, which show the sessions at the consoles of this control plane.

Each server writes the ConsoleSessions of its sessions (:class:`SessionObjects`), and ends sessions
whose objects a user deletes.

An object is created a moment after its session, and the shortest sessions have none.  A session
that its user can resume keeps its object for some time when the connection is lost.
"""

from __future__ import annotations

import copy
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api import names
from twisted_exec.api.conditions import writers_of
from twisted_exec.api.kinds import CONSOLESESSIONS, Kind, Object
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
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.interfaces import IAdmission
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.verbs import Verbs, check_namespace, is_terminating
from twisted_exec.auth.interfaces import User
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.metrics import UNREAD, QueueMetrics, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.control.runs import readable
from twisted_exec.kube.recorder import Recorder
from twisted_exec.program.turns import SharedTurns
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, Listing
from twisted_exec.streaming.interfaces import SESSION_DELETED, Ending
from twisted_exec.streaming.sessions.registry import Life, Session, Sessions
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.resume import UNCONFIRMED_SECONDS

_RESOURCE = CONSOLESESSIONS.resource
_MOST_AGENT = 128
"""Bytes of a client's ``User-Agent`` that are shown."""
_Counts = tuple[int, int]


class SessionRecord:
    """
    One session, and its object.

    :ivar gone: UID of the last object that was deleted by others.
    :ivar away_since: when the connection was lost; ``None`` while the user is connected.
    :ivar away_until: when the user can no longer come back, in seconds of the reactor's clock.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.namespace = session.subject.namespace
        self.name = ""
        self.stored: Object | None = None
        self.live = True
        self.gone = ""
        self.renewed_at = 0.0
        self.away_since: float | None = None
        self.away_until = math.inf
        self._written: tuple[object, ...] | None = None  # in the last write, also if that failed
        self._before: _Counts = (0, 0)  # bytes of former connections
        self._former = ""  # the id of the former connection

    def __repr__(self) -> str:
        return f"session {self.id}"

    @property
    def id(self) -> str:
        return self.session.id

    def describes(self, obj: Object) -> bool:
        """Return whether an object is the one of this session."""
        return obj["spec"].get("session") in (self.id, self._former or self.id)

    def can_go_on(self, session: Session) -> bool:
        """Return whether another session resumes this session."""
        subject, own = session.subject, self.session.subject
        is_same = (subject.user, subject.uid, subject.namespace) == (
            own.user,
            own.uid,
            own.namespace,
        )
        return is_same and self.live and session.resumes == self.id

    def go_on(self, session: Session) -> None:
        """The user has resumed the session over another connection."""
        if self.away_since is None:
            self._before = self._counts()
        self.away_since, self.away_until = None, math.inf
        self._former, self.session = self.id, session

    @property
    def wait_seconds(self) -> int:
        """How long the runtime keeps the session after a loss of the connection."""
        seconds = self.session.resumable_seconds
        to_machine, _ = self._counts()
        # A session that resumes another one was confirmed before, perhaps at another server.
        is_confirmed = to_machine > 0 or bool(self.session.resumes)
        return seconds if is_confirmed else min(seconds, UNCONFIRMED_SECONDS)

    def lost(self, now: float, until: float) -> None:
        """The connection is lost, and the user may come back."""
        self._before = self._counts()
        self.away_since, self.away_until = now, until

    def _counts(self) -> _Counts:
        to_machine, to_user = (0, 0) if self.away_since is not None else self.session.counts()
        return self._before[0] + to_machine, self._before[1] + to_user

    def is_stale(self, role: str | None) -> bool:
        """Return whether the last write lacks a change."""
        return self._written != self._facts(role)

    def _facts(self, role: str | None) -> tuple[object, ...]:
        return role, self.id, self.away_since

    def new_object(self, replica: str, status: Object, now: float) -> Object:
        """Return the object as the verbs would create it."""
        return {
            "apiVersion": _RESOURCE.api_version,
            "kind": _RESOURCE.kind,
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": timestamp(now),
            },
            "spec": self._spec(replica),
            "status": status,
        }

    def renewed_object(self, stored: Object, replica: str, status: Object) -> Object:
        """Return the object for a write."""
        if stored["spec"].get("session") == self.id:
            return {**stored, "status": status}
        return {**stored, "spec": self._spec(replica), "status": status}

    def status(self, role: str | None, now: float, lease_seconds: float) -> Object:
        """Return the status for a write, and take note of it."""
        self._written = self._facts(role)
        to_machine, to_user = self._counts()
        away = {} if self.away_since is None else {"awaySince": timestamp(self.away_since)}
        return {
            **({"role": role} if role else {}),
            "resumable": bool(self.session.resumable_seconds),
            **away,
            "bytesToMachine": to_machine,
            "bytesToUser": to_user,
            "renewTime": timestamp(now),
            "leaseDurationSeconds": int(lease_seconds),
        }

    def _spec(self, replica: str) -> Object:
        session, subject = self.session, self.session.subject
        options = session.request.options
        mode = "Drive" if options.takes_input else "Watch"
        spec = {
            "session": subject.session,
            "user": subject.user,
            "caller": subject.caller,
            "machine": subject.machine,
            "machineResource": subject.resource,
            "machineUID": subject.uid,
            "pool": subject.pool,
            "mode": "TakeOver" if options.takes_input and options.force else mode,
            "via": session.request.via,
            "address": subject.address,
            "protocol": session.protocol,
            "agent": _printable(subject.agent),
            "recording": subject.recording,
            "replica": replica,
        }
        return {key: value for key, value in spec.items() if value}


def _printable(agent: str) -> str:
    """Return a client's ``User-Agent``, whose bytes are Latin-1 here, as far as it can be shown."""
    return one_line(agent[:_MOST_AGENT].encode("latin-1").decode("utf-8", "replace"))


def is_absent(obj: Object) -> bool:
    """Return whether the user of an object's session may still come back."""
    status = obj.get("status", {})
    return "awaySince" in status and "endedBy" not in status


REMOVALS_AT_ONCE = 5
"""Objects that are deleted at once in each :data:`REMOVAL_PAUSE_SECONDS`."""
REMOVAL_PAUSE_SECONDS = 1.0
"""Delay before the first of the other deletions."""
REMOVALS_PER_SECOND = 150
"""Limit for the other deletions."""


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


RENEW_SECONDS = 20.0
"""Interval between two renewals of an object, with few sessions."""
LEASE_RENEWALS = 3
"""Number of missed renewals after which an object is deleted."""


_Key = tuple[str, str]


class ForeignObjects:
    """
    The objects of other servers, as one server knows them.

    An object that is not renewed in the time that it states is deleted.  Each server notes the last
    changes by its own clock.
    """

    def __init__(
        self,
        storage: IStorage,
        clock: IReactorTime,
        is_own: Callable[[Object], bool],
        refused: Callable[[object, APIError, int], None],
        metrics: QueueMetrics,
    ) -> None:
        self._storage, self._clock, self._is_own = storage, clock, is_own
        self._expiry: dict[_Key, float] = {}
        self._absent: dict[_Key, str] = {}  # the sessions of absent users
        self._resumed_here: dict[str, Session] = {}  # by the id of the previous session
        self._queue: WorkQueue[_Key] = WorkQueue(self._check, clock, refused, metrics=metrics)

    def start(self) -> None:
        """Delete objects from now on."""
        self._queue.start()

    def stop(self) -> Deferred[None]:
        """Forget all objects."""
        self._expiry.clear()
        self._absent.clear()
        return self._queue.stop()

    def note(self, obj: Object, *, expires: bool = False) -> None:
        """
        Take note of a new or renewed object.

        :param expires: it is to be deleted.
        """
        key = key_of(obj)
        seconds = obj.get("status", {}).get("leaseDurationSeconds")
        if not isinstance(seconds, int) or seconds <= 0:
            seconds = int(LEASE_RENEWALS * RENEW_SECONDS)
        seconds = 0 if expires else seconds
        self._expiry[key] = self._clock.seconds() + seconds
        self._queue.add_after(key, seconds)
        if is_absent(obj):
            absent = obj["spec"].get("session", "")
            self._absent[key] = absent
            if (session := self._resumed_here.get(absent)) is not None:
                self.resumed(session)  # its user was faster than the other server
        else:
            self._absent.pop(key, None)

    def forget(self, obj: Object) -> None:
        """Take note of a deletion."""
        self._expiry.pop(key_of(obj), None)
        self._absent.pop(key_of(obj), None)
        self._queue.forget(key_of(obj))

    async def _check(self, key: _Key) -> float | None:
        session = self._resumed_here.get(self._absent.get(key, ""))
        if session is not None:
            await self._remove_absent(key, session)
        until = self._expiry.get(key)
        if until is None:
            return None
        seconds = until - self._clock.seconds()
        if seconds <= 0:
            await self._delete_expired(key, until)
            return None
        return seconds

    async def _delete_expired(self, key: _Key, until: float) -> None:
        try:
            obj = await self._storage.get(_RESOURCE, *key)
            if not self._is_own(obj) and self._expiry.get(key) == until:
                await self._storage.delete(_RESOURCE, obj)
        except (NotFound, Conflict):
            pass
        if self._expiry.get(key) == until:
            del self._expiry[key]

    # Users who were at another server before.

    def resumed(self, session: Session) -> None:
        """Delete the object that another server keeps for the absent user of a session."""
        if not session.resumes:
            return
        self._resumed_here[session.resumes] = session
        keys = (key for key, absent in self._absent.items() if absent == session.resumes)
        if (key := next(keys, None)) is not None:
            self._queue.hurry(key)

    async def _remove_absent(self, key: _Key, session: Session) -> None:
        try:
            obj = await self._storage.get(_RESOURCE, *key)
            spec, subject = obj["spec"], session.subject
            facts = (spec.get("session"), spec.get("user", ""), spec.get("machineUID", ""))
            if facts == (session.resumes, subject.user, subject.uid) and is_absent(obj):
                await self._storage.delete(_RESOURCE, obj)
        except (NotFound, Conflict):
            pass  # it has changed, or its time is over

    def ended(self, session: Session) -> None:
        """Take note of the end of a session."""
        if self._resumed_here.get(session.resumes) is session:
            del self._resumed_here[session.resumes]


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


RENEWALS_PER_SECOND = 20
"""Limit for all renewals together: with many sessions the interval becomes longer."""
LOOK_SECONDS = 5.0
"""Longest pause before another attempt to write an object."""
NOT_SHOWN = "SessionNotShown"
"""Reason of the Event about a machine if the ConsoleSession of a session cannot be created."""
CREATE_SECONDS = 0.25
"""Delay before the object of a new session is created."""
MOST_PREDECESSORS = 256
"""The most servers whose objects outlast the start of their successors, the latest first."""

_ATTEMPTS = 5
_STOP_SECONDS = 3.0
_WORKERS = 64
"""Objects that are written concurrently: a store writes many in one transaction."""


class SessionObjects(StoreFollower):
    """
    Maintains the ConsoleSessions of this server, and deletes those of dead servers.

    :param sessions: this service becomes their watcher.
    :param exclusive: no other server uses the store, so objects from before the start are usually
        stale.
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
        self._predecessors: tuple[str, ...] = ()
        self._problem = ""
        self._recorder, self._kinds = recorder, kinds
        self._troubled: set[str] = set()
        """Namespaces of which an Event tells that an object cannot be created."""
        self._pace = WritePace(clock)
        sessions.watcher = self

    def inherit(self, replicas: Sequence[str]) -> None:
        """Take note of the predecessors that may still have sessions, before the start."""
        self._predecessors = tuple(replicas[:MOST_PREDECESSORS])

    @property
    def replicas(self) -> Sequence[str]:
        """The names of this server and its predecessors, the latest first."""
        return [self.replica, *self._predecessors]

    def resumable(self, session: str, user: str, uid: str) -> Subject | None:
        """
        Return the subject of a session that its user can resume at this server; ``None`` for others,
        also if it began at another server.

        :param session: its id.
        :param uid: of the machine.
        """
        record = self._resumable.get(session)
        if record is None or not record.live:
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
            if record.live and record.away_since is None:
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
            Followed(_RESOURCE, self._changed, self._listed),
            *(Followed(each, self._machine_changed, machines) for each in self._machines),
        )

    def _listed(self, listing: Listing) -> None:
        for obj in listing.items:
            is_stale = self._is_exclusive and obj["spec"].get("replica") not in self._predecessors
            self._foreign.note(obj, expires=is_stale)

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
        if session.life is Life.LOST or self._sessions.is_being_resumed(session.subject):
            self._lost(record)
        else:
            self._end(record)

    def _lost(self, record: SessionRecord) -> None:
        record.lost(self._now(), self._clock.seconds() + record.wait_seconds)
        is_shown = record.stored is not None
        self._queue.add_after(record, self._delay_of(record) if is_shown else CREATE_SECONDS)

    def _end(self, record: SessionRecord) -> None:
        record.live = False
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
                record.live = False
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
                if record.live and (step is Step.WAIT or record.stored is None):
                    return self._next_look(record)

    def _state(self, record: SessionRecord) -> SessionState:
        now = self._clock.seconds()
        return SessionState(
            is_live=record.live,
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
                stored = await self._storage.create(_RESOURCE, obj)
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
            record.stored = await self._storage.update(_RESOURCE, obj)
        except (Conflict, NotFound):
            pass  # it is being deleted, or was; the store reports by whom

    async def _remove(self, stored: Object) -> None:
        for _ in range(_ATTEMPTS):
            try:
                await self._storage.delete(_RESOURCE, stored)
                return
            except NotFound:
                return
            except Conflict:
                try:
                    stored = await self._storage.get(_RESOURCE, *key_of(stored))
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
                record.session.end(Ending(SESSION_DELETED, _deleted_by(event.obj)))
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
            if record.away_since is not None and record.session.subject.uid == uid and record.live:
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
        if record is None or not record.live:
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


class SessionVerbs(Verbs):
    """
    The verbs on console sessions: a deletion writes the user into the object.

    Clients only read and delete these objects.
    """

    def __init__(
        self,
        storage: IStorage,
        admissions: Sequence[IAdmission],
        now: Callable[[], float],
        *,
        turns: SharedTurns | None = None,
    ) -> None:
        super().__init__(storage, admissions, now, turns=turns)
        self._sessions = storage

    async def remove(
        self, user: User, kind: Kind, old: Object, options: WriteOptions
    ) -> tuple[Object, bool]:
        if options.dry_run:
            return old, True
        noted = copy.deepcopy(old)
        noted.setdefault("status", {})["endedBy"] = user.name
        stored = await self._sessions.update(_RESOURCE, noted)
        try:
            return await self._sessions.delete(_RESOURCE, stored), True
        except NotFound:
            return stored, True  # the carrying server was faster
