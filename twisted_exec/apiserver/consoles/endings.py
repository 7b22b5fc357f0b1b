"""
Endings of the API server's sessions: the machine or the Pod is gone, or its pool or Node.

The store's changes are followed, so a deletion ends its sessions at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from twisted.application.service import Service

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import NODE_PODS, NODES, Object
from twisted_exec.api.resource import Resource
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, IWatch
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.sessions.endings import (
    MachineKey,
    PoolKey,
    machine_deleted,
    machine_powered_off,
    pool_deleted,
)
from twisted_exec.streaming.sessions.guard import SessionGuard


@dataclass(frozen=True)
class Workload:
    """
    Objects that have sessions, and the objects that they run on.

    :param machines: the first, such as Machines or Pods.
    :param pools: the second, such as MachinePools or Nodes.
    :param noun: the users' word for one of the first.
    :param pool_noun: likewise of the second.
    :param ends_gracefully: an object that is being deleted runs until it is gone, as a Pod does,
        and so do its sessions.
    """

    machines: Resource
    pools: Resource
    noun: str
    pool_noun: str
    ends_gracefully: bool = False

    @classmethod
    def of_dialect(cls, dialect: Dialect) -> Workload:
        """The machines of a dialect."""
        return cls(dialect.workload, dialect.pool, dialect.noun, dialect.pool_noun)

    def ending(self, event: Event) -> Ending | None:
        """Return why a change of a machine ends its sessions, or ``None``."""
        name = event.obj["metadata"]["name"]
        if self._is_going(event):
            return machine_deleted(self.noun, name)
        if not self.ends_gracefully and _power(event.obj) == "Off":
            return machine_powered_off(self.noun, name)
        return None

    def pool_ending(self, event: Event) -> Ending | None:
        """Return why a change of a pool ends the sessions of all its machines, or ``None``."""
        if self._is_going(event):
            return pool_deleted(self.pool_noun, event.obj["metadata"]["name"])
        return None

    def _is_going(self, event: Event) -> bool:
        is_deleting = "deletionTimestamp" in event.obj["metadata"] and not self.ends_gracefully
        return event.type == DELETED or is_deleting


PODS_OF_NODES = Workload(NODE_PODS.resource, NODES.resource, "pod", "node", ends_gracefully=True)


def _power(machine: Object) -> str:
    return str(machine.get("spec", {}).get("power", "On"))


class ObjectEndings(Service):
    """
    Ends the sessions of objects that go.

    :param storage: started before this service is.
    """

    def __init__(
        self, storage: IStorage, guard: SessionGuard, workloads: Sequence[Workload]
    ) -> None:
        self._storage, self._guard, self._workloads = storage, guard, workloads
        self._watches: list[IWatch] = []

    def startService(self) -> None:
        """Follow the store."""
        super().startService()
        for each in self._workloads:
            self._follow(each.machines, partial(self._machine_changed, each))
            self._follow(each.pools, partial(self._pool_changed, each))

    def stopService(self) -> None:
        """Follow no longer."""
        super().stopService()
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.stop()

    def _follow(self, resource: Resource, changed: Callable[[Event], None]) -> None:
        self._watches.append(self._storage.watch(resource, None, changed))

    def _machine_changed(self, workload: Workload, event: Event) -> None:
        ending = workload.ending(event)
        if ending is not None:
            self._guard.end(MachineKey(event.obj["metadata"]["uid"]), ending)

    def _pool_changed(self, workload: Workload, event: Event) -> None:
        ending = workload.pool_ending(event)
        if ending is not None:
            name = event.obj["metadata"]["name"]
            self._guard.end(PoolKey(name, workload.machines.qualified), ending)
