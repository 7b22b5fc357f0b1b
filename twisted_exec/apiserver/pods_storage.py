"""
The machines of a store, kept as Pods.

A storage of its own, so that lists, pages, selectors and watches of Pods are those of any other
kind.  It follows the machines and pools of the store that it is a view of: what happens to one of
them happens, under the same resourceVersion, to the Pods that look different by it.  So a Pod's
resourceVersion is that of its Machine, or that of its pool's change which made it look different.

Nothing is followed before someone asks for Pods.  What happened before that nobody remembers, and
a watch from then is told to list again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred, DeferredLock
from zope.interface import implementer

from twisted_exec.api import kinds
from twisted_exec.api.kinds import MACHINEPOOLS, MACHINES, PODS
from twisted_exec.api.meta import Resource
from twisted_exec.api.status import Expired, MethodNotAllowed
from twisted_exec.apiserver.pods import Host, host_of, pod_of
from twisted_exec.storage.history import History, Key, key_of, table_of, versioned
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    Event,
    IStorage,
    IWatch,
    Listing,
    Object,
)

READ_ONLY = "pods here are machines, seen by clients that know only pods, and are read-only"


_Take = Callable[[Event], None]


class _View:
    """The Pods since somebody asked: their history, and what it is made of."""

    def __init__(self, machines: Listing, pools: Listing) -> None:
        self.history = History()
        self._pools = {pool["metadata"]["name"]: pool for pool in pools.items}
        self._hosts: dict[str, Host] = {}
        self._machines: dict[str, dict[Key, Object]] = {}
        self._early: list[tuple[Event, _Take]] | None = None
        pods = []
        for machine in machines.items:
            self._keep(machine)
            pods.append((table_of(PODS.resource), self._first(machine)))
        self.history.restore(pods, machines.version, machines.version)

    def _first(self, machine: Object) -> Object:
        """As it would be had it always been followed: no older than its latest change."""
        pool = self._pools.get(kinds.pool_name(machine))
        versions = [int(each["metadata"]["resourceVersion"]) for each in (machine, pool) if each]
        return versioned(self._pod(machine), max(versions))

    def _pod(self, machine: Object) -> Object:
        return pod_of(machine, self._host(kinds.pool_name(machine)))

    def _host(self, name: str) -> Host:
        if name not in self._hosts:
            self._hosts[name] = host_of(name, self._pools.get(name))
        return self._hosts[name]

    def _keep(self, machine: Object) -> None:
        self._machines.setdefault(kinds.pool_name(machine), {})[key_of(machine)] = machine

    def _drop(self, machine: Object) -> None:
        pool = kinds.pool_name(machine)
        found = self._machines[pool]
        del found[key_of(machine)]
        if not found:
            del self._machines[pool]
            self._hosts.pop(pool, None)

    def follow(self, storage: IStorage) -> list[IWatch]:
        """Hear of what happens from now on, first of what has happened meanwhile, in order."""
        early = self._early = []
        watches = [
            storage.watch(resource, self.history.version, partial(self._hear, take))
            for resource, take in (
                (MACHINES.resource, self._machine_changed),
                (MACHINEPOOLS.resource, self._pool_changed),
            )
        ]
        self._early = None
        for event, take in sorted(early, key=lambda each: each[0].version):
            take(event)
        return watches

    def _hear(self, take: _Take, event: Event) -> None:
        if self._early is None:
            take(event)
        else:
            self._early.append((event, take))

    def _machine_changed(self, event: Event) -> None:
        """A machine was made, changed or removed: so was its Pod."""
        if event.previous is not None:
            self._drop(event.previous)
        if event.type != DELETED:
            self._keep(event.obj)
        self._apply(event.type, self._pod(event.obj), event.version)

    def _pool_changed(self, event: Event) -> None:
        """A pool was made, changed or removed: its Pods may look different."""
        name = event.obj["metadata"]["name"]
        if event.type == DELETED:
            self._pools.pop(name, None)
        else:
            self._pools[name] = event.obj
        if name not in self._machines:
            return
        before = self._host(name)
        self._hosts[name] = host_of(name, self._pools.get(name))
        # Most changes of a pool are heartbeats.
        if self._hosts[name] != before:
            for machine in list(self._machines[name].values()):
                self._apply(MODIFIED, self._pod(machine), event.version)

    def _apply(self, change: str, pod: Object, version: int) -> None:
        previous = self.history.find(PODS.resource, pod) if change != ADDED else None
        told = Event(change, versioned(pod, version), previous, version)
        self.history.apply(table_of(PODS.resource), told)


@implementer(IStorage)
class PodStorage(Service):
    """
    A store that has Pods only, and these only to read.

    :param storage: whose machines they are; started before this service is.
    """

    def __init__(self, storage: IStorage) -> None:
        self._storage = storage
        self._view: _View | None = None
        self._watches: list[IWatch] = []
        self._following = DeferredLock()

    def stopService(self) -> None:
        """Follow no longer."""
        super().stopService()
        for watch in self._watches:
            watch.stop()
        self._watches, self._view = [], None

    def get(self, resource: Resource, namespace: str, name: str) -> Deferred[Object]:
        """See :meth:`IStorage.get`."""
        return self._read(lambda history: history.get(resource, namespace, name))

    def list(
        self, resource: Resource, namespace: str = "", *, version: int | None = None
    ) -> Deferred[Listing]:
        """See :meth:`IStorage.list`."""
        return self._read(lambda history: history.list(resource, namespace, version))

    def watch(
        self,
        resource: Resource,
        since: int,
        on_event: Callable[[Event], None],
        namespace: str = "",
    ) -> IWatch:
        """See :meth:`IStorage.watch`."""
        if self._view is None:
            # Stores answer at once; one that does not has its clients list first.
            self._following.run(self._follow).addErrback(lambda failure: None)
        if self._view is None:
            raise Expired(f"too old resource version: {since} (nobody has listed pods yet)")
        return self._history(self._view).watch(resource, since, on_event, namespace)

    def version(self) -> int:
        """See :meth:`IStorage.version`."""
        return self._storage.version()

    def probe(self) -> Deferred[object]:
        """See :meth:`IStorage.probe`."""
        return self._storage.probe()

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """Refused: see :class:`PodStorage`."""
        return defer.execute(self._refuse)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """Refused: see :class:`PodStorage`."""
        return defer.execute(self._refuse)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """Refused: see :class:`PodStorage`."""
        return defer.execute(self._refuse)

    def _refuse(self) -> NoReturn:
        raise MethodNotAllowed(READ_ONLY)

    def _read(self, read: Callable[[History], Any]) -> Deferred[Any]:
        if self._view is not None:
            return defer.execute(read, self._history(self._view))
        following = self._following.run(self._follow)
        return following.addCallback(lambda view: read(self._history(view)))

    def _history(self, view: _View) -> History:
        # What happened to other kinds since is nothing that happened to Pods.
        view.history.version = self._storage.version()
        return view.history

    async def _follow(self) -> _View:
        if self._view is None:
            machines = await self._storage.list(MACHINES.resource)
            pools = await self._storage.list(MACHINEPOOLS.resource, version=machines.version)
            self._view = _View(machines, pools)
            self._watches = self._view.follow(self._storage)
        return self._view
