"""
Leader election with a Lease.

As in client-go (``k8s.io/client-go/tools/leaderelection/leaderelection.go``), the replica whose
name is in the Lease leads.

Clocks of different hosts are not compared: each candidate counts on its own monotonic clock from
when it *saw* the Lease change.  A leader counts from before it *sent* its last successful renewal,
and stops well before other candidates may take over.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Interface

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
from twisted_exec.kube.interfaces import Object

_JITTER = 1.2
"""Other candidates read the Lease after 1 to 2.2 times the pause."""

FAILING_SECONDS = 30.0
"""How long attempts may fail before a replica counts as not ready."""
_REPEAT_SECONDS, _LONGEST_REPEAT_SECONDS = 60.0, 3600.0
"""The first and the longest pause between two log lines with the same reason."""


class ILeases(Interface):
    """
    The Lease of one :class:`Election`.

    Deferreds fail with ``APIError``, as an API server answers.
    """

    def get() -> Deferred[Object]:
        """Fires with the Lease; fails with :class:`~twisted_exec.api.status.NotFound`."""

    def create(spec: Object) -> Deferred[Object]:
        """Fires with the stored Lease; fails with ``AlreadyExists``."""

    def update(lease: Object) -> Deferred[Object]:
        """Fires with the stored Lease; fails with ``Conflict`` if it changed since ``lease`` was read."""


class ILeader(Interface):
    """Work of the replica that leads."""

    def elected() -> None:
        """Start the work."""

    def deposed() -> Deferred[None]:
        """
        Stop the work; nothing new may start after this returns.

        :return: fires when work in progress has ended; :meth:`elected` is not called again before
            that.
        """


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
        asking.addCallbacks(self._succeeded, self._failed).addBoth(self._attempt_ended)

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
        elif lease is None or self._observe(lease):
            self._granted(await self._write(lease), began)

    def _observe(self, lease: Object) -> bool:
        """Take note of a Lease; return whether this candidate may take it."""
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

    def _attempt_ended(self, _: object) -> None:
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
