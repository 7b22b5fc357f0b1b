"""
Prefixes: addresses that network interfaces are given.

A poollet reads the Prefix that an interface's address is taken from.  Nothing here allocates
them: that is for ironcore's own controllers, or for whoever writes the status by hand.

Source: ironcore ``api/ipam/v1alpha1`` and ``internal/apis/ipam/validation``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.common import validation
from twisted_exec.api.kinds.common.schemas import LABEL_SELECTOR, strings
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import integer, moment, reference, string, struct

VERSION = "v1alpha1"

PREFIX_SPEC = struct(
    {
        "ipFamily": string("Which kind of addresses.", enum=["", *validation.FAMILIES]),
        "prefix": string("The prefix, such as 10.0.0.0/8."),
        "prefixLength": integer("How long a prefix is wanted, in bits.", minimum=0, maximum=128),
        "parentRef": reference(description="The Prefix that it is part of; none: it is a root."),
        "parentSelector": LABEL_SELECTOR,
    },
    description="What the prefix shall be.",
)

_STATUS = struct(
    {
        "phase": string("What it is.", enum=["Pending", "Allocated"]),
        "lastPhaseTransitionTime": moment("When its phase changed last."),
        "used": strings("What is taken of it."),
    },
    description="What the prefix is.",
)


def is_root(spec: Object) -> bool:
    """Whether it is part of no other."""
    return "parentRef" not in spec and "parentSelector" not in spec


def prepare(spec: Object) -> None:
    """Tell the family, which a prefix says already."""
    prefix = validation.network_of(spec.get("prefix", ""))
    if not spec.get("ipFamily") and prefix is not None and not spec.get("prefixLength"):
        spec["ipFamily"] = validation.family_of(prefix)


def spec_causes(spec: Object, field: str) -> Iterator[Cause]:
    """What is wrong with what a prefix shall be."""
    family, length = spec.get("ipFamily", ""), spec.get("prefixLength", 0)
    if not family:
        yield fields.required(f"{field}.ipFamily", "must specify an ip family")
        return
    if length > validation.bits_of(family):
        told = f"must be no more than {validation.bits_of(family)}"
        yield fields.invalid(f"{field}.prefixLength", length, told)
    yield from _prefix_causes(spec, family, field)
    if is_root(spec):
        if length:
            told = "cannot specify prefixLength for a root prefix"
            yield fields.invalid(f"{field}.prefixLength", length, told)
        if "prefix" not in spec:
            yield fields.required(f"{field}.prefix", "must specify for root prefix")
        return
    if "prefix" not in spec and not length:
        yield fields.required(field, "must specify either prefix or prefixLength")
    yield from validation.reference(spec, "parentRef", f"{field}.parentRef")


def _prefix_causes(spec: Object, family: str, field: str) -> Iterator[Cause]:
    if "prefix" not in spec:
        return
    text, length = spec["prefix"], spec.get("prefixLength", 0)
    prefix = validation.network_of(text)
    if prefix is None:
        told = "must be a prefix such as 10.0.0.0/8, without bits beyond its length"
        yield fields.invalid(f"{field}.prefix", text, told)
    elif validation.family_of(prefix) != family:
        yield fields.invalid(f"{field}.prefix", text, f"must be of the ip family {family}")
    elif length and length != prefix.prefixlen:
        yield fields.invalid(f"{field}.prefixLength", length, f"does not match prefix {text}")


def _prepare(prefix: Object) -> None:
    if isinstance(prefix.get("spec"), dict):
        prepare(prefix["spec"])


def _validate(prefix: Object) -> list[Cause]:
    return list(spec_causes(prefix.get("spec", {}), "spec"))


def _changed(new: Object, old: Object) -> list[Cause]:
    after, before = dict(new.get("spec", {})), old.get("spec", {})
    later = ["prefix", "prefixLength", *([] if is_root(before) else ["parentRef"])]
    for key in later:
        if not before.get(key):
            after.pop(key, None)
    kept = {key: value for key, value in before.items() if key not in later or value}
    return list(validation.unchanged(after, kept, "spec"))


def _shown(section: str, key: str) -> Any:
    return lambda obj: str(obj.get(section, {}).get(key) or "<none>")


def prefixes(domain: str) -> Kind:
    """Prefixes of the group ``ipam.DOMAIN``."""
    return Kind(
        resource=Resource(f"ipam.{domain}", VERSION, "prefixes", "Prefix"),
        singular="prefix",
        description="Prefix is a range of IP addresses.",
        schema={"spec": PREFIX_SPEC, "status": _STATUS},
        columns=(
            Column("Prefix", _shown("spec", "prefix")),
            Column(
                "Parent", lambda obj: obj.get("spec", {}).get("parentRef", {}).get("name", "<none>")
            ),
            Column("Phase", _shown("status", "phase")),
        ),
        has_status=True,
        counts_generation=True,
        initial_status={"phase": "Pending"},
        prepare=_prepare,
        validate=_validate,
        validate_update=_changed,
    )


def kinds(domain: str) -> tuple[Kind, ...]:
    """Everything in the group ``ipam.DOMAIN``."""
    return (prefixes(domain),)
