"""
Sets of fields, as ``metadata.managedFields`` writes them (``FieldsV1``).

A set is a tree.  Each key is one step of a path: ``f:NAME`` is a field,
``k:{"KEY":VALUE}`` an item of a list whose items have keys, ``v:VALUE`` an item
of a list that is a set, ``i:INDEX`` an item by its place.  A path is in the set
when its node is empty or holds ``"."``; else the node only leads to longer paths.

That tree is plain JSON data, and nothing else stands for a set here: what the
store holds needs no decoding, and a set that a write leaves alone is not even
walked.  So whatever comes from outside goes through :func:`decode` first, which
brings keys into one spelling; afterwards equal steps are equal strings.  No
function changes its arguments, and results share their unchanged parts.

Source: ``sigs.k8s.io/structured-merge-diff/v4/fieldpath``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

FieldSet = dict[str, Any]
Path = tuple[str, ...]
"""Steps as they are spelled in a set: ``("f:spec", 'k:{"name":"a"}')``."""

_SELF = "."


def field_step(name: str) -> str:
    """The step to a field of an object."""
    return f"f:{name}"


def key_step(keys: Mapping[str, Any]) -> str:
    """The step to an item of a list by its keys."""
    return f"k:{_json(dict(keys))}"


def value_step(value: Any) -> str:
    """The step to an item of a set."""
    return f"v:{_json(value)}"


# Made once: json.dumps would make one for each of the many small values.
_json = json.JSONEncoder(separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode


def decode(raw: Any) -> FieldSet:
    """
    Read a set that someone else wrote.

    :param raw: JSON data.  Steps of kinds that nobody knows are left out.
    :raises ValueError: it is no set.
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
    # A node of which nothing is left is one that leads nowhere: it names itself.
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
    """Put a path into a set, in place.  The empty path is in no set."""
    if not path:
        return
    *way, last = path
    node = fields
    for step in way:
        below = node.get(step)
        if below is None:
            below = node[step] = {}  # it leads somewhere once the next step is in it
        elif not below:
            below[_SELF] = {}
        node = below
    below = node.setdefault(last, {})
    if below:
        below[_SELF] = {}


def made_of(paths: Iterable[Path]) -> FieldSet:
    """The set of these paths."""
    fields: FieldSet = {}
    for path in paths:
        insert(fields, path)
    return fields


def has(fields: FieldSet, step: str) -> bool:
    """Whether the path of this one step is in a set."""
    return step in fields and _is_member(fields[step])


def under(fields: FieldSet, step: str) -> FieldSet:
    """What a set holds below a step; the step itself is not in it."""
    return _children(fields.get(step, {}))


def _is_member(node: FieldSet) -> bool:
    return not node or _SELF in node


def _children(node: FieldSet) -> FieldSet:
    if _SELF not in node:
        return node
    return {step: below for step, below in node.items() if step != _SELF}


def _node(member: bool, children: FieldSet) -> FieldSet | None:
    """The node to put into a tree; ``None`` when there is nothing to put."""
    if not children:
        return {} if member else None
    return {_SELF: {}, **children} if member else children


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in either."""
    result = dict(_children(one))
    for step, node in _children(other).items():
        if step not in result:
            result[step] = node
            continue
        before = result[step]
        member = _is_member(before) or _is_member(node)
        joined = _node(member, union(before, node))
        assert joined is not None  # both lead somewhere
        result[step] = joined
    return result


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in both."""
    result: FieldSet = {}
    for step, node in _children(one).items():
        if step not in other:
            continue
        member = _is_member(node) and _is_member(other[step])
        shared = _node(member, intersection(node, other[step]))
        if shared is not None:
            result[step] = shared
    return result


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in ``one`` and not in ``other``, path by path."""
    if not other:
        return one
    result: FieldSet = {}
    for step, node in _children(one).items():
        less = other.get(step)
        if less is None:
            result[step] = node
            continue
        member = _is_member(node) and not _is_member(less)
        rest = _node(member, difference(_children(node), _children(less)))
        if rest is not None:
            result[step] = rest
    return result


def paths(fields: FieldSet, prefix: Path = ()) -> Iterator[Path]:
    """Every path: at each step first those that end there, then those that go on; sorted."""
    steps = sorted(_children(fields).items(), key=lambda item: item[0])
    for step, node in steps:
        if _is_member(node):
            yield (*prefix, step)
    for step, node in steps:
        yield from paths(node, (*prefix, step))


def shown(path: Path) -> str:
    """A path as messages show it: ``.spec.volumes[name="root"].device``."""
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
