"""
Create and update strategies of all kinds: the steps from a request's body to the stored object.

Source: ``k8s.io/apiserver/pkg/registry/rest/{create,update}.go``.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from typing import Any

from twisted_exec.api import fields, names, schema, times
from twisted_exec.api.encoded import json_text
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.schemas import API_VERSION, KIND, METADATA
from twisted_exec.api.schema import Schema
from twisted_exec.api.status import BadRequest, Conflict, Invalid, one_line

_LIMIT_ANNOTATION_BYTES = 256 << 10

_SERVER_OWNED = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
# Field management sets this (see :mod:`twisted_exec.api.managedfields.updates`).
_NEVER_STORED = ("selfLink", "managedFields")
# Ignored in objects to be created.
_NEVER_BROUGHT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
# Go omits these when they are empty.
_NEVER_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences")


def full_schema(kind: Kind) -> Schema:
    """Return the schema of complete objects of this kind."""
    return schema.struct(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": METADATA,
            **kind.schema,
        },
        required=kind.required,
        description=kind.description,
    )


def check_type(kind: Kind, body: Object) -> None:
    """
    Check that the body has the API version and the kind of the URL, or none.

    :raises BadRequest: it has others, or malformed metadata.
    """
    resource = kind.resource
    version, name = body.get("apiVersion"), body.get("kind")
    if version not in (None, "", resource.api_version):
        raise BadRequest(
            f"the API version in the data ({_plain(version)}) does not match the expected "
            f"API version ({resource.api_version})"
        )
    if name not in (None, "", resource.kind):
        raise BadRequest(
            f'{_plain(name)} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: the kind in the data does not match the expected kind"
        )
    if not isinstance(body.get("metadata", {}), dict):
        raise BadRequest("metadata of the object is not an object")


def _plain(value: Any) -> str:
    return one_line(value) if isinstance(value, str) else fields.shown(value)


def check_identity(kind: Kind, new: Object, old: Object) -> None:
    """
    Check that a patch leaves the object's identity alone.

    :raises Invalid: the patch changes the API version, the kind or the UID.
    """
    resource = kind.resource
    expected = {"apiVersion": resource.api_version, "kind": resource.kind}
    causes = [
        fields.invalid(key, new[key], f"must be {value}")
        for key, value in expected.items()
        if new.get(key) not in (None, "", value)
    ]
    uid = (new.get("metadata") or {}).get("uid")
    if uid not in (None, "", old["metadata"]["uid"]):
        causes.append(fields.invalid("metadata.uid", uid, "field is immutable"))
    _raise(kind, old, causes)


def refused_patch(kind: Kind, new: Object, problem: str) -> Invalid:
    """Return the error for a patch whose result cannot be decoded."""
    text = "" if kind.confidential else json_text(new)
    return Invalid("", "", [fields.invalid("patch", text, problem)], "")


def unknown_fields(kind: Kind, body: Object) -> list[str]:
    """Return the paths of unknown fields: 32 at most."""
    unknown = schema.unknown_fields(full_schema(kind), body)
    return [path for path, _ in zip(unknown, range(32), strict=False)]


def prepared(kind: Kind, body: Object, namespace: str, *, creating: bool) -> Object:
    """
    Return the object with its defaults, for mutating admission before validation.

    :param namespace: from the URL; empty for cluster-scoped kinds.
    :raises APIError: the object contradicts the URL or the schema.
    """
    obj = shaped(kind, body)
    metadata: Object = obj["metadata"]
    check_namespace(metadata, namespace)
    if namespace:
        metadata["namespace"] = namespace
    if creating:
        for key in _NEVER_BROUGHT:
            metadata.pop(key, None)
    schema.set_defaults(full_schema(kind), obj)
    if kind.prepare is not None:
        kind.prepare(obj)
    return obj


def for_create(kind: Kind, body: Object, *, namespace: str, now: float) -> Object:
    """
    Return the object to store for a create.

    :param namespace: from the URL; empty for cluster-scoped kinds.
    :param now: seconds since the epoch.
    :raises APIError: the object contradicts the URL or a rule.
    """
    obj = shaped(kind, body)
    metadata: Object = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    check_namespace(metadata, namespace)
    _name(kind, metadata)
    for key in (*_NEVER_BROUGHT, "resourceVersion"):
        metadata.pop(key, None)
    metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": times.timestamp(now)}
    if namespace:
        metadata["namespace"] = namespace
    metadata.pop("generation", None)
    if kind.counts_generation:
        metadata["generation"] = 1
    if kind.has_status:
        obj.pop("status", None)
    if kind.initial_status:
        obj["status"] = copy.deepcopy(dict(kind.initial_status))
    completed(kind, obj)
    _raise(kind, obj, [*_metadata_causes(kind, obj), *kind.validate(obj)])
    return obj


def first_applied(kind: Kind, body: Object, name: str) -> Object:
    """
    Return the body for :func:`for_create` when an apply finds no object.

    :raises BadRequest: the body has another name.
    :raises Conflict: the body means an object that no longer exists.
    """
    metadata: Object = dict(body.get("metadata") or {})
    _check_name(metadata, name)
    if metadata.get("uid"):
        mismatch = f"uid mismatch: the provided object specified uid {metadata['uid']}, "
        raise conflict(kind, name, f"{mismatch}and no existing object was found")
    metadata.pop("resourceVersion", None)  # it does not prevent a create, as in Kubernetes
    return {**body, "metadata": {**metadata, "name": name}}


def for_update(kind: Kind, body: Object, old: Object, *, subresource: str = "") -> Object:
    """
    Return the object to store for an update of ``old``.

    :param body: the complete new object.
    :param subresource: if not empty, only the status is taken from ``body``.
    :raises Conflict: the body has another UID or resourceVersion.
    :raises APIError: the object contradicts the URL or a rule.
    """
    obj = shaped(kind, body)
    metadata, before = obj["metadata"], old["metadata"]
    check_namespace(metadata, before.get("namespace", ""))
    _check_name(metadata, before["name"])
    check_preconditions(kind, old, metadata.get("uid"), metadata.get("resourceVersion"))
    if subresource:
        return _with_status(kind, obj, old, subresource)
    _carry_over(kind, obj, old)
    completed(kind, obj)
    causes = [*_metadata_causes(kind, obj), *_finalizer_causes(obj, old)]
    # An object that an earlier release has stored may break a later rule, and must not lose the change of its
    # labels or finalizers for that.
    if _contents(obj) != _contents(old):
        causes += kind.validate(obj)
    _raise(kind, obj, causes or kind.validate_update(obj, old))
    if kind.counts_generation and _intent(obj) != _intent(old):
        obj["metadata"]["generation"] = before.get("generation", 1) + 1
    return obj


def _with_status(kind: Kind, new: Object, old: Object, subresource: str) -> Object:
    status = {"status": new["status"]} if "status" in new else {}
    obj = copy.deepcopy(_without_entries(old))
    obj.pop("status", None)
    obj |= status
    if kind.carry_status is not None:
        kind.carry_status(subresource, obj, old)
    completed(kind, obj)
    _raise(kind, obj, kind.validate_status(obj, old))
    return obj


def _check_name(metadata: Object, name: str) -> None:
    body_name = metadata.get("name") or name
    if body_name != name:
        raise BadRequest(
            f"the name of the object ({body_name}) does not match the name on the URL ({name})"
        )


def check_namespace(metadata: Object, namespace: str) -> None:
    """
    Check that the metadata has the namespace of the URL, or none.

    :raises BadRequest: it has another namespace.
    """
    if (metadata.get("namespace") or namespace) != namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_preconditions(
    kind: Kind,
    obj: Object,
    uid: str | None,
    resource_version: str | None,
    *,
    deleting: bool = False,
) -> None:
    """
    Check that the stored object is the one that the client means.

    :raises Conflict: it is another object or version.
    """
    metadata = obj["metadata"]
    problem = ""
    if uid and uid != metadata["uid"]:
        problem = (
            f"Precondition failed: UID in precondition: {uid}, "
            f"UID in object meta: {metadata['uid']}"
        )
    elif resource_version and resource_version != metadata["resourceVersion"] and deleting:
        problem = (
            f"Precondition failed: ResourceVersion in precondition: {resource_version}, "
            f"ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
    elif resource_version and resource_version != metadata["resourceVersion"]:
        problem = (
            "the object has been modified; please apply your changes to the latest version "
            "and try again"
        )
    if problem:
        raise conflict(kind, metadata["name"], problem)


def conflict(kind: Kind, name: str, problem: str) -> Conflict:
    """Return the error ``Operation cannot be fulfilled on machines.compute... "x": ...``."""
    resource = kind.resource
    return Conflict(
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": {problem}',
        details={"name": name, "group": resource.group, "kind": resource.plural},
    )


def shaped(kind: Kind, body: Object) -> Object:
    """
    Return the known fields of a body, with values checked but required fields possibly missing.

    :raises APIError: a value does not fit the schema.
    """
    check_type(kind, body)
    whole = full_schema(kind)
    obj: Object = schema.pruned(whole, _without_entries(body))
    obj |= {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    obj.setdefault("metadata", {})
    causes = [cause for cause in schema.check(whole, obj) if not _depends_on_defaults(cause)]
    name = obj["metadata"].get("name", "")
    _raise(kind, {"metadata": {"name": name if isinstance(name, str) else ""}}, causes)
    for key in _NEVER_STORED:
        obj["metadata"].pop(key, None)
    for key in _NEVER_EMPTY:
        if not obj["metadata"].get(key, True):
            del obj["metadata"][key]
    return obj


def _without_entries(body: Object) -> Object:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("managedFields"), list):
        return body
    rest = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**body, "metadata": rest}


def _depends_on_defaults(cause: Cause) -> bool:
    # Missing fields are only known after defaulting.
    return cause["reason"] == "FieldValueRequired"


def completed(kind: Kind, obj: Object) -> Object:
    """
    Set the defaults of an object in place, and check the object.

    :raises Invalid: the object does not fit the schema.
    """
    whole = full_schema(kind)
    schema.set_defaults(whole, obj)
    if kind.prepare is not None:
        kind.prepare(obj)
    _raise(kind, obj, schema.check(whole, obj))
    return obj


def _name(kind: Kind, metadata: Object) -> None:
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = names.generated(metadata["generateName"])
    if not metadata.get("name"):
        missing = fields.required("metadata.name", "name or generateName is required")
        raise Invalid(kind.resource.kind, "", [missing], kind.resource.group)


def _carry_over(kind: Kind, obj: Object, old: Object) -> None:
    before = old["metadata"]
    for key in _SERVER_OWNED:
        obj["metadata"].pop(key, None)
        if key in before:
            obj["metadata"][key] = before[key]
    # The store sets a new one; until then, equal objects must compare equal.
    obj["metadata"]["resourceVersion"] = before["resourceVersion"]
    if kind.has_status:
        obj.pop("status", None)
        if "status" in old:
            obj["status"] = copy.deepcopy(old["status"])
    if kind.carry_over is not None:
        kind.carry_over(obj, old)


def _contents(obj: Object) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key != "metadata"}


def _intent(obj: Object) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _metadata_causes(kind: Kind, obj: Object) -> Iterator[Cause]:
    metadata = obj["metadata"]
    for problem in kind.name_rule(metadata["name"]):
        yield fields.invalid("metadata.name", metadata["name"], problem)
    for key, value in metadata.get("labels", {}).items():
        for problem in names.qualified_name(key):
            yield fields.invalid("metadata.labels", key, problem)
        for problem in names.label_value(value):
            yield fields.invalid("metadata.labels", value, problem)
    annotations = metadata.get("annotations", {})
    for key in annotations:
        for problem in names.qualified_name(key.lower()):
            yield fields.invalid("metadata.annotations", key, problem)
    texts = [*annotations, *annotations.values()]
    if sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) > _LIMIT_ANNOTATION_BYTES:
        yield fields.too_long("metadata.annotations", _LIMIT_ANNOTATION_BYTES)
    for index, finalizer in enumerate(metadata.get("finalizers", [])):
        for problem in names.qualified_name(finalizer):
            yield fields.invalid(f"metadata.finalizers[{index}]", finalizer, problem)


def _finalizer_causes(obj: Object, old: Object) -> Iterator[Cause]:
    if "deletionTimestamp" not in old["metadata"]:
        return
    before = set(old["metadata"].get("finalizers", []))
    added = [item for item in obj["metadata"].get("finalizers", []) if item not in before]
    if added:
        yield fields.forbidden(
            "metadata.finalizers",
            "no new finalizers can be added if the object is being deleted, found new finalizers "
            f"{fields.shown(added)}",
        )


def _raise(kind: Kind, obj: Object, causes: list[Cause]) -> None:
    if causes:
        name = obj["metadata"].get("name", "")
        raise Invalid(kind.resource.kind, name, causes, kind.resource.group)
