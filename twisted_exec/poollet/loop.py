"""
The reconcile loop: makes the runtime's machines what the API's Machines say.

Two things wake it: a change of a Machine in the API, at once, and a listing of
the runtime's machines every few seconds.  Both only say *look at this Machine*;
what to do is planned anew each time (:mod:`.plan`), so nothing depends on which
event came first or got lost.  Each Machine has one worker at a time and its own
back-off; a Machine that is as wanted costs one plan per listing and no request.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList, DeferredSemaphore
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.watch import Backoff
from twisted_exec.poollet.plan import (
    Action,
    Create,
    Delete,
    PatchStatus,
    Plan,
    SetAnnotations,
    SetFinalizers,
    SetPower,
    Terms,
    machine_uid,
    not_known,
    plan,
)

RELIST_SECONDS = 5.0
MAX_ROUNDS = 8
MAX_WORKERS = 8

_FAILURES: dict[type[Action], str] = {
    Create: "CreateFailed",
    Delete: "DeleteFailed",
    SetPower: "PowerFailed",
    SetAnnotations: "UpdateFailed",
}
"""What users are told when the runtime refuses."""


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
    trouble: str = ""
    """What the runtime refused last, for the Machine's condition."""
    told: str = ""
    """The problem that was logged last, so that each is logged once."""


@dataclass
class Loop:
    """
    Reconciles the Machines of one pool.

    :param machines: gives the pool's Machines as last seen.
    :param synced: whether ``machines`` is complete; nothing is cleaned up before.
    """

    client: IKubeClient
    runtime: IMachineRuntime
    clock: IReactorTime
    machines: Callable[[], Iterable[Object]]
    synced: Callable[[], bool]
    relist_seconds: float = RELIST_SECONDS
    now: Callable[[], float] = time.time
    """The time of day, for conditions."""
    report: Callable[[Object, str, str, str], object] = lambda *_: None
    """Told what happens to a Machine: the Machine, ``Normal`` or ``Warning``, reason, message."""
    terms: Terms | None = None
    """Known once the runtime told its name; nothing is done before."""
    problem: str = "the machine runtime was not asked yet"
    """Why the runtime's machines are not known, or empty."""
    observed: dict[str, list[pb.Machine]] = field(default_factory=dict)
    """The runtime's machines by UID of their Machine, as last listed."""
    _work: dict[str, _Work] = field(default_factory=dict)
    _ticker: LoopingCall | None = None
    _listing: Deferred[None] | None = None
    _slots: DeferredSemaphore = field(default_factory=lambda: DeferredSemaphore(MAX_WORKERS))

    _log = Logger()

    def start(self, terms: Terms) -> None:
        """Begin; ``terms`` are complete."""
        self.terms = terms
        self._ticker = LoopingCall(self._tick)
        self._ticker.clock = self.clock
        self._ticker.start(self.relist_seconds).addErrback(self._failed)

    def stop(self) -> Deferred[Any]:
        """Cancel all work; fires when none is left.  The runtime's machines stay as they are."""
        if self._ticker is not None and self._ticker.running:
            self._ticker.stop()
        ending = [self._listing] if self._listing is not None else []
        for work in self._work.values():
            if work.timer is not None and work.timer.active():
                work.timer.cancel()
            if work.running and work.working is not None:
                ending.append(work.working)
        self._work.clear()
        for each in ending:
            each.cancel()
        return DeferredList(ending)

    def changed(self, before: Object | None, after: Object | None) -> None:
        """A Machine appeared, changed or went in the API (a reflector's listener)."""
        if after is not None:
            # What we wrote ourselves comes back too; only a new wish ends a pause.
            self._wake(after["metadata"]["uid"], eager=_wish(before) != _wish(after))

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
        try:
            listed = await self.runtime.list_machines(pb.ListMachinesRequest())
        except APIError as error:
            if not self.problem:
                self._log.warn("the machine runtime: {why}", why=error.message)
            self.problem = error.message
            return
        self.problem = ""
        assert self.terms is not None
        observed: dict[str, list[pb.Machine]] = {}
        for machine in listed.machines:
            uid = machine_uid(machine, self.terms.dialect)
            if uid:
                observed.setdefault(uid, []).append(machine)
        self.observed = observed
        self._sweep()
        await self._clean_up()

    def _sweep(self) -> None:
        """Wake whatever is not as wanted, by what was just listed."""
        known = set()
        for machine in self.machines():
            uid = machine["metadata"]["uid"]
            known.add(uid)
            work = self._work.get(uid)
            if work is not None and (work.running or work.timer is not None):
                continue
            if not self._is_as_wanted(machine):
                self._wake(uid)
        for uid in [uid for uid in self._work if uid not in known]:
            if not self._work[uid].running:
                self._forget(uid)

    def _is_as_wanted(self, machine: Object) -> bool:
        try:
            return not self._planned(
                machine, self.machine_of(machine["metadata"]["uid"]), ""
            ).actions
        except Exception:
            # A Machine whose plan fails is its worker's trouble, with a log and a
            # pause: here it would keep all others from being looked at.
            return False

    def _forget(self, uid: str) -> None:
        work = self._work.pop(uid)
        if work.timer is not None and work.timer.active():
            work.timer.cancel()

    def _planned(self, machine: Object, observed: Sequence[pb.Machine], trouble: str) -> Plan:
        assert self.terms is not None
        now = timestamp(self.now())
        return plan(machine, observed, self.terms, now=now, trouble=trouble)

    def _wake(self, uid: str, *, eager: bool = False) -> None:
        """
        Let a worker look at this Machine now, or once more when it is done.

        :param eager: even while it pauses after a failure.
        """
        if self.terms is None:
            return
        work = self._work.setdefault(uid, _Work(Backoff()))
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
        machine = self._find(uid)
        if machine is None:
            return None
        try:
            unsettled = await self._rounds(machine, work)
        except _Gone:
            return None  # the API server's word that it is deleted is on its way
        except _Away as away:
            self._tell(machine, work, away.problem, "RuntimeUnreachable")
            await self._tell_user(machine, away.problem)
            work.failed = True
            return work.backoff.pause()
        except APIError as error:
            self._tell(machine, work, error.message)
            work.failed = True
            return max(work.backoff.pause(), float(error.retry_after_seconds or 0))
        work.failed = False
        if unsettled:
            return min(work.backoff.pause(), self.relist_seconds)
        work.backoff.reset()
        return None

    async def _rounds(self, machine: Object, work: _Work) -> bool:
        """Whether the runtime is still about to change something."""
        before: tuple[Action, ...] = ()
        for _ in range(MAX_ROUNDS):
            observed = await self._observe(machine["metadata"]["uid"])
            planned = self._planned(machine, observed, work.trouble)
            self._tell(machine, work, planned.problem, planned.reason)
            if not planned.actions:
                return planned.unsettled
            if planned.actions == before:
                return True  # done, and not there yet: give it time
            for action in planned.actions:
                machine = await self._act(machine, action, work) or machine
            work.trouble = ""
            before = planned.actions
        return True

    async def _tell_user(self, machine: Object, problem: str) -> None:
        """The runtime cannot be asked; when the API server cannot be told either, so be it."""
        for action in not_known(machine, problem, now=timestamp(self.now())).actions:
            if isinstance(action, PatchStatus):
                with contextlib.suppress(_Gone, APIError):
                    await self._patch(machine, {"status": action.status}, "status")

    def _find(self, uid: str) -> Object | None:
        return next((one for one in self.machines() if one["metadata"]["uid"] == uid), None)

    async def _observe(self, uid: str) -> list[pb.Machine]:
        assert self.terms is not None
        selector = {self.terms.dialect.uid_label: uid}
        request = pb.ListMachinesRequest(filter=pb.MachineFilter(label_selector=selector))
        try:
            listed = await self.runtime.list_machines(request)
        except APIError as error:
            raise _Away(error.message) from None
        machines = list(listed.machines)
        if machines:
            self.observed[uid] = machines
        else:
            self.observed.pop(uid, None)
        return machines

    async def _act(self, machine: Object, action: Action, work: _Work) -> Object | None:
        """Do one thing; gives the Machine when that changed."""
        match action:
            case SetFinalizers(finalizers, version):
                metadata = {"finalizers": list(finalizers), "resourceVersion": version}
                return await self._patch(machine, {"metadata": metadata}, "")
            case PatchStatus(status):
                return await self._patch(machine, {"status": status}, "status")
        try:
            await self._change_runtime(machine, action)
        except APIError as refused:
            work.trouble = refused.message
            self.report(machine, "Warning", _FAILURES[type(action)], refused.message)
            raise
        return None

    async def _change_runtime(self, machine: Object, action: Action) -> None:
        runtime = self.runtime
        match action:
            case Create(wanted):
                self._log.info("creating the machine of {name}", name=_name(machine))
                made = await runtime.create_machine(pb.CreateMachineRequest(machine=wanted))
                machine_id = made.machine.metadata.id
                self.report(machine, "Normal", "Created", f"created machine {machine_id}")
            case Delete(machine_id):
                self._log.info("deleting the machine of {name}", name=_name(machine))
                await self._delete(machine_id)
                self.report(machine, "Normal", "Deleting", f"deleting machine {machine_id}")
            case SetPower(machine_id, power):
                change = pb.UpdateMachinePowerRequest(machine_id=machine_id)
                change.power = power  # type: ignore[assignment]
                await runtime.update_machine_power(change)
            case SetAnnotations(machine_id, annotations):
                await runtime.update_machine_annotations(
                    pb.UpdateMachineAnnotationsRequest(
                        machine_id=machine_id, annotations=annotations
                    )
                )

    async def _patch(self, machine: Object, patch: Object, subresource: str) -> Object:
        assert self.terms is not None
        metadata = machine["metadata"]
        try:
            return await self.client.patch(
                self.terms.dialect.workload,
                metadata["name"],
                patch,
                metadata.get("namespace", ""),
                subresource=subresource,
            )
        except APIError as refused:
            if refused.code == NotFound.code:
                raise _Gone from None
            raise

    async def _delete(self, machine_id: str) -> None:
        try:
            await self.runtime.delete_machine(pb.DeleteMachineRequest(machine_id=machine_id))
        except APIError as refused:
            if refused.code != NotFound.code:  # gone is what was wanted
                raise

    async def _clean_up(self) -> None:
        """
        Delete the runtime's machines whose Machine is gone.

        Only those that this pool made, and only after asking the API server
        itself: the copy that ``machines`` reads may be behind.
        """
        assert self.terms is not None
        terms = self.terms
        if not self.synced():
            return
        known = {machine["metadata"]["uid"] for machine in self.machines()}
        orphans = [
            machine
            for uid, machines in self.observed.items()
            for machine in machines
            if uid not in known and machine.metadata.labels.get(terms.pool_label) == terms.pool
        ]
        if not orphans:
            return
        try:
            listed = await self.client.list(
                terms.dialect.workload,
                field_selector=f"{terms.dialect.pool_field}={terms.pool}",
            )
            wanted = {machine["metadata"]["uid"] for machine in listed["items"]}
            for orphan in orphans:
                uid = machine_uid(orphan, terms.dialect)
                if uid not in wanted:
                    self._log.info("deleting orphan {id} of {uid}", id=orphan.metadata.id, uid=uid)
                    await self._delete(orphan.metadata.id)
        except APIError as error:
            self._log.warn("cleaning up orphans: {why}", why=error.message)

    def _tell(self, machine: Object, work: _Work, problem: str, reason: str = "") -> None:
        """
        Log a problem when it is new, and its end.

        :param reason: for users; empty when they are told already, or need not know.
        """
        if problem == work.told:
            return
        work.told = problem
        if problem:
            self._log.warn("machine {name}: {why}", name=_name(machine), why=problem)
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


class _Gone(Exception):
    """The Machine is no longer in the API."""


def _wish(machine: Object | None) -> tuple[Any, ...]:
    """What of a Machine is somebody's will."""
    if machine is None:
        return ()
    return machine["metadata"].get("deletionTimestamp"), machine.get("spec")


def _name(machine: Object) -> str:
    metadata = machine["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
