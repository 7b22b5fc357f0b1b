"""
What a server makes at its start: roles, bindings, namespaces.

As kube-apiserver, an object that someone changed is given what it lacks and
keeps what was added; whoever wants it left alone sets its annotation
``rbac.authorization.kubernetes.io/autoupdate`` to ``"false"``.

Servers that share a store may do so at the same moment: whoever is later finds what the other made.
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
    Make what is missing.

    :param verbs: without admissions.
    :param objects: cluster roles and cluster role bindings, roles first.
    :param namespaces: that poollets expect, such as where they keep leases.
    """
    await ensure_namespaces(verbs, storage, namespaces)
    for obj in objects:
        await _ensure(storage, verbs, obj)


async def _ensure(storage: IStorage, verbs: Verbs, wanted: Object) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            await _make_or_complete(storage, verbs, wanted)
            return
        except (AlreadyExists, Conflict):  # another server was faster
            if attempt == _ATTEMPTS - 1:
                raise


async def _make_or_complete(storage: IStorage, verbs: Verbs, wanted: Object) -> None:
    kind, name = _KINDS[wanted["kind"]], wanted["metadata"]["name"]
    target = Target(kind, "", name)
    try:
        stored = await storage.get(kind.resource, "", name)
    except NotFound:
        body = copy.deepcopy(wanted)
        body["metadata"].setdefault("annotations", {})[AUTOUPDATE] = "true"
        await verbs.create(_OURSELVES, Target(kind), body, WriteOptions(manager=MANAGER))
        return
    if stored["metadata"].get("annotations", {}).get(AUTOUPDATE) == "true":
        await verbs.update(
            _OURSELVES, target, _completed(stored, wanted), WriteOptions(manager=MANAGER)
        )


def _completed(stored: Object, wanted: Object) -> Object:
    result = copy.deepcopy(stored)
    for key in ("rules", "subjects"):
        if key in wanted:
            have = result.setdefault(key, [])
            have += [item for item in copy.deepcopy(wanted[key]) if item not in have]
    return result
