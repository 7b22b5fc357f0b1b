"""
RBAC from stored objects: the authorizer's rule source, and privilege escalation prevention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api import kinds
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.users import MASTERS
from twisted_exec.apiserver.interfaces import DELETE, Change, IAdmission
from twisted_exec.auth.rbac import IRuleSource, RBACAuthorizer, RBACObjects
from twisted_exec.auth.rules import ALL_RULES, Attributes, Rule
from twisted_exec.program.tasks import as_deferred
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.interfaces import Event, IStorage

_ROLES = (kinds.ROLES, kinds.CLUSTERROLES)
_BINDINGS = (kinds.ROLEBINDINGS, kinds.CLUSTERROLEBINDINGS)

_BOOKKEEPING = ("ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation")


@implementer(IRuleSource)
class StoredRules(StoreFollower):
    """
    Stored roles and bindings.

    They have no work queue: a right that is withdrawn ends with the change itself.
    """

    def __init__(self, storage: IStorage) -> None:
        super().__init__(storage)
        self._objects: RBACObjects | None = None
        self._changes = 0
        self._waiting: dict[int, list[Deferred[RBACObjects]]] = {}
        self.changed: Callable[[], None] = lambda: None

    def followed(self) -> list[Followed]:
        return [Followed(kind.resource, self._note) for kind in (*_ROLES, *_BINDINGS)]

    def snapshot(self) -> Deferred[RBACObjects]:
        if self._objects is not None:
            return succeed(self._objects)
        waiter: Deferred[RBACObjects] = Deferred()
        waiting = self._waiting.setdefault(self._changes, [])
        waiting.append(waiter)
        if len(waiting) == 1:
            Deferred.fromCoroutine(self._fetch()).addBoth(self._fetched, self._changes)
        return waiter

    async def _fetch(self) -> RBACObjects:
        return RBACObjects(
            cluster_roles=await self._all(kinds.CLUSTERROLES.resource),
            cluster_role_bindings=await self._all(kinds.CLUSTERROLEBINDINGS.resource),
            roles=await self._all(kinds.ROLES.resource),
            role_bindings=await self._all(kinds.ROLEBINDINGS.resource),
        )

    def _fetched(self, result: RBACObjects | Failure, changes: int) -> None:
        if not isinstance(result, Failure) and self.running and changes == self._changes:
            self._objects = result
        for waiter in self._waiting.pop(changes):
            if not waiter.called:  # its caller may have cancelled it
                waiter.callback(result)

    async def _all(self, resource: Resource) -> list[Object]:
        return list((await self._storage.list(resource)).items)

    def _note(self, event: Event) -> None:
        self._objects = None
        self._changes += 1
        self.changed()


@implementer(IAdmission)
class Escalation:
    """
    Refuses grants beyond the user's own permissions.

    As Kubernetes: writing a role needs its rules or the verb ``escalate`` on it;
    writing a binding needs the role's rules or the verb ``bind`` on the role.
    """

    def __init__(self, authorizer: RBACAuthorizer, storage: IStorage) -> None:
        self._authorizer = authorizer
        self._storage = storage

    @as_deferred
    async def admit(self, change: Change) -> None:
        new = change.new
        if new is None or change.operation == DELETE or MASTERS in change.user.groups:
            return
        if _substance(new) == _substance(change.old):
            return
        if change.kind in _ROLES:
            await self._admit_role(change, new)
        elif change.kind in _BINDINGS:
            await self._admit_binding(change, new)

    async def _admit_role(self, change: Change, role: Object) -> None:
        if await self._may(change, "escalate", change.kind, role["metadata"]["name"]):
            return
        rules = [Rule.from_object(rule) for rule in role.get("rules", [])]
        if role.get("aggregationRule") or (change.old or {}).get("aggregationRule"):
            rules += ALL_RULES  # it could aggregate any rule, if not today then tomorrow
        await self._authorizer.confirm_covered(change.user, _namespace(role), rules)

    async def _admit_binding(self, change: Change, binding: Object) -> None:
        reference, namespace = binding["roleRef"], _namespace(binding)
        kind = kinds.CLUSTERROLES if reference["kind"] == "ClusterRole" else kinds.ROLES
        if await self._may(change, "bind", kind, reference["name"]):
            return
        # A role that does not exist covers nothing today and anything tomorrow.
        where = namespace if kind is kinds.ROLES else ""
        await self._storage.get(kind.resource, where, reference["name"])
        rules = await self._authorizer.rules_of(reference, namespace)
        await self._authorizer.confirm_covered(change.user, namespace, rules)

    async def _may(self, change: Change, verb: str, kind: Kind, name: str) -> bool:
        resource = kind.resource
        decision = await self._authorizer.authorize(
            Attributes(
                user=change.user,
                verb=verb,
                group=resource.group,
                version=resource.version,
                resource=resource.plural,
                namespace=_namespace(change.obj),
                name=name,
            )
        )
        return decision.allows_everything


def _namespace(obj: Object) -> str:
    return str(obj["metadata"].get("namespace", ""))


def _substance(obj: Mapping[str, Any] | None) -> Any:
    """
    Return an object without bookkeeping metadata.

    Everything else counts, as in Kubernetes: even a label can put a role into an aggregated one.
    """
    if obj is None:
        return None
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _BOOKKEEPING}
    return {**obj, "metadata": metadata}
