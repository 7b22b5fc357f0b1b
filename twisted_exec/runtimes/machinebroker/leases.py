"""
Claims that all replicas see: one Lease in the target cluster for each token that was used.

The API server makes an object of one name once, so of two replicas one gets it; the other is told
``AlreadyExists``.  The name is made of the token's hash, which leads back to no token.  Lease is the
kind in which components of a cluster agree on who has something; it holds nothing else here.  When
tokens have long expired their Leases are removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import AlreadyExists, APIError, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.api.times import seconds
from twisted_exec.kube.interfaces import IKubeClient, Object

from .tokens import ILedger

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
SWEEP_SECONDS = 60.0
KEPT_SECONDS = 120.0
"""Behind a token's end, for clocks of replicas that differ."""

_NAME = "exec-token-"
_DIGITS = 40


@implementer(ILedger)
class LeaseLedger:
    """
    :param label: marks these Leases among others of the namespace.
    :param holder: which of the replicas this is, for people who look.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        namespace: str,
        label: str,
        holder: str,
        clock: Any,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._namespace, self._label = client, namespace, label
        self._holder, self._now = holder, now
        self._sweeper = LoopingCall(self.sweep)
        self._sweeper.clock = clock
        self._sweeping: Deferred[None] | None = None
        self._problem = ""

    def start(self) -> None:
        """Begin to remove what is old."""
        self._sweeper.start(SWEEP_SECONDS)

    def stop(self) -> None:
        """Remove no more."""
        if self._sweeper.running:
            self._sweeper.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def take(self, digest: str, expires: float) -> Deferred[bool]:
        """See :meth:`ILedger.take`."""
        return Deferred.fromCoroutine(self._take(digest, expires))

    def give_back(self, digest: str) -> Deferred[None]:
        """See :meth:`ILedger.give_back`."""
        return Deferred.fromCoroutine(self._give_back(digest))

    async def _take(self, digest: str, expires: float) -> bool:
        # Whoever gives up meanwhile does not know whose the Lease is that may be there by then: another
        # replica's is not to be removed, so the token stays spent.
        try:
            await self._client.create(LEASES, self._lease(digest, expires), self._namespace)
        except APIError as error:
            if error.reason == AlreadyExists.reason:
                return False
            raise self._refusal(error) from None
        return True

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
                "the target cluster does not let it keep which tokens were used: it needs "
                f'create, delete and list on {LEASES.qualified} in the namespace "{self._namespace}"'
            )
        else:
            why = f"the target cluster cannot be asked which tokens were used: {error.message}"
        if why != self._problem:
            self._problem = why
            self._log.error("no console can be opened: {why}; {told}", why=why, told=error.message)
        return ServiceUnavailable(
            f"this broker opens no consoles now: {why}", retry_after_seconds=5
        )

    async def _give_back(self, digest: str) -> None:
        try:
            await self._client.delete(LEASES, _name(digest), self._namespace)
        except APIError as error:
            if error.code != NotFound.code:
                self._log.info("a token that was not used stays spent: {why}", why=error.message)

    async def probe(self) -> None:
        """:raises APIError: claims could not be looked at now, so probably not be made."""
        try:
            await self._client.list(LEASES, self._namespace, label_selector=f"{self._label}=token")
        except APIError as error:
            raise self._refusal(error) from None

    def sweep(self) -> Deferred[None]:
        """Remove what is of no use any more; never fails."""
        self._sweeping = Deferred.fromCoroutine(self._sweep()).addErrback(self._failed)
        return self._sweeping

    async def _sweep(self) -> None:
        listed = await self._client.list(
            LEASES, self._namespace, label_selector=f"{self._label}=token"
        )
        for lease in listed["items"]:
            if self._is_old(lease):
                await self._give_back(lease["metadata"]["name"].removeprefix(_NAME))
        self._problem = ""

    def _is_old(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        try:
            ends = seconds(spec["renewTime"]) + spec["leaseDurationSeconds"]
        except (KeyError, TypeError, ValueError):
            return False  # somebody else's idea of a Lease
        return bool(ends + KEPT_SECONDS < self._now())

    def _failed(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        if not failure.check(APIError):
            self._log.failure("removing old Leases failed", failure)
        elif failure.getErrorMessage() != self._problem:
            self._problem = failure.getErrorMessage()
            self._log.warn("old Leases cannot be removed: {why}", why=self._problem)


def _name(digest: str) -> str:
    return f"{_NAME}{digest[:_DIGITS]}"
