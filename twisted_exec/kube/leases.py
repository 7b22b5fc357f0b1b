"""
Leases: leader election, services that run only on the leader, and heartbeats.

As in client-go (``k8s.io/client-go/tools/leaderelection/leaderelection.go``), the replica whose
name is in the Lease leads.

Clocks of different hosts are not compared: each candidate counts on its own monotonic clock from
when it *saw* the Lease change.  A leader counts from before it *sent* its last successful renewal,
and stops well before other candidates may take over.  A process that was suspended may still
complete a step when it resumes, so a leader's writes should name the resourceVersion or at least
the UID.

Sources for heartbeats: ``k8s.io/component-helpers/apimachinery/lease/controller.go`` for Nodes, and
ironcore v0.5 ``poollet/machinepoollet/controllers/machinepool_heartbeat.go``.
"""

from __future__ import annotations

import copy
import random
import socket
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.kinds import LEASES
from twisted_exec.api.status import (
    APIError,
    Conflict,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    message_of,
)
from twisted_exec.api.times import precise_timestamp
from twisted_exec.control.backoff import Backoff
from twisted_exec.kube.interfaces import IKubeClient, ILeader, ILeases, IObjectClient, Object
from twisted_exec.kube.recorder import Recorder

_JITTER = 1.2
"""Other candidates read the Lease after 1 to 2.2 times the pause."""

FAILING_SECONDS = 30.0
"""How long attempts may fail before a replica counts as not ready."""
_REPEAT_SECONDS, _LONGEST_REPEAT_SECONDS = 60.0, 3600.0
"""The first and the longest pause between two log lines with the same reason."""


@dataclass(frozen=True)
class ElectionTimings:
    """
    Timings of an election; the defaults are client-go's.

    :param lease_seconds: time without renewal after which any candidate may take the Lease.
    :param renew_seconds: time without successful renewal after which a leader stops.
    :param retry_seconds: pause between two attempts of the leader.
    """

    lease_seconds: int = 15
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0


def holder_of(lease: Object) -> str:
    """Return the holder of a Lease, or empty."""
    return str(lease.get("spec", {}).get("holderIdentity") or "")


class LeaseObservation:
    """
    One candidate's view of the Lease.

    :param terms: duration for a Lease that has none.
    """

    def __init__(self, terms: ElectionTimings) -> None:
        self._terms = terms
        self._spec: Object | None = None
        self._seen = 0.0

    def saw(self, lease: Object, now: float) -> None:
        spec = lease.get("spec", {})
        if spec != self._spec:
            self._spec, self._seen = copy.deepcopy(spec), now

    def is_free_for(self, identity: str, now: float) -> bool:
        """Return whether a candidate may take the Lease."""
        spec = self._spec or {}
        if spec.get("holderIdentity") in (None, "", identity):
            return True
        seconds = spec.get("leaseDurationSeconds")
        if not isinstance(seconds, int):
            seconds = self._terms.lease_seconds
        return now >= self._seen + seconds


def claimed(lease: Object | None, identity: str, terms: ElectionTimings, moment: float) -> Object:
    """
    Return the spec to take or renew the Lease with.

    :param moment: seconds since the epoch, for people.
    """
    time_text = precise_timestamp(moment)
    spec: Object = {
        "holderIdentity": identity,
        "leaseDurationSeconds": terms.lease_seconds,
        "acquireTime": time_text,
        "renewTime": time_text,
        "leaseTransitions": 0,
    }
    if lease is not None:
        before = lease.get("spec", {})
        spec["leaseTransitions"] = before.get("leaseTransitions") or 0
        if before.get("holderIdentity") == identity:
            spec["acquireTime"] = before.get("acquireTime") or time_text
        else:
            spec["leaseTransitions"] += 1
    return spec


def released(lease: Object, moment: float) -> Object:
    """Return the spec that releases the Lease."""
    time_text = precise_timestamp(moment)
    # As release() of client-go: a duration must be above 0, also that of a Lease without a holder
    # (validation of coordination.k8s.io).
    return {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": time_text,
        "renewTime": time_text,
        "leaseTransitions": lease.get("spec", {}).get("leaseTransitions") or 0,
    }


class Election(Service):
    """
    One candidate.

    It is not a :class:`~twisted_exec.control.loop.PokedLoop`: attempts have a fixed pace, also after
    a failure, since a leader has only :attr:`ElectionTimings.renew_seconds` to succeed.

    :param clock: a monotonic clock, see :func:`~twisted_exec.tls.fast.loop.use_monotonic_clock`.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        leases: ILeases,
        identity: str,
        leader: ILeader,
        clock: IReactorTime,
        now: Callable[[], float],
        *,
        terms: ElectionTimings | None = None,
        chance: Callable[[], float] = random.random,
        lease: str = "the Lease",
        on_failure: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._leases, self.identity, self._leader = leases, identity, leader
        self._clock, self._now, self._chance = clock, now, chance
        self._terms = terms or ElectionTimings()
        self._sight = LeaseObservation(self._terms)
        self.leading = False
        self._held: Object | None = None  # the Lease as we wrote it last
        self._asking: Deferred[None] | None = None
        self._leaving: Deferred[None] | None = None
        self._next: IDelayedCall | None = None
        self._end: IDelayedCall | None = None
        self._lease, self._on_failure = lease, on_failure
        self.failure: BaseException | None = None
        self._failing_since = self._repeat_at = 0.0
        self._repeats = Backoff(_REPEAT_SECONDS, _LONGEST_REPEAT_SECONDS)
        self._reason = ""

    def startService(self) -> None:
        super().startService()
        self._try()

    def stopService(self) -> Deferred[None]:
        """Stop leading and release the Lease, if possible."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        _cancel(self._next)
        self._depose("it stops")
        if self._leaving is not None:
            await _fired_with(self._leaving)
        if self._asking is not None:
            await self._answered(self._asking)
        if self._held is not None:
            await self._release(self._held)

    async def _answered(self, asking: Deferred[None]) -> None:
        late = self._clock.callLater(self._terms.retry_seconds, asking.cancel)
        await _fired_with(asking)
        _cancel(late)

    async def _release(self, held: Object) -> None:
        self._held = None
        letting_go = {**held, "spec": released(held, self._now())}
        writing: Deferred[Object] = self._leases.update(letting_go)
        writing.addTimeout(self._terms.retry_seconds, self._clock)
        try:
            await writing
        except Exception as error:  # not released; other candidates wait until the Lease expires
            self._log.info("the lease is not released: {why}", why=str(error))

    def probe(self) -> None:
        """
        Check that this candidate can be elected.

        :raises ServiceUnavailable: the attempts of the last :data:`FAILING_SECONDS` have failed.
        """
        seconds = self._clock.seconds() - self._failing_since
        if self.running and self.failure is not None and seconds >= FAILING_SECONDS:
            raise ServiceUnavailable(self._message())

    def heard(self, lease: Object) -> None:
        """Note a change of the Lease, which may be free now."""
        if self.running and not self.leading and not holder_of(lease):
            self._try()

    def _try(self) -> None:
        _cancel(self._next)
        if self._asking is not None or self._leaving is not None:
            return  # the pending attempt schedules the next
        asking = Deferred.fromCoroutine(self._ask())
        self._asking = asking
        asking.addTimeout(self._terms.renew_seconds / 2, self._clock)
        asking.addCallbacks(self._succeeded, self._failed).addBoth(self._asked)

    async def _ask(self) -> None:
        # Before the request, which is the safe side: others count from when they see its effect.
        began = self._clock.seconds()
        if self.leading and self._held is not None:
            try:
                self._granted(await self._write(self._held), began)
                return
            except APIError as error:
                # Another writer has changed the Lease, but we may still hold it.
                if error.code not in (Conflict.code, NotFound.code):
                    raise
        lease = await self._get()
        if self.leading and (lease is None or holder_of(lease) != self.identity):
            self._depose("its lease was deleted" if lease is None else "another has its lease")
        elif lease is None or self._may_take(lease):
            self._granted(await self._write(lease), began)

    def _may_take(self, lease: Object) -> bool:
        now = self._clock.seconds()
        self._sight.saw(lease, now)
        return self._sight.is_free_for(self.identity, now)

    async def _get(self) -> Object | None:
        try:
            lease: Object = await self._leases.get()
        except APIError as error:
            if error.code != NotFound.code:
                raise
            return None
        return lease

    async def _write(self, lease: Object | None) -> Object:
        spec = claimed(lease, self.identity, self._terms, self._now())
        stored: Object
        if lease is None:
            stored = await self._leases.create(spec)
        else:
            stored = await self._leases.update({**lease, "spec": spec})
        return stored

    def _granted(self, stored: Object, began: float) -> None:
        self._held = stored
        seconds = began + self._terms.renew_seconds - self._clock.seconds()
        if not self.running or self._leaving is not None or seconds <= 0:
            return  # the answer came after the deadline
        _cancel(self._end)
        self._end = self._clock.callLater(seconds, self._depose, "its lease could not be renewed")
        if not self.leading:
            self.leading = True
            self._log.info("{identity} leads", identity=self.identity)
            self._leader.elected()

    def _succeeded(self, _: object) -> None:
        if self.failure is not None:
            self._log.info("leader election with {lease} works again", lease=self._lease)
        self.failure = None

    def _failed(self, failure: Failure) -> None:
        if failure.check(defer.CancelledError):
            return  # stopping
        if _code(failure) == Conflict.code:  # another candidate was faster
            self._succeeded(None)
            return
        now, is_first = self._clock.seconds(), self.failure is None
        if is_first:
            self._failing_since = now
        self.failure = failure.value
        reason = self._why()
        if is_first or reason != self._reason:
            self._repeats.reset()
        elif now < self._repeat_at:
            return
        self._reason, self._repeat_at = reason, now + self._repeats.pause()
        if failure.check(APIError, defer.TimeoutError):
            self._log.warn("{problem}", problem=self._message())
        else:
            self._log.failure("{problem}", failure, problem=self._message())
        self._on_failure(self._message())

    def _message(self) -> str:
        problem = "leads, but cannot renew" if self.leading else "cannot become the leader:"
        text = f"{self.identity} {problem} {self._lease}: {self._why()}"
        if isinstance(self.failure, APIError) and self.failure.code == Forbidden.code:
            text += "; allow its user to get, create and update this Lease"
        return text

    def _why(self) -> str:
        if isinstance(self.failure, defer.TimeoutError):
            return "no answer in time"
        return message_of(self.failure)

    def _asked(self, _: object) -> None:
        self._asking = None
        self._later()

    def _later(self) -> None:
        if self.running and self._leaving is None:
            _cancel(self._next)
            wide = 1.0 if self.leading else 1.0 + _JITTER * self._chance()
            self._next = self._clock.callLater(self._terms.retry_seconds * wide, self._try)

    def _depose(self, why: str) -> None:
        _cancel(self._end)
        if not self.leading:
            return
        self.leading = False
        if self.running:
            self._held = None  # read it again
        self._log.info("{identity} leads no longer: {why}", identity=self.identity, why=why)
        self._leaving = self._leader.deposed()
        self._leaving.addBoth(self._left)

    def _left(self, result: object) -> None:
        self._leaving = None
        if isinstance(result, Failure):
            self._log.failure("what the leader did did not end well", result)
        if self._asking is None:
            self._later()


@implementer(ILeases)
class ClientLeases:
    """One Lease of an API server, through a client."""

    def __init__(self, client: IObjectClient, namespace: str, name: str) -> None:
        self._client, self._namespace, self._name = client, namespace, name

    def get(self) -> Deferred[Object]:
        return self._client.get(LEASES.resource, self._name, self._namespace)

    def create(self, spec: Object) -> Deferred[Object]:
        lease = new_lease(self._namespace, self._name, spec)
        return self._client.create(LEASES.resource, lease, self._namespace)

    def update(self, lease: Object) -> Deferred[Object]:
        return self._client.update(LEASES.resource, lease, self._namespace)


def new_lease(namespace: str, name: str, spec: Object) -> Object:
    """Return a Lease with its metadata."""
    return {
        "apiVersion": LEASES.resource.api_version,
        "kind": LEASES.resource.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _code(failure: Failure) -> int:
    return failure.value.code if isinstance(failure.value, APIError) else 0


def _cancel(call: IDelayedCall | None) -> None:
    if call is not None and call.active():
        call.cancel()


def _fired_with(other: Deferred[None]) -> Deferred[None]:
    fired: Deferred[None] = Deferred()

    def tell(result: Any) -> Any:
        fired.callback(None)
        return result

    other.addBoth(tell)
    return fired


Make = Callable[[], Sequence[Service]]

EVENT_REASON = "LeaderElectionFailed"
"""Reason of the Event about the Lease when a replica cannot be elected."""


@implementer(ILeader)
class LeaderServices(Service):
    """The services of one term as leader."""

    _log = Logger()

    def __init__(self, make: Make) -> None:
        self._make = make
        self.services: Sequence[Service] = ()

    def startService(self) -> None:
        super().startService()
        self.elected()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return self.deposed()

    def elected(self) -> None:
        # New services for each term: state from an earlier term is out of date.
        self.services = self._make()
        for each in self.services:
            try:
                each.startService()
            except Exception:  # the other services can still start
                self._log.failure("{name} cannot start", name=type(each).__name__)

    def deposed(self) -> Deferred[None]:
        services, self.services = self.services, ()
        ending = [maybeDeferred(each.stopService) for each in reversed(services) if each.running]
        return Deferred.fromCoroutine(self._ended(ending))

    async def _ended(self, ending: Sequence[Deferred[None]]) -> None:
        for each in ending:
            try:
                await each
            except Exception:  # the other services must stop, too
                self._log.failure("what the leader did did not end well")


def identity() -> str:
    """Return an identity for this replica, unique also among its earlier runs."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElected:
    """
    Services that run while this replica leads, with the election.

    :param when: fires when the replica is able to lead.
    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        client: IKubeClient,
        make: Callable[[], Sequence[Service]],
        clock: Any,
        now: Callable[[], float],
        *,
        namespace: str,
        lease: str,
        name: str = "",
        when: Callable[[], Deferred[None]] = lambda: succeed(None),
    ) -> None:
        self._when, self._waiting = when, False
        self._leading = LeaderServices(make)
        leases, name = ClientLeases(client, namespace, lease), name or identity()
        self._recorder = Recorder(
            client, clock, about=LEASES.resource, component=lease, host=name, now=now
        )
        self._about = new_lease(namespace, lease, {})
        # Unknown, because the failure may be that the Lease cannot be read.
        self._about["metadata"]["uid"] = ""
        self._election = Election(
            leases,
            name,
            self._leading,
            clock,
            now,
            lease=f"Lease {namespace}/{lease}",
            on_failure=self._report,
        )

    @property
    def services(self) -> Sequence[Service]:
        """The running services; none while another replica leads."""
        return self._leading.services

    def start(self) -> None:
        self._waiting = True
        self._recorder.start()
        self._when().addCallbacks(self._stand, lambda _: None)  # the failure is reported elsewhere

    def _stand(self, _: object) -> None:
        if self._waiting:
            self._election.startService()

    def _report(self, text: str) -> None:
        self._recorder.record(self._about, "Warning", EVENT_REASON, text)

    def probe(self) -> None:
        self._election.probe()

    def stop(self) -> Deferred[None]:
        """Stop the services and release the Lease; fires when both are done."""
        self._waiting = False
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._election.running:
            await self._election.stopService()
        await self._recorder.stop()


LEASE_SECONDS = 40


class Lease:
    """
    One Lease, held by regular calls of :meth:`renew`.

    :param namespace: namespace of the Lease; empty to disable it.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        namespace: str,
        name: str,
        now: Callable[[], float],
        holder: str = "",
    ) -> None:
        self._client, self._namespace, self._name, self._now = client, namespace, name, now
        self._holder = holder or f"{name}_{uuid.uuid4()}"
        self._acquired = self._owner = ""
        self.problem = ""
        """The reason why we do not hold the Lease, or empty."""

    async def renew(self, owner: Object | None = None) -> None:
        """Renew the Lease. Problems are logged."""
        if not self._namespace:
            return
        try:
            await self._renew(owner)
            problem = ""
        except APIError as error:
            problem = error.message
            if error.code == NotFound.code:
                problem += f"; an administrator is to create the namespace {self._namespace}"
        if problem and problem != self.problem:
            place = f"{self._namespace}/{self._name}"
            self._log.warn("lease {place} cannot be kept: {why}", place=place, why=problem)
        self.problem = problem

    async def _renew(self, owner: Object | None) -> None:
        now = precise_timestamp(self._now())
        renewed = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now,
        }
        if not self._acquired:
            renewed["acquireTime"] = now
        owned: Object = {"ownerReferences": [owner]} if owner is not None else {}
        patch: Object = {"spec": renewed}
        if owner is not None and owner["uid"] != self._owner:
            patch["metadata"] = owned
        try:
            await self._client.patch(LEASES.resource, self._name, patch, self._namespace)
        except APIError as error:
            if error.code != NotFound.code:
                raise
            await self._make({**renewed, "acquireTime": now}, owned)
        self._acquired = self._acquired or now
        self._owner = owner["uid"] if owner is not None else ""

    async def _make(self, spec: Object, owned: Object) -> None:
        lease = {
            "apiVersion": LEASES.resource.api_version,
            "kind": LEASES.resource.kind,
            "metadata": {"name": self._name, "namespace": self._namespace, **owned},
            "spec": spec,
        }
        await self._client.create(LEASES.resource, lease, self._namespace)
