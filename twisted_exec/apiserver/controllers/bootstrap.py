"""
Create the objects that a server needs at its start: roles, bindings, namespaces.

As in kube-apiserver, missing rules and subjects are added to an existing object and additions of
users stay; the annotation ``rbac.authorization.kubernetes.io/autoupdate: "false"`` disables that.

Servers that share a store may do this at the same moment: the later one finds the objects of the
first.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

from twisted_exec.api import kinds
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import AlreadyExists, Conflict, NotFound
from twisted_exec.apiserver.controllers.namespaces import ensure_namespaces
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.verbs import Target, Verbs
from twisted_exec.auth.groups import MASTERS
from twisted_exec.auth.interfaces import User
from twisted_exec.storage.interfaces import IStorage

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"

_OURSELVES = User("system:apiserver", (MASTERS,))
_KINDS: dict[str, Kind] = {
    kind.resource.kind: kind for kind in (kinds.CLUSTERROLES, kinds.CLUSTERROLEBINDINGS)
}
_ATTEMPTS = 5


async def bootstrap(
    storage: IStorage, verbs: Verbs, objects: Iterable[Object], namespaces: Iterable[str] = ()
) -> None:
    """
    Create missing objects, and complete existing ones.

    :param verbs: without admission.
    :param objects: cluster roles and cluster role bindings, roles first.
    :param namespaces: further namespaces, such as those of poollets' leases.
    """
    await ensure_namespaces(verbs, storage, namespaces)
    for obj in objects:
        await _ensure(storage, verbs, obj)


async def _ensure(storage: IStorage, verbs: Verbs, desired: Object) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            await _make_or_complete(storage, verbs, desired)
            return
        except (AlreadyExists, Conflict):  # another server wrote first
            if attempt == _ATTEMPTS - 1:
                raise


async def _make_or_complete(storage: IStorage, verbs: Verbs, desired: Object) -> None:
    kind, name = _KINDS[desired["kind"]], desired["metadata"]["name"]
    target = Target(kind, "", name)
    try:
        stored = await storage.get(kind.resource, "", name)
    except NotFound:
        body = copy.deepcopy(desired)
        body["metadata"].setdefault("annotations", {})[AUTOUPDATE] = "true"
        await verbs.create(_OURSELVES, Target(kind), body, WriteOptions(manager=MANAGER))
        return
    if stored["metadata"].get("annotations", {}).get(AUTOUPDATE) == "true":
        await verbs.update(
            _OURSELVES, target, _completed(stored, desired), WriteOptions(manager=MANAGER)
        )


def _completed(stored: Object, desired: Object) -> Object:
    result = copy.deepcopy(stored)
    for key in ("rules", "subjects"):
        if key in desired:
            have = result.setdefault(key, [])
            have += [item for item in copy.deepcopy(desired[key]) if item not in have]
    return result
