"""
Mark pools whose poollet has gone silent.

A poollet that changes neither its pool's Ready condition nor its Lease for :data:`SILENCE_SECONDS`
is silent.  Pools without a Ready condition are left alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.conditions import condition_of
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import LEASES, Kind, Object, machine_kind, pool_kind
from twisted_exec.api.managedfields import WriteOrigin, updated
from twisted_exec.api.status import APIError
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.serving.query import MANAGER
from twisted_exec.program.tasks import ShortTurns
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, IWatch

SILENCE_SECONDS = 50.0
LOOK_SECONDS = 5.0

_REASON = "MachinePoolStatusUnknown"


class PoolHeartbeats(Service):
    """
    Sets conditions of pools whose poollets are silent, and of their machines, to Unknown.

    :param now: seconds since the epoch, for conditions.
    """

    _log = Logger()

    def __init__(
        self, storage: IStorage, dialect: Dialect, clock: IReactorTime, now: Callable[[], float]
    ) -> None:
        self._storage, self._dialect, self._clock, self._now = storage, dialect, clock, now
        self._last_heartbeats: dict[str, float] = {}
        self._done: set[str] = set()  # silent pools that need no more writes
        self._watches: list[IWatch] = []
        self._loop = LoopingCall(self.look)
        self._loop.clock = clock

    def startService(self) -> None:
        super().startService()
        watch = self._storage.watch
        self._watches = [watch(self._dialect.pool, None, self._pool_changed)]
        if leases := self._dialect.lease_namespace:
            self._watches.append(watch(LEASES.resource, None, self._lease_changed, leases))
        Deferred.fromCoroutine(self._begin()).addErrback(self._failed)
        self._loop.start(LOOK_SECONDS, now=False)

    def stopService(self) -> None:
        super().stopService()
        for watch in self._watches:
            watch.stop()
        self._loop.stop()
        self._last_heartbeats.clear()
        self._done.clear()

    async def _begin(self) -> None:
        for pool in (await self._storage.list(self._dialect.pool, stale=True)).items:
            self._last_heartbeats.setdefault(pool["metadata"]["name"], self._clock.seconds())

    def _pool_changed(self, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        if event.type == DELETED:
            self._last_heartbeats.pop(name, None)
            self._done.discard(name)
            return
        new = condition_of(event.obj, "Ready")
        has_changed = event.previous is None or new != condition_of(event.previous, "Ready")
        if has_changed and new.get("reason") != _REASON:
            self._heard(name)

    def _lease_changed(self, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        if name in self._last_heartbeats and event.type != DELETED:
            self._heard(name)

    def _heard(self, name: str) -> None:
        self._last_heartbeats[name] = self._clock.seconds()
        self._done.discard(name)

    def _is_silent(self, name: str) -> bool:
        last = self._last_heartbeats.get(name)
        return last is not None and last <= self._clock.seconds() - SILENCE_SECONDS

    def look(self) -> Deferred[None]:
        """Mark silent pools. Never fails."""
        return Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    async def _look(self) -> None:
        for name in [*filter(self._is_silent, self._last_heartbeats)]:
            if name not in self._done:
                await self._mark(name)

    async def _mark(self, name: str) -> None:
        pool = await self._storage.get(self._dialect.pool, "", name)
        # A poollet that never wrote conditions would not correct them.
        if condition_of(pool, "Ready"):
            if self._dialect.conditions:
                await self._mark_machines(name)
            await self._mark_pool(name)
        if self._is_silent(name):
            self._done.add(name)

    async def _mark_machines(self, pool: str) -> None:
        workload, turns = self._dialect.workload, ShortTurns(self._clock)
        for old in (await self._storage.list(workload)).items:
            await turns.breathe()
            if self._dialect.pool_name(old) != pool:
                continue
            machine = copy.deepcopy(old)
            conditions = machine.get("status", {}).get("conditions", ())
            if all(each.get("status") == "Unknown" for each in conditions):
                continue
            if not self._is_silent(pool):
                return  # the poollet is back, or this server no longer leads and may miss heartbeats
            self._set_unknown(conditions)
            await self._write(machine_kind(self._dialect), old, machine)

    async def _mark_pool(self, name: str) -> None:
        old = await self._storage.get(self._dialect.pool, "", name)
        if not self._is_silent(name):
            return  # as above
        pool = copy.deepcopy(old)
        condition = condition_of(pool, "Ready")
        if condition.get("status") == "True":
            self._set_unknown([condition])
            await self._write(pool_kind(self._dialect), old, pool)
            pool_name = f'{self._dialect.pool_noun} "{name}"'
            self._log.warn("{pool}: no heartbeat of its poollet", pool=pool_name)

    def _set_unknown(self, conditions: Iterable[Object]) -> None:
        now = timestamp(self._now())
        for condition in conditions:
            if condition.get("status") != "Unknown":
                condition["lastTransitionTime"] = now
            condition.update(
                status="Unknown",
                reason=_REASON,
                message=f"the pool's poollet has not been heard of for {SILENCE_SECONDS:g} s",
            )

    async def _write(self, kind: Kind, old: Object, new: Object) -> None:
        writer = WriteOrigin(MANAGER, "status", self._now())
        if entries := updated(kind, old, new, None, writer):
            new["metadata"]["managedFields"] = entries
        await self._storage.update(kind.resource, new)

    def _failed(self, failure: Failure) -> None:
        # Changed or deleted meanwhile, or the store is read-only: the next run follows soon.
        if not failure.check(APIError):
            self._log.failure("cannot check the heartbeats of pools", failure)
