"""
Mark pools whose poollet has gone silent.

A poollet that changes neither its pool's Ready condition nor its Lease for :data:`SILENCE_SECONDS`
is silent.  Pools without a Ready condition are left alone; the scheduler reports to the machines of
a deleted pool that it is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.conditions import condition_of
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import LEASES, Kind, Object, machine_kind, pool_kind
from twisted_exec.api.kinds.events import WARNING
from twisted_exec.api.managedfields.entries import WriteOrigin
from twisted_exec.api.managedfields.updates import updated
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.serving.query import MANAGER
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.control.runs import Failures, readable
from twisted_exec.kube.recorder import Recorder
from twisted_exec.program.turns import ShortTurns
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, Listing

SILENCE_SECONDS = 50.0
LOOK_SECONDS = 5.0
"""Longest pause before another attempt to write."""

NOT_MARKED = "NotMarkedSilent"
"""Reason of the Event about a pool if conditions cannot be written."""

_REASON = "MachinePoolStatusUnknown"


def plan_machine(machine: Object, now: str) -> Object | None:
    """Return a machine of a silent pool with its new conditions; ``None`` if nothing changes."""
    conditions = machine.get("status", {}).get("conditions", [])
    if all(each.get("status") == "Unknown" for each in conditions):
        return None
    return _with_conditions(machine, [_unknown(each, now) for each in conditions])


def plan_pool(pool: Object, now: str) -> Object | None:
    """Return a silent pool with its new condition Ready; ``None`` if nothing changes."""
    ready = condition_of(pool, "Ready")
    if ready.get("status") != "True":
        return None
    conditions = pool["status"]["conditions"]
    return _with_conditions(
        pool, [_unknown(each, now) if each is ready else each for each in conditions]
    )


def _with_conditions(obj: Object, conditions: list[Object]) -> Object:
    return {**obj, "status": {**obj["status"], "conditions": conditions}}


def _unknown(condition: Object, now: str) -> Object:
    changes = {} if condition.get("status") == "Unknown" else {"lastTransitionTime": now}
    return {
        **condition,
        **changes,
        "status": "Unknown",
        "reason": _REASON,
        "message": f"the pool's poollet has not been heard of for {SILENCE_SECONDS:g} s",
    }


class PoolHeartbeats(StoreFollower):
    """
    Sets conditions of pools whose poollets are silent, and of their machines, to Unknown.

    :param now: seconds since the epoch, for conditions.
    :param recorder: tells users of pools that cannot be marked; stopped with the controller.
    """

    _log = Logger()

    def __init__(
        self,
        storage: IStorage,
        dialect: Dialect,
        clock: IReactorTime,
        now: Callable[[], float],
        recorder: Recorder,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock)
        self._dialect, self._clock, self._now = dialect, clock, now
        self._recorder = recorder
        self._problems: dict[str, str] = {}
        """By pool: the trouble that its Event tells."""
        self._last_heartbeats: dict[str, float] = {}
        # One at a time: each reads all machines.
        self._queue: WorkQueue[str] = WorkQueue(
            self._check,
            clock,
            self._refused,
            workers=1,
            backoff=lambda: Backoff(longest_seconds=LOOK_SECONDS),
            metrics=metrics.of("pool-heartbeats"),
        )
        self.add_part(self._recorder)
        self.add_part(self._queue)

    def stopService(self) -> Deferred[None]:
        self._last_heartbeats.clear()
        self._problems.clear()
        return super().stopService()

    def followed(self) -> Iterator[Followed]:
        yield Followed(self._dialect.pool, self._pool_changed, self._pools_listed)
        if leases := self._dialect.lease_namespace:
            yield Followed(LEASES.resource, self._lease_changed, namespace=leases)

    def _pools_listed(self, listing: Listing) -> None:
        for pool in listing.items:
            if pool["metadata"]["name"] not in self._last_heartbeats:
                self._heard(pool["metadata"]["name"])

    def _pool_changed(self, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        if event.type == DELETED:
            self._last_heartbeats.pop(name, None)
            self._problems.pop(name, None)
            self._queue.forget(name)
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
        self._queue.add_after(name, SILENCE_SECONDS)

    def _is_silent(self, name: str) -> bool:
        last = self._last_heartbeats.get(name)
        return last is not None and last <= self._clock.seconds() - SILENCE_SECONDS

    async def _check(self, name: str) -> float | None:
        last = self._last_heartbeats.get(name)
        if last is None:
            return None
        seconds = last + SILENCE_SECONDS - self._clock.seconds()
        if seconds > 0:
            return seconds
        try:
            await self._mark(name)
        except (Conflict, NotFound):
            return LOOK_SECONDS  # another program writes it, too, or it is gone
        return None

    async def _mark(self, name: str) -> None:
        pool = await self._storage.get(self._dialect.pool, "", name)
        # A poollet that never wrote conditions would not correct them.
        if not condition_of(pool, "Ready"):
            return
        failures = Failures()
        if self._dialect.conditions:
            await self._mark_machines(name, failures)
        with failures.noted():
            await self._mark_pool(name)
        self._tell(pool, failures.first)
        failures.raise_first()

    def _tell(self, pool: Object, trouble: Exception | None) -> None:
        name = pool["metadata"]["name"]
        if trouble is None:
            self._problems.pop(name, None)
        elif not isinstance(trouble, Conflict | NotFound):
            error = readable(trouble)
            if self._problems.get(name) != error.reason:
                self._problems[name] = error.reason
                message = f"its poollet is silent, and conditions cannot say so: {error.message}"
                self._recorder.record(pool, WARNING, NOT_MARKED, message)

    async def _mark_machines(self, pool: str, failures: Failures) -> None:
        workload, turns = self._dialect.workload, ShortTurns(self._clock)
        for old in (await self._storage.list(workload)).items:
            await turns.breathe()
            if self._dialect.pool_name(old) != pool:
                continue
            if not self._is_silent(pool):
                return  # the poollet is back, or this server no longer leads and may miss heartbeats
            with failures.noted():
                machine = plan_machine(old, timestamp(self._now()))
                if machine is not None:
                    await self._write(machine_kind(self._dialect), old, machine)

    async def _mark_pool(self, name: str) -> None:
        old = await self._storage.get(self._dialect.pool, "", name)
        if not self._is_silent(name):
            return  # as above
        pool = plan_pool(old, timestamp(self._now()))
        if pool is not None:
            await self._write(pool_kind(self._dialect), old, pool)
            pool_name = f'{self._dialect.pool_noun} "{name}"'
            self._log.warn("{pool}: no heartbeat of its poollet", pool=pool_name)

    async def _write(self, kind: Kind, old: Object, new: Object) -> None:
        writer = WriteOrigin(MANAGER, "status", self._now())
        if entries := updated(kind, old, new, None, writer):
            new = {**new, "metadata": {**new["metadata"], "managedFields": entries}}
        await self._storage.update(kind.resource, new)

    def _refused(self, name: str, error: APIError, failures: int) -> None:
        if failures == 1:
            pool = f'{self._dialect.pool_noun} "{name}"'
            self._log.warn("{pool} cannot be marked as silent: {why}", pool=pool, why=error.message)
