"""
Columns by JSONPath, as a CustomResourceDefinition's ``additionalPrinterColumns`` have them.

What an API server of ours shows and what a kube-apiserver shows by our manifests is said once.  Of JSONPath
there is what such columns need: members, ``[*]``, and one comparison with a text,
``[?(@.KEY=="TEXT")]`` or ``[?(@.KEY!="TEXT")]``.  Of several matches the first is shown, as
kube-apiserver does.  Source: ``k8s.io/client-go/util/jsonpath``, and of
``k8s.io/apiextensions-apiserver`` ``pkg/registry/customresource/tableconvertor``.
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


def column(name: str, path: str, description: str = "", *, wide: bool = False) -> Column:
    """
    A column that shows what is at a path; ``<none>`` where there is nothing.

    :param wide: only ``-o wide`` has it.
    :raises ValueError: the path is none of those that are understood.
    """
    steps = _parsed(path)

    def read(obj: Object) -> str:
        found = next(_matches(steps, obj), None)
        return NONE if found in (None, "") else str(found)

    return Column(name, read, description, priority=1 if wide else 0, path=path)


def condition(type: str, member: str = "status") -> str:
    """The path of a member of a condition."""
    return f'.status.conditions[?(@.type=="{type}")].{member}'


TROUBLE = '.status.conditions[?(@.status!="True")].message'
"""The message of the first condition that does not hold."""


def _parsed(path: str) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise ValueError(f"{path!r} cannot be understood from its character {at + 1}")
        steps.append(_step(found))
        at = found.end()
    return tuple(steps)


def _step(found: re.Match[str]) -> _Step:
    if member := found["member"]:
        return lambda value: iter((value[member],)) if _has(value, member) else iter(())
    if found["all"]:
        return lambda value: iter(value) if isinstance(value, list) else iter(())
    key, text, wanted = found["key"], found["text"], found["how"] == "=="

    def chosen(value: Any) -> Iterator[Any]:
        items = value if isinstance(value, list) else []
        return (each for each in items if _has(each, key) and (each[key] == text) is wanted)

    return chosen


def _has(value: Any, member: str) -> bool:
    return isinstance(value, dict) and member in value


def _matches(steps: Sequence[_Step], value: Any) -> Iterator[Any]:
    if not steps:
        yield value
        return
    for each in steps[0](value):
        yield from _matches(steps[1:], each)
