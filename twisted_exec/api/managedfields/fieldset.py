"""
Sets of fields in the format of ``metadata.managedFields``.

A set of fields (``FieldsV1``) is a tree of plain JSON data. Each key is one step of a path:
``f:NAME`` is a field, ``k:{"KEY":VALUE}`` an item of a list whose items have keys, ``v:VALUE`` an
item of a list that is a set, ``i:INDEX`` an item by position. A path is in the set if its node is
empty or contains ``"."``. Sets from outside go through :func:`decode` first: after that, equal
steps are equal strings.

Except for :func:`insert`, public functions do not change their arguments, and results may share
parts with them.

Source: ``sigs.k8s.io/structured-merge-diff/v4/fieldpath``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

FieldSet = dict[str, Any]
Path = tuple[str, ...]
"""Steps as spelled in a set: ``("f:spec", 'k:{"name":"a"}')``."""

_SELF = "."


def field_step(name: str) -> str:
    """Return the step to a field of an object."""
    return f"f:{name}"


def key_step(keys: Mapping[str, Any]) -> str:
    """Return the step to a list item by its keys."""
    return f"k:{_json(dict(keys))}"


def value_step(value: Any) -> str:
    """Return the step to an item of a set."""
    return f"v:{_json(value)}"


# One encoder: json.dumps() would create one for each of the many small values.
_json = json.JSONEncoder(separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode


def decode(raw: Any) -> FieldSet:
    """
    Decode a set from outside.

    :raises ValueError: the data is not a set.
    """
    try:
        return _decode(raw)[1]
    except RecursionError:
        raise ValueError("a set of fields is nested too deep") from None


def _decode(raw: Any) -> tuple[bool, FieldSet]:
    if not isinstance(raw, dict):
        raise ValueError("a set of fields is an object")
    children: FieldSet = {}
    for key, below in raw.items():
        if key == _SELF or (step := _step(key)) is None:
            continue
        member, inner = _decode(below)
        node = _node(member, inner)
        if node is not None:
            children[step] = node
    # A node that has lost all its children leads nowhere: it stands for itself.
    return _SELF in raw or not children, children


def _step(key: str) -> str | None:
    kind, colon, rest = key[:1], key[1:2], key[2:]
    if colon != ":":
        raise ValueError(f"{key!r} is no step of a path")
    if kind == "f":
        return key
    if kind == "i":
        return f"i:{int(rest)}"
    if kind == "v":
        return value_step(json.loads(rest))
    if kind == "k":
        keys = json.loads(rest)
        if not isinstance(keys, dict):
            raise ValueError(f"{key!r} names no keys")
        return key_step(keys)
    return None


def insert(fields: FieldSet, path: Path) -> None:
    """Add a path to a set, in place.  The empty path is in no set."""
    if not path:
        return
    *parents, last = path
    node = fields
    for step in parents:
        below = node.get(step)
        if below is None:
            below = node[step] = {}  # the next step makes it lead somewhere
        elif not below:
            below[_SELF] = {}
        node = below
    below = node.setdefault(last, {})
    if below:
        below[_SELF] = {}


def made_of(paths: Iterable[Path]) -> FieldSet:
    """Return the set of these paths."""
    fields: FieldSet = {}
    for path in paths:
        insert(fields, path)
    return fields


def has(fields: FieldSet, step: str) -> bool:
    """Return whether the path of this single step is in a set."""
    return step in fields and _is_member(fields[step])


def under(fields: FieldSet, step: str) -> FieldSet:
    """Return the part of a set below a step, without the step itself."""
    return _children(fields.get(step, {}))


def _is_member(node: FieldSet) -> bool:
    return not node or _SELF in node


def _children(node: FieldSet) -> FieldSet:
    if _SELF not in node:
        return node
    return {step: below for step, below in node.items() if step != _SELF}


def _node(member: bool, children: FieldSet) -> FieldSet | None:
    if not children:
        return {} if member else None
    return {_SELF: {}, **children} if member else children


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths in either set."""
    result = dict(_children(left))
    for step, node in _children(right).items():
        if step not in result:
            result[step] = node
            continue
        before = result[step]
        member = _is_member(before) or _is_member(node)
        joined = _node(member, union(before, node))
        assert joined is not None  # both sets are non-empty here
        result[step] = joined
    return result


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths in both sets."""
    result: FieldSet = {}
    for step, node in _children(left).items():
        if step not in right:
            continue
        member = _is_member(node) and _is_member(right[step])
        shared = _node(member, intersection(node, right[step]))
        if shared is not None:
            result[step] = shared
    return result


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths in ``left`` that are not in ``right``."""
    if not right:
        return left
    result: FieldSet = {}
    for step, node in _children(left).items():
        less = right.get(step)
        if less is None:
            result[step] = node
            continue
        member = _is_member(node) and not _is_member(less)
        rest = _node(member, difference(_children(node), _children(less)))
        if rest is not None:
            result[step] = rest
    return result


def paths(fields: FieldSet, prefix: Path = ()) -> Iterator[Path]:
    """Yield all paths in order."""
    steps = sorted(_children(fields).items(), key=lambda item: item[0])
    for step, node in steps:
        if _is_member(node):
            yield (*prefix, step)
    for step, node in steps:
        yield from paths(node, (*prefix, step))


def shown(path: Path) -> str:
    """Format a path for messages: ``.spec.volumes[name="root"].device``."""
    return "".join(_shown_step(step) for step in path)


def _shown_step(step: str) -> str:
    kind, rest = step[:1], step[2:]
    if kind == "f":
        return f".{rest}"
    if kind == "v":
        return f"[={rest}]"
    if kind == "k":
        keys = json.loads(rest)
        return f"[{','.join(f'{key}={_json(value)}' for key, value in keys.items())}]"
    return f"[{rest}]"
