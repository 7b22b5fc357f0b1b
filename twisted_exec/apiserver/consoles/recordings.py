"""
The ConsoleRecordings that sessions need: those that are open, and new ones.

Sessions at one machine that need the same input share a recording.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLERECORDINGS, Object
from twisted_exec.api.kinds.consolerecordings import (
    CLOSED,
    DEFAULT_RETENTION_DAYS,
    FAILED,
    MOST_USERS,
    ended_spec,
    recording_of_query,
)
from twisted_exec.api.status import APIError, Conflict, NotFound, ServiceUnavailable
from twisted_exec.api.times import seconds, timestamp
from twisted_exec.apiserver.interfaces import RecordingDemand
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.apiserver.serving.verbs import OURSELVES, Verbs
from twisted_exec.auth.gate import Gate
from twisted_exec.program.tasks import as_deferred
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage, Listing
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import outcome

JOIN_SECONDS = 10.0
"""
Time after a noted session within which further sessions of the recording are usually not noted.
"""

_ATTEMPTS = 5
_LONGEST_NAME = 200
_OPTIONS = WriteOptions(manager=MANAGER)


@dataclass(frozen=True)
class SessionRecording:
    """
    The recording of a new session.

    :param term: of the session (:attr:`Terms.recording <twisted_exec.wire.session_terms.Terms>`); empty if the
        session may go on without the recording.
    :param recorded_input: the input that is recorded from the beginning of the session; empty if the session does not
        wait for its recording: a mark tells when that begins.
    """

    term: str = ""
    recorded_input: str = ""


class OpenRecordings(StoreFollower):
    """
    The open recordings of the machines of one API server.

    :param verbs: without admission.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(self, storage: IStorage, verbs: Verbs, now: Callable[[], float]) -> None:
        super().__init__(storage)
        self._verbs, self._now = verbs, now
        self._open: defaultdict[str, dict[Key, Object]] = defaultdict(dict)
        """By UID of the machine."""
        self._locks: dict[str, DeferredLock] = {}
        self._is_listed = False

    def followed(self) -> list[Followed]:
        return [Followed(CONSOLERECORDINGS.resource, self._changed, self._listed)]

    def _listed(self, listing: Listing) -> None:
        for obj in listing.items:
            self._changed(Event(ADDED, obj, None, listing.version))
        self._is_listed = True

    def _changed(self, event: Event) -> None:
        if event.type == DELETED:
            self._forget(event.obj)
        else:
            self._remember(event.obj)

    def _remember(self, recording: Object) -> None:
        uid, key = recording["spec"].get("machineUID", ""), key_of(recording)
        earlier = self._open[uid].get(key)
        if earlier is not None and _version(earlier) > _version(recording):
            return
        self._open[uid][key] = recording
        if not _is_open(recording):
            self._forget(recording)

    def _forget(self, recording: Object) -> None:
        uid = recording["spec"].get("machineUID", "")
        self._open[uid].pop(key_of(recording), None)
        if not self._open[uid]:
            del self._open[uid]

    async def for_session(
        self, context: RequestContext, dialect: Dialect, machine: Object, demand: RecordingDemand
    ) -> SessionRecording:
        """
        Join a recording, or create it.

        :raises APIError: the recording is required, and there is none.
        """
        user, reason = context.user.name, context.subject.reason
        known = self._known(machine, user, demand) if context.continues_session else None
        try:
            recording, is_new = (
                (known, False)
                if known is not None
                else await self.join(dialect, machine, user, demand, reason)
            )
        except APIError as error:
            if demand.is_required:
                raise
            self._log.warn("a console is not recorded: {why}", why=error.message)
            return SessionRecording()
        metadata = recording["metadata"]
        context.learn(recording=metadata["name"], recording_uid=metadata["uid"])
        if is_new:
            context.call_unopened(partial(self._abandon, recording, user))
        if demand.is_required:
            return SessionRecording(
                f"{metadata['uid']}/{recording['spec']['input']}", recorded_input=demand.input
            )
        return SessionRecording(recorded_input=demand.input if _has_begun(recording) else "")

    @as_deferred
    async def join(
        self, dialect: Dialect, machine: Object, user: str, demand: RecordingDemand, reason: str
    ) -> tuple[Object, bool]:
        """
        Return the recording of a machine that a new session needs; create it if there is none.

        :param machine: bound to a pool.
        :return: fires with the recording, and whether it was created.
        """
        uid, namespace = machine["metadata"]["uid"], machine["metadata"]["namespace"]
        lock = self._locks.setdefault(uid, DeferredLock())
        await lock.acquire()
        try:
            if not self._is_listed:
                raise ServiceUnavailable(
                    "the server does not know its ConsoleRecordings yet: try again"
                )
            for _ in range(_ATTEMPTS):
                recording = self._match(uid, demand)
                if recording is None:
                    draft = _draft(dialect, machine, user, demand, reason, self._now())
                    target = RequestTarget(CONSOLERECORDINGS, namespace)
                    new: Object = await self._verbs.create(OURSELVES, target, draft, _OPTIONS)
                    self._remember(new)
                    return new, True
                if (joined := await self._noted(recording, user, demand)) is not None:
                    return joined, False
            raise ServiceUnavailable("the recording keeps changing: try again")
        finally:
            lock.release()
            if not lock.locked:
                self._locks.pop(uid, None)

    def _known(self, machine: Object, user: str, demand: RecordingDemand) -> Object | None:
        """Return the recording in which an open session is noted, which need not wait for the store."""
        recording = self._match(machine["metadata"]["uid"], demand)
        if recording is None:
            return None
        last = seconds(recording["spec"]["lastSessionTime"])
        return recording if _joined(recording, user, demand, last) is None else None

    def _match(self, uid: str, demand: RecordingDemand) -> Object | None:
        matches = [
            recording
            for recording in self._open.get(uid, {}).values()
            if recording["spec"]["input"] == demand.input
        ]
        return max(
            matches, key=lambda recording: recording["metadata"]["creationTimestamp"], default=None
        )

    async def _noted(self, recording: Object, user: str, demand: RecordingDemand) -> Object | None:
        spec = _joined(recording, user, demand, self._now())
        if spec is None:
            return recording
        updated = {**recording, "metadata": {**recording["metadata"]}, "spec": spec}
        try:
            stored: Object = await self._storage.update(CONSOLERECORDINGS.resource, updated)
        except (Conflict, NotFound):
            await self._read_again(recording)
            return None
        # The next session may come before the watch delivers the update.
        self._remember(stored)
        return stored

    def _abandon(self, recording: Object, user: str, problem: BaseException) -> None:
        _, refusal = outcome(problem)
        why = f'the session of user "{user}" was not opened: {refusal}'
        Deferred.fromCoroutine(self._delete_or_end(recording, why)).addErrback(
            lambda failure: self._log.failure("cannot delete a console recording", failure)
        )

    async def _delete_or_end(self, recording: Object, why: str) -> None:
        present = recording
        try:
            for _ in range(_ATTEMPTS):
                if await self._delete_or_end_now(present, why):
                    return
                present = await self._storage.get(CONSOLERECORDINGS.resource, *key_of(recording))
                if present["spec"] != recording["spec"]:
                    return  # other sessions have joined it: the controller ends it
        except NotFound:
            self._forget(recording)

    async def _delete_or_end_now(self, recording: Object, why: str) -> bool:
        try:
            if _has_begun(recording):
                await self._end(recording, why)
            else:
                await self._storage.delete(CONSOLERECORDINGS.resource, recording)
                self._forget(recording)
        except Conflict:
            return False
        return True

    async def _end(self, recording: Object, why: str) -> None:
        spec = ended_spec(recording["spec"], self._now(), why)
        ended = {**recording, "metadata": {**recording["metadata"]}, "spec": spec}
        self._remember(await self._storage.update(CONSOLERECORDINGS.resource, ended))

    async def _read_again(self, recording: Object) -> None:
        try:
            stored = await self._storage.get(CONSOLERECORDINGS.resource, *key_of(recording))
        except NotFound:
            self._forget(recording)
            return
        self._remember(stored)


async def session_demand(
    context: RequestContext, gate: Gate, machine: Object, demand: RecordingDemand | None
) -> RecordingDemand | None:
    """
    Combine the policies' demand with that of the user.

    :raises APIError: the user's demand is refused.
    """
    input = context.demanded_input or recording_of_query(context.request.args)
    if not input:
        return demand
    target = RequestTarget(CONSOLERECORDINGS, machine["metadata"]["namespace"])
    await gate.authorize(attributes_of(context.user, "create", target))
    own = RecordingDemand(input, is_required=True)
    return own if demand is None else own.stricter(demand)


def _is_open(recording: Object) -> bool:
    spec, phase = recording["spec"], recording.get("status", {}).get("phase")
    is_over = spec.get("ended") or phase in (CLOSED, FAILED)
    return bool(
        spec.get("endsWithSessions")
        and not is_over
        and "deletionTimestamp" not in recording["metadata"]
    )


def _draft(
    dialect: Dialect, machine: Object, user: str, demand: RecordingDemand, reason: str, now: float
) -> Object:
    metadata = machine["metadata"]
    return {
        "metadata": {
            "generateName": f"{metadata['name'][:_LONGEST_NAME]}-",
            "namespace": metadata["namespace"],
        },
        "spec": {
            "machine": metadata["name"],
            "machineResource": dialect.workload.qualified,
            "machineUID": metadata["uid"],
            "pool": dialect.pool_name(machine),
            "input": demand.input,
            "reason": reason,
            "retentionDays": demand.retention_days or DEFAULT_RETENTION_DAYS,
            "user": user,
            "users": [user],
            "policies": list(demand.policies),
            "endsWithSessions": True,
            "lastSessionTime": timestamp(now),
        },
    }


def _joined(recording: Object, user: str, demand: RecordingDemand, now: float) -> Object | None:
    spec = recording["spec"]
    users = list(spec.get("users", ()))
    if user not in users and len(users) < MOST_USERS:
        users.append(user)
    joined = {
        **spec,
        "users": users,
        "policies": sorted({*spec.get("policies", ()), *demand.policies}),
        "retentionDays": max(spec["retentionDays"], demand.retention_days or 1),
    }
    last = seconds(spec["lastSessionTime"])
    is_noted = now - last < JOIN_SECONDS
    if not _has_begun(recording):
        # It is deleted with its first session, unless the spec shows that there is another
        # session.
        is_noted, now = False, max(now, last + 1)
    if is_noted and joined == {"policies": [], **spec}:
        return None
    return {**joined, "lastSessionTime": timestamp(now)}


def _has_begun(recording: Object) -> bool:
    return "phase" in recording.get("status", {})


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
