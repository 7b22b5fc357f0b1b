"""Ledgers of used tokens: in memory, and in Leases that all replicas share."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
)
from twisted_exec.api.times import seconds
from twisted_exec.control.loop import PokedLoop
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.program.tasks import as_deferred
from twisted_exec.runtimes.machinebroker.tokens import LIFE_SECONDS, SKEW_SECONDS, ILedger

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
SWEEP_SECONDS = 60.0
RETENTION_SECONDS = 120.0
"""Time after a token's expiry before its Lease is deleted; covers clock skew between replicas."""

_NAME = "exec-token-"
_DIGITS = 40


@implementer(ILedger)
class MemoryLedger:
    """
    The claims of this process.

    :param seconds: a monotonic clock. A claim is kept for two minutes: a token may be valid so long
        if the clock is set back meanwhile.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic, limit: int = 10_000) -> None:
        self._seconds, self._limit = seconds, limit
        self._claims: dict[str, float] = {}

    def take(self, digest: str, expires: float) -> Deferred[bool]:
        now = self._seconds()
        if len(self._claims) >= self._limit:
            self._claims = {key: until for key, until in self._claims.items() if until > now}
        if digest in self._claims:
            return succeed(False)
        if len(self._claims) >= self._limit:
            raise TooManyRequests("too many consoles were opened here within two minutes")
        self._claims[digest] = now + LIFE_SECONDS + SKEW_SECONDS
        return succeed(True)

    def give_back(self, digest: str) -> Deferred[None]:
        self._claims.pop(digest, None)
        return succeed(None)


@implementer(ILedger)
class LeaseLedger:
    """
    The ledger in the target cluster: one Lease per used token.

    An API server creates an object of one name once, so one of two replicas gets the token. The
    token cannot be derived from the name, which contains its hash.

    :param holder: name of this replica, for operators.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        namespace: str,
        label: str,
        holder: str,
        clock: IReactorTime,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._namespace, self._label = client, namespace, label
        self._holder, self._clock, self._now = holder, clock, now
        self._first_seen: dict[str, float] = {}
        self._sweeping = PokedLoop(self._sweep, clock, SWEEP_SECONDS, refused=self._not_swept)
        self._problem = ""

    def start(self) -> None:
        self._sweeping.start()

    def stop(self) -> None:
        self._sweeping.stop()

    @as_deferred
    async def take(self, digest: str, expires: float) -> bool:
        # After a cancellation the owner of a Lease is unknown.  It may be another replica's, so it
        # must not be deleted: the token stays used.
        try:
            await self._client.create(LEASES, self._lease(digest, expires), self._namespace)
        except APIError as error:
            if error.reason == AlreadyExists.reason:
                return False
            raise self._refusal(error) from None
        return True

    def give_back(self, digest: str) -> Deferred[None]:
        return Deferred.fromCoroutine(self._give_back(digest))

    def _lease(self, digest: str, expires: float) -> Object:
        now = self._now()
        at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": _name(digest), "labels": {self._label: "token"}},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": max(1, int(expires - now) + 1),
                "acquireTime": at,
                "renewTime": at,
            },
        }

    def _refusal(self, error: APIError) -> ServiceUnavailable:
        if error.code in (Forbidden.code, NotFound.code):
            why = (
                "the target cluster does not permit it to record used tokens: it needs "
                f'create, delete and list on {LEASES.qualified} in the namespace "{self._namespace}"'
            )
        else:
            why = f"the target cluster did not answer which tokens were used: {error.message}"
        if why != self._problem:
            self._problem = why
            self._log.error(
                "no console can be opened: {why}; {answer}", why=why, answer=error.message
            )
        return ServiceUnavailable(
            f"this broker cannot open consoles now: {why}", retry_after_seconds=5
        )

    async def _give_back(self, digest: str) -> None:
        try:
            await self._client.delete(LEASES, _name(digest), self._namespace)
        except APIError as error:
            if error.code != NotFound.code:
                self._log.info(
                    "the Lease of an unused token cannot be deleted: {why}", why=error.message
                )

    async def probe(self) -> None:
        """List Leases as a check of rights and connection."""
        try:
            await self._client.list(LEASES, self._namespace, label_selector=f"{self._label}=token")
        except APIError as error:
            raise self._refusal(error) from None

    async def _sweep(self) -> None:
        """Delete the Leases of expired tokens."""
        listed = await self._client.list(
            LEASES, self._namespace, label_selector=f"{self._label}=token"
        )
        seconds_now, first_seen = self._clock.seconds(), self._first_seen
        names = [lease["metadata"]["name"] for lease in listed["items"]]
        self._first_seen = {name: first_seen.get(name, seconds_now) for name in names}
        for lease in listed["items"]:
            name = lease["metadata"]["name"]
            # By both clocks: while the time of day is wrong, a Lease of a valid token looks old.
            is_known = seconds_now - self._first_seen[name] >= RETENTION_SECONDS
            if is_known and self._is_old(lease):
                await self._give_back(name.removeprefix(_NAME))
        self._problem = ""

    def _is_old(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        try:
            ends = seconds(spec["renewTime"]) + spec["leaseDurationSeconds"]
        except (KeyError, TypeError, ValueError):
            return False  # not one of these Leases
        return bool(ends + RETENTION_SECONDS < self._now())

    def _not_swept(self, error: APIError, failures: int) -> None:
        if error.message != self._problem:
            self._problem = error.message
            self._log.warn("old Leases cannot be removed: {why}", why=error.message)


def _name(digest: str) -> str:
    return f"{_NAME}{digest[:_DIGITS]}"
