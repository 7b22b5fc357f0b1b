"""
Create a DeletedConsole for each deleted machine, and delete it after some days.

It is created when the deletion of the machine begins, because a machine without finalizers is gone
with the next event, and again, if it is missing, when the machine is gone.  A server that was down
meanwhile finds the machines that still wait for their poollet; of others the output is not found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import DELETEDCONSOLES, Object
from twisted_exec.api.kinds.deleted_consoles import name_of
from twisted_exec.api.status import AlreadyExists, Forbidden, NotFound
from twisted_exec.api.times import seconds, timestamp
from twisted_exec.apiserver.controllers.coalescing import CoalescedRuns
from twisted_exec.apiserver.controllers.deletion import Expired, ExpiryController, delete_all
from twisted_exec.apiserver.controllers.event_recorder import OURSELVES
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.verbs import Target, Verbs
from twisted_exec.storage.follower import Followed, listed_as_added
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage

MOST_OBJECTS = 20_000
"""Limit for all namespaces together; beyond it the oldest are deleted early."""
DEFAULT_DAYS = 7

_DAY_SECONDS = 86_400
_OPTIONS = WriteOptions(manager=MANAGER)


class DeletedConsoles(ExpiryController):
    """
    Creates and expires the DeletedConsoles of one server; runs on the leader only.

    :param storage: started before this service is.
    :param verbs: without admissions.
    :param now: seconds since the epoch.
    :param days: lifetime of the objects.
    """

    _log = Logger()
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
    ) -> None:
        super().__init__(storage, clock)
        self._dialects, self._verbs = dialects, verbs
        self._now, self._days = now, days
        self._most_objects = most_objects
        self._missing: deque[Object] = deque()
        self._expiries: dict[Key, float] = {}  # oldest first
        self._expired = Expired[Key](clock)
        self._runs = CoalescedRuns(self._create_missing, self._failed, self._create_soon)

    def stopService(self) -> None:
        """Stop following the store."""
        super().stopService()
        self._missing.clear()
        self._expiries.clear()
        self._expired.clear()

    def followed(self) -> list[Followed]:
        """See :meth:`StoreFollower.followed`."""
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
        machine, pool = event.obj, dialect.pool_name(event.obj)
        ending = event.type == DELETED or "deletionTimestamp" in machine["metadata"]
        if not ending or not pool or self._days <= 0:
            return
        metadata = machine["metadata"]
        if (metadata["namespace"], name_of(machine)) in self._expiries:
            return
        deleted_at = metadata.get("deletionTimestamp") or timestamp(self._now())
        self._missing.append(
            {
                "metadata": {"name": name_of(machine), "namespace": metadata["namespace"]},
                "spec": {
                    "machine": metadata["name"],
                    "machineResource": dialect.workload.qualified,
                    "machineUID": metadata["uid"],
                    "pool": pool,
                    "deletionTime": deleted_at,
                    "expirationTime": timestamp(self._now() + self._days * _DAY_SECONDS),
                },
            }
        )
        self._runs.ask()

    def _create_soon(self) -> None:
        self._runs.ask()

    async def _create_missing(self) -> None:
        while self._missing and self.running:
            draft = self._missing[0]
            target = Target(DELETEDCONSOLES, draft["metadata"]["namespace"])
            try:
                await self._verbs.create(OURSELVES, target, draft, _OPTIONS)
            except (AlreadyExists, NotFound, Forbidden):
                pass  # made before, or the namespace is being deleted, or is full
            if self._missing and self._missing[0] is draft:
                self._missing.popleft()
        if len(self._expiries) > self._most_objects:
            await self._look()

    def look(self) -> Deferred[None]:
        """Create what could not be created, and delete expired objects.  Never fails."""
        if self._missing:
            self._runs.ask()
        return super().look()

    async def _look(self) -> None:
        now = self._now()
        over = self._expired.due(key for key, until in self._expiries.items() if until <= now)
        surplus = len(self._expiries) - len(over) - self._most_objects
        if surplus > 0:
            rest = sorted(self._expiries.keys() - set(over), key=self._expiries.__getitem__)
            over += rest[:surplus]
        await delete_all(self._storage, DELETEDCONSOLES.resource, over)
