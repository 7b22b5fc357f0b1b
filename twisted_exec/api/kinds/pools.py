"""
The pools that run machines, and the classes that machines come in.

Source: ironcore ``api/compute/v1alpha1`` and ``internal/apis/compute/validation``.
"""

from __future__ import annotations

from twisted_exec.api import fields, quantity
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.shapes import CONDITIONS, TAINTS
from twisted_exec.api.schema import array, integer, mapping, reference, string, struct
from twisted_exec.api.schema import quantity as quantity_schema


def _classes(pool: Object) -> str:
    available = pool.get("status", {}).get("availableMachineClasses", [])
    return ",".join(item.get("name", "") for item in available) or "<none>"


def _pool_changed(new: Object, old: Object) -> list[Cause]:
    before = old.get("spec", {}).get("providerID")
    if before and new.get("spec", {}).get("providerID") != before:
        return [fields.forbidden("spec.providerID", "field is immutable")]
    return []


ADDRESS_TYPES = ("Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP")
"""The types of a pool's addresses, in the order in which they are preferred."""

MACHINEPOOLS = Kind(
    resource=IRONCORE.pool,
    singular="machinepool",
    description="MachinePool is what runs machines, reached through its poollet.",
    schema={
        "spec": struct(
            {
                "providerID": string("Identifies the pool to its provider."),
                "taints": TAINTS,
            },
            description="What the pool shall be.",
        ),
        "status": struct(
            {
                "state": string("What the pool is.", enum=["Ready", "Pending", "Error", "Offline"]),
                "conditions": CONDITIONS,
                "availableMachineClasses": array(
                    reference(), "The MachineClasses that it has machines of."
                ),
                "addresses": array(
                    struct(
                        {
                            "type": string("What kind of address.", enum=list(ADDRESS_TYPES)),
                            "address": string("A host name or an IP address."),
                        },
                        required=["type", "address"],
                    ),
                    "Where its poollet is reached.",
                ),
                "daemonEndpoints": struct(
                    {
                        IRONCORE.endpoint_field: struct(
                            {"port": integer("Its port.", minimum=-(2**31), maximum=2**31 - 1)},
                            description="Where the poollet listens.",
                        )
                    },
                    description="The ports of its programs.",
                ),
                "capacity": mapping(quantity_schema(), "What it has in all."),
                "allocatable": mapping(quantity_schema(), "What is left of it."),
            },
            description="What the pool is.",
        ),
    },
    columns=(Column("MachineClasses", _classes),),
    has_status=True,
    counts_generation=True,
    validate_update=_pool_changed,
)


def _validate_class(machine_class: Object) -> list[Cause]:
    causes: list[Cause] = []
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
        if key not in capabilities
    ]
    return causes


def _class_changed(new: Object, old: Object) -> list[Cause]:
    if new.get("capabilities") != old.get("capabilities"):
        return [fields.forbidden("capabilities", "field is immutable")]
    return []


def _capability(key: str) -> Column:
    name = {"cpu": "CPU", "memory": "Memory"}[key]
    return Column(name, lambda obj: str(obj.get("capabilities", {}).get(key, "<none>")))


MACHINECLASSES = Kind(
    resource=IRONCORE.workload_class,
    singular="machineclass",
    description="MachineClass is a size of machines.",
    schema={"capabilities": mapping(quantity_schema(), "What a machine of this class has.")},
    columns=(_capability("cpu"), _capability("memory")),
    counts_generation=True,
    validate=_validate_class,
    validate_update=_class_changed,
)
