"""
PoolRestriction: limits each poollet to its own pool.

RBAC gives all poollets one role, which cannot say "the pool that your
certificate names".  This says it, as Kubernetes' node authorizer and
NodeRestriction say it for kubelets: without it one poollet could point another
pool's address at itself and be handed its consoles.

Of Secrets, Volumes, NetworkInterfaces, Networks and Prefixes a poollet sees those that its
machines need (:mod:`twisted_exec.apiserver.restriction.pool_graph`), and may claim volumes and interfaces for
these machines and give them back.  Of CertificateSigningRequests it sees its own, and may ask
for nobody else.  Kubernetes refuses lists to kubelets and has them ask by name; ironcore's
poollet lists, so here a list has what may be seen and nothing else.

A user is a poollet when its name has the dialect's prefix or it is in the
dialect's group; someone in the group whose name is no pool's may write nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api import kinds
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.selectors import FieldSelector
from twisted_exec.api.status import Forbidden, NotFound, TooManyRequests
from twisted_exec.apiserver.interfaces import CREATE, DELETE, UPDATE, Change, IAdmission
from twisted_exec.apiserver.restriction.filtered_storage import IVisibility
from twisted_exec.apiserver.restriction.own_requests import MOST_REQUESTS, OwnRequests, asks_for
from twisted_exec.apiserver.restriction.pool_graph import PoolGraph
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.apiserver.signing.csr import CLIENT, SERVING
from twisted_exec.auth.interfaces import User
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import IStorage

_CLAIMED = {"volumes": ("claimRef",), "networkinterfaces": ("machineRef", "providerID")}
"""What of the spec of these a poollet writes, first whose they are."""

# What a poollet may change of a Machine besides its status.
_OWN_METADATA = ("finalizers", "annotations", "managedFields", "resourceVersion", "generation")


@implementer(IAdmission)
class PoolRestriction:
    """
    Keeps each poollet to its own pool.

    :param storage: knows whose the objects of Events are.
    :param graph: knows what each pool's machines need.
    """

    def __init__(self, dialect: Dialect, storage: IStorage, graph: PoolGraph) -> None:
        self._dialect, self._storage, self._graph = dialect, storage, graph

    def pool_of(self, user: User) -> str | None:
        """
        The pool whose poollet this is, ``None`` for anyone else.

        :raises Forbidden: it claims to be a poollet and names no pool.
        """
        pool = self._dialect.pool_of(user.name)
        member = self._dialect.pool_identity_group in user.groups
        if (
            pool is None
            and not member
            and not user.name.startswith(self._dialect.pool_identity_prefix)
        ):
            return None
        if pool is None or not member:
            raise Forbidden(
                f'user "{user.name}" is not the poollet of one pool: its name must be '
                f"{self._dialect.pool_identity_prefix}POOL, its group "
                f"{self._dialect.pool_identity_group}"
            )
        return pool

    def check_get(self, user: User, kind: Kind, obj: Object) -> None:
        """
        :raises Forbidden: the object belongs to another pool, or may do so.
        """
        pool = self.pool_of(user)
        if pool is not None and kind is kinds.PODS:
            raise self._refuse(pool, "see pods")
        if pool is not None and self._is_workload(kind) and self._pool(obj) != pool:
            raise self._refuse(
                pool, f"see {self._dialect.noun} {obj['metadata']['name']} of another pool"
            )
        visibility = self.visibility_of(user, kind)
        if pool is not None and visibility is not None and not visibility.sees(obj):
            raise self._refuse(pool, f"see {_told(kind, obj['metadata']['name'])}")

    def check_name(self, user: User, target: Target) -> None:
        """
        Whether something may be asked for, which may not even be there.

        :raises Forbidden: none of the pool's machines needs what has this name.
        """
        pool = self.pool_of(user)
        resource, name = target.kind.resource, target.name
        if pool is None or resource not in self._graph.seen:
            return
        if not self._graph.sees(pool, resource, target.namespace, name):
            raise self._refuse(
                pool, f"see {_told(target.kind, name)}: no {self._dialect.noun} of it needs that"
            )

    def visibility_of(self, user: User, kind: Kind) -> IVisibility | None:
        """What of a kind this user sees; ``None``: whatever it may list at all."""
        pool = self.pool_of(user)
        if pool is None:
            return None
        if kind is kinds.CERTIFICATESIGNINGREQUESTS:
            return OwnRequests(user)
        if kind.resource not in self._graph.seen:
            return None
        return _NeededByPool(self._graph, pool, kind.resource)

    def check_list(self, user: User, kind: Kind, chosen: FieldSelector) -> None:
        """
        :raises Forbidden: it would show machines of other pools.
        """
        pool = self.pool_of(user)
        field = self._dialect.pool_field
        if pool is not None and kind is kinds.PODS:
            raise self._refuse(pool, "see pods")
        if pool is not None and self._is_workload(kind) and chosen.required(field) != pool:
            raise self._refuse(
                pool,
                f"see {self._dialect.workload.plural} without the field selector {field}={pool}",
            )

    def check_connect(self, user: User, name: str) -> None:
        """
        :raises Forbidden: poollets open no consoles.
        """
        pool = self.pool_of(user)
        if pool is not None:
            raise self._refuse(pool, f"open the console of {self._dialect.noun} {name}")

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`."""
        return Deferred.fromCoroutine(self._admit(change))

    async def _admit(self, change: Change) -> None:
        pool = self.pool_of(change.user)
        if pool is None:
            return
        told = f"{change.operation} {change.kind.resource.plural}"
        told += f' "{change.obj["metadata"].get("name", "")}"'
        if change.kind is kinds.EVENTS or change.kind is kinds.EVENTS_V1:
            allowed = await self._allows_event(pool, change)
        else:
            allowed = self._allows(pool, change)
        if not allowed:
            raise self._refuse(pool, told)
        if change.kind is kinds.CERTIFICATESIGNINGREQUESTS:
            await self._check_requests(pool, change.user)

    async def _check_requests(self, pool: str, user: User) -> None:
        """However wrong its clock or its addresses are, it does not ask without end."""
        visibility = OwnRequests(user)
        found = await self._storage.list(kinds.CERTIFICATESIGNINGREQUESTS.resource)
        if sum(map(visibility.sees, found.items)) >= MOST_REQUESTS:
            raise TooManyRequests(
                f'the poollet of {self._dialect.pool_noun} "{pool}" has {MOST_REQUESTS} '
                "certificate signing requests already: they go an hour after they were decided"
            )

    def _is_workload(self, kind: Kind) -> bool:
        return kind.resource == self._dialect.workload

    def _pool(self, machine: Object) -> str:
        return self._dialect.pool_name(machine)

    def _allows(self, pool: str, change: Change) -> bool:
        name = change.obj["metadata"].get("name")
        if change.kind.resource == self._dialect.pool:
            return bool(name == pool)
        if change.kind is kinds.LEASES:
            # A heartbeat is named after its pool; of that name may be a node's elsewhere, or the one
            # by which API servers say who leads.
            home = self._dialect.lease_namespace
            return bool(name == pool and home and change.obj["metadata"].get("namespace") == home)
        if change.kind is kinds.CERTIFICATESIGNINGREQUESTS and change.new is not None:
            return change.operation == CREATE and asks_for(
                change.new, change.user.name, (SERVING, CLIENT)
            )
        if change.operation != UPDATE:
            return False
        if self._is_workload(change.kind):
            return self._allows_machine(pool, change)
        return self._allows_claim(pool, change)

    def _allows_claim(self, pool: str, change: Change) -> bool:
        """It claims what its machines name, gives that back, and tells how interfaces are."""
        changing = _CLAIMED.get(change.kind.resource.plural)
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

    async def _allows_event(self, pool: str, change: Change) -> bool:
        """A poollet reports of its own machines and its own pool, and of nothing else."""
        if change.operation == DELETE:
            return False
        key = "involvedObject" if change.kind is kinds.EVENTS else "regarding"
        for event in (change.old, change.new):
            if event is not None and not await self._is_own(pool, event[key]):
                return False
        return True

    async def _is_own(self, pool: str, involved: Object) -> bool:
        named = (involved.get("apiVersion"), involved.get("kind"))
        workload, own_pool = self._dialect.workload, self._dialect.pool
        if named == (own_pool.api_version, own_pool.kind):
            return bool(involved.get("name") == pool)
        if named != (workload.api_version, workload.kind):
            return False
        namespace, name = involved.get("namespace", ""), involved.get("name", "")
        try:
            machine = await self._storage.get(workload, namespace, name)
        except NotFound:
            return False
        # Without the UID it could be another machine of that name.
        same = machine["metadata"]["uid"] == involved.get("uid")
        return same and self._pool(machine) == pool

    def _refuse(self, pool: str, told: str) -> Forbidden:
        return Forbidden(f'the poollet of {self._dialect.pool_noun} "{pool}" may not {told}')


@implementer(IVisibility)
class _NeededByPool:
    """What a pool's machines need."""

    def __init__(self, graph: PoolGraph, pool: str, resource: Resource) -> None:
        self._graph, self._pool, self._resource = graph, pool, resource

    def sees(self, obj: Object) -> bool:
        """As :meth:`IVisibility.sees`."""
        namespace, name = key_of(obj)
        return self._graph.sees(self._pool, self._resource, namespace, name)

    def since(self) -> int:
        """As :meth:`IVisibility.since`."""
        return self._graph.since(self._pool)

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        """As :meth:`IVisibility.follow`."""
        known = self._graph.changes(self._pool)

        def look() -> None:
            nonlocal known
            before, known = known, self._graph.changes(self._pool)
            if known != before:  # else it was about another pool
                changed()

        return self._graph.on_change(look)


def _told(kind: Kind, name: str) -> str:
    return f'{kind.resource.plural} "{name}"'


def _without(obj: Object, keys: Iterable[str]) -> Object:
    spec = {key: value for key, value in obj["spec"].items() if key not in keys}
    return {**obj, "spec": spec}


def _fixed(machine: Mapping[str, Any]) -> Object:
    """Everything of a Machine that its poollet must leave as it is."""
    metadata = {
        key: value for key, value in machine["metadata"].items() if key not in _OWN_METADATA
    }
    return {**machine, "metadata": metadata}
