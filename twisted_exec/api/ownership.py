"""
Who manages which fields of an object: ``metadata.managedFields``.

Every write has a *manager*, the program behind it.  An **update** (create,
replace, patch) takes the fields that it changes from whoever had them.  An
**apply** says which fields its manager wants from now on and how they shall be:
what it said last time and says no more is removed, unless someone else has it
too; where it differs from what another manager set, it is refused as a conflict
or, when forced, takes the field; where it agrees, both have it.

An entry is kept per manager, operation, API version and subresource (for an
apply whatever the version).  Fields that belong to the object rather than to any
writer (its name, UID, versions) are in no entry, and neither is what a write
cannot reach: the status through the main resource, and everything else through
the status.

Pure: objects and times in, objects and entries out.  Source:
``k8s.io/apimachinery/pkg/util/managedfields/internal`` and
``sigs.k8s.io/structured-merge-diff/v4/merge``, and answers recorded from
kube-apiserver 1.33.1 (see ``tests/api/test_ownership.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from twisted_exec.api import fieldset, strategy, structured, times
from twisted_exec.api.fieldset import FieldSet, Path
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.schema import Schema
from twisted_exec.api.status import BadRequest, Conflict

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"
"""The manager that carries on from ``kubectl apply`` without ``--server-side``."""

APPLY, UPDATE = "Apply", "Update"

_MOST_UPDATE_ENTRIES = 10
_MOST_PROBLEMS = 32
_MOST_CONFLICTS = 1000
_BUCKET = "ancient-changes"
_BEFORE = "before-first-apply"
_NOBODY = "unknown"

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


@dataclass(frozen=True)
class Writer:
    """
    Who writes, through what, and when.

    :param manager: name of the program; empty is nobody in particular.
    :param subresource: ``status``, or empty.
    :param now: seconds since the epoch.
    """

    manager: str
    subresource: str
    now: float


@dataclass(frozen=True)
class Manager:
    """What tells entries apart.  ``api_version`` is empty for an apply."""

    name: str
    operation: str
    api_version: str
    subresource: str


@dataclass(frozen=True)
class Entry:
    """What a manager has.  ``time`` is a timestamp, or empty."""

    fields: FieldSet
    time: str = ""


Managed = dict[Manager, Entry]


def decode(raw: Any, api_version: str) -> Managed:
    """
    Read ``metadata.managedFields``.

    Entries of other API versions are left out: no such version is served, so
    nobody could tell what their fields are.

    :raises ValueError: it is not what its type says.
    """
    if not isinstance(raw, list):
        raise ValueError("managedFields is a list")
    found: Managed = {}
    for entry in raw:
        manager, read = _decode_entry(entry)
        if entry["apiVersion"] == api_version:
            found[manager] = read
    return found


def _decode_entry(entry: Any) -> tuple[Manager, Entry]:
    told = {key: _text(entry, key) for key in _TEXTS}
    if told["operation"] not in (APPLY, UPDATE):
        raise ValueError("operation must be `Apply` or `Update`")
    if not told["apiVersion"] or told["fieldsType"] != "FieldsV1":
        raise ValueError("an entry has an apiVersion and the fieldsType FieldsV1")
    if told["time"]:
        times.seconds(told["time"])
    version = "" if told["operation"] == APPLY else told["apiVersion"]
    manager = Manager(told["manager"], told["operation"], version, told["subresource"])
    fields = entry.get("fieldsV1")
    return manager, Entry(fieldset.decode({} if fields is None else fields), told["time"])


_TEXTS = ("manager", "operation", "apiVersion", "time", "fieldsType", "subresource")


def _text(entry: Any, key: str) -> str:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, str | None) or (key == "manager" and len(value or "") > 128):
        raise ValueError(f"the {key} of an entry cannot be read")
    return value or ""


def _stored(obj: Object, api_version: str) -> Managed:
    """As :func:`decode`, of what :func:`encode` wrote."""
    return {
        Manager(
            entry.get("manager", ""),
            entry["operation"],
            "" if entry["operation"] == APPLY else entry["apiVersion"],
            entry.get("subresource", ""),
        ): Entry(entry["fieldsV1"], entry.get("time", ""))
        for entry in obj["metadata"].get("managedFields", ())
        if entry["apiVersion"] == api_version
    }


def encode(managed: Managed, api_version: str) -> list[Object]:
    """``metadata.managedFields``: applies first, then by time and name."""
    entries = []
    for manager, entry in managed.items():
        told = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": entry.fields,
            "subresource": manager.subresource,
        }
        entries.append({key: value for key, value in told.items() if value != ""})
    keys = ("operation", "time", "manager", "subresource")
    return sorted(entries, key=lambda entry: [entry.get(key, "") for key in keys])


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
    return encode(_updated(kind, old, new, managed, writer), version)


def _told(old: Object | None, told: Any, version: str, writer: Writer) -> Managed:
    known = old["metadata"].get("managedFields") if old is not None else None
    if told is not None and told is not known and told != known and not writer.subresource:
        if told == [{}]:
            return {}
        try:
            if read := decode(told, version):
                return read
        except ValueError:
            pass  # garbage tells nothing: what is known stays, as in Kubernetes
    return _stored(old, version) if old is not None else {}


def _updated(
    kind: Kind, old: Object | None, new: Object, managed: Managed, writer: Writer
) -> Managed:
    before = _within(kind, writer.subresource, old or {})
    after = _within(kind, writer.subresource, new)
    difference = structured.compare(strategy.full_schema(kind), before, after)
    taken = fieldset.union(difference.added, difference.modified)
    left = _less(managed, fieldset.union(taken, difference.removed))
    own = fieldset.difference(taken, _SERVER_FIELDS)
    if own:
        manager = _manager(kind, writer, UPDATE)
        earlier = left.get(manager, Entry({}))
        left[manager] = Entry(fieldset.union(earlier.fields, own), times.timestamp(writer.now))
    return _capped(left)


def _manager(kind: Kind, writer: Writer, operation: str) -> Manager:
    version = "" if operation == APPLY else kind.resource.api_version
    return Manager(writer.manager or _NOBODY, operation, version, writer.subresource)


def _bare(obj: Object) -> Object:
    """The object without its entries, which are nobody's."""
    metadata = obj.get("metadata") or {}
    if "managedFields" not in metadata:
        return obj
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**obj, "metadata": kept}


def _within(kind: Kind, subresource: str, obj: Object) -> Object:
    """What of an object a write reaches: the status, or all but that and what is the server's."""
    if subresource:
        return {subresource: obj[subresource]} if subresource in obj else {}
    beyond = (*kind.server_fields, "status") if kind.has_status else kind.server_fields
    return {key: value for key, value in _bare(obj).items() if key not in beyond}


def _less(managed: Managed, gone: FieldSet) -> Managed:
    """The entries less some fields; those of which nothing is left go."""
    left = {
        manager: replace(entry, fields=fieldset.difference(entry.fields, gone)) if gone else entry
        for manager, entry in managed.items()
    }
    return {manager: entry for manager, entry in left.items() if entry.fields}


def _capped(managed: Managed) -> Managed:
    """At most ten entries of updates: the oldest of more become one."""
    updates = [manager for manager in managed if manager.operation == UPDATE]
    surplus = len(updates) - _MOST_UPDATE_ENTRIES
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
    left[bucket] = Entry(fields, managed[oldest[-1]].time)
    return left


def only_times_differ(new: Object, old: Object) -> bool:
    """Whether an object changed in nothing but the times of its entries."""
    entries, before = (obj["metadata"].get("managedFields", []) for obj in (new, old))
    if not entries or entries == before or _timeless(entries) != _timeless(before):
        return False
    return _bare(new) == _bare(old)


def _timeless(entries: list[Object]) -> list[Object]:
    return [{key: value for key, value in each.items() if key != "time"} for each in entries]


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
    except FieldConflicts as conflicts:
        if writer.manager != KUBECTL:
            raise
        unowned = [path for _, path in conflicts.found if path not in _last_applied(kind, live)]
        if unowned:
            raise conflicts.less(unowned) from None
        result = _applied(kind, live, config, managed, writer, force=True)
    return replace(result, body=_with_last_applied(result.body, config, writer))


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
    found = structured.problems(strategy.full_schema(kind), config)
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
    managed = _stored(old, kind.resource.api_version)
    return managed or _updated(kind, None, old, {}, replace(writer, manager=_BEFORE))


def _applied(
    kind: Kind, live: Object, config: Object, managed: Managed, writer: Writer, *, force: bool
) -> Applied:
    schema, live = strategy.full_schema(kind), _bare(live)

    def within(obj: Object) -> Object:
        return _within(kind, writer.subresource, obj)

    wanted = structured.field_set(schema, within(config))
    manager = _manager(kind, writer, APPLY)
    last = managed.get(manager, Entry({}))
    body = structured.merged(schema, live, config)
    if last.fields:
        everyone = [wanted, *(entry.fields for key, entry in managed.items() if key != manager)]
        body = _pruned(schema, body, last.fields, everyone)
    difference = structured.compare(schema, within(live), within(body))
    taken = fieldset.union(difference.added, difference.modified)
    others = {key: entry for key, entry in managed.items() if key != manager}
    if not force:
        _check_conflicts(kind, others, taken)
    left = _less(others, fieldset.union(taken, difference.removed))
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
        return structured.with_named_fields(schema, fields)

    def told(value: Object) -> FieldSet:
        return full(structured.field_set(schema, value))

    def less(unwanted: FieldSet) -> Object:
        return structured.without(schema, body, unwanted) or {}

    managed: FieldSet = {}
    for fields in everyone:
        managed = fieldset.union(managed, fields)
    whole, mine = told(body), full(last)
    kept = fieldset.union(told(less(mine)), full(managed))
    kept = told(less(fieldset.difference(whole, kept)))
    return less(fieldset.intersection(fieldset.difference(whole, kept), mine))


class FieldConflicts(Conflict):
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

    def less(self, paths: Iterable[Path]) -> FieldConflicts:
        """The conflicts over these paths alone."""
        chosen = set(paths)
        found = [(manager, path) for manager, path in self.found if path in chosen]
        return FieldConflicts(found, self._api_version)

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


def _check_conflicts(kind: Kind, others: Managed, taken: FieldSet) -> None:
    found = [
        (manager, path)
        for manager in sorted(others, key=lambda each: (each.name, each.operation))
        for path in fieldset.paths(fieldset.intersection(others[manager].fields, taken))
    ]
    if found:
        raise FieldConflicts(found, kind.resource.api_version)


def _last_applied(kind: Kind, live: Object) -> frozenset[Path]:
    """
    What ``kubectl apply`` without ``--server-side`` applied last and still is so.

    kubectl managed it by that annotation, whichever program made it: it may go on with it.
    """
    annotations: Mapping[str, str] = live.get("metadata", {}).get("annotations", {})
    try:
        config = json.loads(annotations.get(LAST_APPLIED, ""))
        same_kind = config["apiVersion"] == kind.resource.api_version
    except (ValueError, RecursionError, TypeError, KeyError):
        return frozenset()
    schema = strategy.full_schema(kind)
    if not same_kind or next(structured.problems(schema, config), None) is not None:
        return frozenset()
    difference = structured.compare(schema, config, _bare(live))
    fields = structured.field_set(schema, config)
    for changed in (difference.added, difference.modified, difference.removed):
        fields = fieldset.difference(fields, changed)
    return frozenset(fieldset.paths(fields))


def _with_last_applied(body: Object, config: Object, writer: Writer) -> Object:
    """kubectl's annotation, if it is there, tells what kubectl applied just now."""
    metadata = body.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if writer.manager != KUBECTL or not annotations.get(LAST_APPLIED):
        return body
    told = json.dumps(
        _without_last_applied(config), separators=(",", ":"), sort_keys=True, ensure_ascii=False
    )
    annotations = {**annotations, LAST_APPLIED: f"{told}\n"}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


def _without_last_applied(config: Object) -> Object:
    metadata = config.get("metadata") or {}
    if not metadata.get("annotations"):
        return config
    annotations = {k: v for k, v in metadata["annotations"].items() if k != LAST_APPLIED}
    return {**config, "metadata": {**metadata, "annotations": annotations}}
