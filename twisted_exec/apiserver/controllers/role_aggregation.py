"""
Fill in ``rules`` of aggregated ClusterRoles.

Authorization does not depend on this: the authorizer aggregates by itself
(:mod:`twisted_exec.auth.rbac.authorizer`).  It is for people who read ``rules``; in Kubernetes the
controller manager writes them.
"""

from __future__ import annotations

import copy

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.kinds import CLUSTERROLES, Object
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.controllers.coalescing import CoalescedRuns
from twisted_exec.apiserver.serving.verbs import check_size
from twisted_exec.auth.rbac.authorizer import Policy, RBACObjects
from twisted_exec.storage.follower import Followed, StoreFollower, log_failure
from twisted_exec.storage.interfaces import Event, IStorage

_RETRY_SECONDS = 5.0


class RoleAggregation(StoreFollower):
    """
    Writes ``rules`` of ClusterRoles that have an ``aggregationRule``.

    :param storage: started before this service is.
    """

    _log = Logger()

    def __init__(self, storage: IStorage, clock: IReactorTime) -> None:
        super().__init__(storage)
        self._clock = clock
        self._retry: IDelayedCall | None = None
        self._passes = CoalescedRuns(self._gather, self._failed, self._look)

    def startService(self) -> None:
        """Aggregate now, and follow ClusterRoles."""
        super().startService()
        self._look()

    def stopService(self) -> None:
        """Stop following ClusterRoles."""
        super().stopService()
        if self._retry is not None and self._retry.active():
            self._retry.cancel()

    def followed(self) -> tuple[Followed, ...]:
        """See :meth:`StoreFollower.followed`."""
        return (Followed(CLUSTERROLES.resource, self._changed),)

    def _changed(self, event: Event) -> None:
        self._look()

    def _look(self) -> None:
        if self.running:
            self._passes.ask()

    async def _gather(self) -> None:
        roles = (await self._storage.list(CLUSTERROLES.resource)).items
        policy = Policy(RBACObjects(cluster_roles=roles))
        for role in roles:
            if role.get("aggregationRule"):
                aggregated = policy.rules_of(
                    {"kind": "ClusterRole", "name": role["metadata"]["name"]}, ""
                )
                await self._write(role, [rule.to_object() for rule in aggregated or ()])

    async def _write(self, role: Object, rules: list[Object]) -> None:
        if role.get("rules", []) == rules:
            return
        new = copy.deepcopy(role)
        new["rules"] = rules
        try:
            check_size(new)  # aggregated rules can exceed the size limit of an object
            await self._storage.update(CLUSTERROLES.resource, new)
        except APIError:
            return  # changed meanwhile (that triggers the next run), or the store is read-only

    def _failed(self, failure: Failure) -> None:
        if self.running:
            log_failure(self._log, "cannot write the rules of aggregated cluster roles", failure)
            if self._retry is None or not self._retry.active():
                self._retry = self._clock.callLater(_RETRY_SECONDS, self._look)
