"""
Printer columns by JSONPath, for kinds that are also CustomResourceDefinitions.

Only a subset of JSONPath is supported. Sources: ``k8s.io/client-go/util/jsonpath``, and
``pkg/registry/customresource/tableconvertor`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from twisted_exec.api.kinds.kind import Column, Object

NONE = "<none>"

_STEP = re.compile(
    r"\.(?P<member>\w+)"
    r"|\[(?P<all>\*)\]"
    r'|\[\?\(@\.(?P<key>\w+)(?P<how>==|!=)"(?P<text>[^"]*)"\)\]'
)
_Step = Callable[[Any], Iterator[Any]]

TROUBLE = '.status.conditions[?(@.status!="True")].message'
"""The message of the first condition that is not True."""


def column(name: str, path: str, description: str = "", *, wide: bool = False) -> Column:
    """
    Return a column with the value at a path; ``<none>`` if there is none.

    :raises ValueError: the path is not supported.
    """
    steps = _parsed(path)

    def read(obj: Object) -> str:
        match = next(_matches(steps, obj), None)
        return NONE if match in (None, "") else str(match)

    return Column(name, read, description, priority=1 if wide else 0, path=path)


def condition(type: str, member: str = "status") -> str:
    """Return the path of a field of a condition."""
    return f'.status.conditions[?(@.type=="{type}")].{member}'


def _parsed(path: str) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise ValueError(f"{path!r} is not supported from character {at + 1} on")
        steps.append(_step(match))
        at = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> _Step:
    if member := match["member"]:
        return lambda value: iter((value[member],)) if _has(value, member) else iter(())
    if match["all"]:
        return lambda value: iter(value) if isinstance(value, list) else iter(())
    key, text, equal = match["key"], match["text"], match["how"] == "=="

    def chosen(value: Any) -> Iterator[Any]:
        items = value if isinstance(value, list) else []
        return (each for each in items if _has(each, key) and (each[key] == text) is equal)

    return chosen


def _has(value: Any, member: str) -> bool:
    return isinstance(value, dict) and member in value


def _matches(steps: Sequence[_Step], value: Any) -> Iterator[Any]:
    if not steps:
        yield value
        return
    for each in steps[0](value):
        yield from _matches(steps[1:], each)
