"""
The fence round poollets: each may touch its own pool and no other.

RBAC gives all poollets one role, which cannot say "the pool that your
certificate names".  This says it, as Kubernetes' node authorizer and
NodeRestriction say it for kubelets: without it one poollet could point another
pool's address at itself and be handed its consoles.

A user is a poollet when its name has the dialect's prefix or it is in the
dialect's group; someone in the group whose name is no pool's may write nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api import kinds
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.selectors import FieldSelector
from twisted_exec.api.status import Forbidden, NotFound
from twisted_exec.apiserver.interfaces import DELETE, UPDATE, Change, IAdmission
from twisted_exec.auth.interfaces import User
from twisted_exec.storage.interfaces import IStorage

# What a poollet may change of a Machine besides its status.
_OWN_METADATA = ("finalizers", "annotations", "managedFields", "resourceVersion", "generation")


@implementer(IAdmission)
class Fence:
    """
    Keeps each poollet to its own pool.

    :param storage: knows whose the objects of Events are.
    """

    def __init__(self, dialect: Dialect, storage: IStorage) -> None:
        self._dialect, self._storage = dialect, storage

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

    def _is_workload(self, kind: Kind) -> bool:
        return kind.resource == self._dialect.workload

    def _pool(self, machine: Object) -> str:
        return self._dialect.pool_name(machine)

    def _allows(self, pool: str, change: Change) -> bool:
        name = change.obj["metadata"].get("name")
        if change.kind.resource == self._dialect.pool:
            return bool(name == pool)
        if change.kind is kinds.LEASES:
            # A heartbeat is named after its pool.
            return bool(name == pool)
        if self._is_workload(change.kind) and change.operation == UPDATE:
            return self._allows_machine(pool, change)
        return False

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


def _fixed(machine: Mapping[str, Any]) -> Object:
    """Everything of a Machine that its poollet must leave as it is."""
    metadata = {
        key: value for key, value in machine["metadata"].items() if key not in _OWN_METADATA
    }
    return {**machine, "metadata": metadata}
