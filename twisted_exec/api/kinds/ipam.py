"""
Prefixes of IP addresses, in the group ``ipam.DOMAIN``.

Sources: ironcore ``api/ipam/v1alpha1`` and ``internal/apis/ipam/validation``.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import validation
from twisted_exec.api.kinds.kind import Column, Kind, Object, cell
from twisted_exec.api.kinds.schemas import LABEL_SELECTOR, strings
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import (
    integer,
    moment,
    reference,
    string,
    struct,
)

PREFIX_SPEC = struct(
    {
        "ipFamily": string(
            "ipFamily is the IP family of the prefix.", enum=["", *validation.FAMILIES]
        ),
        "prefix": string("prefix is the prefix, such as 10.0.0.0/8."),
        "prefixLength": integer(
            "prefixLength is the length of the prefix to allocate, in bits.", minimum=0, maximum=128
        ),
        "parentRef": reference(
            description="parentRef is the Prefix to allocate from. Empty for a root prefix."
        ),
        "parentSelector": LABEL_SELECTOR,
    },
    description="spec is the desired state of the prefix.",
)

_STATUS = struct(
    {
        "phase": string("phase is the phase of the allocation.", enum=["Pending", "Allocated"]),
        "lastPhaseTransitionTime": moment(
            "lastPhaseTransitionTime is the last time the phase changed."
        ),
        "used": strings("used are the allocated parts of the prefix."),
    },
    description="status is the observed state of the prefix.",
)

VERSION = "v1alpha1"


def is_root_prefix(spec: Object) -> bool:
    """Return whether a prefix has no parent."""
    return "parentRef" not in spec and "parentSelector" not in spec


def prepare_prefix(spec: Object) -> None:
    """Set the IP family of a prefix that determines it."""
    prefix = validation.network_of(spec.get("prefix", ""))
    if not spec.get("ipFamily") and prefix is not None and not spec.get("prefixLength"):
        spec["ipFamily"] = validation.family_of(prefix)


def prefix_spec_causes(spec: Object, field: str) -> Iterator[Cause]:
    """Check the spec of a prefix."""
    yield from validation.label_selector(spec.get("parentSelector", {}), f"{field}.parentSelector")
    family, length = spec.get("ipFamily", ""), spec.get("prefixLength", 0)
    if not family:
        yield fields.required(f"{field}.ipFamily", "must specify an ip family")
        return
    if length > validation.bits_of(family):
        problem = f"must be no more than {validation.bits_of(family)}"
        yield fields.invalid(f"{field}.prefixLength", length, problem)
    yield from _prefix_field_causes(spec, family, field)
    if is_root_prefix(spec):
        if length:
            problem = "cannot specify prefixLength for a root prefix"
            yield fields.invalid(f"{field}.prefixLength", length, problem)
        if "prefix" not in spec:
            yield fields.required(f"{field}.prefix", "must specify for root prefix")
        return
    if "prefix" not in spec and not length:
        yield fields.required(field, "must specify either prefix or prefixLength")
    yield from validation.reference(spec, "parentRef", f"{field}.parentRef")


def _prefix_field_causes(spec: Object, family: str, field: str) -> Iterator[Cause]:
    if "prefix" not in spec:
        return
    text, length = spec["prefix"], spec.get("prefixLength", 0)
    prefix = validation.network_of(text)
    if prefix is None:
        problem = "must be a prefix such as 10.0.0.0/8, without bits beyond its length"
        yield fields.invalid(f"{field}.prefix", text, problem)
    elif validation.family_of(prefix) != family:
        yield fields.invalid(f"{field}.prefix", text, f"must be of the ip family {family}")
    elif length and length != prefix.prefixlen:
        yield fields.invalid(f"{field}.prefixLength", length, f"does not match prefix {text}")


def _prepare(prefix: Object) -> None:
    if isinstance(prefix.get("spec"), dict):
        prepare_prefix(prefix["spec"])


def _validate(prefix: Object) -> list[Cause]:
    return list(prefix_spec_causes(prefix.get("spec", {}), "spec"))


def _changed(new: Object, old: Object) -> list[Cause]:
    after, before = dict(new.get("spec", {})), old.get("spec", {})
    later = ["prefix", "prefixLength", *([] if is_root_prefix(before) else ["parentRef"])]
    for key in later:
        if not before.get(key):
            after.pop(key, None)
    rest = {key: value for key, value in before.items() if key not in later or value}
    return list(validation.unchanged(after, rest, "spec"))


def prefixes(domain: str) -> Kind:
    """Return Prefixes in the group ``ipam.DOMAIN``."""
    return Kind(
        resource=Resource(f"ipam.{domain}", VERSION, "prefixes", "Prefix"),
        singular="prefix",
        description="Prefix is a range of IP addresses.",
        schema={"spec": PREFIX_SPEC, "status": _STATUS},
        columns=(
            Column("Prefix", cell("spec", "prefix")),
            Column("Parent", cell("spec", "parentRef", "name")),
            Column("Phase", cell("status", "phase")),
        ),
        has_status=True,
        counts_generation=True,
        initial_status={"phase": "Pending"},
        prepare=_prepare,
        validate=_validate,
        validate_update=_changed,
    )


def prefix_kinds(domain: str) -> tuple[Kind, ...]:
    """Return all kinds in the group ``ipam.DOMAIN``."""
    return (prefixes(domain),)
