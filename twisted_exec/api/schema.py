"""
Structural schemas: the fields of an object, defined once per kind.

A schema is an OpenAPI v3 schema object.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from twisted_exec.api import fields, times
from twisted_exec.api.fields import Cause

Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_KEYWORDS: dict[str, frozenset[str]] = {
    "string": frozenset({"enum", "format", "maxLength", "minLength", "pattern"}),
    "integer": frozenset({"enum", "maximum", "minimum"}),
    "boolean": frozenset(),
    "array": frozenset({"maxItems", "minItems", "uniqueItems"}),
    "object": frozenset({"maxProperties"}),
}
"""What :func:`check` knows of each type, besides ``default``."""


def string(description: str = "", **more: Any) -> Schema:
    """Return the schema of a string; ``more`` are keywords such as ``enum``."""
    return _schema("string", description, more)


def moment(description: str = "") -> Schema:
    """Return the schema of an RFC 3339 time."""
    return string(description, format="date-time")


def integer(description: str = "", **more: Any) -> Schema:
    """Return the schema of an integer; ``more`` are keywords such as ``minimum``."""
    return _schema("integer", description, more)


def boolean(description: str = "", **more: Any) -> Schema:
    """Return the schema of a boolean; ``more`` is ``default`` or nothing."""
    return _schema("boolean", description, more)


def quantity(description: str = "") -> Schema:
    """Return the schema of a quantity."""
    return _described({"x-kubernetes-int-or-string": True}, description)


def array(
    items: Schema,
    description: str = "",
    *,
    keys: Iterable[str] = (),
    unique: bool = False,
    **more: Any,
) -> Schema:
    """
    Return the schema of a list, which is atomic by default.

    :param keys: fields that identify an item.
    :param unique: the list is a set of scalars, without duplicates.
    :param more: keywords such as ``minItems`` and ``maxItems``.  ``uniqueItems=False`` allows a
        set to have duplicates.
    """
    kind, keys = "map" if keys else "set" if unique else "atomic", list(keys)
    schema: dict[str, Any] = {"items": items, "x-kubernetes-list-type": kind}
    if keys:
        schema["x-kubernetes-list-map-keys"] = keys
    if len(keys) == 1:
        # The same for strategic merge patches: kubectl's patches depend on it.
        schema |= {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": keys[0]}
    return _schema("array", description, more, schema)


def mapping(values: Schema, description: str = "", *, atomic: bool = False, **more: Any) -> Schema:
    """
    Return the schema of an object with arbitrary keys and values of one type.

    :param atomic: the object as a whole has one owner.
    :param more: keywords such as ``maxProperties``.
    """
    schema: dict[str, Any] = {"additionalProperties": values}
    if atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    return _schema("object", description, more, schema)


def struct(
    properties: Mapping[str, Schema],
    *,
    required: Iterable[str] = (),
    description: str = "",
    atomic: bool = False,
) -> Schema:
    """
    Return the schema of an object with these keys and no others; ``atomic`` as for :func:`mapping`.
    """
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    if required := list(required):
        schema["required"] = required
    return _described(schema, description)


def anything(description: str = "") -> Schema:
    """Return the schema of an object with arbitrary content."""
    return _described({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, description)


def _schema(
    type: str, description: str, more: Mapping[str, Any], parts: Mapping[str, Any] | None = None
) -> Schema:
    known = {"default", *_KEYWORDS[type]}
    for keyword in more:
        if keyword not in known:
            problem = f"the schema of type {type} has no keyword {keyword}"
            raise TypeError(f"{problem}; it has {', '.join(sorted(known))}")
    return _described({"type": type, **(parts or {}), **more}, description)


def _described(schema: dict[str, Any], description: str) -> Schema:
    if description:
        schema["description"] = description
    return schema


def reference(key: str = "name", *, description: str = "") -> Schema:
    """Return the schema of a reference to another object by name: ``{"name": NAME}``."""
    return struct({key: string("Name of the referent.")}, description=description, atomic=True)


def check(schema: Schema, value: Any, field: str = "") -> list[Cause]:
    """Return why a value does not fit a schema: at most 32 causes, none if it fits."""
    return [cause for cause, _ in zip(_check(schema, value, field), range(32), strict=False)]


def _check(schema: Schema, value: Any, field: str) -> Iterator[Cause]:
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            yield fields.wrong_type(field, value, "string")
        return
    expected: str = schema["type"]
    if not _is(expected, value):
        yield fields.wrong_type(field, value, expected)
    elif expected == "object":
        yield from _check_object(schema, value, field)
    elif expected == "array":
        yield from _check_array(schema, value, field)
    else:
        yield from _check_scalar(schema, value, field)


def _is(expected: str, value: Any) -> bool:
    if isinstance(value, bool):
        return expected == "boolean"  # Python's booleans are integers; JSON's are not
    return isinstance(value, _TYPES[expected])


def _check_object(schema: Schema, value: Mapping[str, Any], field: str) -> Iterator[Cause]:
    for key in schema.get("required", ()):
        if key not in value:
            yield fields.required(_join(field, key))
    yield from _check_count(schema, "maxProperties", value, field)
    properties = schema.get("properties", {})
    for key, item in value.items():
        if key in properties:
            yield from _check(properties[key], item, _join(field, key))
        elif "additionalProperties" in schema:
            yield from _check(schema["additionalProperties"], item, f"{field}[{key}]")


def _check_array(schema: Schema, value: list[Any], field: str) -> Iterator[Cause]:
    if len(value) < schema.get("minItems", 0):
        problem = f"{field} in body should have at least {schema['minItems']} items"
        yield fields.invalid(field, len(value), problem)
    yield from _check_count(schema, "maxItems", value, field)
    is_set = schema.get("x-kubernetes-list-type") == "set" and schema.get("uniqueItems", True)
    counts: dict[Any, int] = {}
    for index, item in enumerate(value):
        here = f"{field}[{index}]"
        yield from _check(schema["items"], item, here)
        if is_set and not isinstance(item, list | dict):  # of a wrong type, and not hashable
            counts[item] = counts.get(item, 0) + 1
            if counts[item] == 2:  # kube-apiserver reports each value once, too
                yield fields.duplicate(here, item)


def _check_count(schema: Schema, bound: str, value: Any, field: str) -> Iterator[Cause]:
    if bound in schema and len(value) > schema[bound]:
        yield fields.too_many(field, len(value), schema[bound])


def _check_scalar(schema: Schema, value: Any, field: str) -> Iterator[Cause]:
    if "minLength" in schema and len(value) < schema["minLength"]:
        problem = f"{field} in body should be at least {schema['minLength']} chars long"
        yield fields.invalid(field, value, problem)
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield fields.too_long(field, schema["maxLength"], "characters")
    if "enum" in schema and value not in schema["enum"]:
        yield fields.not_supported(field, value, schema["enum"])
    if "minimum" in schema and value < schema["minimum"]:
        yield fields.invalid(field, value, f"must be greater than or equal to {schema['minimum']}")
    if "maximum" in schema and value > schema["maximum"]:
        yield fields.invalid(field, value, f"must be less than or equal to {schema['maximum']}")
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        yield fields.invalid(field, value, f"must match the regular expression {schema['pattern']}")
    if schema.get("format") == "date-time" and not times.is_moment(value):
        problem = f"{field} in body must be of type date-time: {fields.shown(value)}"
        yield fields.invalid(field, value, problem)


def pruned(schema: Schema, value: Any) -> Any:
    """Copy a value without unknown fields; known fields that are null are dropped, too."""
    if isinstance(value, list) and "items" in schema:
        return [pruned(schema["items"], item) for item in value]
    if not isinstance(value, dict) or schema.get("type") != "object":
        return copy.deepcopy(value)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return copy.deepcopy(value)
    result: dict[str, Any] = {}
    for key, item in value.items():
        inner = _inner(schema, key)
        if inner is not None and item is not None:
            result[key] = pruned(inner, item)
    return result


def unknown_fields(schema: Schema, value: Any, field: str = "") -> Iterator[str]:
    """Yield the paths of unknown fields."""
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from unknown_fields(schema["items"], item, f"{field}[{index}]")
    elif isinstance(value, dict) and schema.get("type") == "object":
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return
        for key, item in value.items():
            inner = _inner(schema, key)
            if inner is None:
                yield _join(field, key)
            else:
                yield from unknown_fields(inner, item, _join(field, key))


def set_defaults(schema: Schema, value: Any) -> None:
    """Set the defaults of missing fields, in place."""
    if isinstance(value, list) and "items" in schema:
        for item in value:
            set_defaults(schema["items"], item)
    elif isinstance(value, dict):
        for key, inner in schema.get("properties", {}).items():
            if key not in value and "default" in inner:
                value[key] = copy.deepcopy(inner["default"])
            if key in value:
                set_defaults(inner, value[key])


def _inner(schema: Schema, key: str) -> Schema | None:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    if key in properties:
        return properties[key]
    additional: Schema | None = schema.get("additionalProperties")
    return additional


def _join(field: str, key: str) -> str:
    return f"{field}.{key}" if field else key
