"""
PoolRestriction: limit each poollet to its own pool.

It opens no streams, which would show it what tenants type, and does not become another user, to
whom no restriction applies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from zope.interface import implementer

from twisted_exec.api import kinds
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Forbidden, NotFound
from twisted_exec.apiserver.interfaces import CREATE, DELETE, UPDATE, Change
from twisted_exec.apiserver.restriction.agents import (
    asks_for,
    check_limit,
    forbidden_action,
    is_requested_by,
)
from twisted_exec.apiserver.restriction.pool_graph import PoolGraph
from twisted_exec.apiserver.restriction.visibility import FixedVisibility
from twisted_exec.apiserver.signing.interfaces import CLIENT, SERVING
from twisted_exec.auth.interfaces import Decision, IVisibility, User
from twisted_exec.auth.rules import Attributes
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import IStorage

_CLAIM_FIELDS = {"volumes": ("claimRef",), "networkinterfaces": ("machineRef", "providerID")}
"""Fields of the spec that a poollet writes; the first names the Machine that has the object."""

_WRITABLE_METADATA = ("finalizers", "annotations", "managedFields", "resourceVersion", "generation")
"""The fields of a Machine that a poollet may change besides its status."""

_COLLECTION_VERBS = ("list", "watch")
_REQUESTS = kinds.CERTIFICATESIGNINGREQUESTS.resource
_DELETED = kinds.DELETEDCONSOLES.resource
_RECORDINGS = kinds.CONSOLERECORDINGS.resource
_ALERTS = kinds.CONSOLEALERTS.resource


class PoolRestriction:
    """
    Limits each poollet of one dialect to its own pool.

    A poollet reads the Machines that are bound to its pool, and of objects such as Secrets what
    these Machines need (:mod:`twisted_exec.apiserver.restriction.pool_graph`). It writes its pool,
    and little more than the status of the objects that it sees. It opens no consoles.

    A user with only the name, or only the group, of a poollet may read and write no objects.
    """

    def __init__(
        self, dialect: Dialect, storage: IStorage, graph: PoolGraph, *, pods_view: bool
    ) -> None:
        self._dialect, self._storage, self._graph = dialect, storage, graph
        self._pods_view = pods_view
        self.groups: Collection[str] = (dialect.pool_identity_group,)
        self.prefixes: Collection[str] = (dialect.pool_identity_prefix,)
        self._needed = {(each.group, each.plural): each for each in graph.resources}

    def pool_of(self, user: User) -> str | None:
        """
        Return the pool whose poollet the user is, or ``None``.

        :raises Forbidden: the user claims to be a poollet, but is not that of one pool.
        """
        pool = self._dialect.pool_of(user.name)
        is_member = self._dialect.pool_identity_group in user.groups
        has_prefix = user.name.startswith(self._dialect.pool_identity_prefix)
        if pool is None and not is_member and not has_prefix:
            return None
        if pool is None or not is_member:
            raise Forbidden(
                f'user "{user.name}" is not the poollet of one pool: its name must be '
                f"{self._dialect.pool_identity_prefix}POOL, its group "
                f"{self._dialect.pool_identity_group}"
            )
        return pool

    def decide(self, attributes: Attributes) -> Decision | None:
        try:
            pool = self.pool_of(attributes.user)
        except Forbidden as problem:
            return Decision(False, problem.message)
        if pool is None:
            return None
        if action := forbidden_action(attributes, self._dialect.noun):
            return self._refused(pool, action)
        if attributes.verb == "create":
            return None  # there is no object yet; admission sees what is to be created
        resource = (attributes.group, attributes.resource)
        if resource == ("", "pods") and self._pods_view:
            return self._refused(pool, "see pods")
        if resource == (self._dialect.group, self._dialect.workload.plural):
            return self._decide_workload(pool, attributes)
        if resource == (_DELETED.group, _DELETED.plural):
            if attributes.verb in _COLLECTION_VERBS:
                return self._refused(pool, f"list {_DELETED.plural}")
            was_own = partial(_was_in, pool=pool, resource=self._dialect.workload.qualified)
            return _only_of_pool(was_own, _DELETED)
        if resource == (_RECORDINGS.group, _RECORDINGS.plural):
            is_here = partial(_was_in, pool=pool, resource=self._dialect.workload.qualified)
            return _only_of_pool(is_here, _RECORDINGS)
        if resource == (_REQUESTS.group, _REQUESTS.plural):
            is_own = partial(is_requested_by, user=attributes.user)
            return _only_of_pool(is_own, _REQUESTS)
        if resource in self._needed:
            return self._decide_needed(pool, attributes, self._needed[resource])
        return None

    def _decide_workload(self, pool: str, attributes: Attributes) -> Decision | None:
        if attributes.verb not in _COLLECTION_VERBS:
            # Reading it shows its owner.
            workload = self._dialect.workload
            return _only_of_pool(lambda machine: self._dialect.pool_name(machine) == pool, workload)
        # The selector says it all; a visibility would cost each watch a copy of what it has sent.
        field = self._dialect.pool_field
        if attributes.field_selector.required(field) == pool:
            return None
        plural = self._dialect.workload.plural
        return self._refused(pool, f"see {plural} without the field selector {field}={pool}")

    def _decide_needed(
        self, pool: str, attributes: Attributes, resource: Resource
    ) -> Decision | None:
        namespace, name = attributes.namespace, attributes.name
        # By name alone: the answer must not tell whether an object exists.
        if attributes.verb not in _COLLECTION_VERBS and not self._graph.sees(
            pool, resource, namespace, name
        ):
            needs_none = f"no {self._dialect.noun} of it needs that"
            return self._refused(pool, f'see {resource.plural} "{name}": {needs_none}')
        refusal = partial(self._invisible, pool, resource)
        return Decision(True, visibility=NeededByPool(self._graph, pool, resource, refusal))

    def _invisible(self, pool: str, resource: Resource, obj: Object) -> Forbidden:
        return self._refuse(pool, f'see {resource.plural} "{obj["metadata"]["name"]}"')

    async def admit(self, change: Change) -> None:
        pool = self.pool_of(change.user)
        if pool is None:
            return
        if change.kind is kinds.EVENTS or change.kind is kinds.EVENTS_V1:
            allowed = await self._allows_event(pool, change)
        else:
            allowed = self._allows(pool, change)
        if not allowed:
            name = change.obj["metadata"].get("name", "")
            action = f'{change.operation} {change.kind.resource.plural} "{name}"'
            raise self._refuse(pool, action)
        if change.kind is kinds.CERTIFICATESIGNINGREQUESTS:
            label = f'the poollet of {self._dialect.pool_noun} "{pool}"'
            await check_limit(self._storage, change.user, label)

    def _pool(self, machine: Object) -> str:
        return self._dialect.pool_name(machine)

    def _allows(self, pool: str, change: Change) -> bool:
        name = change.obj["metadata"].get("name")
        if change.kind.resource == self._dialect.pool:
            return bool(name == pool)
        if change.kind is kinds.LEASES:
            # The pool's heartbeat.  A Lease of the same name in another namespace may be that of a
            # Node, or the leader election of the API servers.
            home = self._dialect.lease_namespace
            return bool(name == pool and home and change.obj["metadata"].get("namespace") == home)
        if change.kind is kinds.CERTIFICATESIGNINGREQUESTS and change.new is not None:
            return change.operation == CREATE and asks_for(
                change.new, change.user.name, (SERVING, CLIENT)
            )
        if change.operation != UPDATE:
            return False
        if change.kind.resource == self._dialect.workload:
            return self._allows_machine(pool, change)
        if change.kind is kinds.CONSOLEALERTS:
            return self._allows_alert(pool, change)
        if change.kind is kinds.CONSOLERECORDINGS:
            return (
                change.subresource == "status"
                and change.old is not None
                and _was_in(change.old, pool=pool, resource=self._dialect.workload.qualified)
            )
        return self._allows_claim(pool, change)

    def _allows_claim(self, pool: str, change: Change) -> bool:
        changing = _CLAIM_FIELDS.get(change.kind.resource.plural)
        resource, (namespace, name) = change.kind.resource, key_of(change.obj)
        if changing is None or change.old is None or change.new is None:
            return False
        if not self._graph.sees(pool, resource, namespace, name):
            return False
        if change.subresource:
            return "providerID" in changing
        for obj in (change.old, change.new):
            claim = obj["spec"].get(changing[0])
            if claim and not self._graph.is_own(pool, claim.get("uid", "")):
                return False
        return _fixed(_without(change.old, changing)) == _fixed(_without(change.new, changing))

    def _allows_machine(self, pool: str, change: Change) -> bool:
        old, new = change.old, change.new
        if old is None or new is None or self._pool(old) != pool:
            return False
        if change.subresource == "status":
            return True
        return _fixed(old) == _fixed(new)

    def _allows_alert(self, pool: str, change: Change) -> bool:
        if change.subresource != "status" or change.old is None or change.new is None:
            return False
        namespace, name = key_of(change.obj)
        if not self._graph.sees(pool, change.kind.resource, namespace, name):
            return False
        own = f"{self._dialect.pool.plural}.{self._dialect.pool.group}", pool
        return _entries_of_others(change.old, own) == _entries_of_others(change.new, own)

    async def _allows_event(self, pool: str, change: Change) -> bool:
        if change.operation == DELETE:
            return False
        key = "involvedObject" if change.kind is kinds.EVENTS else "regarding"
        for event in (change.old, change.new):
            if event is not None and not await self._is_own(pool, event[key]):
                return False
        return True

    async def _is_own(self, pool: str, involved: Object) -> bool:
        kind = (involved.get("apiVersion"), involved.get("kind"))
        workload, own_pool = self._dialect.workload, self._dialect.pool
        if kind == (own_pool.api_version, own_pool.kind):
            return bool(involved.get("name") == pool)
        for resource in (workload, _RECORDINGS, _ALERTS):
            if kind == (resource.api_version, resource.kind):
                break
        else:
            return False
        namespace, name = involved.get("namespace", ""), involved.get("name", "")
        try:
            obj = await self._storage.get(resource, namespace, name)
        except NotFound:
            return False
        if obj["metadata"]["uid"] != involved.get("uid"):
            return False  # one of the same name was deleted
        if resource == _ALERTS:
            return self._graph.sees(pool, resource, namespace, name)
        if resource == _RECORDINGS:
            return _was_in(obj, pool=pool, resource=workload.qualified)
        return self._pool(obj) == pool  # it may belong to another pool now

    def _reason(self, pool: str, action: str) -> str:
        return f'the poollet of {self._dialect.pool_noun} "{pool}" may not {action}'

    def _refuse(self, pool: str, action: str) -> Forbidden:
        return Forbidden(self._reason(pool, action))

    def _refused(self, pool: str, action: str) -> Decision:
        return Decision(False, self._reason(pool, action))


@implementer(IVisibility)
class NeededByPool:
    """The objects of one resource that the Machines of a pool need."""

    def __init__(
        self,
        graph: PoolGraph,
        pool: str,
        resource: Resource,
        refusal: Callable[[Object], APIError],
    ) -> None:
        self._graph, self._pool, self._resource = graph, pool, resource
        self._refusal = refusal

    def sees(self, obj: Object) -> bool:
        namespace, name = key_of(obj)
        return self._graph.sees(self._pool, self._resource, namespace, name)

    def refusal(self, obj: Object) -> APIError:
        return self._refusal(obj)

    def since(self) -> int:
        return self._graph.since(self._pool)

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        count = self._graph.changes(self._pool)

        def compare() -> None:
            nonlocal count
            before, count = count, self._graph.changes(self._pool)
            if count != before:  # else another pool's Machines have changed
                changed()

        return self._graph.on_change(compare)


def _only_of_pool(sees: Callable[[Object], bool], resource: Resource) -> Decision:
    def refusal(obj: Object) -> NotFound:
        # As if there were none: another answer would tell the names of other pools' objects.
        return NotFound(resource.plural, obj["metadata"]["name"], resource.group)

    return Decision(True, visibility=FixedVisibility(sees, refusal))


def _was_in(obj: Object, *, pool: str, resource: str) -> bool:
    spec = obj["spec"]
    return bool(spec.get("pool") == pool and spec.get("machineResource") == resource)


def _entries_of_others(alert: Object, own: tuple[str, str]) -> list[Object]:
    pools = (alert.get("status") or {}).get("pools") or ()
    return [each for each in pools if (each.get("resource"), each.get("name")) != own]


def _without(obj: Object, keys: Iterable[str]) -> Object:
    spec = {key: value for key, value in obj["spec"].items() if key not in keys}
    return {**obj, "spec": spec}


def _fixed(obj: Mapping[str, Any]) -> Object:
    metadata = {
        key: value for key, value in obj["metadata"].items() if key not in _WRITABLE_METADATA
    }
    return {**obj, "metadata": metadata}
