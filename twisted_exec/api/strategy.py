"""
What happens to an object on its way into the store, whatever its kind.

Pure: an object in, the object to store out, or an
:class:`~twisted_exec.api.status.Invalid`.  Source:
``k8s.io/apiserver/pkg/registry/rest/{create,update}.go``.
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
from twisted_exec.api.kinds.common.schemas import API_VERSION, KIND, METADATA
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
# Whoever stores the object says who manages what (see :mod:`twisted_exec.api.managedfields.updates`).
_NEVER_STORED = ("selfLink", "managedFields")
# What a client says of these about an object that is to be made counts for nothing.
_NEVER_BROUGHT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
# Go writes none of these when there is nothing in it.
_NEVER_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences")


def full_schema(kind: Kind) -> Schema:
    """The schema of a whole object of this kind."""
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
    The body must be of the kind that the URL names; empty means it is.

    :raises BadRequest: it is not.
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
    A patch may not make another object of it.

    :param new: the whole new object, as the patch leaves it.
    :raises Invalid: it is of another kind or has another UID.
    """
    resource = kind.resource
    wanted = {"apiVersion": resource.api_version, "kind": resource.kind}
    causes = [
        fields.invalid(key, new[key], f"must be {value}")
        for key, value in wanted.items()
        if new.get(key) not in (None, "", value)
    ]
    uid = (new.get("metadata") or {}).get("uid")
    if uid not in (None, "", old["metadata"]["uid"]):
        causes.append(fields.invalid("metadata.uid", uid, "field is immutable"))
    _raise(kind, old, causes)


def refused_patch(kind: Kind, new: Object, told: str) -> Invalid:
    """What a patch leaves cannot be read."""
    shown = "" if kind.confidential else json_text(new)
    return Invalid("", "", [fields.invalid("patch", shown, told)], "")


def unknown_fields(kind: Kind, body: Object) -> list[str]:
    """Paths of fields that nobody defined, at most 32."""
    found = schema.unknown_fields(full_schema(kind), body)
    return [path for path, _ in zip(found, range(32), strict=False)]


def prepared(kind: Kind, body: Object, namespace: str, *, creating: bool) -> Object:
    """
    The object as its writer means it, for those who may change it before it is checked.

    :param namespace: of the URL; empty for cluster-scoped kinds.
    :raises BadRequest: it contradicts the URL.
    :raises Invalid: something is of another type.
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
    The object to store for a create.

    :param namespace: of the URL; empty for cluster-scoped kinds.
    :param now: seconds since the epoch.
    :raises BadRequest: it contradicts the URL, or claims to be stored already.
    :raises Invalid: it breaks a rule.
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
    The body for :func:`for_create` when an apply finds no object.

    :param name: of the URL; the body need not give it.
    :raises BadRequest: the body gives another.
    :raises Conflict: the body means an object that was there once.
    """
    metadata: Object = dict(body.get("metadata") or {})
    _check_name(metadata, name)
    if metadata.get("uid"):
        told = f"uid mismatch: the provided object specified uid {metadata['uid']}, "
        raise conflict(kind, name, f"{told}and no existing object was found")
    metadata.pop("resourceVersion", None)  # as in Kubernetes, it does not keep from creating
    return {**body, "metadata": {**metadata, "name": name}}


def for_update(kind: Kind, body: Object, old: Object, *, subresource: str = "") -> Object:
    """
    The object to store for an update of ``old``.

    :param body: the whole new object.
    :param subresource: one that writes the status takes only that from ``body``; otherwise
        everything but the status.
    :raises BadRequest: it contradicts the URL.
    :raises Conflict: it means an object of another UID or resourceVersion.
    :raises Invalid: it breaks a rule.
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
    causes += kind.validate(obj)
    _raise(kind, obj, causes or kind.validate_update(obj, old))
    if kind.counts_generation and _intent(obj) != _intent(old):
        obj["metadata"]["generation"] = before.get("generation", 1) + 1
    return obj


def _with_status(kind: Kind, given: Object, old: Object, subresource: str) -> Object:
    status = {"status": given["status"]} if "status" in given else {}
    obj = copy.deepcopy(_without_entries(old))
    obj.pop("status", None)
    obj |= status
    if kind.carry_status is not None:
        kind.carry_status(subresource, obj, old)
    completed(kind, obj)
    _raise(kind, obj, kind.validate_status(obj, old))
    return obj


def _check_name(metadata: Object, name: str) -> None:
    given = metadata.get("name") or name
    if given != name:
        raise BadRequest(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def check_namespace(metadata: Object, namespace: str) -> None:
    """
    A namespace in the body must be that of the URL.

    :raises BadRequest: it is not.
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
    The stored object must be the one that the client means.

    :param deleting: it is to be deleted; otherwise changed.
    :raises Conflict: it is not.
    """
    metadata = obj["metadata"]
    told = ""
    if uid and uid != metadata["uid"]:
        told = (
            f"Precondition failed: UID in precondition: {uid}, "
            f"UID in object meta: {metadata['uid']}"
        )
    elif resource_version and resource_version != metadata["resourceVersion"] and deleting:
        told = (
            f"Precondition failed: ResourceVersion in precondition: {resource_version}, "
            f"ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
    elif resource_version and resource_version != metadata["resourceVersion"]:
        told = (
            "the object has been modified; please apply your changes to the latest version "
            "and try again"
        )
    if told:
        raise conflict(kind, metadata["name"], told)


def conflict(kind: Kind, name: str, told: str) -> Conflict:
    """``Operation cannot be fulfilled on machines.compute... "x": ...``."""
    resource = kind.resource
    return Conflict(
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": {told}',
        details={"name": name, "group": resource.group, "kind": resource.plural},
    )


def shaped(kind: Kind, body: Object) -> Object:
    """
    Only what the schema knows, of the right types; what is missing may still be missing.

    :raises BadRequest: it is of another kind.
    :raises Invalid: something is of another type.
    """
    check_type(kind, body)
    whole = full_schema(kind)
    obj: Object = schema.pruned(whole, _without_entries(body))
    obj |= {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    obj.setdefault("metadata", {})
    causes = [cause for cause in schema.check(whole, obj) if not _late(cause)]
    name = obj["metadata"].get("name", "")
    _raise(kind, {"metadata": {"name": name if isinstance(name, str) else ""}}, causes)
    for key in _NEVER_STORED:
        obj["metadata"].pop(key, None)
    for key in _NEVER_EMPTY:
        if not obj["metadata"].get(key, True):
            del obj["metadata"][key]
    return obj


def _without_entries(body: Object) -> Object:
    """The object less a readable ``managedFields``, which is too large to be copied in vain."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("managedFields"), list):
        return body
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**body, "metadata": kept}


def _late(cause: Cause) -> bool:
    # Whether something is missing can be said only after the defaults.
    return cause["reason"] == "FieldValueRequired"


def completed(kind: Kind, obj: Object) -> Object:
    """
    The object, to which what is missing and has a default is added in place.

    :raises Invalid: it then still does not fit the schema.
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
    # The store decides on it again; equal objects must compare equal.
    obj["metadata"]["resourceVersion"] = before["resourceVersion"]
    if kind.has_status:
        obj.pop("status", None)
        if "status" in old:
            obj["status"] = copy.deepcopy(old["status"])
    if kind.carry_over is not None:
        kind.carry_over(obj, old)


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
    if sum(len(key) + len(value) for key, value in annotations.items()) > _LIMIT_ANNOTATION_BYTES:
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
