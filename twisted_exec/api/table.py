"""
The server's answer to ``kubectl get``: objects as a Table, with the cells of their columns.

Source: ``k8s.io/apimachinery/pkg/apis/meta/v1/types.go`` (Table).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted_exec.api import times
from twisted_exec.api.kinds import Column, Kind, Object
from twisted_exec.api.kinds.kind import NOTHING

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
    Return objects as a Table.

    :param now: seconds since the epoch, for ages.
    :param include: the request's ``includeObject``.
    :param columns: include the column definitions; a watch sends them only once.
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
    """Return the column definitions of a kind's Tables."""
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
        # With several kinds, kubectl prefixes the cell in this format with the kind.
        "format": "name" if name == "Name" else "",
        "description": description,
        "priority": priority,
    }


def row(kind: Kind, obj: Object, now: float, include: str) -> Object:
    """Return one row of a Table; parameters as for :func:`table`."""
    result: Object = {"cells": cells(kind, obj, now)}
    if include == "Object":
        result["object"] = obj
    elif include != "None":
        result["object"] = partial(obj)
    return result


def cells(kind: Kind, obj: Object, now: float) -> list[str]:
    """Return the cells of a row, in the order of :func:`column_definitions`."""
    return [
        times.human(now - cell) if isinstance(cell, float) else cell
        for cell in lasting_cells(kind, obj)
    ]


def lasting_cells(kind: Kind, obj: Object) -> list[str | float]:
    """
    Return the cells of a row in a form that changes only with the object.

    :return: as :func:`cells`, with moments in seconds since the epoch in place of ages.
    """
    always, wide = kind.columns_by_priority
    if kind.own_columns:
        return [_cell(column, obj) for column in kind.columns]
    metadata = obj["metadata"]
    return [
        metadata["name"],
        *[_cell(column, obj) for column in always],
        _moment(metadata.get("creationTimestamp")),
        *[_cell(column, obj) for column in wide],
    ]


def _cell(column: Column, obj: Object) -> str | float:
    value = column.read(obj)
    is_moment = column.moment and value != NOTHING
    return _moment(value) if is_moment else value or ""


def _moment(text: str | None) -> str | float:
    try:
        return times.seconds(text or "")
    except (ValueError, OverflowError):
        return times.UNKNOWN


def partial(obj: Object) -> Object:
    """Return an object's ``PartialObjectMetadata``."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
