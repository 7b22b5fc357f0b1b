"""
Rules about a ``spec`` that are said twice: for our API server, and in CEL for a kube-apiserver.

Our API server asks the function; the expression is part of the schema (``x-kubernetes-validations``), as a
CustomResourceDefinition has it.  That both say the same is tried on a real one: ``tests/interop/spaces_crds.py``.

A rule that compares with what was there holds for the whole ``spec``, never for one member of it: kube-apiserver
skips the rule of a member that is missing before or after, so that one could be taken away and then set
anew.
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
class Rule:
    """
    What must hold of a spec by itself.

    :param member: of the spec, which a message is about.
    :param told: what is wrong when it does not hold, and what to do.
    :param cel: ``self`` is the spec.
    :param missing: what is wrong is that the member is not there.
    """

    member: str
    told: str
    cel: str
    holds: Callable[[Spec], bool]
    missing: bool = False

    def causes(self, spec: Spec) -> list[Cause]:
        """None when it holds."""
        if self.holds(spec):
            return []
        made = fields.required if self.missing else fields.forbidden
        return [made(f"spec.{self.member}", self.told)]


@dataclass(frozen=True)
class Fixed:
    """
    A member of a spec that stays as it was made, or missing if it was.

    :param empty: what counts as missing, in CEL: ``''`` or ``{}``.  A member that is always there has none.
    """

    member: str
    told: str
    empty: str = ""

    @property
    def cel(self) -> str:
        """``oldSelf`` is the spec as it was."""
        if not self.empty:
            return f"self.{self.member} == oldSelf.{self.member}"
        before, after = (
            f"(has({one}.{self.member}) ? {one}.{self.member} : {self.empty})"
            for one in ("oldSelf", "self")
        )
        return f"{after} == {before}"

    def causes(self, new: Spec, old: Spec) -> list[Cause]:
        """None when it stayed."""
        if (new.get(self.member) or None) == (old.get(self.member) or None):
            return []
        return [fields.forbidden(f"spec.{self.member}", self.told)]


def with_rules(spec: Schema, rules: Sequence[Rule | Fixed]) -> Schema:
    """The schema of a spec that says its rules."""
    return {**spec, "x-kubernetes-validations": [_expressed(each) for each in rules]}


def _expressed(rule: Rule | Fixed) -> dict[str, Any]:
    missing = isinstance(rule, Rule) and rule.missing
    return {
        "rule": rule.cel,
        "message": rule.told,
        "reason": "FieldValueRequired" if missing else "FieldValueForbidden",
        "fieldPath": f".{rule.member}",
    }


def broken(rules: Sequence[Rule], obj: Object) -> list[Cause]:
    """What is wrong with an object's spec."""
    return [cause for rule in rules for cause in rule.causes(obj["spec"])]


def changed(rules: Sequence[Fixed], new: Object, old: Object) -> list[Cause]:
    """What of an object's spec was changed and must not be."""
    return [cause for rule in rules for cause in rule.causes(new["spec"], old["spec"])]
