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

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from twisted_exec.api import strategy, times
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.managedfields import fieldset, merge
from twisted_exec.api.managedfields.conflicts import FieldManagerConflicts, check_conflicts
from twisted_exec.api.managedfields.entries import (
    APPLY,
    UPDATE,
    Managed,
    ManagerEntry,
    WriteOrigin,
    capped,
    decode_entries,
    encode_entries,
    manager_of,
    stored_fields,
    without_fields,
    without_managed_fields,
)
from twisted_exec.api.managedfields.fieldset import FieldSet
from twisted_exec.api.managedfields.last_applied import (
    KUBECTL,
    unchanged_fields,
    with_annotation,
)
from twisted_exec.api.schema import Schema
from twisted_exec.api.status import BadRequest

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
