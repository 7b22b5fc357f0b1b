"""
An event recorder: Events about objects, for their users.

An Event never delays or breaks other work: it is repeated for a while after temporary errors, and
dropped otherwise.  Only :meth:`Recorder.write` waits for the server and fails.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.kinds import EVENT_SECONDS, EVENTS
from twisted_exec.api.kinds.events import cut_message, new_event
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import AlreadyExists, APIError, Forbidden, NotFound, one_line
from twisted_exec.api.times import timestamp
from twisted_exec.control.backoff import Backoff
from twisted_exec.kube.interfaces import IObjectClient, Object
from twisted_exec.program.tasks import settled

MAX_KEPT = 1024
"""Size of the caches of Events, objects and reasons."""
BURST = 25
"""Burst of Events of one object; after that one more each :data:`REFILL_SECONDS`."""
REFILL_SECONDS = 300.0
MAX_SIMILAR = 10
"""Different messages of one object and reason within :data:`SIMILAR_SECONDS` before they are combined."""
SIMILAR_SECONDS = 600.0

_COMBINED = "(combined from similar events): "
_ATTEMPTS = 12
_LOOK_SECONDS, _LOOKS = 0.25, 8
"""Events wait at most two seconds for more important work."""

_Key = tuple[str, str, str, str | None]
"""UID, type, reason and message; ``None`` for combined messages."""

_AnyKey = TypeVar("_AnyKey")
_Value = TypeVar("_Value")


@dataclass
class _RecordedEvent:
    body: Object
    namespace: str
    count: int = 0
    written: int = 0
    """How much of ``count`` the server has."""
    exists: bool = False
    failures: int = 0


@dataclass
class _Similar:
    since: float
    messages: set[str]


@dataclass
class _Bucket:
    left: float
    at: float


class EventLimit:
    """Limits the Events of each object."""

    def __init__(self, refill_seconds: float, most_objects: int) -> None:
        self._refill_seconds, self._most_objects = refill_seconds, most_objects
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def allow(self, uid: str, now: float) -> bool:
        """
        Count one more Event of an object, if it may have one; return whether it may.

        :param now: in seconds, of a monotonic clock.
        """
        bucket = self._buckets.setdefault(uid, _Bucket(BURST, now))
        self._buckets.move_to_end(uid)
        if len(self._buckets) > self._most_objects:
            self._buckets.popitem(last=False)
        bucket.left = min(BURST, bucket.left + (now - bucket.at) / self._refill_seconds)
        bucket.at = now
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True


class Recorder:
    """
    Writes Events about objects, asynchronously.

    :param about: the kind of the objects; :meth:`record` can name another for an object.
    :param host: the instance of ``component``, whose Events are its own in each run.  Empty for
        replicas of one program: all of them, also later, increase the count of the same Event,
        which they read for this.
    :param busy: returns whether Events should wait for more important work.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        client: IObjectClient,
        clock: IReactorTime,
        *,
        about: Resource,
        component: str,
        host: str = "",
        now: Callable[[], float] = time.time,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client, self._clock, self._now, self._busy = client, clock, now, busy
        self._about, self._component, self._host = about, component, host
        self._records: OrderedDict[_Key, _RecordedEvent] = OrderedDict()
        self._limit = EventLimit(REFILL_SECONDS, MAX_KEPT)
        self._similar: OrderedDict[tuple[str, str, str], _Similar] = OrderedDict()
        self._waiting: dict[_Key, None] = {}
        self._writing: Deferred[None] | None = None
        self._stopped = False
        self._problem = 0
        """Code of the last refusal that was logged; 0 after a success."""

    def record(
        self,
        about: Object,
        type: str,
        reason: str,
        message: str,
        *,
        at: float | None = None,
        resource: Resource | None = None,
    ) -> None:
        """
        Record an Event.

        :param at: time in seconds since the epoch, by default now.
        :param resource: the kind of ``about``, if it is not the usual one.
        """
        key = self._counted(about, type, reason, message, at, resource or self._about)
        if key is None:
            return
        self._waiting[key] = None
        if self._writing is None:
            self._writing = Deferred.fromCoroutine(self._write())
            self._writing.addErrback(self._failed).addBoth(self._written)

    async def write(self, about: Object, type: str, reason: str, message: str) -> None:
        """
        Record an Event, and wait until the server has it.

        Nothing is repeated or logged: the caller knows how long others of the kind should wait.

        :raises APIError: the server does not take it.
        """
        key = self._counted(about, type, reason, message, None, self._about)
        if key is None:
            return
        try:
            await self._put(self._records[key])
        except APIError:
            self._records.pop(key, None)
            raise

    def _counted(
        self,
        about: Object,
        type: str,
        reason: str,
        message: str,
        at: float | None,
        resource: Resource,
    ) -> _Key | None:
        """Return the key of the Event to write, now counted; ``None`` if it may not be written."""
        uid, now = about["metadata"]["uid"], self._now()
        at = now if at is None else min(max(at, 0.0), now)
        if (
            self._stopped
            or now - at > EVENT_SECONDS
            or not self._limit.allow(uid, self._clock.seconds())
        ):
            return None
        message = one_line(message)
        key: _Key = (uid, type, reason, message)
        if not self._add_similar(uid, type, reason, message):
            key, message = (uid, type, reason, None), _COMBINED + message
        record = self._records.get(key)
        if record is None:
            body = new_event(
                about,
                resource,
                (key, at) if self._host else (self._component, key),
                type=type,
                reason=reason,
                component=self._component,
                host=self._host,
                at=at,
            )
            record = _RecordedEvent(body, body["metadata"]["namespace"])
            if (forgotten := _keep(self._records, key, record)) is not None:
                self._waiting.pop(forgotten, None)
        self._records.move_to_end(key)
        record.count += 1
        record.body |= {
            "message": cut_message(message),
            "count": record.count,
            "lastTimestamp": timestamp(at),
        }
        return key

    def start(self) -> None:
        """Record again after :meth:`stop`."""
        self._stopped = False

    def stop(self) -> Deferred[Any]:
        """Stop; fires when no request is pending."""
        self._stopped = True
        self._waiting.clear()
        writing = [self._writing] if self._writing is not None else []
        for each in writing:
            each.cancel()
        return DeferredList(writing)

    def _add_similar(self, uid: str, type: str, reason: str, message: str) -> bool:
        """Add a message to the similar ones; return false if there are too many."""
        now, key = self._clock.seconds(), (uid, type, reason)
        lately = self._similar.get(key)
        if lately is None or now - lately.since > SIMILAR_SECONDS:
            lately = _Similar(now, set())
            _keep(self._similar, key, lately)
        self._similar.move_to_end(key)
        if message in lately.messages:
            return True
        if len(lately.messages) >= MAX_SIMILAR:
            return False
        lately.messages.add(message)
        return True

    async def _write(self) -> None:
        # Not a WorkQueue: Events wait in one line, and after a failure all wait for the server.
        for _ in range(_LOOKS):
            if not self._busy():
                break
            await deferLater(self._clock, _LOOK_SECONDS)
        backoff = Backoff()
        while self._waiting:
            key = next(iter(self._waiting))
            del self._waiting[key]
            record = self._records.get(key)
            if record is None:
                continue
            try:
                await self._put(record)
                self._problem = 0
                record.failures = 0
                backoff.reset()
            except APIError as error:
                self._refused(key, record, error)
                if key in self._waiting:
                    await deferLater(self._clock, backoff.pause())

    def _refused(self, key: _Key, record: _RecordedEvent, error: APIError) -> None:
        record.failures += 1
        if error.code in (429, *range(500, 600)) and record.failures < _ATTEMPTS:
            self._waiting[key] = None
        else:
            self._records.pop(key, None)
        # A namespace that is being deleted answers 403 (admission plugin NamespaceLifecycle), and so
        # does an API server of ours to a poollet whose machine is gone.
        is_missing_right = 'resource "events"' in error.message  # the words of RBAC
        if error.code != NotFound.code and (error.code != Forbidden.code or is_missing_right):
            self._tell_operator(error)

    async def _put(self, record: _RecordedEvent) -> None:
        count = record.count
        if not record.exists or not await self._try_patch(record):
            try:
                await settled(
                    self._client.create(EVENTS.resource, {**record.body}, record.namespace)
                )
            except APIError as error:
                if error.reason != AlreadyExists.reason:
                    raise
                await self._patch(record)
        record.exists, record.written = True, count

    async def _try_patch(self, record: _RecordedEvent) -> bool:
        """Patch an Event; return false if it was deleted meanwhile."""
        try:
            await self._patch(record)
        except APIError as error:
            if error.code != NotFound.code:
                raise
            return False
        return True

    async def _patch(self, record: _RecordedEvent) -> None:
        patch = {key: record.body[key] for key in ("count", "lastTimestamp", "message")}
        name = record.body["metadata"]["name"]
        if not self._host:
            old = await settled(self._client.get(EVENTS.resource, name, record.namespace))
            patch["count"] = old.get("count", 1) + record.count - record.written
        await settled(self._client.patch(EVENTS.resource, name, patch, record.namespace))

    def _tell_operator(self, problem: APIError) -> None:
        # Compared by code, because messages name namespaces.
        if problem.code != self._problem:
            why = problem.message
            if problem.code == Forbidden.code:
                # An Event of several replicas is read before it is patched.
                verbs = "create and patch" if self._host else "get, create and patch"
                why += f"; allow its user to {verbs} events"
            self._log.warn(
                "events of {component} about {about} cannot be written: {why}",
                component=self._component,
                about=self._about.plural,
                why=why,
            )
        self._problem = problem.code

    def _written(self, _: object) -> None:
        self._writing = None

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("writing events failed", failure)


def _keep(records: OrderedDict[_AnyKey, _Value], key: _AnyKey, value: _Value) -> _AnyKey | None:
    """Add a record; return the key of the oldest one, if it had to go."""
    records[key] = value
    return records.popitem(last=False)[0] if len(records) > MAX_KEPT else None
