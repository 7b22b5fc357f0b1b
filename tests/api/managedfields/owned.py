"""
Pools that this or that manager wrote.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.api import strategy
from twisted_exec.api.kinds import MACHINEPOOLS, Object
from twisted_exec.api.managedfields import fieldset, updates
from twisted_exec.api.managedfields.entries import WriteOrigin, encode_entries

KIND = MACHINEPOOLS
VERSION = KIND.resource.api_version
NOW = 1_700_000_000


def writer(manager: str, subresource: str = "", after: int = 0) -> WriteOrigin:
    return WriteOrigin(manager, subresource, NOW + after)


def pool(labels: Any = None, taints: Any = None, **metadata: Any) -> Object:
    body: Object = {"apiVersion": VERSION, "kind": KIND.resource.kind, "metadata": {"name": "p"}}
    body["metadata"] |= metadata
    if labels is not None:
        body["metadata"]["labels"] = labels
    if taints is not None:
        body["spec"] = {"taints": taints}
    return body


def with_entries(obj: Object, entries: list[Object]) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata | ({"managedFields": entries} if entries else {})}


def created(body: Object, manager: str = "maker") -> Object:
    return with_entries(body, updates.updated(KIND, None, body, None, writer(manager)))


def updated(old: Object, new: Object, manager: str, after: int = 0, told: Any = None) -> Object:
    entries = updates.updated(KIND, old, new, told, writer(manager, after=after))
    return with_entries(new, entries)


def applied(old: Object | None, config: Object, manager: str, force: bool = False) -> Object:
    result = updates.applied(KIND, old, config, writer(manager, after=1), force=force)
    return with_entries(strategy.shaped(KIND, result.body), encode_entries(result.managed, VERSION))


def owned(obj: Object) -> dict[str, set[str]]:
    return {
        entry["manager"]: {fieldset.shown(path) for path in fieldset.paths(entry["fieldsV1"])}
        for entry in obj["metadata"].get("managedFields", [])
    }
