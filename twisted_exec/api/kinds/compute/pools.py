"""
The pools that run machines, and the classes that machines come in, of each dialect.

Source: ironcore ``api/compute/v1alpha1`` and ``internal/apis/compute/validation``, and the same
of onmetal-api and spheric.  Conditions of pools tell when they were told last in every
dialect, also where the systems' own do not: a pool is believed dead by it.
"""

from __future__ import annotations

from functools import cache

from twisted_exec.api import fields, quantity
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.common.schemas import CONDITIONS, TAINTS
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.schema import (
    Schema,
    array,
    integer,
    mapping,
    reference,
    string,
    struct,
)
from twisted_exec.api.schema import quantity as quantity_schema


def _pool_changed(new: Object, old: Object) -> list[Cause]:
    before = old.get("spec", {}).get("providerID")
    if before and new.get("spec", {}).get("providerID") != before:
        return [fields.forbidden("spec.providerID", "field is immutable")]
    return []


_CONTINUOUS = "Continuous"
ADDRESS_TYPES = ("Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP")
"""
The types of a pool's addresses, and a Node's, in the order in which an API server prefers them where
nothing is said.
"""


@cache
def kind(dialect: Dialect) -> Kind:
    """The kind of what runs machines."""
    name = dialect.pool.kind
    return Kind(
        resource=dialect.pool,
        singular=name.lower(),
        description=f"{name} is what runs {dialect.workload.plural}, reached through its poollet.",
        schema={"spec": _SPEC, "status": _status(dialect)},
        columns=_columns(dialect),
        has_status=True,
        counts_generation=True,
        validate_update=_pool_changed,
    )


_SPEC = struct(
    {
        "providerID": string("Identifies the pool to its provider."),
        "taints": TAINTS,
    },
    description="What the pool shall be.",
)
_ADDRESSES = array(
    struct(
        {
            "type": string("What kind of address.", enum=list(ADDRESS_TYPES)),
            "address": string("A host name or an IP address."),
        },
        required=["type", "address"],
    ),
    "Where its poollet is reached.",
)
_ENDPOINT = struct(
    {"port": integer("Its port.", minimum=-(2**31), maximum=2**31 - 1)},
    description="Where the poollet listens.",
)


def _status(dialect: Dialect) -> Schema:
    properties = {
        "state": string("What the pool is.", enum=["Ready", "Pending", "Error", "Offline"]),
        "conditions": CONDITIONS,
        "addresses": _ADDRESSES,
        "daemonEndpoints": struct(
            {dialect.endpoint_field: _ENDPOINT}, description="The ports of its programs."
        ),
        "capacity": mapping(quantity_schema(), "What it has in all."),
        "allocatable": mapping(quantity_schema(), "What is left of it."),
    }
    if dialect.classes_field:
        told = f"The {dialect.workload_class.kind} objects that it has {dialect.noun}s of."
        properties[dialect.classes_field] = array(reference(), told)
    return struct(properties, description="What the pool is.")


def _columns(dialect: Dialect) -> tuple[Column, ...]:
    key = dialect.classes_field

    def read(pool: Object) -> str:
        available = pool.get("status", {}).get(key, [])
        return ",".join(item.get("name", "") for item in available) or "<none>"

    # "availableMachineClasses" is shown as "MachineClasses".
    return (Column(key.removeprefix("available"), read),) if key else ()


def _validate_class(machine_class: Object) -> list[Cause]:
    causes: list[Cause] = []
    measured = machine_class.get("class") != _CONTINUOUS
    capabilities = machine_class.get("capabilities", {})
    for key, given in capabilities.items():
        field = f"capabilities[{key}]"
        try:
            amount = quantity.parse(given)
        except ValueError as error:
            causes.append(fields.invalid(field, given, str(error)))
            continue
        if amount < 0 or (not amount and key in ("cpu", "memory")):
            causes.append(fields.invalid(field, given, "must be greater than zero"))
    causes += [
        fields.required(f"capabilities[{key}]", "must be greater than zero")
        for key in ("cpu", "memory")
        if measured and key not in capabilities
    ]
    return causes


def _class_changed(new: Object, old: Object) -> list[Cause]:
    return [
        fields.forbidden(key, "field is immutable")
        for key in ("capabilities", "class")
        if new.get(key) != old.get(key)
    ]


def _capability(key: str) -> Column:
    name = {"cpu": "CPU", "memory": "Memory"}[key]
    return Column(name, lambda obj: str(obj.get("capabilities", {}).get(key, "<none>")))


@cache
def class_kind(dialect: Dialect) -> Kind:
    """The kind of what sizes there are."""
    name = dialect.workload_class.kind
    schema = {"capabilities": mapping(quantity_schema(), f"What a {dialect.noun} of it has.")}
    if dialect.discrete_classes:
        schema["class"] = string(
            f"Discrete: its capabilities; Continuous: whatever the {dialect.noun} asks for.",
            enum=[_CONTINUOUS, "Discrete"],
        )
    return Kind(
        resource=dialect.workload_class,
        singular=name.lower(),
        description=f"{name} is a size of {dialect.workload.plural}.",
        schema=schema,
        columns=(_capability("cpu"), _capability("memory")),
        counts_generation=True,
        validate=_validate_class,
        validate_update=_class_changed,
    )
