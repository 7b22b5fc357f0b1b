"""
Kinds as CustomResourceDefinitions, for a kube-apiserver to serve.

Rules that a definition cannot express are left out. Source:
``k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/types.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.schema import Schema

_EXTENSIONS = ("x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key")
"""Schema extensions for strategic merge patches, which custom resources do not support."""


def definition(kind: Kind, *, name: Schema | None = None) -> Object:
    """
    Return the definition of a kind.

    :param name: a schema for the objects' names, in addition to that of DNS subdomains.
    :raises ValueError: a column has no path.
    """
    resource = kind.resource
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified},
        "spec": {
            "group": resource.group,
            "names": _names(kind),
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [_version(kind, name)],
        },
    }


def _names(kind: Kind) -> Object:
    names: Object = {
        "kind": kind.resource.kind,
        "listKind": kind.list_kind,
        "plural": kind.resource.plural,
        "singular": kind.singular,
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


def _version(kind: Kind, name: Schema | None) -> Object:
    version: Object = {
        "name": kind.resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema(kind, name)},
        "additionalPrinterColumns": _columns(kind),
    }
    if kind.has_status:
        version["subresources"] = {"status": {}}
    return version


def _schema(kind: Kind, name: Schema | None) -> Object:
    metadata: Object = {"type": "object"}
    if name is not None:
        metadata["properties"] = {"name": {"type": "string", **name}}
    return {
        "description": kind.description,
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": metadata,
            **{key: _without_extensions(schema) for key, schema in kind.schema.items()},
        },
        "required": list(kind.required),
    }


def _without_extensions(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {
            key: _without_extensions(value)
            for key, value in schema.items()
            if key not in _EXTENSIONS
        }
    return [_without_extensions(each) for each in schema] if isinstance(schema, list) else schema


def _columns(kind: Kind) -> list[Object]:
    always, wide = kind.columns_by_priority
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    return [*_printer_columns(kind, always), age, *_printer_columns(kind, wide)]


def _printer_columns(kind: Kind, columns: Iterable[Column]) -> list[Object]:
    result = []
    for column in columns:
        if not column.path:
            raise ValueError(f"column {column.name} of {kind.resource.kind} has no path")
        entry: Object = {"name": column.name, "type": "string", "jsonPath": column.path}
        entry |= {"description": column.description} if column.description else {}
        result.append(entry | ({"priority": column.priority} if column.priority else {}))
    return result
