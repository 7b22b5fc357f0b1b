"""
Machine pools and machine classes, in each dialect.

Sources: ironcore ``api/compute/v1alpha1`` and ``internal/apis/compute/validation``, and their
counterparts in onmetal-api and spheric.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from twisted_exec.api import fields, quantity
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Kind, Object, cell
from twisted_exec.api.kinds.schemas import CONDITIONS, TAINTS
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
"""Address types of a pool or Node, in the default order of preference of an API server."""


@cache
def kind(dialect: Dialect) -> Kind:
    """Return the kind of machine pools."""
    name = dialect.pool.kind
    return Kind(
        resource=dialect.pool,
        singular=name.lower(),
        description=f"{name} runs {dialect.workload.plural}. Its poollet connects it to the API server.",
        schema={"spec": _SPEC, "status": _status(dialect)},
        columns=_columns(dialect),
        has_status=True,
        counts_generation=True,
        validate_update=_pool_changed,
    )


_SPEC = struct(
    {
        "providerID": string("providerID is the ID of the pool at its provider."),
        "taints": TAINTS,
    },
    description="spec is the desired state of the pool.",
)
_ADDRESSES = array(
    struct(
        {
            "type": string("type is the type of the address.", enum=list(ADDRESS_TYPES)),
            "address": string("address is a host name or an IP address."),
        },
        required=["type", "address"],
    ),
    "addresses are the addresses of the pool's poollet.",
)
_PORT = integer("port is the port number.", minimum=-(2**31), maximum=2**31 - 1)


def _status(dialect: Dialect) -> Schema:
    properties = {
        "state": string(
            "state is the state of the pool.", enum=["Ready", "Pending", "Error", "Offline"]
        ),
        "conditions": CONDITIONS,
        "addresses": _ADDRESSES,
        "daemonEndpoints": struct(
            {
                dialect.endpoint_field: struct(
                    {"port": _PORT},
                    description=f"{dialect.endpoint_field} is the endpoint of the poollet.",
                )
            },
            description="daemonEndpoints are the endpoints of the pool's daemons.",
        ),
        "capacity": mapping(quantity_schema(), "capacity is the total of the pool's resources."),
        "allocatable": mapping(
            quantity_schema(), "allocatable is the part of capacity that is not in use."
        ),
    }
    if dialect.classes_field:
        description = f"{dialect.classes_field} are the {dialect.workload_class.kind} objects that the pool supports."
        properties[dialect.classes_field] = array(reference(), description)
    return struct(properties, description="status is the observed state of the pool.")


def _columns(dialect: Dialect) -> tuple[Column, ...]:
    key = dialect.classes_field

    def read(pool: Object) -> str:
        available = pool.get("status", {}).get(key, [])
        return ",".join(item.get("name", "") for item in available) or "<none>"

    # "availableMachineClasses" is shown as "MachineClasses".
    classes = (Column(key.removeprefix("available"), read),) if key else ()
    return (*classes, *_STATE_COLUMNS)


_STATES = {"True": "Ready", "False": "NotReady"}


def _state(pool: Object) -> str:
    # Not status.state first: only the poollet writes it, so it stays Ready when the poollet crashes.
    ready = condition_of(pool, "Ready").get("status")
    if ready is None:
        return pool.get("status", {}).get("state") or "Unknown"
    return _STATES.get(ready, "Unknown")


def _why_not_ready(key: str) -> Callable[[Object], str]:
    def read(pool: Object) -> str:
        return (_state(pool) != "Ready" and condition_of(pool, "Ready").get(key)) or "<none>"

    return read


_STATE_COLUMNS = (
    Column("State", _state, "Ready, NotReady, or Unknown if its poollet is silent"),
    Column("Reason", _why_not_ready("reason"), "Why the pool is not ready", priority=1),
    Column("Message", _why_not_ready("message"), "Why the pool is not ready", priority=1),
)


def _validate_class(machine_class: Object) -> list[Cause]:
    causes: list[Cause] = []
    is_discrete = machine_class.get("class") != _CONTINUOUS
    capabilities = machine_class.get("capabilities", {})
    for key, value in capabilities.items():
        field = f"capabilities[{key}]"
        try:
            amount = quantity.parse(value)
        except ValueError as error:
            causes.append(fields.invalid(field, value, str(error)))
            continue
        if amount < 0 or (not amount and key in ("cpu", "memory")):
            causes.append(fields.invalid(field, value, "must be greater than zero"))
    causes += [
        fields.required(f"capabilities[{key}]", "must be greater than zero")
        for key in ("cpu", "memory")
        if is_discrete and key not in capabilities
    ]
    return causes


def _class_changed(new: Object, old: Object) -> list[Cause]:
    return [
        fields.forbidden(key, "field is immutable")
        for key in ("capabilities", "class")
        if new.get(key) != old.get(key)
    ]


@cache
def class_kind(dialect: Dialect) -> Kind:
    """Return the kind of machine classes."""
    name = dialect.workload_class.kind
    schema = {
        "capabilities": mapping(
            quantity_schema(),
            f"capabilities are the resources of each {dialect.noun} of the class.",
        )
    }
    if dialect.discrete_classes:
        schema["class"] = string(
            f"class is Discrete if the class determines the resources, or Continuous if each {dialect.noun} requests its own.",
            enum=[_CONTINUOUS, "Discrete"],
        )
    return Kind(
        resource=dialect.workload_class,
        singular=name.lower(),
        description=f"{name} is a size of {dialect.workload.plural}: their CPU and memory.",
        schema=schema,
        columns=(
            Column("CPU", cell("capabilities", "cpu")),
            Column("Memory", cell("capabilities", "memory")),
        ),
        counts_generation=True,
        validate=_validate_class,
        validate_update=_class_changed,
    )
