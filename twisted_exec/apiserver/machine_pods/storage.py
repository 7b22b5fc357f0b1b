"""
A read-only store of the Pods that machines are shown as.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import PODS
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Expired
from twisted_exec.apiserver.machine_pods.conversion import Host, host_of, pod_of
from twisted_exec.apiserver.machine_pods.names import PodNames
from twisted_exec.program.turns import ShortTurns
from twisted_exec.storage.delegating import ReadOnlyStorage
from twisted_exec.storage.history import History, Key, key_of, table_of
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    Event,
    IStorage,
    IWatch,
    Listing,
)
from twisted_exec.storage.interfaces import Object as StoredObject
from twisted_exec.storage.write_checks import versioned

READ_ONLY = "pods here are machines, seen by clients that know only pods, and are read-only"


_Take = Callable[[Event], None]
_Apply = Callable[[str, StoredObject, int], None]
"""Called with the type of a change, the Pod, and the version."""


class _Machines:
    def __init__(self, dialect: Dialect, names: PodNames, pools: Listing) -> None:
        self._dialect, self._names = dialect, names
        self._pools = {pool["metadata"]["name"]: pool for pool in pools.items}
        self._hosts: dict[str, Host] = {}
        self._machines: dict[str, dict[Key, StoredObject]] = {}

    def first(self, machine: StoredObject) -> StoredObject:
        self._keep(machine)
        sources = (machine, self._pools.get(self._pool(machine)))
        versions = [int(each["metadata"]["resourceVersion"]) for each in sources if each]
        return versioned(self._pod(machine), max(versions))

    def _pod(self, machine: StoredObject) -> StoredObject:
        name = self._names.pod(self._dialect, machine["metadata"]["name"])
        return pod_of(machine, self._host(self._pool(machine)), self._dialect, name)

    def _pool(self, machine: StoredObject) -> str:
        return self._dialect.pool_name(machine)

    def _host(self, name: str) -> Host:
        if name not in self._hosts:
            self._hosts[name] = host_of(name, self._pools.get(name), self._dialect.pool_noun)
        return self._hosts[name]

    def _keep(self, machine: StoredObject) -> None:
        self._machines.setdefault(self._pool(machine), {})[key_of(machine)] = machine

    def _drop(self, machine: StoredObject) -> None:
        pool = self._pool(machine)
        machines = self._machines[pool]
        del machines[key_of(machine)]
        if not machines:
            del self._machines[pool]
            self._hosts.pop(pool, None)

    def followed(self, apply: _Apply) -> tuple[tuple[Resource, _Take], ...]:
        return (
            (self._dialect.workload, partial(self._machine_changed, apply)),
            (self._dialect.pool, partial(self._pool_changed, apply)),
        )

    def _machine_changed(self, apply: _Apply, event: Event) -> None:
        if event.previous is not None:
            self._drop(event.previous)
        if event.type != DELETED:
            self._keep(event.obj)
        apply(event.type, self._pod(event.obj), event.version)

    def _pool_changed(self, apply: _Apply, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        if event.type == DELETED:
            self._pools.pop(name, None)
        else:
            self._pools[name] = event.obj
        if name not in self._machines:
            return
        before = self._host(name)
        del self._hosts[name]
        # Most changes of a pool are heartbeats.
        if self._host(name) != before:
            for machine in list(self._machines[name].values()):
                apply(MODIFIED, self._pod(machine), event.version)


class _View:
    def __init__(self, version: int) -> None:
        self.history = History()
        self.history.restore((), version, version)
        self._each: list[_Machines] = []
        self._early: list[tuple[Event, _Take]] | None = None

    async def add(
        self, source: _Machines, machines: Sequence[StoredObject], turns: ShortTurns
    ) -> None:
        table, version = table_of(PODS.resource), self.history.version
        for machine in machines:
            await turns.breathe()
            self.history.restore([(table, source.first(machine))], version, version)
        self._each.append(source)

    def follow(self, storage: IStorage, on_lost: Callable[[], None]) -> list[IWatch]:
        # Not by StoreFollower: a store of Pods needs each change of machines and pools once, in the order
        # of versions, from the version of its lists on.
        early = self._early = []
        watches: list[IWatch] = []
        for source in self._each:
            for resource, take in source.followed(self._apply):
                hear = partial(self._hear, take)
                since = self.history.version
                watches.append(storage.watch(resource, since, hear, on_lost=on_lost))
        self._early = None
        for event, take in sorted(early, key=lambda each: each[0].version):
            take(event)
        return watches

    def _hear(self, take: _Take, event: Event) -> None:
        if self._early is None:
            take(event)
        else:
            self._early.append((event, take))

    def _apply(self, change: str, pod: StoredObject, version: int) -> None:
        previous = self.history.find(PODS.resource, pod) if change != ADDED else None
        event = Event(change, versioned(pod, version), previous, version)
        self.history.apply(table_of(PODS.resource), event)


@implementer(IStorage)
class PodStorage(ReadOnlyStorage):
    """
    A read-only store of Pods.

    It follows the machines and pools of the underlying store; a watch from a version before the
    first request for Pods fails.
    """

    def __init__(self, storage: IStorage, names: PodNames, clock: IReactorTime) -> None:
        super().__init__(storage)
        self._names, self._clock = names, clock
        self._view: _View | None = None
        self._watches: list[IWatch] = []
        self._following = DeferredLock()

    def stopService(self) -> None:
        super().stopService()
        for watch in self._watches:
            watch.stop()
        self._watches, self._view = [], None

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[StoredObject]:
        return self._read(lambda history: history.get(resource, namespace, name), stale)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        return self._read(lambda history: history.list(resource, namespace, version), stale)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        if self._view is None:
            # A few machines in this process are read at once; otherwise the client has to list first.
            self._following.run(self._follow).addErrback(lambda failure: None)
        since = self._storage.version() if since is None else since
        if self._view is None:
            raise Expired(f"too old resource version: {since} (pods have not been listed yet)")
        return self._history(self._view).watch(resource, since, on_event, namespace, on_lost)

    def _refusal(self, resource: Resource) -> str:
        return READ_ONLY

    def _read(self, read: Callable[[History], Any], stale: bool) -> Deferred[Any]:
        if self._view is not None and stale:
            return defer.execute(read, self._history(self._view))
        following = self._storage.current().addCallback(
            lambda _: self._view or self._following.run(self._follow)
        )
        return following.addCallback(lambda view: read(self._history(view)))

    def _history(self, view: _View) -> History:
        # The store's version also advances by other kinds, without changes to Pods.
        view.history.version = self._storage.version()
        return view.history

    async def _follow(self) -> _View:
        if self._view is None:
            version = self._storage.version()
            view, turns = _View(version), ShortTurns(self._clock)
            for dialect in self._names.dialects:
                machines = await self._storage.list(dialect.workload, version=version)
                pools = await self._storage.list(dialect.pool, version=version)
                await view.add(_Machines(dialect, self._names, pools), machines.items, turns)
            self._view = view
            self._watches = view.follow(self._storage, self._lost)
        return self._view

    def _lost(self) -> None:
        view, self._view = self._view, None
        for watch in self._watches:
            watch.stop()
        if view is not None:
            view.history.lose()
