"""
OpenAPI documents: for ``kubectl explain``, and validation by clients.

Version 3 is served per group and version, generated from the kinds' schemas.  kubectl before 1.29
and a kube-apiserver in front request version 2 (:mod:`.openapi_v2`), kubectl in a binary form.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any

from twisted_exec.api import patch, strategy
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.apiserver.serving.openapi_binary import encoded
from twisted_exec.apiserver.serving.openapi_v2 import joined
from twisted_exec.apiserver.serving.registry import Registry

_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_QUANTITY_SCHEMA = {
    "description": "Quantity is a number with a unit, such as 500m, 2 or 4Gi.",
    "oneOf": [{"type": "string"}, {"type": "number"}],
}


class OpenAPI:
    """
    The documents of one server, rendered when a client first requests them.

    Most servers are never asked for version 2, which takes longer than the rest of the start.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def _contents(self) -> dict[str, Object]:
        return {
            path_of(group, version): document(self._registry, group, version)
            for group, versions in self._registry.groups.items()
            for version in versions
        }

    @cached_property
    def _documents(self) -> dict[str, bytes]:
        return {path: _rendered(content) for path, content in self._contents().items()}

    @cached_property
    def v2(self) -> bytes:
        """``GET /openapi/v2`` as JSON."""
        return _rendered(joined(self._contents().values()))

    @cached_property
    def v2_binary(self) -> bytes:
        """The same as protobuf."""
        return encoded(joined(self._contents().values()))

    def index(self) -> Object:
        """``GET /openapi/v3``.  Hashes in the URLs let clients cache the documents."""
        return {
            "paths": {
                path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={hash_of(text)}"}
                for path, text in self._documents.items()
            }
        }

    def of(self, path: str) -> bytes | None:
        """``GET /openapi/v3/PATH``, such as ``apis/GROUP/VERSION``; JSON."""
        return self._documents.get(path)


def _rendered(content: Object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def hash_of(text: bytes) -> str:
    """Return the hash that identifies a document's content: 32 hexadecimal digits."""
    return hashlib.sha256(text).hexdigest()[:32].upper()


def path_of(group: str, version: str) -> str:
    """``apis/GROUP/VERSION``, or ``api/v1``."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def document(registry: Registry, group: str, version: str) -> Object:
    """Return one OpenAPI v3 document."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {_QUANTITY: _QUANTITY_SCHEMA}
    for kind in registry.of(group, version):
        schemas |= _schemas(kind)
        paths |= _paths(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": "twisted-exec", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _component(kind: Kind, name: str = "") -> str:
    # Kubernetes reverses the group's domain: dev.ironcore.compute.v1alpha1.Machine.
    parts = [*reversed(kind.resource.group.split(".")), kind.resource.version]
    return ".".join([part for part in parts if part] + [name or kind.resource.kind])


def _identity(kind: Kind, name: str = "") -> Object:
    resource = kind.resource
    return {
        "group": resource.group,
        "version": resource.version,
        "kind": name or resource.kind,
    }


def _schemas(kind: Kind) -> Object:
    shape = _shown(strategy.full_schema(kind))
    own = {**shape, "x-kubernetes-group-version-kind": [_identity(kind)]}
    schemas: Object = {_component(kind): own}
    if kind.listed:
        schemas[_component(kind, kind.list_kind)] = {
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "items": {"type": "array", "items": _reference(kind)},
            },
            "x-kubernetes-group-version-kind": [_identity(kind, kind.list_kind)],
        }
    for connect in kind.connects.values():
        schemas[_component(kind, connect.options)] = {
            **connect.schema,
            "x-kubernetes-group-version-kind": [_identity(kind, connect.options)],
        }
    for each in kind.requests.values():
        schemas |= _schemas(each)
    return schemas


def _shown(schema: Any) -> Any:
    """Convert a schema to OpenAPI: quantities become references."""
    if isinstance(schema, list):
        return [_shown(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        named = {"allOf": [{"$ref": f"#/components/schemas/{_QUANTITY}"}]}
        return {**named, "description": schema.get("description", "")}
    return {key: _shown(value) for key, value in schema.items()}


def _reference(kind: Kind, name: str = "") -> Object:
    return {"$ref": f"#/components/schemas/{_component(kind, name)}"}


def _paths(kind: Kind) -> Object:
    resource = kind.resource
    namespace = "{namespace}" if resource.namespaced else ""
    # Path templates: the braces must not be percent-encoded.
    collection = resource.path(namespace).replace("%7B", "{").replace("%7D", "}")
    named = [_parameter("namespace")] if resource.namespaced else []
    paths: Object = {collection: {"parameters": named}}
    if not kind.read_only and not kind.server_made:
        paths[collection]["post"] = _operation(kind, "post")
    if not kind.listed:
        return paths
    paths[collection]["get"] = _operation(kind, "list", name=kind.list_kind)
    item = f"{collection}/{{name}}"
    named = [*named, _parameter("name")]
    methods: tuple[str, ...] = ("get", "put", "patch", "delete")
    if kind.read_only or kind.server_made:
        methods = ("get",) if kind.read_only else ("get", "delete")
    paths[item] = {method: _operation(kind, method) for method in methods} | {"parameters": named}
    for status in kind.status_subresources:
        paths[f"{item}/{status}"] = {
            method: _operation(kind, method) for method in methods if method != "delete"
        } | {"parameters": named}
    for name, each in kind.requests.items():
        paths[f"{item}/{name}"] = {"post": _operation(each, "post"), "parameters": named}
    for text in kind.texts:
        paths[f"{item}/{text}"] = {"get": _text(kind, text), "parameters": named}
    return paths


def _text(kind: Kind, text: str) -> Object:
    """The operation that reads a text subresource."""
    types = kind.text_types.get(text, ("text/plain",))
    content = {each: {"schema": {"type": "string"}} for each in types}
    response = {"description": "OK", "content": content}
    return {
        "responses": {"200": response},
        "parameters": [
            {"name": name, "in": "query", "schema": schema}
            for name, schema in kind.texts[text].items()
        ],
        "x-kubernetes-action": "get",
        "x-kubernetes-group-version-kind": _identity(kind),
    }


def _parameter(name: str, where: str = "path", kind: str = "string") -> Object:
    parameter: Object = {"name": name, "in": where, "schema": {"type": kind}}
    return parameter | {"required": True} if where == "path" else parameter


def _operation(kind: Kind, action: str, name: str = "") -> Object:
    schema = {"schema": _reference(kind, name)}
    operation: Object = {
        "responses": {"200": {"description": "OK", "content": {"application/json": schema}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _identity(kind),
    }
    if action in ("post", "put", "patch"):
        # kubectl checks for fieldValidation here, and then leaves validation to the server.
        operation["parameters"] = [_parameter(name, "query") for name in _WRITE_PARAMETERS]
        types: tuple[str, ...] = ("application/json",)
        if action == "patch":
            types = patch.TYPES
            operation["parameters"].append(_parameter("force", "query", "boolean"))
        operation["requestBody"] = {"content": dict.fromkeys(types, schema)}
    return operation
