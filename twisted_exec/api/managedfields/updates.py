"""
Field management: ``metadata.managedFields`` after each write.

Every write has a *manager*, the program behind it.  An **update** (create, replace, patch) takes
the fields that it changes from their owners.  An **apply** lists all the fields that its manager
wants, with their values.  Fields that were in its last apply and are no longer listed are removed,
unless another manager owns them, too.  Fields that differ from another manager's are a conflict; a
forced apply takes them over.  Fields that agree are owned by both.

Fields that belong to the object rather than to a writer (name, UID, versions) are in no entry.
Neither are fields that a write does not reach: the status through the main resource, and
everything else through the status.

Pure: objects and times in, objects and entries out.  Sources:
``k8s.io/apimachinery/pkg/util/managedfields/internal`` and
``sigs.k8s.io/structured-merge-diff/v4/merge``, and answers recorded from kube-apiserver 1.33.1
(see ``tests/apiserver/test_apply.py``).

Conflicts of a server-side apply with other field managers.

The wording is that of kube-apiserver: kubectl shows the message and explains the remedies below
it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from twisted_exec.api import strategy, times
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.managedfields import entries, fieldset, last_applied, merge
from twisted_exec.api.managedfields.entries import (
    APPLY,
    UPDATE,
    Entry,
    Managed,
    Manager,
    Writer,
    without_managed_fields,
)
from twisted_exec.api.managedfields.fieldset import FieldSet, Path
from twisted_exec.api.schema import Schema
from twisted_exec.api.status import BadRequest, Conflict

_MAX_CONFLICTS = 1000


class FieldManagerConflicts(Conflict):
    """
    An apply would change fields that other managers own.

    At most a thousand fields are listed: a body full of labels could produce megabytes of them.

    :param conflicts: pairs of a manager and a path that it owns, grouped by manager.
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


def updated(kind: Kind, old: Object | None, new: Object, sent: Any, writer: Writer) -> list[Object]:
    """
    Return the entries after a create, replace or patch.

    :param old: the stored object; ``None`` for a create.
    :param new: the object to store.
    :param sent: ``managedFields`` of the request.  It may drop entries; ``[{}]`` drops all of
        them, and nothing is tracked until the next apply.  An empty list changes nothing, like a
        missing one, because many clients drop fields that they do not know.
    :return: the entries; empty if the object has no ``managedFields``.
    """
    version = kind.resource.api_version
    managed = _entries_before(old, sent, version, writer)
    if not managed and old is not None:
        return []
    return entries.encode(_updated(kind, old, new, managed, writer), version)


def _entries_before(old: Object | None, sent: Any, version: str, writer: Writer) -> Managed:
    stored = old["metadata"].get("managedFields") if old is not None else None
    if sent is not None and sent is not stored and sent != stored and not writer.subresource:
        if sent == [{}]:
            return {}
        try:
            if read := entries.decode(sent, version):
                return read
        except ValueError:
            pass  # invalid entries leave the stored ones unchanged, as in Kubernetes
    return entries.stored(old, version) if old is not None else {}


def _updated(
    kind: Kind, old: Object | None, new: Object, managed: Managed, writer: Writer
) -> Managed:
    before = _within(kind, writer.subresource, old or {})
    after = _within(kind, writer.subresource, new)
    difference = merge.compare(strategy.full_schema(kind), before, after)
    changed = fieldset.union(difference.added, difference.modified)
    left = entries.without_fields(managed, fieldset.union(changed, difference.removed))
    own = fieldset.difference(changed, _SERVER_FIELDS)
    if own:
        manager = entries.manager_of(kind, writer, UPDATE)
        earlier = left.get(manager, Entry({}))
        left[manager] = Entry(fieldset.union(earlier.fields, own), times.timestamp(writer.now))
    return entries.capped(left)


def _within(kind: Kind, subresource: str, obj: Object) -> Object:
    """
    Return the part of an object that a write reaches: the status, or everything but the status and
    the server's fields.
    """
    if subresource:
        return {"status": obj["status"]} if "status" in obj else {}
    beyond = (*kind.server_fields, "status") if kind.has_status else kind.server_fields
    return {key: value for key, value in without_managed_fields(obj).items() if key not in beyond}


@dataclass(frozen=True)
class Applied:
    """
    Result of an apply.

    :param body: the complete object, before defaults and rules.
    :param managed: its entries.
    """

    body: Object
    managed: Managed


def applied(
    kind: Kind, old: Object | None, config: Object, writer: Writer, *, force: bool
) -> Applied:
    """
    Apply a configuration.

    :param old: the stored object; ``None`` if there is none.
    :param config: the fields that the manager wants.
    :param force: take over fields of other managers.
    :raises BadRequest: the configuration is not valid for this kind.
    :raises Conflict: fields differ from other managers'; the causes list them.
    """
    check_configuration(kind, config)
    live = old if old is not None else {}
    managed = _before_apply(kind, old, writer)
    try:
        result = _applied(kind, live, config, managed, writer, force=force)
    except FieldManagerConflicts as error:
        if writer.manager != last_applied.KUBECTL:
            raise
        own = last_applied.unchanged_fields(kind, live)
        if others := [path for _, path in error.conflicts if path not in own]:
            raise error.less(others) from None
        result = _applied(kind, live, config, managed, writer, force=True)
    if writer.manager == last_applied.KUBECTL:
        result = replace(result, body=last_applied.with_annotation(result.body, config))
    return result


def check_configuration(kind: Kind, config: Object) -> None:
    """
    Check the configuration of an apply.

    :raises BadRequest: it is of another kind, has ``managedFields``, or does not fit the schema.
        kube-apiserver reports the last of these with code 500; it is the client's mistake, so the
        code here is 400.
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


def _before_apply(kind: Kind, old: Object | None, writer: Writer) -> Managed:
    """
    Return the entries before an apply.  The fields of an object without entries get an unnamed
    owner.
    """
    if old is None:
        return {}
    managed = entries.stored(old, kind.resource.api_version)
    return managed or _updated(kind, None, old, {}, replace(writer, manager=_BEFORE))


def _applied(
    kind: Kind, live: Object, config: Object, managed: Managed, writer: Writer, *, force: bool
) -> Applied:
    schema, live = strategy.full_schema(kind), without_managed_fields(live)

    def within(obj: Object) -> Object:
        return _within(kind, writer.subresource, obj)

    applied_fields = merge.field_set(schema, within(config))
    manager = entries.manager_of(kind, writer, APPLY)
    last = managed.get(manager, Entry({}))
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
    left = entries.without_fields(others, fieldset.union(changed, difference.removed))
    own = fieldset.difference(applied_fields, _SERVER_FIELDS)
    if own:
        time = last.time if body == live else times.timestamp(writer.now)
        left[manager] = Entry(own, time)
    return Applied(body, left)


def _pruned(schema: Schema, body: Object, last: FieldSet, everyone: Iterable[FieldSet]) -> Object:
    """
    Remove the fields of the last apply that no manager wants any more.

    Removing a field removes everything in it, even parts of other managers.  So the parts that
    another manager owns are put back, and so are parts that the manager did not own.
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
