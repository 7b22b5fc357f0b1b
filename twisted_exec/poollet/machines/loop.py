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

from twisted.internet.defer import CancelledError, Deferred, DeferredList, DeferredSemaphore
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError
from twisted_exec.api.times import timestamp
from twisted_exec.control.backoff import Backoff
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.poollet.machines.actions import Action, Delete, MachinePlan, PatchStatus
from twisted_exec.poollet.machines.actor import (
    ActionRunner,
    Done,
    Gone,
    MachineListing,
    RefusedAction,
    Report,
    by_uid,
    distinct,
    label,
)
from twisted_exec.poollet.machines.config import Key, MachineConfig, Object
from twisted_exec.poollet.machines.plan import plan, says_unreachable, unreachable_plan
from twisted_exec.poollet.machines.reference_cache import ReferenceCache

RELIST_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.2
MAX_ROUNDS = 12
MAX_WORKERS = 16
AWAY_SECONDS = 15.0
"""Silence of the runtime after which Machines report Ready as Unknown."""
_MAY_BE_AWAY = (502, 503, 504)
UNSEEN_SECONDS = 10.0
"""How long a new machine may be missing from listings before it is created again."""


@dataclass
class _Work:
    backoff: Backoff
    running: bool = False
    working: Deferred[Any] | None = None
    again: bool = False
    """The Machine has changed since the worker began."""
    timer: IDelayedCall | None = None
    failed: bool = False
    """The timer is a back-off after a failure."""
    away: bool = False
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
    class_of: Callable[[str], tuple[str, str]] = lambda name: (name, "")
    config: MachineConfig | None = None
    """Set once the runtime has reported its name; the loop does nothing before."""
    problem: str = "the machine runtime has not answered yet"
    """Why the runtime's machines are unknown, or empty."""
    observed: dict[str, list[pb.Machine]] = field(default_factory=dict)
    """The runtime's machines by UID of their Machine, as last listed."""
    _machines_by_uid: dict[str, Object] = field(default_factory=dict)
    _work: dict[str, _Work] = field(default_factory=dict)
    _settled: dict[str, tuple[Object, list[pb.Machine]]] = field(default_factory=dict)
    """Machines in their desired state, with the machines observed then."""
    _silent_since: float | None = None
    _ticker: LoopingCall | None = None
    _stopped: bool = False
    _listing: Deferred[None] | None = None
    _sweeping: IDelayedCall | None = None
    _slots: DeferredSemaphore = field(default_factory=lambda: DeferredSemaphore(MAX_WORKERS))

    _log = Logger()

    def __post_init__(self) -> None:
        self.reference_cache = ReferenceCache(
            self.client, self.clock, self.look_again, self.class_of
        )

    def start(self, config: MachineConfig) -> None:
        self.config, self._stopped = config, False
        self._machines_by_uid = {machine["metadata"]["uid"]: machine for machine in self.machines()}
        self._ticker = LoopingCall(self._tick)
        self._ticker.clock = self.clock
        self._ticker.start(self.relist_seconds).addErrback(self._failed)

    def stop(self) -> Deferred[Any]:
        """Cancel all work; fires when none is left."""
        # Reflectors stop later: their last changes must not start new work.
        self._stopped = True
        if self._ticker is not None and self._ticker.running:
            self._ticker.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        ending = [self._listing] if self._listing is not None else []
        for work in self._work.values():
            if work.timer is not None and work.timer.active():
                work.timer.cancel()
            if work.running and work.working is not None:
                ending.append(work.working)
        self._work.clear()
        for each in ending:
            each.cancel()
        return DeferredList([*ending, self.reference_cache.stop()])

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
        for uid, work in list(self._work.items()):
            if work.running or (work.timer is not None and not work.away):
                self._wake(uid, eager=True)
        # Machines that could not be planned yet have no worker. One sweep covers any number of
        # changes.
        if not (self.problem or self._stopped or self._sweeping):
            self._sweeping = self.clock.callLater(0, self._sweep_now)

    def _sweep_now(self) -> None:
        self._sweeping = None
        self._sweep()

    @property
    def is_busy(self) -> bool:
        return any(work.running for work in self._work.values())

    def machine_of(self, uid: str) -> list[pb.Machine]:
        """Return the runtime's machines of a Machine, as last listed."""
        return self.observed.get(uid, [])

    def _tick(self) -> Deferred[None] | None:
        if self._listing is None:
            self._listing = Deferred.fromCoroutine(self._relist())
            self._listing.addErrback(self._ended).addBoth(self._listed)
        return None

    def _listed(self, _: object) -> None:
        self._listing = None

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
        self._sweep()
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

    def _sweep(self) -> None:
        machines = {machine["metadata"]["uid"]: machine for machine in self.machines()}
        # Set before any worker wakes: in one process its changes come back at once.
        self._machines_by_uid = machines
        for uid, machine in list(machines.items()):
            observed = self.observed.get(uid, [])
            settled = self._settled.get(uid)
            if settled is not None and settled[0] is machine and settled[1] == observed:
                continue
            self._look(uid, machine, observed)
        for uid in [uid for uid in self._work if uid not in machines]:
            if not self._work[uid].running:
                self._forget(uid)
        for uid in [uid for uid in self._settled if uid not in machines]:
            del self._settled[uid]

    def _look(self, uid: str, machine: Object, observed: list[pb.Machine]) -> None:
        work = self._work.get(uid)
        if work is not None and observed:
            work.created_id = ""
        if work is not None and (work.running or work.timer is not None):
            if work.away and not work.running:
                self._wake(uid, eager=True)
            return
        if self._is_settled(machine, observed, work):
            self._settled[uid] = (machine, observed)
        else:
            self._settled.pop(uid, None)
            self._wake(uid)

    def _is_settled(self, machine: Object, observed: list[pb.Machine], work: _Work | None) -> bool:
        try:
            planned = self._planned(machine, observed, work, {})
        except Exception:
            # A Machine whose plan raises is left to its worker, which logs and backs off; here it
            # would stop the sweep over all others.
            return False
        return not (planned.actions or planned.reads)

    def _forget(self, uid: str) -> None:
        work = self._work.pop(uid)
        if work.timer is not None and work.timer.active():
            work.timer.cancel()
        self.reference_cache.forget(uid)

    def _planned(
        self,
        machine: Object,
        observed: Sequence[pb.Machine],
        work: _Work | None,
        secrets: dict[Key, Object | str],
    ) -> MachinePlan:
        assert self.config is not None
        uid = machine["metadata"]["uid"]
        references = self.reference_cache.references(uid, secrets)
        now, trouble = timestamp(self.now()), work.trouble if work is not None else ""
        planned = plan(
            machine, observed, self.config, now=now, trouble=trouble, references=references
        )
        if work is None or work.written is None:
            return planned
        # An API server drops status fields that it does not know, so the answer to this very patch
        # is what the same patch would give again.
        patch, status = work.written
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
        work = self._work.setdefault(uid, _Work(Backoff(FIRST_PAUSE_SECONDS)))
        if eager:
            work.backoff.reset()
        if work.running:
            work.again = work.again or eager
            return
        if work.timer is not None:
            if work.failed and not eager:
                return
            work.timer.cancel()
            work.timer = None
        # Set before the work begins: in one process its own changes come back at once.
        work.running, work.again = True, False
        working = work.working = self._slots.run(
            lambda: Deferred.fromCoroutine(self._reconcile(uid, work))
        )
        working.addCallbacks(
            lambda pause: self._done(uid, work, pause),
            lambda failure: self._crashed(uid, work, failure),
        )

    def _done(self, uid: str, work: _Work, pause: float | None) -> None:
        work.running, work.working = False, None
        if self._work.get(uid) is not work:
            return
        if work.again:
            self._wake(uid)
        elif pause is not None:
            work.timer = self.clock.callLater(pause, self._due, uid, work)

    def _crashed(self, uid: str, work: _Work, failure: Failure) -> None:
        if failure.check(CancelledError):
            work.running = False
            return
        self._log.failure("reconciling machine {uid} failed", failure, uid=uid)
        self._done(uid, work, work.backoff.pause())

    def _due(self, uid: str, work: _Work) -> None:
        work.timer = None
        if self._work.get(uid) is work:
            self._wake(uid)

    async def _reconcile(self, uid: str, work: _Work) -> float | None:
        """
        Plan and act until nothing is left to do.

        :return: seconds until the next look, or ``None`` to wait for a change.
        """
        machine = self._machines_by_uid.get(uid)
        if machine is None:
            return None
        work.failed = work.away = False
        try:
            planned = await self._rounds(machine, work)
        except Gone:
            return None  # the watch will report the deletion
        except _Away as away:
            self._log_problem(machine, work, away.problem, "RuntimeUnreachable")
            await self._report_unreachable(machine, away.problem)
            work.failed = work.away = True
            return work.backoff.pause()
        except APIError as error:
            if isinstance(error, RefusedAction):
                work.trouble = error.message
                if error.event:
                    self.report(machine, "Warning", error.event, error.message)
            self._log_problem(machine, work, error.message)
            work.failed = True
            return max(work.backoff.pause(), float(error.retry_after_seconds or 0))
        if planned.waits:
            work.failed = True  # only time or a change elsewhere will help
            return work.backoff.pause()
        if planned.actions:
            return work.backoff.pause()  # acted, yet still not in the desired state: wait
        if planned.unsettled:
            return min(work.backoff.pause(), self.relist_seconds)
        work.backoff.reset()
        return None

    async def _rounds(self, machine: Object, work: _Work) -> MachinePlan:
        before: tuple[Action, ...] = ()
        secrets: dict[Key, Object | str] = {}
        uid = machine["metadata"]["uid"]
        if self._is_new(machine):
            observed = self.observed.get(uid, [])
        else:
            observed = await self._observe(uid, work)
        planned = MachinePlan()
        for _ in range(MAX_ROUNDS):
            planned = self._planned(machine, observed, work, secrets)
            if planned.reads:
                secrets |= await self.reference_cache.read(planned.reads)
                continue
            self._log_problem(machine, work, planned.problem, planned.reason)
            if not planned.actions or planned.actions == before:
                break
            again = False
            for action in planned.actions:
                done = await self._act(machine, action, work)
                machine, again = done.machine or machine, again or done.changed
                observed = [done.observed] if done.observed is not None else observed
            if again:
                observed = await self._observe(uid, work)
            work.trouble, before = "", planned.actions
            if work.created_id and _is_pending(observed):
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

    async def _act(self, machine: Object, action: Action, work: _Work) -> Done:
        try:
            done = await self._actor().act(machine, action)
        except RefusedAction as refused:
            if refused.code in _MAY_BE_AWAY:
                await self._observe(
                    machine["metadata"]["uid"], work
                )  # raises _Away if it is silent
            raise
        if isinstance(action, Delete) and action.machine_id == work.created_id:
            work.created_id = ""  # listings never have to show it
        if done.observed is not None:
            work.created_id, work.created_at = done.observed.metadata.id, self.clock.seconds()
            self.observed[machine["metadata"]["uid"]] = [done.observed]
        if isinstance(action, PatchStatus) and done.machine is not None:
            work.written = (action.status, done.machine.get("status"))
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

    async def _observe(self, uid: str, work: _Work) -> list[pb.Machine]:
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
        machines = distinct(by_uid(listed.machines, self.config.dialect).get(uid, ()))
        if machines:
            self.observed[uid], work.created_id = machines, ""
        else:
            self.observed.pop(uid, None)
        if (
            not machines
            and work.created_id
            and self.clock.seconds() - work.created_at < UNSEEN_SECONDS
        ):
            raise RefusedAction(
                f"the machine runtime does not list machine {work.created_id}, which it made"
            )
        return machines

    def _actor(self) -> ActionRunner:
        assert self.config is not None
        return ActionRunner(self.client, self.runtime, self.config, self.report)

    def _log_problem(self, machine: Object, work: _Work, problem: str, reason: str = "") -> None:
        if problem == work.logged_problem:
            return
        work.logged_problem = problem
        if problem:
            self._log.warn("machine {name}: {why}", name=label(machine), why=problem)
            if reason:
                self.report(machine, "Warning", reason, problem)

    def _ended(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("listing the runtime's machines failed", failure)

    def _failed(self, failure: Failure) -> None:
        self._log.failure("the reconcile loop stopped", failure)


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
