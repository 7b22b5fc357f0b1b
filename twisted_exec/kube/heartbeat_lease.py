"""
A Lease that one holder renews, as a heartbeat.

Sources: ``k8s.io/component-helpers/apimachinery/lease/controller.go`` for Nodes, and ironcore v0.5
``poollet/machinepoollet/controllers/machinepool_heartbeat.go``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from twisted.logger import Logger

from twisted_exec.api.kinds import LEASES
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.api.times import precise_timestamp
from twisted_exec.kube.interfaces import IKubeClient, Object

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
