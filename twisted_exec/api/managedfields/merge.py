"""
The structured merge of values: comparison, and merging of what a manager applies.

The schema decides which values are atomic and which have parts with owners of their own.
:data:`ABSENT` is a missing value, as opposed to ``null``.

Functions do not change their arguments, and results may share parts with them.

Source: ``sigs.k8s.io/structured-merge-diff/v4/typed``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from twisted_exec.api import fields
from twisted_exec.api.managedfields.fieldset import (
    FieldSet,
    Path,
    field_step,
    has,
    insert,
    key_step,
    shown,
    under,
    value_step,
)
from twisted_exec.api.schema import Schema

ABSENT: Final = object()

_LEAF, _MAP, _LIST = "leaf", "map", "list"

_EXPECTED: dict[str, tuple[str, tuple[type, ...]]] = {
    "object": ("map", (dict,)),
    "array": ("list", (list,)),
    "string": ("string", (str,)),
    "integer": ("numeric (int or float)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
    "boolean": ("boolean", (bool,)),
}


@dataclass(frozen=True)
class Comparison:
    """Three sets of paths: added, different, and removed."""

    added: FieldSet = field(default_factory=dict)
    modified: FieldSet = field(default_factory=dict)
    removed: FieldSet = field(default_factory=dict)


def _shape(schema: Schema | None, *values: Any) -> str:
    if schema is None:
        present = [value for value in values if value is not ABSENT and value is not None]
        return _MAP if present and all(isinstance(value, dict) for value in present) else _LEAF
    if schema.get("x-kubernetes-list-type") in ("map", "set"):
        return _LIST
    if schema.get("type") == "object" and schema.get("x-kubernetes-map-type") != "atomic":
        return _MAP
    return _LEAF


def _inner(schema: Schema | None, key: str) -> Schema | None:
    if schema is None:
        return None
    declared: Schema | None = schema.get("properties", {}).get(key)
    return declared if declared is not None else schema.get("additionalProperties")


def _named(schema: Schema | None, key: str) -> bool:
    return schema is not None and key in schema.get("properties", {})


def _as_map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _merge_step(schema: Schema, item: Any) -> str:
    if schema["x-kubernetes-list-type"] == "set":
        if item is None or isinstance(item, dict | list):
            raise ValueError("an item of a set must be a scalar")
        return value_step(item)
    if not isinstance(item, dict):
        raise ValueError("associative list with keys may not have non-map elements")
    keys: dict[str, Any] = {}
    properties = schema["items"].get("properties", {})
    for key in schema["x-kubernetes-list-map-keys"]:
        value = item.get(key, properties.get(key, {}).get("default", ABSENT))
        if value is ABSENT:
            raise ValueError(
                f'associative list with keys has an element that omits key field "{key}" '
                "(and doesn't have default value)"
            )
        keys[key] = value
    return key_step(keys)


def _grouped(schema: Schema, value: Any) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for item in _as_list(value):
        groups.setdefault(_merge_step(schema, item), []).append(item)
    return groups


def problems(schema: Schema | None, value: Any, path: str = "") -> Iterator[str]:
    """
    Yield the reasons why a value cannot be applied, such as ``.spec.volumes: duplicate entries for
    key [name="a"]``.
    """
    if value is None or schema is None:
        return  # null and values without a schema are always valid
    if (wrong := _mismatch(schema, value)) is not None:
        yield f"{path}: expected {wrong}, got {fields.shown(value)}"
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = _inner(schema, key)
            if inner is None and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{key}: field not declared in schema"
            yield from problems(inner, item, f"{path}.{key}")
    elif _shape(schema, value) == _LIST:
        yield from _list_problems(schema, value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from problems(schema["items"], item, f"{path}[{index}]")


def _mismatch(schema: Schema, value: Any) -> str | None:
    if "type" not in schema:
        return None if isinstance(value, str | int | float) else "any scalar"
    expected, types = _EXPECTED[schema["type"]]
    fits = isinstance(value, types) and isinstance(value, bool) == (types == (bool,))
    return None if fits else expected


def _list_problems(schema: Schema, items: list[Any], path: str) -> Iterator[str]:
    steps: set[str] = set()
    for index, item in enumerate(items):
        try:
            step = _merge_step(schema, item)
        except ValueError as error:
            yield f"{path}: element {index}: {error}"
            return
        label = shown((step,))
        if step in steps:
            yield f"{path}: duplicate entries for key {label}"
        steps.add(step)
        yield from problems(schema["items"], item, f"{path}{label}")


def field_set(schema: Schema, value: Any) -> FieldSet:
    """Return all paths of a value: leaves, items, and keys that the schema does not name."""
    fields: FieldSet = {}
    _collect(schema, value, (), fields)
    return fields


def _collect(schema: Schema | None, value: Any, path: Path, fields: FieldSet) -> None:
    shape = _shape(schema, value)
    if shape == _MAP:
        for key, item in _as_map(value).items():
            here = (*path, field_step(key))
            _collect(_inner(schema, key), item, here, fields)
            if item is None or item == {} or not _named(schema, key):
                insert(fields, here)
    elif shape == _LIST and schema is not None:
        for step, items in _grouped(schema, value).items():
            here = (*path, step)
            if len(items) == 1:
                _collect(schema["items"], items[0], here, fields)
            insert(fields, here)
    else:
        insert(fields, path)


def compare(schema: Schema, old: Any, new: Any) -> Comparison:
    """
    Compare two values.

    An object or item that only one side has counts with everything in it.
    """
    comparison = Comparison()
    _compare(schema, old, new, (), comparison)
    return comparison


def _compare(schema: Schema | None, old: Any, new: Any, path: Path, comparison: Comparison) -> None:
    if old is not ABSENT and new is not ABSENT and old == new:
        return
    shape = _shape(schema, old, new)
    if shape == _MAP and (_as_map(old) or _as_map(new)):
        before, after = _as_map(old), _as_map(new)
        for key in [*before, *(key for key in after if key not in before)]:
            here = (*path, field_step(key))
            values = before.get(key, ABSENT), after.get(key, ABSENT)
            _compare(_inner(schema, key), *values, here, comparison)
    elif shape == _LIST and schema is not None and (_as_list(old) or _as_list(new)):
        _compare_lists(schema, old, new, path, comparison)
    elif old is not ABSENT and new is not ABSENT:
        insert(comparison.modified, path)
    if old is ABSENT:
        insert(comparison.added, path)
    elif new is ABSENT:
        insert(comparison.removed, path)


def _compare_lists(schema: Schema, old: Any, new: Any, path: Path, comparison: Comparison) -> None:
    before, after = _grouped(schema, old), _grouped(schema, new)
    for step in [*before, *(step for step in after if step not in before)]:
        here, olds, news = (*path, step), before.get(step, []), after.get(step, [])
        if len(olds) > 1 and len(news) > 1:
            if olds != news:
                insert(comparison.modified, here)
            continue
        # Items that share their keys are treated as a unit.
        old_item = olds[0] if len(olds) == 1 else ABSENT
        new_item = news[0] if len(news) == 1 else ABSENT
        if old_item is not ABSENT or new_item is not ABSENT:
            _compare(schema["items"], old_item, new_item, here, comparison)
        if len(olds) > 1:
            insert(comparison.removed, here)
        elif len(news) > 1:
            insert(comparison.added, here)


def merged(schema: Schema | None, live: Any, applied: Any) -> Any:
    """
    Merge ``applied`` into ``live``.

    Items that are in both lists have the order of ``applied``.
    """
    if live is ABSENT or applied is ABSENT:
        return live if applied is ABSENT else applied
    shape = _shape(schema, live, applied)
    if shape == _MAP and (live or applied):
        before, after = _as_map(live), _as_map(applied)
        return {
            key: merged(_inner(schema, key), before.get(key, ABSENT), after.get(key, ABSENT))
            for key in [*before, *(key for key in after if key not in before)]
        }
    if shape == _LIST and schema is not None and (live or applied):
        return _merged_list(schema, _as_list(live), _as_list(applied))
    return applied


def _merged_list(schema: Schema, live: list[Any], applied: list[Any]) -> list[Any]:
    """Merge lists: items that only ``live`` has stay before the next shared item."""
    before = [(_merge_step(schema, item), item) for item in live]
    by_step, applied_by_step = _grouped(schema, live), _grouped(schema, applied)
    shared = iter([step for step in applied_by_step if step in by_step])
    stop = next(shared, None)
    result: list[Any] = []
    place = 0
    for step, (item, *_) in applied_by_step.items():
        while place < len(before) and before[place][0] != stop:
            if before[place][0] not in applied_by_step:
                result.append(before[place][1])
            place += 1
        base: Any = ABSENT
        if step == stop:
            # Several live items with the same keys are ambiguous, so none of them is the base.
            base = by_step[step][0] if len(by_step[step]) == 1 else ABSENT
            place, stop = place + 1, next(shared, None)
        result.append(merged(schema["items"], base, item))
    result += [item for step, item in before[place:] if step not in applied_by_step]
    return result


def without(schema: Schema | None, value: Any, unwanted: FieldSet) -> Any:
    """Remove fields and items from a value; ``None`` if nothing is left of it."""
    shape = _shape(schema, value)
    if not unwanted or shape == _LEAF:
        return value
    if shape == _MAP:
        rest = {
            key: without(_inner(schema, key), item, under(unwanted, step))
            for key, item in _as_map(value).items()
            if not has(unwanted, step := field_step(key))
        }
        return rest or None
    assert schema is not None  # lists without a schema are leaves
    left = [
        without(schema["items"], item, under(unwanted, step))
        for item in _as_list(value)
        if not has(unwanted, step := _merge_step(schema, item))
    ]
    return left or None


def with_named_fields(schema: Schema | None, fields: FieldSet) -> FieldSet:
    """Add to a set of paths the parent fields that the schema names."""
    result: FieldSet = {}
    for step, node in fields.items():
        if step == ".":
            result[step] = node
            continue
        key = step[2:]
        below = _below(schema, step)
        inner = with_named_fields(below, node)
        if node and step.startswith("f:") and _named(schema, key):
            inner = {".": {}, **inner}
        result[step] = inner
    return result


def _below(schema: Schema | None, step: str) -> Schema | None:
    if schema is None:
        return None
    if step.startswith("f:"):
        return _inner(schema, step[2:])
    items: Mapping[str, Any] | None = schema.get("items")
    return items
