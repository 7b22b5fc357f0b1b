"""
The entries of ``metadata.managedFields``: which manager owns which fields.

Source: ``k8s.io/apimachinery/pkg/util/managedfields/internal``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from twisted_exec.api import times
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.managedfields import fieldset
from twisted_exec.api.managedfields.fieldset import FieldSet

APPLY, UPDATE = "Apply", "Update"

_TEXTS = ("manager", "operation", "apiVersion", "time", "fieldsType", "subresource")
_MAX_NAME_LENGTH = 128
_MAX_UPDATE_ENTRIES = 10
_BUCKET = "ancient-changes"
_NOBODY = "unknown"


@dataclass(frozen=True)
class WriteOrigin:
    """
    The origin of one write.

    :param manager: name of the program; empty if unknown.
    :param subresource: that is written; empty for the object itself.
    :param now: seconds since the epoch.
    """

    manager: str
    subresource: str
    now: float


@dataclass(frozen=True)
class Manager:
    """The identity of an entry.  ``api_version`` is empty for an apply."""

    name: str
    operation: str
    api_version: str
    subresource: str


@dataclass(frozen=True)
class ManagerEntry:
    """The fields of one manager.  ``time`` is a timestamp, or empty."""

    fields: FieldSet
    time: str = ""


Managed = dict[Manager, ManagerEntry]


def decode_entries(raw: Any, api_version: str) -> Managed:
    """
    Decode ``metadata.managedFields`` from a client.

    Entries of other API versions are left out.

    :raises ValueError: it is not a list of entries.
    """
    if not isinstance(raw, list):
        raise ValueError("managedFields is a list")
    managed: Managed = {}
    for entry in raw:
        manager, read = _decode_entry(entry)
        if entry["apiVersion"] == api_version:
            managed[manager] = read
    return managed


def _decode_entry(entry: Any) -> tuple[Manager, ManagerEntry]:
    texts = {key: _text(entry, key) for key in _TEXTS}
    if texts["operation"] not in (APPLY, UPDATE):
        raise ValueError("operation must be `Apply` or `Update`")
    if not texts["apiVersion"] or texts["fieldsType"] != "FieldsV1":
        raise ValueError("an entry has an apiVersion and the fieldsType FieldsV1")
    if texts["time"]:
        times.seconds(texts["time"])
    version = "" if texts["operation"] == APPLY else texts["apiVersion"]
    manager = Manager(texts["manager"], texts["operation"], version, texts["subresource"])
    fields = entry.get("fieldsV1")
    return manager, ManagerEntry(fieldset.decode({} if fields is None else fields), texts["time"])


def _text(entry: Any, key: str) -> str:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, str | None) or (
        key == "manager" and len(value or "") > _MAX_NAME_LENGTH
    ):
        raise ValueError(f"the {key} of an entry cannot be read")
    return value or ""


def stored_fields(obj: Object, api_version: str) -> Managed:
    """Decode what :func:`encode_entries` wrote; see :func:`decode_entries`."""
    return {
        Manager(
            entry.get("manager", ""),
            entry["operation"],
            "" if entry["operation"] == APPLY else entry["apiVersion"],
            entry.get("subresource", ""),
        ): ManagerEntry(entry["fieldsV1"], entry.get("time", ""))
        for entry in obj["metadata"].get("managedFields", ())
        if entry["apiVersion"] == api_version
    }


def encode_entries(managed: Managed, api_version: str) -> list[Object]:
    """Encode ``metadata.managedFields``: applies first, then by time and name."""
    entries = []
    for manager, entry in managed.items():
        values = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": entry.fields,
            "subresource": manager.subresource,
        }
        entries.append({key: value for key, value in values.items() if value != ""})
    keys = ("operation", "time", "manager", "subresource")
    return sorted(entries, key=lambda entry: [entry.get(key, "") for key in keys])


def manager_of(kind: Kind, writer: WriteOrigin, operation: str) -> Manager:
    """Return the manager whose entry a write changes."""
    version = "" if operation == APPLY else kind.resource.api_version
    return Manager(writer.manager or _NOBODY, operation, version, writer.subresource)


def without_fields(managed: Managed, removed: FieldSet) -> Managed:
    """Remove fields from all entries, and entries that are then empty."""
    left = {
        manager: replace(entry, fields=fieldset.difference(entry.fields, removed))
        if removed
        else entry
        for manager, entry in managed.items()
    }
    return {manager: entry for manager, entry in left.items() if entry.fields}


def capped(managed: Managed) -> Managed:
    """Merge the oldest update entries if there are more than ten."""
    updates = [manager for manager in managed if manager.operation == UPDATE]
    surplus = len(updates) - _MAX_UPDATE_ENTRIES
    if surplus <= 0:
        return managed
    updates.sort(key=lambda manager: (managed[manager].time, manager.name, manager.subresource))
    left = dict(managed)
    bucket = Manager(_BUCKET, UPDATE, updates[0].api_version, "")
    oldest = updates[: surplus + 1]
    fields: FieldSet = {}
    for manager in oldest:
        fields = fieldset.union(fields, left.pop(manager).fields)
    if bucket in left:
        fields = fieldset.union(fields, left[bucket].fields)
    left[bucket] = ManagerEntry(fields, managed[oldest[-1]].time)
    return left


def without_managed_fields(obj: Object) -> Object:
    """Return the object without ``metadata.managedFields``, which no manager owns."""
    metadata = obj.get("metadata") or {}
    if "managedFields" not in metadata:
        return obj
    rest = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**obj, "metadata": rest}


def only_times_differ(new: Object, old: Object) -> bool:
    """
    Return whether two versions of an object differ in nothing but the times of their entries.
    """
    entries, before = (obj["metadata"].get("managedFields", []) for obj in (new, old))
    if not entries or entries == before or _timeless(entries) != _timeless(before):
        return False
    return without_managed_fields(new) == without_managed_fields(old)


def _timeless(entries: list[Object]) -> list[Object]:
    return [{key: value for key, value in each.items() if key != "time"} for each in entries]
