"""
Schemas of OpenAPI documents: of kinds, and of what all kinds share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api import strategy
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.schemas import API_VERSION, KIND, METADATA, strings
from twisted_exec.api.schema import anything, array, boolean, integer, string, struct

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."

_PRECONDITIONS = struct(
    {
        "resourceVersion": string("resourceVersion is the version that the object must have."),
        "uid": string("uid is the UID that the object must have."),
    },
    description="preconditions must hold, or nothing is deleted.",
)

_CAUSE = struct(
    {
        "field": string("field is the path of the field, such as spec.power."),
        "message": string("message is the cause in words."),
        "reason": string("reason is the cause in one word, such as FieldValueInvalid."),
    }
)

_DETAILS = struct(
    {
        "causes": array(_CAUSE, "causes are the causes of a failure."),
        "group": string("group is the API group of the object."),
        "kind": string("kind is the resource of the object, such as machines."),
        "name": string("name is the name of the object."),
        "retryAfterSeconds": integer("retryAfterSeconds is when the client may try again."),
        "uid": string("uid is the UID of the object."),
    },
    description="details say which object the result is about.",
)

_LIST_METADATA = struct(
    {
        "continue": string("continue is the token for the next part of the list."),
        "remainingItemCount": integer("remainingItemCount is the number of items after this part."),
        "resourceVersion": string("resourceVersion is the version of the list."),
        "selfLink": string("Deprecated and ignored."),
    },
    description="ListMeta is the metadata of a list.",
)


def to_openapi(schema: Any) -> Any:
    """Convert a schema to OpenAPI: shared schemas become references, integers get their size."""
    if schema is METADATA:
        return _described("ObjectMeta", "Standard object's metadata.")
    if schema is _LIST_METADATA:
        return _described("ListMeta", "Standard list metadata.")
    if isinstance(schema, list):
        return [to_openapi(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        named = {"allOf": [{"$ref": f"#/components/schemas/{_QUANTITY}"}]}
        return {**named, "description": schema.get("description", "")}
    converted = {key: to_openapi(value) for key, value in schema.items()}
    if schema.get("type") == "integer":
        # Generated clients would read 32 bits, fewer than the size of a recording needs.
        converted.setdefault("format", "int64")
    return converted


def meta(name: str) -> Object:
    """Return a reference to a schema that all kinds share, such as ``Status``."""
    return {"$ref": f"#/components/schemas/{_META}{name}"}


def _described(name: str, description: str) -> Object:
    # Version 3 ignores what is beside a reference.
    return {"allOf": [meta(name)], "description": description}


COMMON: Mapping[str, Any] = {
    _QUANTITY: {
        "description": "Quantity is a number with a unit, such as 500m, 2 or 4Gi.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    f"{_META}DeleteOptions": to_openapi(
        struct(
            {
                "apiVersion": API_VERSION,
                "dryRun": strings("dryRun is All to delete nothing."),
                "gracePeriodSeconds": integer("gracePeriodSeconds is the time to end in."),
                "kind": KIND,
                "orphanDependents": boolean("Deprecated: use propagationPolicy."),
                "preconditions": _PRECONDITIONS,
                "propagationPolicy": string(
                    "propagationPolicy is Orphan, Background or Foreground: whether dependents "
                    "are deleted, and when."
                ),
            },
            description="DeleteOptions are the options of a delete.",
        )
    ),
    f"{_META}ListMeta": {key: to_openapi(value) for key, value in _LIST_METADATA.items()},
    f"{_META}ObjectMeta": {key: to_openapi(value) for key, value in METADATA.items()},
    f"{_META}Patch": anything("Patch is a change of an object, in the form of its media type."),
    f"{_META}Status": {
        **to_openapi(
            struct(
                {
                    "apiVersion": API_VERSION,
                    "code": integer("code is the HTTP status."),
                    "details": _DETAILS,
                    "kind": KIND,
                    "message": string("message is the result in words."),
                    "metadata": _LIST_METADATA,
                    "reason": string("reason is the cause of a failure in one word."),
                    "status": string("status is Success or Failure."),
                },
                description="Status is the result of a request that returns no object.",
            )
        ),
        "x-kubernetes-group-version-kind": [{"group": "", "kind": "Status", "version": "v1"}],
    },
}
"""Schemas of every document."""


def schemas_of(kind: Kind) -> Object:
    """Return the schemas of a kind, its lists, and what its subresources take."""
    own = {
        **to_openapi(strategy.full_schema(kind)),
        "x-kubernetes-group-version-kind": [identity(kind)],
    }
    schemas: Object = {_component(kind): own}
    if kind.listed:
        schemas[_component(kind, kind.list_kind)] = {
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": to_openapi(_LIST_METADATA),
                "items": {"type": "array", "items": reference(kind)},
            },
            "x-kubernetes-group-version-kind": [identity(kind, kind.list_kind)],
        }
    for connect in kind.connects.values():
        schemas[_component(kind, connect.options)] = {
            **to_openapi(connect.schema),
            "x-kubernetes-group-version-kind": [identity(kind, connect.options)],
        }
    for each in kind.requests.values():
        schemas |= schemas_of(each)
    return schemas


def _component(kind: Kind, name: str = "") -> str:
    # Kubernetes reverses the group's domain: dev.ironcore.compute.v1alpha1.Machine.
    parts = [*reversed(kind.resource.group.split(".")), kind.resource.version]
    return ".".join([part for part in parts if part] + [name or kind.resource.kind])


def identity(kind: Kind, name: str = "") -> Object:
    """
    Return ``x-kubernetes-group-version-kind``.

    :param name: of another kind of the same group and version, such as a list.
    """
    resource = kind.resource
    return {
        "group": resource.group,
        "version": resource.version,
        "kind": name or resource.kind,
    }


def reference(kind: Kind, name: str = "") -> Object:
    """Return a reference to the schema of a kind; ``name`` as for :func:`identity`."""
    return {"$ref": f"#/components/schemas/{_component(kind, name)}"}
