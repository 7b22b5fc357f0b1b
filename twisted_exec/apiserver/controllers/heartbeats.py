"""
Pools of which nothing is heard any more.

A poollet that ended without a word leaves its pool as it last told: ready.  So it is noted here
when each pool's poollet was last heard of, by this server's own clock, and its pool says so
when that is too long ago.  With its next heartbeat the poollet corrects that.

As ironcore's controller for pools: 50 s without a change of the pool's conditions
or of its lease.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import LEASES, Object, pool_kind
from twisted_exec.api.managedfields.entries import Writer
from twisted_exec.api.managedfields.updates import updated
from twisted_exec.api.status import APIError
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.serving.query import MANAGER
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, IWatch

SILENCE_SECONDS = 50.0
LOOK_SECONDS = 5.0

_REASON = "MachinePoolStatusUnknown"


class PoolHeartbeats(Service):
    """
    Tells of pools whose poollets are silent.

    :param storage: started before this service is.
    :param now: seconds since the epoch, for conditions.
    """

    _log = Logger()

    def __init__(
        self, storage: IStorage, dialect: Dialect, clock: IReactorTime, now: Callable[[], float]
    ) -> None:
        self._storage, self._dialect, self._clock, self._now = storage, dialect, clock, now
        self._heard: dict[str, float] = {}
        self._watches: list[IWatch] = []
        self._loop = LoopingCall(self.look)
        self._loop.clock = clock

    def startService(self) -> None:
        """Begin to listen.  Nobody was silent before that."""
        super().startService()
        watch = self._storage.watch
        self._watches = [watch(self._dialect.pool, None, self._pool_changed)]
        if leases := self._dialect.lease_namespace:
            self._watches.append(watch(LEASES.resource, None, self._lease_changed, leases))
        Deferred.fromCoroutine(self._begin()).addErrback(self._failed)
        self._loop.start(LOOK_SECONDS, now=False)

    def stopService(self) -> None:
        """Listen no longer."""
        super().stopService()
        for watch in self._watches:
            watch.stop()
        self._loop.stop()
        self._heard.clear()

    async def _begin(self) -> None:
        for pool in (await self._storage.list(self._dialect.pool, stale=True)).items:
            self._heard.setdefault(pool["metadata"]["name"], self._clock.seconds())

    def _pool_changed(self, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        if event.type == DELETED:
            self._heard.pop(name, None)
            return
        new = ready_condition(event.obj)
        told = event.previous is None or new != ready_condition(event.previous)
        if told and new.get("reason") != _REASON:
            self._heard[name] = self._clock.seconds()

    def _lease_changed(self, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        if name in self._heard and event.type != DELETED:
            self._heard[name] = self._clock.seconds()

    def look(self) -> Deferred[None]:
        """Mark the pools of which nothing is heard.  Fires when that is done; never fails."""
        return Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    async def _look(self) -> None:
        since = self._clock.seconds() - SILENCE_SECONDS
        for name in [name for name, heard in self._heard.items() if heard <= since]:
            await self._mark(name)

    async def _mark(self, name: str) -> None:
        resource = self._dialect.pool
        old = await self._storage.get(resource, "", name)
        if not self.running:
            return  # a server that was stopped for a while has heard nothing, and leads no longer
        pool = copy.deepcopy(old)
        condition = ready_condition(pool)
        if condition.get("status") != "True":
            return  # it is told, or nobody ever promised anything
        condition.update(
            status="Unknown",
            reason=_REASON,
            message=f"the pool's poollet has not been heard of for {SILENCE_SECONDS:g} s",
            lastTransitionTime=timestamp(self._now()),
        )
        writer = Writer(MANAGER, "status", self._now())
        if entries := updated(pool_kind(self._dialect), old, pool, None, writer):
            pool["metadata"]["managedFields"] = entries
        await self._storage.update(resource, pool)
        told = f"{self._dialect.pool_noun} {name}"
        self._log.warn("{pool}: nothing is heard of its poollet", pool=told)

    def _failed(self, failure: Failure) -> None:
        # Changed or gone meanwhile, or a store that cannot write: the next look is soon.
        if not failure.check(APIError):
            self._log.failure("looking after pools failed", failure)


def ready_condition(pool: Object) -> Object:
    """A pool's condition Ready, in place; empty when it has none."""
    conditions = pool.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each.get("type") == "Ready"), {})
