"""
Rules in CEL, for kinds that are also CustomResourceDefinitions.

A rule for a ``spec`` is defined twice: in Python for our API server, and in CEL for a
kube-apiserver.

A rule that compares with the old object applies to the whole ``spec``, never to one field:
kube-apiserver skips a field's rule if the field is missing before or after, so the field could be
removed and then set to a new value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Object
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
