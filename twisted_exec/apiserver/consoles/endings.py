"""
Endings of the API server's sessions: the machine or the Pod is gone, or its pool or Node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import NODE_PODS, NODES, Object
from twisted_exec.api.resource import Resource
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.interfaces import DELETED, Event, IStorage
from twisted_exec.streaming.sessions.endings import POD_ENDINGS, EndingRules, MachineKey, PoolKey
from twisted_exec.streaming.sessions.guard import SessionGuard


@dataclass(frozen=True)
class Workload:
    """Objects that have sessions, such as Machines, and the objects that run them."""

    machines: Resource
    pools: Resource
    rules: EndingRules

    @classmethod
    def of_dialect(cls, dialect: Dialect) -> Workload:
        """Return the machines and pools of a dialect."""
        rules = EndingRules(dialect.noun, dialect.pool_noun)
        return cls(dialect.workload, dialect.pool, rules)


PODS_OF_NODES = Workload(NODE_PODS.resource, NODES.resource, POD_ENDINGS)


class ObjectEndings(StoreFollower):
    """
    Ends sessions when their machine or its pool goes.

    It has no work queue: a session ends with the change itself, and there is nothing to repeat.
    """

    def __init__(
        self, storage: IStorage, guard: SessionGuard, workloads: Sequence[Workload]
    ) -> None:
        super().__init__(storage)
        self._guard, self._workloads = guard, workloads

    def followed(self) -> Iterator[Followed]:
        for workload in self._workloads:
            yield Followed(workload.machines, partial(self._machine_changed, workload))
            yield Followed(workload.pools, partial(self._pool_changed, workload))

    def _machine_changed(self, workload: Workload, event: Event) -> None:
        ending = workload.rules.machine_ending(*_change(event))
        if ending is not None:
            self._guard.end(MachineKey(event.obj["metadata"]["uid"]), ending)

    def _pool_changed(self, workload: Workload, event: Event) -> None:
        ending = workload.rules.pool_ending(*_change(event))
        if ending is not None:
            name = event.obj["metadata"]["name"]
            self._guard.end(PoolKey(name, workload.machines.qualified), ending)


def _change(event: Event) -> tuple[Object, Object | None]:
    return event.obj, None if event.type == DELETED else event.obj
