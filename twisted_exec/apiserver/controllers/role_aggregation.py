"""
Fill in ``rules`` of aggregated ClusterRoles.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds import CLUSTERROLES, Object
from twisted_exec.api.kinds.events import WARNING
from twisted_exec.api.status import (
    APIError,
    Conflict,
    NotFound,
    RequestEntityTooLarge,
)
from twisted_exec.apiserver.serving.client import own_recorder
from twisted_exec.apiserver.serving.verbs import Verbs, limit_size
from twisted_exec.auth.rbac import Permissions, RBACObjects
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.runs import Failures, readable
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.interfaces import Event, IStorage

NOT_AGGREGATED = "RulesNotAggregated"
"""Reason of the Event about a ClusterRole whose rules cannot be written."""


def plan_rules(role: Object, policy: Permissions) -> Object | None:
    """Return an aggregated role with the rules that it gives; ``None`` if it has them."""
    granted = policy.rules_of({"kind": "ClusterRole", "name": role["metadata"]["name"]}, "")
    rules = [rule.to_object() for rule in granted or ()]
    return None if role.get("rules", []) == rules else {**copy.deepcopy(role), "rules": rules}


class RoleAggregation(StoreFollower):
    """
    Writes ``rules`` of ClusterRoles that have an ``aggregationRule``, for people who read them.

    :param verbs: without admission, for Events.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        storage: IStorage,
        verbs: Verbs,
        clock: IReactorTime,
        now: Callable[[], float],
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock)
        self._recorder = own_recorder(
            verbs, clock, now, about=CLUSTERROLES.resource, component="role-aggregation"
        )
        self._troubled: set[str] = set()
        """UIDs of roles with an Event."""
        self._loop = PokedLoop(
            self._gather, clock, refused=self._refused, metrics=metrics.of("role-aggregation")
        )
        self.add_part(self._recorder)
        self.add_part(self._loop)

    def stopService(self) -> Deferred[None]:
        self._troubled.clear()
        return super().stopService()

    def followed(self) -> tuple[Followed, ...]:
        return (Followed(CLUSTERROLES.resource, self._changed),)

    def _changed(self, event: Event) -> None:
        self._loop.poke()

    async def _gather(self) -> None:
        roles, failures = (await self._storage.list(CLUSTERROLES.resource)).items, Failures()
        policy = Permissions(RBACObjects(cluster_roles=roles))
        for role in roles:
            if role.get("aggregationRule"):
                with failures.noted():
                    await self._complete(role, policy)
        failures.raise_first()

    async def _complete(self, role: Object, policy: Permissions) -> None:
        uid = role["metadata"]["uid"]
        try:
            new = plan_rules(role, policy)
            if new is not None:
                limit_size(new)
                await self._storage.update(CLUSTERROLES.resource, new)
            self._troubled.discard(uid)
        except (Conflict, NotFound):
            pass  # changed meanwhile, which triggers the next run
        except CancelledError:
            raise
        except Exception as error:
            self._tell_once(role, readable(error).message)
            if not isinstance(error, RequestEntityTooLarge):  # only a change of a role helps
                raise

    def _tell_once(self, role: Object, why: str) -> None:
        uid = role["metadata"]["uid"]
        if uid not in self._troubled:
            self._troubled.add(uid)
            message = f"the rules of this role are not shown as they are in force: {why}"
            self._recorder.record(role, WARNING, NOT_AGGREGATED, message)

    def _refused(self, error: APIError, failures: int) -> None:
        if failures == 1:
            message = "cannot write the rules of aggregated cluster roles: {why}"
            self._log.warn(message, why=error.message)
