"""
The scheduler: assign Machines without a pool to a pool.

The update that binds a machine carries the resourceVersion on which the decision was based, so no
machine is bound twice. Two servers over one store can still give the last place of a pool to two
machines; the pool's runtime then refuses the second.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush, nsmallest
from math import inf
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import Object, machine_kind
from twisted_exec.api.kinds.events import NORMAL, WARNING
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.controllers.paused_writes import (
    FIRST_RETRY_SECONDS,
    LAST_RETRY_SECONDS,
    Operation,
    PausedWrites,
)
from twisted_exec.apiserver.controllers.placement import (
    FAILED,
    BoundMachines,
    Placement,
    facts_of,
    plan,
    shows,
    turn_of,
    with_decision,
)
from twisted_exec.apiserver.serving.client import own_recorder
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import OURSELVES, Verbs
from twisted_exec.control.backoff import Backoff, Backoffs
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.program.turns import ShortTurns
from twisted_exec.storage.follower import Followed, StoreFollower, listed_as_added
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, Listing

COMPONENT = "scheduler"
SOON_SECONDS = 0.02
"""Changes within this time are handled together."""
AT_ONCE = 16
"""Machines that are written concurrently."""
MISSING_SECONDS = 10.0
"""
Time for a missing pool to register, before the condition of its machines says that it is missing.

If the pool was deleted, their Events wait as long.
"""
EVENT_SECONDS = 60.0
"""In this time, a waiting machine whose reason changes gets at most two Events."""

_MOST_NAMED = 20

_BUG = "the scheduler failed; the log of the API server says more"

_NOT_REPORTED = -inf, -inf


@dataclass(slots=True)
class _Pending:
    """
    A machine that has no pool, or whose pool does not exist; no poollet would report the latter.

    :param pool: the missing pool, or empty.
    :param missing_since: when the pool was first found missing, in seconds of the clock.
    :param report_times: when the last two reports were made.
    :param reported: what the last report said.
    """

    machine: Object
    pool: str
    missing_since: float | None = None
    report_times: tuple[float, float] = _NOT_REPORTED
    reported: Placement | None = None


class Scheduler(StoreFollower):
    """
    Binds the machines of one dialect to pools.

    :param verbs: without admissions.
    :param now: seconds since the epoch.
    :param rng: for the random part of back-off.
    """

    _log = Logger()

    def __init__(
        self,
        dialect: Dialect,
        storage: IStorage,
        verbs: Verbs,
        clock: IReactorTime,
        now: Callable[[], float],
        metrics: WorkQueueMetrics = UNREAD,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(storage, clock)
        self._dialect, self._verbs = dialect, verbs
        self._clock = clock
        self._kind = machine_kind(dialect)
        self._now = now
        self._recorder = own_recorder(
            verbs, clock, now, about=self._kind.resource, component=COMPONENT
        )
        self._pools: dict[str, Object] = {}
        self._classes: set[str] | None = None
        """Their names; ``None`` until the first list is there."""
        self._bound = BoundMachines()
        self._pending: dict[Key, _Pending] = {}
        self._due: list[tuple[float, Key]] = []
        """A heap of times, and of machines for the first run after them."""
        self._all_may_fit = False
        """A pool may have room now, or another reason to refuse: the next run is for all machines without a pool."""
        self._paused_writes = PausedWrites(clock, rng)
        self._bugs: Backoffs[Key] = Backoffs(
            clock, lambda: Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, rng)
        )
        """Machines for which this program has failed."""
        self._loop = PokedLoop(
            self._run, clock, soon_seconds=SOON_SECONDS, metrics=metrics.of("scheduler")
        )
        self.add_part(self._loop, None)

    def followed(self) -> list[Followed]:
        changed: list[tuple[Resource, Callable[[Event], None]]] = [
            (self._dialect.pool, self._pool_changed),
            (self._dialect.workload, self._machine_changed),
        ]
        followed = [Followed(resource, take, listed_as_added(take)) for resource, take in changed]
        return [
            Followed(self._dialect.workload_class, self._class_changed, self._classes_listed),
            *followed,
        ]

    def _pool_changed(self, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        previous = self._pools.pop(name, None)
        if event.type != DELETED:
            self._pools[name] = event.obj
            # Pools report often that they are ready; only changed facts can place a machine.
            facts = partial(facts_of, self._dialect)
            if previous is not None and facts(previous) == facts(event.obj):
                return
        else:
            self._pool_deleted(name)
        self._reconsider_all()

    def _pool_deleted(self, name: str) -> None:
        # A poollet that runs creates its pool again at once.
        now = self._clock.seconds()
        for machine in self._bound.of_pool(name):
            if "deletionTimestamp" not in machine["metadata"]:
                key = key_of(machine)
                pending = self._pending.setdefault(key, _Pending(machine, name))
                pending.missing_since = now
                self._reconsider(key, MISSING_SECONDS)

    def _classes_listed(self, listing: Listing) -> None:
        self._classes = {machine_class["metadata"]["name"] for machine_class in listing.items}
        self._reconsider_all()

    def _class_changed(self, event: Event) -> None:
        if self._classes is None:
            return  # the list follows
        name = {event.obj["metadata"]["name"]}
        classes = self._classes - name if event.type == DELETED else self._classes | name
        if classes != self._classes:
            self._classes = classes
            for pending in self._pending.values():
                if self._dialect.class_name(pending.machine) in name:
                    # An administrator has acted, and looks whether it helped.
                    pending.report_times = _NOT_REPORTED
            self._reconsider_all()

    def _machine_changed(self, event: Event) -> None:
        machine, key = event.obj, key_of(event.obj)
        is_deleted = event.type == DELETED
        pool = "" if is_deleted else self._dialect.pool_name(machine)
        place = (pool, self._dialect.class_name(machine)) if pool else None
        is_ending = is_deleted or "deletionTimestamp" in machine["metadata"]
        if is_ending or pool in self._pools:
            self._pending.pop(key, None)
            self._bugs.succeeded(key)
        else:
            pending = self._pending.setdefault(key, _Pending(machine, pool))
            if not pool:
                pending.missing_since = None
            pending.machine, pending.pool = machine, pool
            self._reconsider(key)
        if self._bound.move(machine, place):
            self._reconsider_all()

    def _reconsider_all(self) -> None:
        self._all_may_fit = True
        self._poke()

    def _reconsider(self, key: Key, after_seconds: float = 0.0) -> None:
        heappush(self._due, (self._clock.seconds() + after_seconds, key))
        if not after_seconds:
            self._poke()

    def _poke(self) -> None:
        if self._pending:
            self._loop.poke()

    async def _run(self) -> float | None:
        keys = self._take_due()
        try:
            await self._place(keys)
        except Exception:
            for key in keys:
                self._reconsider(key)
            raise
        return self._next_run()

    def _next_run(self) -> float | None:
        """Return the seconds to the next run, if nothing changes."""
        waits = [] if (held := self._paused_writes.wait_seconds()) is None else [held]
        if self._due:
            waits.append(self._due[0][0] - self._clock.seconds())
        return max(SOON_SECONDS, min(waits)) if waits else None

    def _take_due(self) -> Sequence[Key]:
        due = dict.fromkeys(self._paused_writes.due(self._pending))
        now = self._clock.seconds()
        while self._due and self._due[0][0] <= now:
            due[heappop(self._due)[1]] = None
        if self._all_may_fit:
            due |= dict.fromkeys(key for key, machine in self._pending.items() if not machine.pool)
        self._all_may_fit = False
        return sorted(filter(self._pending.__contains__, due), key=self._turn_of)

    def _turn_of(self, key: Key) -> tuple[bool, tuple[str, str, str]]:
        """Sort key: machines that may be bound come first."""
        pending = self._pending[key]
        return bool(pending.pool), turn_of(pending.machine)

    async def _place(self, keys: Sequence[Key]) -> None:
        turns, urgent = ShortTurns(self._clock), ShortTurns(self._clock, is_urgent=True)
        is_urgent = False
        # Earlier placements of this run count for later ones.
        assumed, pools = Counter(self._bound.counts), list(self._pools.values())
        nowhere: dict[str, Placement] = {}  # by requirements, since the last placement that fit
        writing: list[Deferred[None]] = []
        try:
            for key in keys:
                await (urgent if is_urgent else turns).breathe()
                try:
                    decided = self._decide(key, pools, assumed, nowhere)
                except Exception:
                    writing.append(self._begin(key, self._report_bug(key, Failure())))
                    continue
                if decided is not None:
                    is_urgent = bool(decided[1].pool)  # most are when many machines are created
                    writing.append(self._begin(key, self._carry_out(*decided)))
                if len(writing) >= AT_ONCE:
                    await gatherResults(writing)
                    writing = []
            await gatherResults(writing)
        finally:
            for write in writing:
                write.addErrback(lambda failure: failure.trap(CancelledError))
                write.cancel()

    def _begin(self, key: Key, work: Coroutine[Any, Any, None]) -> Deferred[None]:
        return Deferred.fromCoroutine(self._guarded(key, work))

    async def _guarded(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except CancelledError:
            raise
        except Exception:
            await self._report_bug(key, Failure())

    async def _report_bug(self, key: Key, failure: Failure) -> None:
        """Report a machine for which this program fails, and try again later: it holds up no other."""
        is_new = self._bugs.failed(key, repr(failure.value))
        self._reconsider(key, self._bugs.wait_seconds(key))
        pending = self._pending.get(key)
        if is_new and pending is not None:
            self._log.failure("scheduling {name} failed", failure, name="/".join(key))
            await self._record_event(pending.machine, WARNING, FAILED, _BUG)

    def _decide(
        self,
        key: Key,
        pools: Sequence[Object],
        assumed: Counter[tuple[str, str]],
        nowhere: dict[str, Placement],
    ) -> tuple[Object, Placement] | None:
        pending = self._pending.get(key)
        if pending is None:
            return None
        machine, pool = pending.machine, pending.pool
        if pool in self._pools:
            del self._pending[key]
            return None
        if pool:
            missing = f'{self._dialect.pool_noun} "{pool}" does not exist'
            # One placement for all machines of that pool: it is kept with each.
            return machine, nowhere.setdefault(missing, Placement("", FAILED, missing))
        requirements = self._requirements(machine)
        placement = nowhere.get(requirements) or plan(
            self._dialect, machine, pools, assumed, self._classes
        )
        if not placement.pool:
            nowhere[requirements] = placement
        else:
            nowhere.clear()
            assumed[placement.pool, self._dialect.class_name(machine)] += 1
        return machine, placement

    def _existing_pools(self) -> str:
        names = nsmallest(_MOST_NAMED, self._pools)
        return f"; there are: {', '.join(names) or 'none'}"

    def _requirements(self, machine: Object) -> str:
        spec, dialect = machine.get("spec", {}), self._dialect
        facts = [
            dialect.class_name(machine),
            spec.get(dialect.pool_selector),
            spec.get("tolerations"),
        ]
        return json.dumps(facts, sort_keys=True)

    async def _carry_out(self, machine: Object, placement: Placement) -> None:
        if not placement.pool:
            await self._report_waiting(machine, placement)
        elif not self._hold_if_paused(Operation.BIND, machine):
            await self._bind(machine, placement.pool)

    async def _bind(self, machine: Object, pool: str) -> None:
        spec = {**machine["spec"], self._dialect.pool_reference: {"name": pool}}
        target = RequestTarget(self._kind, *key_of(machine))
        options = WriteOptions(manager=COMPONENT)
        try:
            bound = await self._verbs.update(OURSELVES, target, {**machine, "spec": spec}, options)
        except (Conflict, NotFound):
            # The machine changed meanwhile, so the next run has it.  Its place may go to another machine.
            self._reconsider_all()
            return
        except APIError as error:
            self._write_refused(Operation.BIND, machine, error)
            return
        self._write_accepted(Operation.BIND, machine)
        self._log.info(
            "machine {name} is assigned to pool {pool}", name=_qualified_name(machine), pool=pool
        )
        await self._set_condition(bound, Placement(pool))
        message = f'placed in {self._dialect.pool_noun} "{pool}"'
        await self._record_event(bound, NORMAL, "Scheduled", message)

    async def _report_waiting(self, machine: Object, placement: Placement) -> None:
        """Say why a machine waits: in its condition, and in an Event if that is new."""
        key, now = key_of(machine), self._clock.seconds()
        pending = self._pending[key]
        before, last = pending.report_times
        is_new, is_first = pending.reported != placement, pending.reported is None
        if is_new and now - before < EVENT_SECONDS:
            self._reconsider(key, before + EVENT_SECONDS - now)
            return
        if is_new:
            pending.report_times, pending.reported = (last, now), placement
        is_repeated = is_first and shows(machine, placement)  # by an earlier process
        message = placement.message
        if pending.pool:
            message += self._existing_pools()
            await self._show_missing_pool(pending, placement)
        elif not await self._set_condition(machine, placement):
            pending.report_times, pending.reported = _NOT_REPORTED, None
            return
        if is_new and not is_repeated:
            await self._record_event(machine, WARNING, placement.reason, message)

    async def _show_missing_pool(self, pending: _Pending, placement: Placement) -> None:
        now = self._clock.seconds()
        if pending.missing_since is None:
            pending.missing_since = now
        shown_at = pending.missing_since + MISSING_SECONDS
        if now < shown_at:
            self._reconsider(key_of(pending.machine), shown_at - now)
        else:
            await self._set_condition(pending.machine, placement)

    async def _set_condition(self, machine: Object, placement: Placement) -> bool:
        """Write the condition Ready; return false if the machine has changed meanwhile."""
        changed = with_decision(self._dialect, machine, placement, timestamp(self._now()))
        if changed is None or self._hold_if_paused(Operation.SET_CONDITION, machine):
            return True
        target = RequestTarget(self._kind, *key_of(machine), "status")
        try:
            await self._verbs.update(OURSELVES, target, changed, WriteOptions(manager=COMPONENT))
        except (Conflict, NotFound):
            return False
        except APIError as error:  # the Event and the log report the decision, too
            self._write_refused(Operation.SET_CONDITION, machine, error)
        else:
            self._write_accepted(Operation.SET_CONDITION, machine)
        return True

    async def _record_event(self, machine: Object, level: str, reason: str, message: str) -> None:
        """Record an Event, unless the namespace had no room for one lately."""
        namespace = key_of(machine)[0]
        if self._paused_writes.is_paused(Operation.RECORD_EVENT, namespace):
            return
        try:
            await self._recorder.write(machine, level, reason, message)
        except APIError as error:
            self._paused_writes.refused(Operation.RECORD_EVENT, namespace, error)
        else:
            self._paused_writes.accepted(Operation.RECORD_EVENT, namespace)

    def _hold_if_paused(self, operation: Operation, machine: Object) -> bool:
        """
        Hold a write back while its namespace has a back-off; return whether it is held.

        A held write follows later.
        """
        key = key_of(machine)
        is_paused = self._paused_writes.is_paused(operation, key[0])
        if is_paused:
            self._paused_writes.hold(operation, key)
        return is_paused

    def _write_refused(self, operation: Operation, machine: Object, error: APIError) -> None:
        key = key_of(machine)
        self._paused_writes.refused(operation, key[0], error)
        self._paused_writes.hold(operation, key)

    def _write_accepted(self, operation: Operation, machine: Object) -> None:
        """Let the machines follow that waited for such a write."""
        for key in self._paused_writes.accepted(operation, key_of(machine)[0]):
            self._reconsider(key)


def _qualified_name(machine: Object) -> str:
    return "/".join(key_of(machine))
