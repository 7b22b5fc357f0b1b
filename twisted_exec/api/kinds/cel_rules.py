"""
Rules in CEL and printer columns by JSONPath, for kinds that are also CustomResourceDefinitions.

A rule for a ``spec`` is defined twice: in Python for our API server, and in CEL for a
kube-apiserver.

A rule that compares with the old object applies to the whole ``spec``, never to one field:
kube-apiserver skips a field's rule if the field is missing before or after, so the field could be
removed and then set to a new value.

Only a subset of JSONPath is supported. Sources: ``k8s.io/client-go/util/jsonpath``, and
``pkg/registry/customresource/tableconvertor`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Object
from twisted_exec.api.schema import Schema

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class CELRule:
    """
    A rule for a single spec.

    :param cel: expression in which ``self`` is the spec.
    :param missing: a violation means that the field is missing.
    """

    member: str
    problem: str
    cel: str
    holds: Callable[[Spec], bool]
    missing: bool = False

    def causes(self, spec: Spec) -> list[Cause]:
        """Return the causes; empty if the rule holds."""
        if self.holds(spec):
            return []
        error = fields.required if self.missing else fields.forbidden
        return [error(f"spec.{self.member}", self.problem)]


@dataclass(frozen=True)
class Fixed:
    """
    A rule that makes a field of a spec immutable.

    :param empty: CEL literal for the missing field; empty for a required field.
    """

    member: str
    problem: str
    empty: str = ""

    @property
    def cel(self) -> str:
        """CEL expression in which ``oldSelf`` is the old spec."""
        if not self.empty:
            return f"self.{self.member} == oldSelf.{self.member}"
        before, after = (
            f"(has({root}.{self.member}) ? {root}.{self.member} : {self.empty})"
            for root in ("oldSelf", "self")
        )
        return f"{after} == {before}"

    def causes(self, new: Spec, old: Spec) -> list[Cause]:
        """Return the causes; empty if the field is unchanged."""
        if (new.get(self.member) or None) == (old.get(self.member) or None):
            return []
        return [fields.forbidden(f"spec.{self.member}", self.problem)]


def with_rules(spec: Schema, rules: Sequence[CELRule | Fixed]) -> Schema:
    """Return the schema of a spec with its rules."""
    return {**spec, "x-kubernetes-validations": [_expressed(each) for each in rules]}


def _expressed(rule: CELRule | Fixed) -> dict[str, Any]:
    missing = isinstance(rule, CELRule) and rule.missing
    return {
        "rule": rule.cel,
        "message": rule.problem,
        "reason": "FieldValueRequired" if missing else "FieldValueForbidden",
        "fieldPath": f".{rule.member}",
    }


def broken(rules: Sequence[CELRule], obj: Object) -> list[Cause]:
    """Return the violations in an object's spec."""
    return [cause for rule in rules for cause in rule.causes(obj["spec"])]


def changed(rules: Sequence[Fixed], new: Object, old: Object) -> list[Cause]:
    """Return the changes of immutable fields."""
    return [cause for rule in rules for cause in rule.causes(new["spec"], old["spec"])]


NONE = "<none>"

_STEP = re.compile(
    r"\.(?P<member>\w+)"
    r"|\[(?P<all>\*)\]"
    r'|\[\?\(@\.(?P<key>\w+)(?P<how>==|!=)"(?P<text>[^"]*)"\)\]'
)
_Step = Callable[[Any], Iterator[Any]]


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


TROUBLE = '.status.conditions[?(@.status!="True")].message'
"""The message of the first condition that is not True."""


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
