"""
The check that objects can be created in a namespace.
"""

from __future__ import annotations

from twisted_exec.api.kinds import NAMESPACES
from twisted_exec.api.status import (
    Forbidden,
    NotFound,
)
from twisted_exec.storage.interfaces import IStorage

_TERMINATING = "NamespaceTerminating"


async def check_namespace(storage: IStorage, namespace: str) -> None:
    """
    Check that objects can be created in a namespace; an empty one means none.

    :raises Forbidden: it is being deleted.
    :raises NotFound: it does not exist.
    """
    if not namespace:
        return
    if await _takes_more(storage, namespace):
        return
    obj = await storage.get(NAMESPACES.resource, "", namespace)
    if "deletionTimestamp" in obj["metadata"]:
        raise Forbidden(
            f"unable to create new content in namespace {namespace} because it is being terminated",
            details={"causes": [{"reason": _TERMINATING}]},
        )


def is_terminating(error: Forbidden) -> bool:
    """Return whether :func:`check_namespace` has refused a namespace that is being deleted."""
    return {"reason": _TERMINATING} in error.details.get("causes", ())


async def _takes_more(storage: IStorage, namespace: str) -> bool:
    """Return whether a cached namespace exists and is not being deleted."""
    try:
        obj = await storage.get(NAMESPACES.resource, "", namespace, stale=True)
    except NotFound:
        return False
    return "deletionTimestamp" not in obj["metadata"]
