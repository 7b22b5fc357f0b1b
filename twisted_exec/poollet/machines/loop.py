"""
The reconcile loop: makes the runtime's machines what the API's Machines say.

Three things wake it: a change of a Machine in the API, or of what it refers to, at once;
and a listing of the runtime's machines every few seconds.  All only say *look at this
Machine*; what to do is planned anew each time (:mod:`.plan`), so nothing depends on which
event came first or got lost.  Each Machine has one worker at a time and its own
back-off; a Machine that is as wanted costs one comparison per listing and no request.
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
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.informers.reflector import Backoff
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.poollet.machines.actions import Action, PatchStatus, Plan
from twisted_exec.poollet.machines.actor import ActionRunner, Done, Gone, Refused, Report, label
from twisted_exec.poollet.machines.config import MachineConfig
from twisted_exec.poollet.machines.listing import Listing, by_uid, distinct
from twisted_exec.poollet.machines.plan import not_known, plan
from twisted_exec.poollet.machines.reference_cache import ReferenceCache
from twisted_exec.poollet.machines.references import Key, Object
from twisted_exec.poollet.machines.status_patch import is_not_known

RELIST_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.2
MAX_ROUNDS = 12
MAX_WORKERS = 16
AWAY_SECONDS = 15.0
"""For so long a runtime may be silent before all Machines say that nothing is known of them."""
_MAY_BE_AWAY = (502, 503, 504)
UNSEEN_SECONDS = 10.0
"""For so long a machine that was made may be missing from lists before it is made again."""


@dataclass
class _Work:
    """What is known about the work on one Machine."""

    backoff: Backoff
    running: bool = False
    working: Deferred[Any] | None = None
    again: bool = False
    """There is a new wish since the worker began."""
    timer: IDelayedCall | None = None
    failed: bool = False
    """The timer is a pause after a failure."""
    away: bool = False
    """The failure was that the runtime did not answer."""
    trouble: str = ""
    """What the runtime refused last, for the Machine's condition."""
    logged_problem: str = ""
    """The problem that was logged last, so that each is logged once."""
    created_id: str = ""
    """The machine that was made last, until a list shows it."""
    created_at: float = 0.0
    written: tuple[Any, Any] | None = None
    """The last status that was written, and what the API server made of it."""


@dataclass
class Loop:
    """
    Reconciles the Machines of one pool.

    :param machines: gives the pool's Machines as last seen.
    :param synced: whether ``machines`` is complete; nothing is cleaned up before.
    :param class_of: see :attr:`.References.class_of`.
    """

    client: IKubeClient
    runtime: IMachineRuntime
    clock: IReactorTime
    machines: Callable[[], Iterable[Object]]
    synced: Callable[[], bool]
    relist_seconds: float = RELIST_SECONDS
    now: Callable[[], float] = time.time
    """The time of day, for conditions."""
    report: Report = lambda *_: None
    class_of: Callable[[str], tuple[str, str]] = lambda name: (name, "")
    config: MachineConfig | None = None
    """Known once the runtime told its name; nothing is done before."""
    problem: str = "the machine runtime was not asked yet"
    """Why the runtime's machines are not known, or empty."""
    observed: dict[str, list[pb.Machine]] = field(default_factory=dict)
    """The runtime's machines by UID of their Machine, as last listed."""
    _machines_by_uid: dict[str, Object] = field(default_factory=dict)
    _work: dict[str, _Work] = field(default_factory=dict)
    _settled: dict[str, tuple[Object, list[pb.Machine]]] = field(default_factory=dict)
    """Machines that were as wanted, with what was observed then."""
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
        """Begin; ``config`` are complete."""
        self.config, self._stopped = config, False
        self._machines_by_uid = {machine["metadata"]["uid"]: machine for machine in self.machines()}
        self._ticker = LoopingCall(self._tick)
        self._ticker.clock = self.clock
        self._ticker.start(self.relist_seconds).addErrback(self._failed)

    def stop(self) -> Deferred[Any]:
        """Cancel all work; fires when none is left.  The runtime's machines stay as they are."""
        # The copies of the API end later: what they tell until then must begin nothing.
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
        """A Machine appeared, changed or went in the API (a reflector's listener)."""
        if after is None:
            if before is not None:
                self._machines_by_uid.pop(before["metadata"]["uid"], None)
            return
        uid = after["metadata"]["uid"]
        self._machines_by_uid[uid] = after
        # What we wrote ourselves comes back too; only a new wish ends a pause.
        self._wake(uid, eager=_wish(before) != _wish(after))

    def look_again(self, uid: str) -> None:
        """Something that the Machine refers to has changed."""
        self._settled.pop(uid, None)
        if uid in self._machines_by_uid:
            self._wake(uid, eager=True)

    def look_at_all(self) -> None:
        """Something that all Machines depend on has changed."""
        self._settled.clear()
        for uid, work in list(self._work.items()):
            if work.running or (work.timer is not None and not work.away):
                self._wake(uid, eager=True)
        # Nobody works on those that could not be planned yet.  However much changes at once, one look is enough.
        if not (self.problem or self._stopped or self._sweeping):
            self._sweeping = self.clock.callLater(0, self._sweep_now)

    def _sweep_now(self) -> None:
        self._sweeping = None
        self._sweep()

    @property
    def is_busy(self) -> bool:
        """Somebody's machine is being worked on."""
        return any(work.running for work in self._work.values())

    def machine_of(self, uid: str) -> list[pb.Machine]:
        """The runtime's machines for a Machine, as last listed."""
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
        listing = Listing(self._actor(), self.clock, self.machines, self.synced)
        try:
            observed = await listing.ask()
        except APIError as error:
            self._unheard(error.message)
            return
        self.problem, self._silent_since = "", None
        self.observed = observed
        self._sweep()
        await listing.clean_up(observed)

    def _unheard(self, why: str) -> None:
        """The runtime does not answer.  That it goes on so is told of every Machine."""
        if not self.problem:
            self._log.warn("the machine runtime: {why}", why=why)
        self.problem = why
        if self._silent_since is None:
            self._silent_since = self.clock.seconds()
        if self._is_away():
            for uid, machine in list(self._machines_by_uid.items()):
                if not is_not_known(machine):
                    self._settled.pop(uid, None)
                    self._wake(uid)

    def _is_away(self) -> bool:
        since = self._silent_since
        return since is not None and self.clock.seconds() - since >= AWAY_SECONDS

    def _sweep(self) -> None:
        """Wake whatever is not as wanted, by what was just listed."""
        machines = {machine["metadata"]["uid"]: machine for machine in self.machines()}
        # Before anything is woken: what that changes comes back at once.
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
        if self._is_as_wanted(machine, observed, work):
            self._settled[uid] = (machine, observed)
        else:
            self._settled.pop(uid, None)
            self._wake(uid)

    def _is_as_wanted(
        self, machine: Object, observed: list[pb.Machine], work: _Work | None
    ) -> bool:
        try:
            planned = self._planned(machine, observed, work, {})
        except Exception:
            # A Machine whose plan fails is its worker's trouble, with a log and a
            # pause: here it would keep all others from being looked at.
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
    ) -> Plan:
        assert self.config is not None
        uid = machine["metadata"]["uid"]
        references = self.reference_cache.references(uid, secrets)
        now, trouble = timestamp(self.now()), work.trouble if work is not None else ""
        planned = plan(
            machine, observed, self.config, now=now, trouble=trouble, references=references
        )
        if work is None or work.written is None:
            return planned
        # An API server keeps of a status what it knows.  What it made of this very one
        # is what it will make of it again.
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
        """
        Let a worker look at this Machine now, or once more when it is done.

        :param eager: even while it pauses after a failure.
        """
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
        # Before the work begins: in one process its own changes come back at once.
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
        """A bug while working on one Machine: told, and tried again like any trouble."""
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
        Plan and act until there is nothing left to do.

        :return: when to look again, in seconds, or ``None``: when something changes.
        """
        machine = self._machines_by_uid.get(uid)
        if machine is None:
            return None
        work.failed = work.away = False
        try:
            planned = await self._rounds(machine, work)
        except Gone:
            return None  # the API server's word that it is deleted is on its way
        except _Away as away:
            self._tell(machine, work, away.problem, "RuntimeUnreachable")
            await self._tell_user(machine, away.problem)
            work.failed = work.away = True
            return work.backoff.pause()
        except APIError as error:
            if isinstance(error, Refused):
                work.trouble = error.message
                if error.event:
                    self.report(machine, "Warning", error.event, error.message)
            self._tell(machine, work, error.message)
            work.failed = True
            return max(work.backoff.pause(), float(error.retry_after_seconds or 0))
        if planned.waits:
            work.failed = True  # only somebody else's change, or time, will help
            return work.backoff.pause()
        if planned.actions:
            return work.backoff.pause()  # done, and still not so: give it time
        if planned.unsettled:
            return min(work.backoff.pause(), self.relist_seconds)
        work.backoff.reset()
        return None

    async def _rounds(self, machine: Object, work: _Work) -> Plan:
        """The last plan: one with actions is one that does not get anywhere."""
        before: tuple[Action, ...] = ()
        secrets: dict[Key, Object | str] = {}
        uid = machine["metadata"]["uid"]
        if self._is_new(machine):
            observed = self.observed.get(uid, [])
        else:
            observed = await self._observe(uid, work)
        planned = Plan()
        for _ in range(MAX_ROUNDS):
            planned = self._planned(machine, observed, work, secrets)
            if planned.reads:
                secrets |= await self.reference_cache.read(planned.reads)
                continue
            self._tell(machine, work, planned.problem, planned.reason)
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
                return Plan(unsettled=True)  # it is under way: there will be more to tell
        self.reference_cache.follow(uid, secrets if planned.waits else ())
        return planned

    def _is_new(self, machine: Object) -> bool:
        """
        Nobody can have made anything for the Machine that the last list did not show.

        Our finalizer is there before anything is made.
        """
        assert self.config is not None
        finalizers = machine["metadata"].get("finalizers") or ()
        return not self.problem and self.config.dialect.finalizer not in finalizers

    async def _act(self, machine: Object, action: Action, work: _Work) -> Done:
        try:
            done = await self._actor().act(machine, action)
        except Refused as refused:
            if refused.code in _MAY_BE_AWAY:
                await self._observe(machine["metadata"]["uid"], work)  # or is it away?
            raise
        if done.observed is not None:
            work.created_id, work.created_at = done.observed.metadata.id, self.clock.seconds()
            self.observed[machine["metadata"]["uid"]] = [done.observed]
        if isinstance(action, PatchStatus) and done.machine is not None:
            work.written = (action.status, done.machine.get("status"))
        return done

    async def _tell_user(self, machine: Object, problem: str) -> None:
        """The runtime cannot be asked; when the API server cannot be told either, so be it."""
        assert self.config is not None
        if is_not_known(machine):
            return
        unknown_plan = not_known(machine, problem, self.config.dialect, now=timestamp(self.now()))
        for action in unknown_plan.actions:
            with contextlib.suppress(Gone, APIError):
                await self._actor().act(machine, action)

    async def _observe(self, uid: str, work: _Work) -> list[pb.Machine]:
        """The runtime's machines of a Machine, asked for just now."""
        assert self.config is not None
        if self._is_away():
            raise _Away(self.problem)
        selector = {self.config.dialect.uid_label: uid}
        request = pb.ListMachinesRequest(filter=pb.MachineFilter(label_selector=selector))
        try:
            listed = await self.runtime.list_machines(request)
        except APIError as error:
            raise _Away(error.message) from None
        # A runtime may give more than it was asked for.
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
            raise Refused(
                f"the machine runtime does not list machine {work.created_id}, which it made"
            )
        return machines

    def _actor(self) -> ActionRunner:
        assert self.config is not None
        return ActionRunner(self.client, self.runtime, self.config, self.report)

    def _tell(self, machine: Object, work: _Work, problem: str, reason: str = "") -> None:
        """
        Log a problem when it is new, and its end.

        :param reason: for users; empty when they are told already, or need not know.
        """
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
    """The runtime cannot be asked."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def _is_pending(observed: Sequence[pb.Machine]) -> bool:
    return len(observed) == 1 and observed[0].status.state == pb.MACHINE_PENDING


def _wish(machine: Object | None) -> tuple[Any, ...]:
    """What of a Machine is somebody's will."""
    if machine is None:
        return ()
    return machine["metadata"].get("deletionTimestamp"), machine.get("spec")
