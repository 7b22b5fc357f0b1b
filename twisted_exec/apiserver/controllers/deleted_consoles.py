"""
The controller that creates the DeletedConsoles of deleted machines, and deletes them when they expire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import (
    DELETEDCONSOLES,
    Object,
)
from twisted_exec.api.kinds.deletedconsoles import name_of
from twisted_exec.api.kinds.events import WARNING
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import AlreadyExists, APIError, Forbidden, NotFound
from twisted_exec.api.times import seconds, timestamp
from twisted_exec.apiserver.controllers.expiry import (
    DAY_SECONDS,
    ExpiryCandidates,
    ExpiryController,
    delete_all,
)
from twisted_exec.apiserver.serving.client import own_recorder
from twisted_exec.apiserver.serving.namespace_check import is_terminating
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import OURSELVES, Verbs
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.storage.follower import Followed, listed_as_added
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage

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
            "expirationTime": timestamp(now + days * DAY_SECONDS),
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
