"""
Field management and server-side apply: ``metadata.managedFields`` after each write.

An **update** (create, replace, patch) takes the fields that it changes from their owners. An
**apply** lists all the fields that its manager wants, with their values. Fields that it no longer
lists are removed, unless another manager owns them, too. Fields that differ from another manager's
are a conflict; a forced apply takes them over.

An apply by kubectl keeps the annotation of client-side ``kubectl apply`` current.

Sources: ``k8s.io/apimachinery/pkg/util/managedfields/internal`` and
``sigs.k8s.io/structured-merge-diff/v4/merge``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from twisted_exec.api import fieldset, strategy, times
from twisted_exec.api import fieldset as merge
from twisted_exec.api.fieldset import FieldSet, Path
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.schema import Schema
from twisted_exec.api.status import BadRequest, Conflict

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


_MAX_CONFLICTS = 1000


class FieldManagerConflicts(Conflict):
    """
    An apply would change fields that other managers own.

    :param conflicts: pairs of a manager and a path that it owns.
    """

    def __init__(self, conflicts: Iterable[tuple[Manager, Path]], api_version: str) -> None:
        self.conflicts, self._api_version = list(conflicts), api_version
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {self._shown(manager)}",
                "field": fieldset.shown(path),
            }
            for manager, path in self.conflicts[:_MAX_CONFLICTS]
        ]
        super().__init__(self._message(), details={"causes": causes})

    def less(self, paths: Iterable[Path]) -> FieldManagerConflicts:
        """Return the conflicts over these paths only."""
        chosen = set(paths)
        selected = [(manager, path) for manager, path in self.conflicts if path in chosen]
        return FieldManagerConflicts(selected, self._api_version)

    def _message(self) -> str:
        if len(self.conflicts) == 1:
            [(manager, path)] = self.conflicts
            conflict = f"conflict with {self._shown(manager)}: {fieldset.shown(path)}"
            return f"Apply failed with 1 conflict: {conflict}"
        lines: list[str] = []
        for manager, theirs in groupby(self.conflicts[:_MAX_CONFLICTS], key=itemgetter(0)):
            lines.append(f"conflicts with {self._shown(manager)}:")
            lines += [f"- {fieldset.shown(path)}" for _, path in theirs]
        return f"Apply failed with {len(self.conflicts)} conflicts: " + "\n".join(lines)

    def _shown(self, manager: Manager) -> str:
        text = json.dumps(manager.name, ensure_ascii=False)
        if manager.subresource:
            text += f' with subresource "{manager.subresource}"'
        return f"{text} using {self._api_version}" if manager.operation == UPDATE else text


def check_conflicts(kind: Kind, others: Managed, changed: FieldSet) -> None:
    """
    Check that an apply leaves the fields of other managers alone.

    :param changed: the fields that the apply would change.
    :raises FieldManagerConflicts: other managers own some of them.
    """
    conflicts = [
        (manager, path)
        for manager in sorted(others, key=lambda each: (each.name, each.operation))
        for path in fieldset.paths(fieldset.intersection(others[manager].fields, changed))
    ]
    if conflicts:
        raise FieldManagerConflicts(conflicts, kind.resource.api_version)


_MAX_PROBLEMS = 32
_BEFORE = "before-first-apply"

_SERVER_FIELDS = fieldset.made_of(
    [
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", fieldset.field_step(name))
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        ),
    ]
)


def updated(
    kind: Kind, old: Object | None, new: Object, sent: Any, writer: WriteOrigin
) -> list[Object]:
    """
    Return the entries after a create, replace or patch.

    :param old: the stored object; ``None`` for a create.
    :param sent: ``managedFields`` of the request.  It may drop entries; ``[{}]`` drops all of them.
    """
    version = kind.resource.api_version
    managed = _entries_before(old, sent, version, writer)
    if not managed and old is not None:
        return []
    return encode_entries(_updated(kind, old, new, managed, writer), version)


def _entries_before(old: Object | None, sent: Any, version: str, writer: WriteOrigin) -> Managed:
    stored = old["metadata"].get("managedFields") if old is not None else None
    if sent is not None and sent is not stored and sent != stored and not writer.subresource:
        if sent == [{}]:
            return {}
        try:
            if read := decode_entries(sent, version):
                return read
        except ValueError:
            pass  # invalid entries leave the stored ones unchanged, as in Kubernetes
    return stored_fields(old, version) if old is not None else {}


def _updated(
    kind: Kind, old: Object | None, new: Object, managed: Managed, writer: WriteOrigin
) -> Managed:
    before = _within(kind, writer.subresource, old or {})
    after = _within(kind, writer.subresource, new)
    difference = merge.compare(strategy.full_schema(kind), before, after)
    changed = fieldset.union(difference.added, difference.modified)
    left = without_fields(managed, fieldset.union(changed, difference.removed))
    own = fieldset.difference(changed, _SERVER_FIELDS)
    if own:
        manager = manager_of(kind, writer, UPDATE)
        earlier = left.get(manager, ManagerEntry({}))
        left[manager] = ManagerEntry(
            fieldset.union(earlier.fields, own), times.timestamp(writer.now)
        )
    return capped(left)


def _within(kind: Kind, subresource: str, obj: Object) -> Object:
    if subresource:
        return {"status": obj["status"]} if "status" in obj else {}
    beyond = (*kind.server_fields, "status") if kind.has_status else kind.server_fields
    return {key: value for key, value in without_managed_fields(obj).items() if key not in beyond}


@dataclass(frozen=True)
class ApplyResult:
    """Result of an apply: the complete object, before defaults and rules, and its entries."""

    body: Object
    managed: Managed


def applied(
    kind: Kind, old: Object | None, config: Object, writer: WriteOrigin, *, force: bool
) -> ApplyResult:
    """
    Apply a configuration.

    :param config: the fields that the manager wants.
    :raises BadRequest: the configuration is not valid for this kind.
    :raises Conflict: fields differ from other managers'.
    """
    check_configuration(kind, config)
    live = old if old is not None else {}
    managed = _before_apply(kind, old, writer)
    try:
        result = _applied(kind, live, config, managed, writer, force=force)
    except FieldManagerConflicts as error:
        if writer.manager != KUBECTL:
            raise
        own = unchanged_fields(kind, live)
        if others := [path for _, path in error.conflicts if path not in own]:
            raise error.less(others) from None
        result = _applied(kind, live, config, managed, writer, force=True)
    if writer.manager == KUBECTL:
        result = replace(result, body=with_annotation(result.body, config))
    return result


def check_configuration(kind: Kind, config: Object) -> None:
    """
    Check that a configuration is one for this kind.

    :raises BadRequest: it is not.
    """
    type = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
    resource = kind.resource
    if type != (resource.api_version, resource.kind):
        group_version = type[0] if "/" in type[0] or not (type[0] or type[1]) else f"/{type[0]}"
        raise BadRequest(f"invalid object type: {group_version or '/'}, Kind={type[1]}")
    metadata = config.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if metadata.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    problems = merge.problems(strategy.full_schema(kind), config)
    first = [problem for problem, _ in zip(problems, range(_MAX_PROBLEMS), strict=False)]
    if first:
        name = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
        listed = first[0] if len(first) == 1 else "\n  ".join(["errors:", *first])
        raise BadRequest(
            f"failed to create typed patch object ({name}; {resource.api_version}, "
            f"Kind={resource.kind}): {listed}"
        )


def _before_apply(kind: Kind, old: Object | None, writer: WriteOrigin) -> Managed:
    if old is None:
        return {}
    managed = stored_fields(old, kind.resource.api_version)
    return managed or _updated(kind, None, old, {}, replace(writer, manager=_BEFORE))


def _applied(
    kind: Kind, live: Object, config: Object, managed: Managed, writer: WriteOrigin, *, force: bool
) -> ApplyResult:
    schema, live = strategy.full_schema(kind), without_managed_fields(live)

    def within(obj: Object) -> Object:
        return _within(kind, writer.subresource, obj)

    applied_fields = merge.field_set(schema, within(config))
    manager = manager_of(kind, writer, APPLY)
    last = managed.get(manager, ManagerEntry({}))
    body = merge.merged(schema, live, config)
    if last.fields:
        everyone = [
            applied_fields,
            *(entry.fields for key, entry in managed.items() if key != manager),
        ]
        body = _pruned(schema, body, last.fields, everyone)
    difference = merge.compare(schema, within(live), within(body))
    changed = fieldset.union(difference.added, difference.modified)
    others = {key: entry for key, entry in managed.items() if key != manager}
    if not force:
        check_conflicts(kind, others, changed)
    left = without_fields(others, fieldset.union(changed, difference.removed))
    own = fieldset.difference(applied_fields, _SERVER_FIELDS)
    if own:
        time = last.time if body == live else times.timestamp(writer.now)
        left[manager] = ManagerEntry(own, time)
    return ApplyResult(body, left)


def _pruned(schema: Schema, body: Object, last: FieldSet, everyone: Iterable[FieldSet]) -> Object:
    """
    Remove the fields of the last apply that no manager wants any more.

    Removing a field removes everything in it, so the parts that others own are put back.
    """

    def full(fields: FieldSet) -> FieldSet:
        return merge.with_named_fields(schema, fields)

    def fields_of(value: Object) -> FieldSet:
        return full(merge.field_set(schema, value))

    def less(unwanted: FieldSet) -> Object:
        return merge.without(schema, body, unwanted) or {}

    managed: FieldSet = {}
    for fields in everyone:
        managed = fieldset.union(managed, fields)
    whole, mine = fields_of(body), full(last)
    remaining = fieldset.union(fields_of(less(mine)), full(managed))
    remaining = fields_of(less(fieldset.difference(whole, remaining)))
    return less(fieldset.intersection(fieldset.difference(whole, remaining), mine))


ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
"""Key of the annotation."""

KUBECTL = "kubectl"
"""Field manager that the annotation belongs to."""


def unchanged_fields(kind: Kind, live: Object) -> frozenset[Path]:
    """Return the fields of the last client-side apply that are unchanged since."""
    annotations: Mapping[str, str] = live.get("metadata", {}).get("annotations", {})
    try:
        return _unchanged_fields(kind, live, json.loads(annotations.get(ANNOTATION, "")))
    except (ValueError, RecursionError):
        return frozenset()


def _unchanged_fields(kind: Kind, live: Object, config: Any) -> frozenset[Path]:
    schema = strategy.full_schema(kind)
    if not isinstance(config, dict) or config.get("apiVersion") != kind.resource.api_version:
        return frozenset()
    if next(merge.problems(schema, config), None) is not None:
        return frozenset()
    difference = merge.compare(schema, config, without_managed_fields(live))
    fields = merge.field_set(schema, config)
    for changed in (difference.added, difference.modified, difference.removed):
        fields = fieldset.difference(fields, changed)
    return frozenset(fieldset.paths(fields))


def with_annotation(body: Object, config: Object) -> Object:
    """Return a body whose annotation, if it has one, shows what kubectl has just applied."""
    metadata = body.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(ANNOTATION):
        return body
    text = json.dumps(
        _without_annotation(config), separators=(",", ":"), sort_keys=True, ensure_ascii=False
    )
    annotations = {**annotations, ANNOTATION: f"{text}\n"}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


def _without_annotation(config: Object) -> Object:
    metadata = config.get("metadata") or {}
    if not metadata.get("annotations"):
        return config
    annotations = {k: v for k, v in metadata["annotations"].items() if k != ANNOTATION}
    return {**config, "metadata": {**metadata, "annotations": annotations}}
