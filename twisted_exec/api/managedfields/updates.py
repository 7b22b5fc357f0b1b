"""
Who manages which fields of an object: ``metadata.managedFields``.

Every write has a *manager*, the program behind it.  An **update** (create,
replace, patch) takes the fields that it changes from whoever had them.  An
**apply** says which fields its manager wants from now on and how they shall be:
what it said last time and says no more is removed, unless someone else has it
too; where it differs from what another manager set, it is refused as a conflict
or, when forced, takes the field; where it agrees, both have it.

Fields that belong to the object rather than to any
writer (its name, UID, versions) are in no entry, and neither is what a write
cannot reach: the status through the main resource, and everything else through
the status.

Pure: objects and times in, objects and entries out.  Source:
``k8s.io/apimachinery/pkg/util/managedfields/internal`` and
``sigs.k8s.io/structured-merge-diff/v4/merge``, and answers recorded from
kube-apiserver 1.33.1 (see ``tests/apiserver/test_apply.py``).

Where an apply differs from what other managers have.

Worded as kube-apiserver words it: kubectl shows the message and explains, below
it, what can be done.
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
    bare,
)
from twisted_exec.api.managedfields.fieldset import FieldSet, Path
from twisted_exec.api.schema import Schema
from twisted_exec.api.status import BadRequest, Conflict

_MOST_CONFLICTS = 1000


class FieldManagerConflicts(Conflict):
    """
    An apply differs from what others manage.

    At most a thousand fields are told: one body of labels could make for megabytes of them.

    :param found: managers and the paths that they have, by manager.
    """

    def __init__(self, found: Iterable[tuple[Manager, Path]], api_version: str) -> None:
        self.found, self._api_version = list(found), api_version
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {self._shown(manager)}",
                "field": fieldset.shown(path),
            }
            for manager, path in self.found[:_MOST_CONFLICTS]
        ]
        super().__init__(self._message(), details={"causes": causes})

    def less(self, paths: Iterable[Path]) -> FieldManagerConflicts:
        """The conflicts over these paths alone."""
        chosen = set(paths)
        found = [(manager, path) for manager, path in self.found if path in chosen]
        return FieldManagerConflicts(found, self._api_version)

    def _message(self) -> str:
        if len(self.found) == 1:
            [(manager, path)] = self.found
            told = f"conflict with {self._shown(manager)}: {fieldset.shown(path)}"
            return f"Apply failed with 1 conflict: {told}"
        lines: list[str] = []
        for manager, theirs in groupby(self.found[:_MOST_CONFLICTS], key=itemgetter(0)):
            lines.append(f"conflicts with {self._shown(manager)}:")
            lines += [f"- {fieldset.shown(path)}" for _, path in theirs]
        return f"Apply failed with {len(self.found)} conflicts: " + "\n".join(lines)

    def _shown(self, manager: Manager) -> str:
        told = json.dumps(manager.name, ensure_ascii=False)
        if manager.subresource:
            told += f' with subresource "{manager.subresource}"'
        return f"{told} using {self._api_version}" if manager.operation == UPDATE else told


def check_conflicts(kind: Kind, others: Managed, taken: FieldSet) -> None:
    """
    :param taken: what an apply would change.
    :raises FieldManagerConflicts: others manage some of it.
    """
    found = [
        (manager, path)
        for manager in sorted(others, key=lambda each: (each.name, each.operation))
        for path in fieldset.paths(fieldset.intersection(others[manager].fields, taken))
    ]
    if found:
        raise FieldManagerConflicts(found, kind.resource.api_version)


_MOST_PROBLEMS = 32
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


def updated(kind: Kind, old: Object | None, new: Object, told: Any, writer: Writer) -> list[Object]:
    """
    Who manages what once a create, a replace or a patch is stored.

    :param old: the object as it is; ``None`` for a create.
    :param new: the object as it will be stored.
    :param told: ``managedFields`` as the writer sent them, who may drop entries
        or, with ``[{}]``, all of them: then nothing is tracked until the next
        apply.  An empty list, like none, changes nothing: many a client drops
        what it does not know.
    :return: the entries; empty means that the object has no ``managedFields``.
    """
    version = kind.resource.api_version
    managed = _told(old, told, version, writer)
    if not managed and old is not None:
        return []
    return entries.encode(_updated(kind, old, new, managed, writer), version)


def _told(old: Object | None, told: Any, version: str, writer: Writer) -> Managed:
    known = old["metadata"].get("managedFields") if old is not None else None
    if told is not None and told is not known and told != known and not writer.subresource:
        if told == [{}]:
            return {}
        try:
            if read := entries.decode(told, version):
                return read
        except ValueError:
            pass  # garbage tells nothing: what is known stays, as in Kubernetes
    return entries.stored(old, version) if old is not None else {}


def _updated(
    kind: Kind, old: Object | None, new: Object, managed: Managed, writer: Writer
) -> Managed:
    before = _within(kind, writer.subresource, old or {})
    after = _within(kind, writer.subresource, new)
    difference = merge.compare(strategy.full_schema(kind), before, after)
    taken = fieldset.union(difference.added, difference.modified)
    left = entries.less(managed, fieldset.union(taken, difference.removed))
    own = fieldset.difference(taken, _SERVER_FIELDS)
    if own:
        manager = entries.manager_of(kind, writer, UPDATE)
        earlier = left.get(manager, Entry({}))
        left[manager] = Entry(fieldset.union(earlier.fields, own), times.timestamp(writer.now))
    return entries.capped(left)


def _within(kind: Kind, subresource: str, obj: Object) -> Object:
    """What of an object a write reaches: the status, or all but that and what is the server's."""
    if subresource:
        return {"status": obj["status"]} if "status" in obj else {}
    beyond = (*kind.server_fields, "status") if kind.has_status else kind.server_fields
    return {key: value for key, value in bare(obj).items() if key not in beyond}


@dataclass(frozen=True)
class Applied:
    """
    What an apply comes to.

    :param body: the whole object, before defaults and rules.
    :param managed: who manages what in it.
    """

    body: Object
    managed: Managed


def applied(
    kind: Kind, old: Object | None, config: Object, writer: Writer, *, force: bool
) -> Applied:
    """
    Apply a configuration.

    :param old: the object as it is; ``None`` if there is none.
    :param config: the fields that the manager wants.
    :param force: take fields from other managers.
    :raises BadRequest: it is no configuration of this kind.
    :raises Conflict: it differs from what others manage; the causes say where.
    """
    check_configuration(kind, config)
    live = old if old is not None else {}
    managed = _before_apply(kind, old, writer)
    try:
        result = _applied(kind, live, config, managed, writer, force=force)
    except FieldManagerConflicts as conflicts:
        if writer.manager != last_applied.KUBECTL:
            raise
        own = last_applied.agreed(kind, live)
        if others := [path for _, path in conflicts.found if path not in own]:
            raise conflicts.less(others) from None
        result = _applied(kind, live, config, managed, writer, force=True)
    if writer.manager == last_applied.KUBECTL:
        result = replace(result, body=last_applied.noted(result.body, config))
    return result


def check_configuration(kind: Kind, config: Object) -> None:
    """
    :raises BadRequest: it is of another kind, tells ``managedFields``, or does not
        fit the schema.  kube-apiserver says the last of these with code 500; it is
        the client's doing, so here it is 400.
    """
    given = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
    resource = kind.resource
    if given != (resource.api_version, resource.kind):
        shown = given[0] if "/" in given[0] or not (given[0] or given[1]) else f"/{given[0]}"
        raise BadRequest(f"invalid object type: {shown or '/'}, Kind={given[1]}")
    metadata = config.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if metadata.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    found = merge.problems(strategy.full_schema(kind), config)
    told = [problem for problem, _ in zip(found, range(_MOST_PROBLEMS), strict=False)]
    if told:
        name = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
        listed = told[0] if len(told) == 1 else "\n  ".join(["errors:", *told])
        raise BadRequest(
            f"failed to create typed patch object ({name}; {resource.api_version}, "
            f"Kind={resource.kind}): {listed}"
        )


def _before_apply(kind: Kind, old: Object | None, writer: Writer) -> Managed:
    """The entries as they are.  Of an object without any, someone made the fields there are."""
    if old is None:
        return {}
    managed = entries.stored(old, kind.resource.api_version)
    return managed or _updated(kind, None, old, {}, replace(writer, manager=_BEFORE))


def _applied(
    kind: Kind, live: Object, config: Object, managed: Managed, writer: Writer, *, force: bool
) -> Applied:
    schema, live = strategy.full_schema(kind), bare(live)

    def within(obj: Object) -> Object:
        return _within(kind, writer.subresource, obj)

    wanted = merge.field_set(schema, within(config))
    manager = entries.manager_of(kind, writer, APPLY)
    last = managed.get(manager, Entry({}))
    body = merge.merged(schema, live, config)
    if last.fields:
        everyone = [wanted, *(entry.fields for key, entry in managed.items() if key != manager)]
        body = _pruned(schema, body, last.fields, everyone)
    difference = merge.compare(schema, within(live), within(body))
    taken = fieldset.union(difference.added, difference.modified)
    others = {key: entry for key, entry in managed.items() if key != manager}
    if not force:
        check_conflicts(kind, others, taken)
    left = entries.less(others, fieldset.union(taken, difference.removed))
    own = fieldset.difference(wanted, _SERVER_FIELDS)
    if own:
        time = last.time if body == live else times.timestamp(writer.now)
        left[manager] = Entry(own, time)
    return Applied(body, left)


def _pruned(schema: Schema, body: Object, last: FieldSet, everyone: Iterable[FieldSet]) -> Object:
    """
    The merged object less what its manager applied last time and nobody wants now.

    Taking away a field takes what is in it, whosever that is; so it is put back
    where someone manages it, and where it was not the manager's to begin with.
    """

    def full(fields: FieldSet) -> FieldSet:
        return merge.with_named_fields(schema, fields)

    def told(value: Object) -> FieldSet:
        return full(merge.field_set(schema, value))

    def less(unwanted: FieldSet) -> Object:
        return merge.without(schema, body, unwanted) or {}

    managed: FieldSet = {}
    for fields in everyone:
        managed = fieldset.union(managed, fields)
    whole, mine = told(body), full(last)
    kept = fieldset.union(told(less(mine)), full(managed))
    kept = told(less(fieldset.difference(whole, kept)))
    return less(fieldset.intersection(fieldset.difference(whole, kept), mine))
