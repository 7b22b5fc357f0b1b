"""
Structured merge: how values of a schema are compared and merged field by field.

A schema says of each value what is written as one thing and what has parts with
writers of their own.  Scalars are one thing, and so are lists and objects that
their schema calls ``atomic``; a list whose schema says nothing is atomic, an
object is not.  A list of type ``map`` consists of items that its keys tell
apart, a list of type ``set`` of scalars.  What is in a value without a schema
is taken as it comes: objects have parts, lists are atomic.

Values are plain JSON data that fit their schemas; :data:`ABSENT` is a value that
is not there, other than ``null``, which is there and says nothing.  Nothing here
changes its arguments, and results share parts with them.

Source of the rules: ``sigs.k8s.io/structured-merge-diff/v4/typed``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from twisted_exec.api import fields
from twisted_exec.api.managedfields import fieldset
from twisted_exec.api.managedfields.fieldset import FieldSet, Path
from twisted_exec.api.schema import Schema

ABSENT: Final = object()

_LEAF, _MAP, _LIST = "leaf", "map", "list"


@dataclass(frozen=True)
class Comparison:
    """Paths that only the new value has, that both have with other content, that only the old has."""

    added: FieldSet = field(default_factory=dict)
    modified: FieldSet = field(default_factory=dict)
    removed: FieldSet = field(default_factory=dict)


def _shape(schema: Schema | None, *values: Any) -> str:
    if schema is None:
        known = [value for value in values if value is not ABSENT and value is not None]
        return _MAP if known and all(isinstance(value, dict) for value in known) else _LEAF
    if schema.get("x-kubernetes-list-type") in ("map", "set"):
        return _LIST
    if schema.get("type") == "object" and schema.get("x-kubernetes-map-type") != "atomic":
        return _MAP
    return _LEAF


def _inner(schema: Schema | None, key: str) -> Schema | None:
    """The schema of an object's field; ``None`` takes it as it comes."""
    if schema is None:
        return None
    found: Schema | None = schema.get("properties", {}).get(key)
    return found if found is not None else schema.get("additionalProperties")


def _named(schema: Schema | None, key: str) -> bool:
    return schema is not None and key in schema.get("properties", {})


def _as_map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _step(schema: Schema, item: Any) -> str:
    """
    The step to an item of a list.

    :raises ValueError: it cannot be told apart from others.
    """
    if schema["x-kubernetes-list-type"] == "set":
        if item is None or isinstance(item, dict | list):
            raise ValueError("an item of a set must be a scalar")
        return fieldset.value_step(item)
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
    return fieldset.key_step(keys)


def _grouped(schema: Schema, value: Any) -> dict[str, list[Any]]:
    """The items of a list by their steps.  What was stored once may hold a step twice."""
    groups: dict[str, list[Any]] = {}
    for item in _as_list(value):
        groups.setdefault(_step(schema, item), []).append(item)
    return groups


def problems(schema: Schema | None, value: Any, path: str = "") -> Iterator[str]:
    """
    Why a value cannot be applied: fields that nobody defined, types that do not
    fit, items of a list that are not told apart.

    :return: messages such as ``.spec.volumes: duplicate entries for key [name="a"]``.
    """
    if value is None or schema is None:
        return  # null says nothing, and what has no schema is taken as it comes
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


_EXPECTED: dict[str, tuple[str, tuple[type, ...]]] = {
    "object": ("map", (dict,)),
    "array": ("list", (list,)),
    "string": ("string", (str,)),
    "integer": ("numeric (int or float)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
    "boolean": ("boolean", (bool,)),
}


def _mismatch(schema: Schema, value: Any) -> str | None:
    """What was expected instead."""
    if "type" not in schema:
        return None if isinstance(value, str | int | float) else "any scalar"
    expected, types = _EXPECTED[schema["type"]]
    fits = isinstance(value, types) and isinstance(value, bool) == (types == (bool,))
    return None if fits else expected


def _list_problems(schema: Schema, items: list[Any], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        try:
            step = _step(schema, item)
        except ValueError as error:
            yield f"{path}: element {index}: {error}"
            return
        told = fieldset.shown((step,))
        if step in seen:
            yield f"{path}: duplicate entries for key {told}"
        seen.add(step)
        yield from problems(schema["items"], item, f"{path}{told}")


def field_set(schema: Schema, value: Any) -> FieldSet:
    """Every path that a value mentions: leaves, items, and keys that the schema does not name."""
    found: FieldSet = {}
    _collect(schema, value, (), found)
    return found


def _collect(schema: Schema | None, value: Any, path: Path, found: FieldSet) -> None:
    shape = _shape(schema, value)
    if shape == _MAP:
        for key, item in _as_map(value).items():
            here = (*path, fieldset.field_step(key))
            _collect(_inner(schema, key), item, here, found)
            if item is None or item == {} or not _named(schema, key):
                fieldset.insert(found, here)
    elif shape == _LIST and schema is not None:
        for step, items in _grouped(schema, value).items():
            here = (*path, step)
            if len(items) == 1:
                _collect(schema["items"], items[0], here, found)
            fieldset.insert(found, here)
    else:
        fieldset.insert(found, path)


def compare(schema: Schema, old: Any, new: Any) -> Comparison:
    """
    What differs.

    An object or item that is there on one side only counts itself and
    everything in it.  Equal parts are not walked.
    """
    found = Comparison()
    _compare(schema, old, new, (), found)
    return found


def _compare(schema: Schema | None, old: Any, new: Any, path: Path, found: Comparison) -> None:
    if old is not ABSENT and new is not ABSENT and old == new:
        return
    shape = _shape(schema, old, new)
    if shape == _MAP and (_as_map(old) or _as_map(new)):
        before, after = _as_map(old), _as_map(new)
        for key in [*before, *(key for key in after if key not in before)]:
            here = (*path, fieldset.field_step(key))
            values = before.get(key, ABSENT), after.get(key, ABSENT)
            _compare(_inner(schema, key), *values, here, found)
    elif shape == _LIST and schema is not None and (_as_list(old) or _as_list(new)):
        _compare_lists(schema, old, new, path, found)
    elif old is not ABSENT and new is not ABSENT:
        fieldset.insert(found.modified, path)
    if old is ABSENT:
        fieldset.insert(found.added, path)
    elif new is ABSENT:
        fieldset.insert(found.removed, path)


def _compare_lists(schema: Schema, old: Any, new: Any, path: Path, found: Comparison) -> None:
    before, after = _grouped(schema, old), _grouped(schema, new)
    for step in [*before, *(step for step in after if step not in before)]:
        here, olds, news = (*path, step), before.get(step, []), after.get(step, [])
        if len(olds) > 1 and len(news) > 1:
            if olds != news:
                fieldset.insert(found.modified, here)
            continue
        # Items that share their keys are one lump, which comes or goes as a whole.
        one_old = olds[0] if len(olds) == 1 else ABSENT
        one_new = news[0] if len(news) == 1 else ABSENT
        if one_old is not ABSENT or one_new is not ABSENT:
            _compare(schema["items"], one_old, one_new, here, found)
        if len(olds) > 1:
            fieldset.insert(found.removed, here)
        elif len(news) > 1:
            fieldset.insert(found.added, here)


def merged(schema: Schema | None, live: Any, applied: Any) -> Any:
    """
    ``live`` with everything that ``applied`` says; nothing is removed.

    Items of lists that both have come in the order of ``applied``.
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
    """What only ``live`` has keeps its place before the next item that both have."""
    before = [(_step(schema, item), item) for item in live]
    known, wanted = _grouped(schema, live), _grouped(schema, applied)
    shared = iter([step for step in wanted if step in known])
    stop = next(shared, None)
    result: list[Any] = []
    place = 0
    for step, (item, *_) in wanted.items():
        while place < len(before) and before[place][0] != stop:
            if before[place][0] not in wanted:
                result.append(before[place][1])
            place += 1
        base: Any = ABSENT
        if step == stop:
            # Of several live items with these keys none is the one that is meant.
            base = known[step][0] if len(known[step]) == 1 else ABSENT
            place, stop = place + 1, next(shared, None)
        result.append(merged(schema["items"], base, item))
    result += [item for step, item in before[place:] if step not in wanted]
    return result


def without(schema: Schema | None, value: Any, unwanted: FieldSet) -> Any:
    """
    A value less the fields and items whose paths are in ``unwanted``.

    :return: ``None`` for an object or list of which nothing is left.
    """
    shape = _shape(schema, value)
    if not unwanted or shape == _LEAF:
        return value
    if shape == _MAP:
        kept = {
            key: without(_inner(schema, key), item, fieldset.under(unwanted, step))
            for key, item in _as_map(value).items()
            if not fieldset.has(unwanted, step := fieldset.field_step(key))
        }
        return kept or None
    assert schema is not None  # lists without a schema are leaves
    left = [
        without(schema["items"], item, fieldset.under(unwanted, step))
        for item in _as_list(value)
        if not fieldset.has(unwanted, step := _step(schema, item))
    ]
    return left or None


def with_named_fields(schema: Schema | None, fields: FieldSet) -> FieldSet:
    """
    A set, and with each path in it the fields on the way that the schema names.

    Such a field is in no set of its own accord while it has content.
    """
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
