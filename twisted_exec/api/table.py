"""
Tables: what ``kubectl get`` prints.

kubectl prints cells as they are, so ages are rendered here.  Source:
``k8s.io/apimachinery/pkg/apis/meta/v1/types.go`` (Table).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted_exec.api import times
from twisted_exec.api.kinds import Column, Kind, Object

NAME_DESCRIPTION = "Name must be unique within a namespace."
AGE_DESCRIPTION = "How long ago the object was created."


def table(
    kind: Kind,
    objects: Iterable[Object],
    now: float,
    *,
    metadata: Mapping[str, Any],
    include: str = "Metadata",
    columns: bool = True,
) -> Object:
    """
    Objects as a Table.

    :param now: seconds since the epoch, for ages.
    :param metadata: of the list, or of the one object.
    :param include: what each row carries besides its cells: ``Metadata``,
        ``Object`` or ``None``, as the request's ``includeObject`` says.
    :param columns: a watch names its columns once and then leaves them out.
    """
    result: Object = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(metadata),
        "columnDefinitions": column_definitions(kind) if columns else [],
        "rows": [row(kind, obj, now, include) for obj in objects],
    }
    return result


def column_definitions(kind: Kind) -> list[Object]:
    """Name, the kind's own columns, Age, and those of its own that only a wide table shows."""
    if kind.own_columns:
        return [_definition(item.name, item.description, item.priority) for item in kind.columns]
    name = _definition("Name", NAME_DESCRIPTION)
    always, wide = (
        [_definition(item.name, item.description, item.priority) for item in columns]
        for columns in kind.columns_by_priority
    )
    return [name, *always, _definition("Age", AGE_DESCRIPTION), *wide]


def _definition(name: str, description: str, priority: int = 0) -> Object:
    return {
        "name": name,
        "type": "string",
        # kubectl puts the kind before this one when it shows several kinds.
        "format": "name" if name == "Name" else "",
        "description": description,
        "priority": priority,
    }


def row(kind: Kind, obj: Object, now: float, include: str) -> Object:
    """One object as a row."""
    result: Object = {"cells": cells(kind, obj, now)}
    if include == "Object":
        result["object"] = obj
    elif include != "None":
        result["object"] = partial(obj)
    return result


def cells(kind: Kind, obj: Object, now: float) -> list[str]:
    """What one object's row shows, in the order of :func:`column_definitions`."""
    always, wide = kind.columns_by_priority
    if kind.own_columns:
        return [_cell(column, obj, now) for column in kind.columns]
    metadata = obj["metadata"]
    return [
        metadata["name"],
        *[_cell(column, obj, now) for column in always],
        times.age(metadata.get("creationTimestamp"), now),
        *[_cell(column, obj, now) for column in wide],
    ]


def _cell(column: Column, obj: Object, now: float) -> str:
    told = column.read(obj)
    return times.age(told, now) if column.moment else told or ""


def partial(obj: Object) -> Object:
    """The ``PartialObjectMetadata`` of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
