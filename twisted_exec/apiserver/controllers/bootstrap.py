"""
Create the system objects, which a server needs, and keep aggregated ClusterRoles complete.

As in kube-apiserver, missing rules and subjects are added to an existing object with the annotation
``rbac.authorization.kubernetes.io/autoupdate: "true"``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api import kinds
from twisted_exec.api.kinds import CLUSTERROLES, Kind, Object
from twisted_exec.api.kinds.events import WARNING
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Conflict,
    NotFound,
    RequestEntityTooLarge,
    ServiceUnavailable,
)
from twisted_exec.apiserver.controllers.namespaces import PERMANENT, ensure_namespaces
from twisted_exec.apiserver.serving.client import own_recorder
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.verbs import OURSELVES, RequestTarget, Verbs, check_size
from twisted_exec.auth.rbac import Permissions, RBACObjects
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.runs import Failures, readable
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.interfaces import DELETED, Event, IStorage

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"

_KINDS: dict[str, Kind] = {
    kind.resource.kind: kind for kind in (kinds.CLUSTERROLES, kinds.CLUSTERROLEBINDINGS)
}
_ATTEMPTS = 5


async def bootstrap(
    storage: IStorage, verbs: Verbs, objects: Iterable[Object], namespaces: Iterable[str] = ()
) -> int:
    """
    Create missing objects, and complete existing ones.

    :param verbs: without admission.
    :param objects: roles before their bindings.
    :return: the number of created objects.
    """
    created = await ensure_namespaces(verbs, storage, namespaces)
    for obj in objects:
        created += await _ensure(storage, verbs, obj)
    return created


class SystemObjects(StoreFollower):
    """
    Creates the system objects again when the store may have lost them.

    :param verbs: without admission.
    """

    _log = Logger()

    def __init__(
        self,
        storage: IStorage,
        verbs: Verbs,
        objects: Sequence[Object],
        namespaces: Sequence[str],
        clock: IReactorTime,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock)
        self._verbs, self._objects, self._namespaces = verbs, objects, namespaces
        self._loop = PokedLoop(
            self._run, clock, refused=self._refused, metrics=metrics.of("system-objects")
        )
        self.add_part(self._loop, None)
        self._may_lack_objects = False

    def followed(self) -> tuple[Followed, ...]:
        return (Followed(kinds.NAMESPACES.resource, self._changed, lost=self._loop.poke),)

    def probe(self) -> None:
        """
        Check that the store has the system objects.

        :raises ServiceUnavailable: the store may lack system objects.
        """
        if self._may_lack_objects:
            raise ServiceUnavailable("the store has lost system namespaces or roles")

    def _changed(self, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        if event.type == DELETED and name in PERMANENT:
            self._log.error("another program deleted namespace {name} from the store", name=name)
            self._loop.poke()

    async def _run(self) -> None:
        self._may_lack_objects = True
        created = await bootstrap(self._storage, self._verbs, self._objects, self._namespaces)
        self._may_lack_objects = False
        self._log.info(
            "the system objects are complete: created {count} namespaces, roles and bindings again",
            count=created,
        )

    def _refused(self, error: APIError, failures: int) -> None:
        message = "cannot create the system objects again: {why}"
        self._log.warn(message, why=error.message)


async def _ensure(storage: IStorage, verbs: Verbs, desired: Object) -> bool:
    for attempt in range(_ATTEMPTS):
        try:
            return await _make_or_complete(storage, verbs, desired)
        except (AlreadyExists, Conflict):  # another server wrote first
            if attempt == _ATTEMPTS - 1:
                raise
    return False


async def _make_or_complete(storage: IStorage, verbs: Verbs, desired: Object) -> bool:
    kind, name = _KINDS[desired["kind"]], desired["metadata"]["name"]
    target = RequestTarget(kind, "", name)
    try:
        stored = await storage.get(kind.resource, "", name)
    except NotFound:
        body = copy.deepcopy(desired)
        body["metadata"].setdefault("annotations", {})[AUTOUPDATE] = "true"
        await verbs.create(OURSELVES, RequestTarget(kind), body, WriteOptions(manager=MANAGER))
        return True
    if stored["metadata"].get("annotations", {}).get(AUTOUPDATE) == "true":
        await verbs.update(
            OURSELVES, target, _completed(stored, desired), WriteOptions(manager=MANAGER)
        )
    return False


def _completed(stored: Object, desired: Object) -> Object:
    result = copy.deepcopy(stored)
    for key in ("rules", "subjects"):
        if key in desired:
            have = result.setdefault(key, [])
            have += [item for item in copy.deepcopy(desired[key]) if item not in have]
    return result


NOT_AGGREGATED = "RulesNotAggregated"
"""Reason of the Event about a ClusterRole whose rules cannot be written."""


def plan_rules(role: Object, policy: Permissions) -> Object | None:
    """Return an aggregated role with the rules that it gives; ``None`` if it has them."""
    given = policy.rules_of({"kind": "ClusterRole", "name": role["metadata"]["name"]}, "")
    rules = [rule.to_object() for rule in given or ()]
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
                check_size(new)
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
