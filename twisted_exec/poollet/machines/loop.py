"""
The reconcile loop: brings the runtime's machines in line with the Machines of the API.

A plan is made anew each time (:mod:`.plan`), so no event has to arrive in order, or at all.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.status import APIError
from twisted_exec.api.times import timestamp
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import Again, WorkQueue
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.poollet.machines.actions import Action, Delete, MachinePlan, PatchStatus
from twisted_exec.poollet.machines.actor import (
    ActionRunner,
    Done,
    Gone,
    RefusedAction,
    Report,
    label,
)
from twisted_exec.poollet.machines.config import MachineConfig, machine_uid
from twisted_exec.poollet.machines.listing import MachineListing, distinct
from twisted_exec.poollet.machines.plan import plan, unreachable_plan
from twisted_exec.poollet.machines.reference_cache import ReferenceCache
from twisted_exec.poollet.machines.references import Key, Object
from twisted_exec.poollet.machines.status import says_unreachable

RELIST_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.2
SOON_SECONDS = 0.01
MAX_ROUNDS = 12
MAX_WORKERS = 16
AWAY_SECONDS = 15.0
"""Silence of the runtime after which Machines report Ready as Unknown."""
_MAY_BE_AWAY = (502, 503, 504)
FAILED = "ReconcileFailed"
"""Reason of an Event about a Machine for which the poollet fails."""
UNSEEN_SECONDS = 10.0
"""How long a new machine may be missing from listings before it is created again."""


@dataclass
class _Progress:
    """The loop's memory of one Machine."""

    away: bool = False
    """The runtime did not answer about it."""
    trouble: str = ""
    """The runtime's last refusal, for the Machine's condition."""
    logged_problem: str = ""
    """The last problem that was logged: each is logged once."""
    created_id: str = ""
    """The machine created last, until a listing shows it."""
    created_at: float = 0.0
    written: tuple[Any, Any] | None = None
    """The last status patch, and the status that the API server returned for it."""


@dataclass
class Loop:
    """
    Reconciles the Machines of one pool.

    :param synced: whether ``machines`` is complete, so that orphans can be deleted.
    """

    client: IKubeClient
    runtime: IMachineRuntime
    clock: IReactorTime
    machines: Callable[[], Iterable[Object]]
    synced: Callable[[], bool]
    relist_seconds: float = RELIST_SECONDS
    now: Callable[[], float] = time.time
    """Seconds since the epoch, for conditions."""
    report: Report = lambda *_: None
    metrics: WorkQueueMetrics = UNREAD
    class_of: Callable[[str], tuple[str, str]] = lambda name: (name, "")
    config: MachineConfig | None = None
    """Set once the runtime has reported its name; the loop does nothing before."""
    problem: str = "the machine runtime has not answered yet"
    """Why the runtime's machines are unknown, or empty."""
    observed: dict[str, list[pb.Machine]] = field(default_factory=dict)
    """The runtime's machines by UID of their Machine, as last listed."""
    _machines_by_uid: dict[str, Object] = field(default_factory=dict)
    _progress: dict[str, _Progress] = field(default_factory=dict)
    _settled: dict[str, tuple[Object, list[pb.Machine]]] = field(default_factory=dict)
    """Machines in their desired state, with the machines observed then."""
    _silent_since: float | None = None
    _stopped: bool = False

    _log = Logger()

    def __post_init__(self) -> None:
        self.reference_cache = ReferenceCache(
            self.client, self.clock, self.look_again, self.class_of
        )
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            self.clock,
            workers=MAX_WORKERS,
            backoff=lambda: Backoff(FIRST_PAUSE_SECONDS),
            metrics=self.metrics.of("machines"),
        )
        self._listing = PokedLoop(
            self._relist, self.clock, self.relist_seconds, metrics=self.metrics.of("machine-lists")
        )
        self._sweeping = PokedLoop(
            self._sweep,
            self.clock,
            soon_seconds=SOON_SECONDS,
            metrics=self.metrics.of("machine-sweeps"),
        )

    def start(self, config: MachineConfig) -> None:
        self.config, self._stopped = config, False
        self._machines_by_uid = {machine["metadata"]["uid"]: machine for machine in self.machines()}
        self._queue.start()
        self._sweeping.start(None)
        self._listing.start()

    def stop(self) -> Deferred[Any]:
        """Cancel all work; fires when none is left."""
        # Reflectors stop later: their last changes must not start new work.
        self._stopped = True
        parts = (self._listing, self._sweeping, self._queue, self.reference_cache)
        ending = [each.stop() for each in parts]
        self._progress.clear()
        return DeferredList(ending)

    def changed(self, before: Object | None, after: Object | None) -> None:
        """Handle a change of a Machine (reflector listener)."""
        if after is None:
            if before is not None:
                self._machines_by_uid.pop(before["metadata"]["uid"], None)
            return
        uid = after["metadata"]["uid"]
        self._machines_by_uid[uid] = after
        # Our own writes come back too; only a change of the spec ends a back-off.
        self._wake(uid, eager=_user_intent(before) != _user_intent(after))

    def look_again(self, uid: str) -> None:
        """Plan the Machine again, because something it depends on has changed."""
        self._settled.pop(uid, None)
        if uid in self._machines_by_uid:
            self._wake(uid, eager=True)

    def look_at_all(self) -> None:
        """Plan all Machines again, because something they depend on has changed."""
        self._settled.clear()
        for uid, progress in list(self._progress.items()):
            if uid in self._queue and not progress.away:
                self._wake(uid, eager=True)
        # Machines that could not be planned yet do not wait. One sweep covers any number of changes.
        if not self.problem:
            self._sweeping.poke()

    @property
    def is_busy(self) -> bool:
        return any(map(self._queue.is_running, self._progress))

    def machine_of(self, uid: str) -> list[pb.Machine]:
        """Return the runtime's machines of a Machine, as last listed."""
        return self.observed.get(uid, [])

    async def _relist(self) -> None:
        assert self.config is not None
        listing = MachineListing(self._actor(), self.clock, self.machines, self.synced)
        try:
            observed = await listing.ask()
        except APIError as error:
            self._runtime_silent(error.message)
            return
        self.problem, self._silent_since = "", None
        self.observed = observed
        await self._sweep()
        await listing.clean_up(observed)

    def _runtime_silent(self, why: str) -> None:
        if not self.problem:
            self._log.warn("the machine runtime: {why}", why=why)
        self.problem = why
        if self._silent_since is None:
            self._silent_since = self.clock.seconds()
        if self._is_away():
            for uid, machine in list(self._machines_by_uid.items()):
                if not says_unreachable(machine):
                    self._settled.pop(uid, None)
                    self._wake(uid)

    def _is_away(self) -> bool:
        since = self._silent_since
        return since is not None and self.clock.seconds() - since >= AWAY_SECONDS

    async def _sweep(self) -> None:
        machines = {machine["metadata"]["uid"]: machine for machine in self.machines()}
        # Set before any worker wakes: in one process its changes come back at once.
        self._machines_by_uid = machines
        for uid, machine in list(machines.items()):
            observed = self.observed.get(uid, [])
            settled = self._settled.get(uid)
            if settled is not None and settled[0] is machine and settled[1] == observed:
                continue
            self._look(uid, machine, observed)
        for uid in [uid for uid in self._progress if uid not in machines]:
            if not self._queue.is_running(uid):
                self._forget(uid)
        for uid in [uid for uid in self._settled if uid not in machines]:
            del self._settled[uid]

    def _look(self, uid: str, machine: Object, observed: list[pb.Machine]) -> None:
        progress = self._progress.get(uid)
        if progress is not None and observed:
            progress.created_id = ""
        if uid in self._queue:
            if progress is not None and progress.away and not self._queue.is_running(uid):
                self._wake(uid, eager=True)
            return
        if self._is_settled(machine, observed, progress):
            self._settled[uid] = (machine, observed)
        else:
            self._settled.pop(uid, None)
            self._wake(uid)

    def _is_settled(
        self, machine: Object, observed: list[pb.Machine], progress: _Progress | None
    ) -> bool:
        try:
            planned = self._planned(machine, observed, progress, {})
        except Exception:
            # A Machine whose plan raises is left to its worker, which logs and backs off; here it
            # would stop the sweep over all others.
            return False
        return not (planned.actions or planned.reads)

    def _forget(self, uid: str) -> None:
        self._queue.forget(uid)
        self._progress.pop(uid, None)
        self.reference_cache.forget(uid)

    def _planned(
        self,
        machine: Object,
        observed: Sequence[pb.Machine],
        progress: _Progress | None,
        secrets: dict[Key, Object | str],
    ) -> MachinePlan:
        assert self.config is not None
        uid = machine["metadata"]["uid"]
        references = self.reference_cache.references(uid, secrets)
        now, trouble = timestamp(self.now()), progress.trouble if progress is not None else ""
        planned = plan(
            machine, observed, self.config, now=now, trouble=trouble, references=references
        )
        if progress is None or progress.written is None:
            return planned
        # An API server drops status fields that it does not know, so the answer to this very patch
        # is what the same patch would give again.
        patch, status = progress.written
        if machine.get("status") != status:
            return planned
        needed = tuple(
            action
            for action in planned.actions
            if not (isinstance(action, PatchStatus) and action.status == patch)
        )
        return replace(planned, actions=needed)

    def _wake(self, uid: str, *, eager: bool = False) -> None:
        if self.config is None or self._stopped:
            return
        self._progress.setdefault(uid, _Progress())
        if eager:
            self._queue.hurry(uid)
        elif not self._queue.is_running(uid):  # else it is a write of its own
            self._queue.add(uid)

    async def _reconcile(self, uid: str) -> None:
        """Plan and act until nothing is left to do."""
        machine, progress = self._machines_by_uid.get(uid), self._progress.get(uid)
        if machine is None or progress is None:
            return
        progress.away = False
        try:
            planned = await self._rounds(machine, progress)
        except Gone:
            return  # the watch will report the deletion
        except _Away as away:
            self._log_problem(machine, progress, away.problem, "RuntimeUnreachable")
            await self._report_unreachable(machine, away.problem)
            progress.away = True
            raise Again from None
        except APIError as error:
            if isinstance(error, RefusedAction):
                progress.trouble = error.message
                if error.event:
                    self.report(machine, "Warning", error.event, error.message)
            self._log_problem(machine, progress, error.message)
            raise
        except CancelledError:
            raise
        except Exception:
            self._log_problem(machine, progress, "the poollet failed; its log says more", FAILED)
            raise
        if planned.waits or planned.actions:
            # Only time or a change elsewhere helps, or the actions were not enough.
            raise Again
        if planned.unsettled:
            raise Again(self.relist_seconds)

    async def _rounds(self, machine: Object, progress: _Progress) -> MachinePlan:
        before: tuple[Action, ...] = ()
        secrets: dict[Key, Object | str] = {}
        uid = machine["metadata"]["uid"]
        if self._is_new(machine):
            observed = self.observed.get(uid, [])
        else:
            observed = await self._observe(uid, progress)
        planned = MachinePlan()
        for _ in range(MAX_ROUNDS):
            planned = self._planned(machine, observed, progress, secrets)
            if planned.reads:
                secrets |= await self.reference_cache.read(planned.reads)
                continue
            self._log_problem(machine, progress, planned.problem, planned.reason)
            if not planned.actions or planned.actions == before:
                break
            again = False
            for action in planned.actions:
                done = await self._act(machine, action, progress)
                machine, again = done.machine or machine, again or done.changed
                observed = [done.observed] if done.observed is not None else observed
            if again:
                observed = await self._observe(uid, progress)
            progress.trouble, before = "", planned.actions
            if progress.created_id and _is_pending(observed):
                return MachinePlan(unsettled=True)  # the runtime is still creating it
        self.reference_cache.follow(uid, secrets if planned.waits else ())
        return planned

    def _is_new(self, machine: Object) -> bool:
        """
        Return whether a Machine is new, and the runtime's machines are known.

        The finalizer is written before anything is created.
        """
        assert self.config is not None
        finalizers = machine["metadata"].get("finalizers") or ()
        return not self.problem and self.config.dialect.finalizer not in finalizers

    async def _act(self, machine: Object, action: Action, progress: _Progress) -> Done:
        try:
            done = await self._actor().act(machine, action)
        except RefusedAction as refused:
            if refused.code in _MAY_BE_AWAY:
                await self._observe(
                    machine["metadata"]["uid"], progress
                )  # raises _Away if it is silent
            raise
        if isinstance(action, Delete) and action.machine_id == progress.created_id:
            progress.created_id = ""  # listings never have to show it
        if done.observed is not None:
            progress.created_id, progress.created_at = (
                done.observed.metadata.id,
                self.clock.seconds(),
            )
            self.observed[machine["metadata"]["uid"]] = [done.observed]
        if isinstance(action, PatchStatus) and done.machine is not None:
            progress.written = (action.status, done.machine.get("status"))
        return done

    async def _report_unreachable(self, machine: Object, problem: str) -> None:
        assert self.config is not None
        if says_unreachable(machine):
            return
        unknown_plan = unreachable_plan(
            machine, problem, self.config.dialect, now=timestamp(self.now())
        )
        for action in unknown_plan.actions:
            with contextlib.suppress(Gone, APIError):
                await self._actor().act(machine, action)

    async def _observe(self, uid: str, progress: _Progress) -> list[pb.Machine]:
        assert self.config is not None
        if self._is_away():
            raise _Away(self.problem)
        selector = {self.config.dialect.uid_label: uid}
        request = pb.ListMachinesRequest(filter=pb.MachineFilter(label_selector=selector))
        try:
            listed = await self.runtime.list_machines(request)
        except APIError as error:
            raise _Away(error.message) from None
        # A runtime may ignore the filter and return other machines as well.
        dialect = self.config.dialect
        machines = distinct(each for each in listed.machines if machine_uid(each, dialect) == uid)
        if machines:
            self.observed[uid], progress.created_id = machines, ""
        else:
            self.observed.pop(uid, None)
        if (
            not machines
            and progress.created_id
            and self.clock.seconds() - progress.created_at < UNSEEN_SECONDS
        ):
            raise RefusedAction(
                f"the machine runtime does not list machine {progress.created_id}, which it made"
            )
        return machines

    def _actor(self) -> ActionRunner:
        assert self.config is not None
        return ActionRunner(self.client, self.runtime, self.config, self.report)

    def _log_problem(
        self, machine: Object, progress: _Progress, problem: str, reason: str = ""
    ) -> None:
        if problem == progress.logged_problem:
            return
        progress.logged_problem = problem
        if problem:
            self._log.warn("machine {name}: {why}", name=label(machine), why=problem)
            if reason:
                self.report(machine, "Warning", reason, problem)


class _Away(Exception):
    """The runtime does not answer."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def _is_pending(observed: Sequence[pb.Machine]) -> bool:
    return len(observed) == 1 and observed[0].status.state == pb.MACHINE_PENDING


def _user_intent(machine: Object | None) -> tuple[Any, ...]:
    if machine is None:
        return ()
    return machine["metadata"].get("deletionTimestamp"), machine.get("spec")
