"""
What machines are made of, in each dialect.

Sources: the ``machine_types.go`` of ironcore and onmetal-api, and spheric's ``instance_types.go``.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds.common.schemas import CONDITIONS, TOLERATIONS, strings
from twisted_exec.api.schema import (
    Schema,
    anything,
    array,
    boolean,
    integer,
    mapping,
    reference,
    string,
    struct,
)
from twisted_exec.api.schema import quantity as quantity_schema

_SIZE = quantity_schema("How large it is; 0 leaves that to the runtime.")
_TEMPLATE = struct(
    {
        "metadata": anything("Its labels and annotations."),
        "spec": anything("What it shall be."),
    },
    description="What is made for the machine, and goes with it.",
)
_EFI_VARIABLES = array(
    struct(
        {
            "name": string("Name of the variable."),
            "uuid": string("UUID of its vendor."),
            "value": string("Its value."),
        },
        required=["name"],
    ),
    "Variables of the machine's firmware.",
)


def disk_sources(dialect: Dialect) -> tuple[str, ...]:
    """Where a disk may come from: of these keys it has exactly one."""
    local = ("localDisk",) if dialect.local_disks else ()
    return (f"{dialect.disk_noun}Ref", "emptyDisk", *local, "ephemeral")


def interface_sources(dialect: Dialect) -> tuple[str, ...]:
    """As :func:`disk_sources`, of network interfaces; empty when those are described in place."""
    return () if dialect.subnets else ("networkInterfaceRef", "ephemeral")


def _disk(dialect: Dialect) -> Schema:
    noun = dialect.disk_noun
    properties = {
        "name": string(f"Unique within the {dialect.noun}."),
        "device": string("The device in the guest, such as oda.", pattern="[a-z]{3,4}"),
        f"{noun}Ref": reference(description=f"A {noun.title()} that there is."),
        "emptyDisk": struct({"sizeLimit": _SIZE}, description="An empty disk of the pool's host."),
        "ephemeral": struct(
            {f"{noun}Template": _TEMPLATE},
            description=f"A {noun.title()} that lives as long as the {dialect.noun}.",
        ),
    }
    if dialect.local_disks:
        properties["localDisk"] = struct(
            {"sizeLimit": _SIZE, "image": string("An OCI image that it begins as.")},
            description="A disk of the pool's host.",
        )
    return struct(properties, required=["name"])


def _interface(dialect: Dialect) -> Schema:
    name = {"name": string(f"Unique within the {dialect.noun}.")}
    if dialect.subnets:
        subnet = {
            "networkName": string("Name of the network."),
            "name": string("Name of the subnet in it."),
        }
        return struct(
            {
                **name,
                "subnetRef": struct(subnet, description="The subnet that it is in.", atomic=True),
                "ipFamilies": strings("IPv4, IPv6 or both."),
                "ips": strings("Its IP addresses, when they are chosen."),
                "accessIPFamilies": strings("IP families of the addresses it is reached by."),
                "accessIPs": strings("The addresses it is reached by, when they are chosen."),
            },
            required=["name"],
        )
    return struct(
        {
            **name,
            "networkInterfaceRef": reference(description="A NetworkInterface that there is."),
            "ephemeral": struct(
                {"networkInterfaceTemplate": _TEMPLATE},
                description=f"A NetworkInterface that lives as long as the {dialect.noun}.",
            ),
        },
        required=["name"],
    )


def spec_schema(dialect: Dialect) -> Schema:
    """The schema of a machine's ``spec``."""
    noun, pool, classes = dialect.noun, dialect.pool.kind, dialect.workload_class.kind
    properties = {
        dialect.class_reference: reference(description=f"The {classes}; it cannot be changed."),
        dialect.pool_selector: mapping(
            string(), f"Labels of pools that may run the {noun}.", atomic=True
        ),
        dialect.pool_reference: reference(
            description=f"The {pool} that runs it; once set it cannot be changed."
        ),
        "power": string(
            f"Whether the {noun} runs. In YAML it needs quotes: without, On is read as true.",
            enum=["On", "Off"],
            default="On",
        ),
        "networkInterfaces": array(_interface(dialect), "Its network interfaces.", keys=["name"]),
        dialect.disks_field: array(_disk(dialect), "Its disks.", keys=["name"]),
        "ignitionRef": struct(
            {"name": string("Name of the Secret."), "key": string("Key in the Secret.")},
            description=f"A Secret with the {noun}'s ignition.",
        ),
        "efiVars": _EFI_VARIABLES,
        "tolerations": TOLERATIONS,
        **_image(dialect),
    }
    if dialect.guest_config:
        properties["guestConfig"] = struct(
            {"hostname": string("The guest's host name, a DNS label.")},
            description="What the guest is told; it cannot be changed.",
        )
    return struct(
        properties,
        required=[dialect.class_reference],
        description=f"What the {noun} shall be.",
    )


def _image(dialect: Dialect) -> dict[str, Schema]:
    if not dialect.image_field:
        return {}
    return {
        dialect.image_field: string(f"The OCI image that the {dialect.noun} boots."),
        "imagePullSecret": reference(description="A Secret to pull the image with."),
    }


def status_schema(dialect: Dialect) -> Schema:
    """The schema of a machine's ``status``."""
    noun = dialect.noun
    properties = {
        dialect.id_field: string(f"TYPE://ID, as the runtime knows the {noun}."),
        **{
            name: integer("The metadata.generation that the runtime has seen.")
            for name in dialect.generation_fields
        },
        "state": string(f"What the {noun} does.", enum=list(dialect.states)),
        "networkInterfaces": array(
            struct({**_attached(dialect), **_addresses(dialect)}),
            "What its network interfaces are.",
        ),
        dialect.disks_field: array(
            struct(
                {
                    **_attached(dialect),
                    f"{dialect.disk_noun}Ref": reference(description="What it comes from."),
                }
            ),
            "What its disks are.",
        ),
    }
    if dialect.conditions:
        properties["conditions"] = CONDITIONS
    return struct(properties, description=f"What the {noun} is.")


def _attached(dialect: Dialect) -> dict[str, Any]:
    states = ["Pending", "Attached", *(["Detached"] if dialect.phases else [])]
    told = {
        "name": string("As in the spec."),
        "handle": string("What the runtime calls it."),
        "state": string(f"Whether the {dialect.noun} has it.", enum=states),
        "lastStateTransitionTime": string("When its state changed last."),
    }
    if dialect.phases:
        told |= {
            "phase": string("How far it is bound.", enum=["Pending", "Bound"]),
            "lastPhaseTransitionTime": string("When its phase changed last."),
        }
    return told


def _addresses(dialect: Dialect) -> dict[str, Any]:
    """What the status of a network interface tells besides its state."""
    if dialect.subnets:
        return {
            "ips": strings("Its IP addresses."),
            "accessIPs": strings("The addresses it is reached by."),
        }
    told = {"networkInterfaceRef": reference(description="The NetworkInterface.")}
    if dialect.phases:
        told |= {
            "networkHandle": string("What the runtime calls its network."),
            "ips": strings("Its IP addresses."),
            "virtualIP": string("The virtual IP address that leads to it."),
        }
    return told


def exec_options(dialect: Dialect) -> Schema:
    """The schema of the query of ``exec``."""
    ignored = boolean("Ignored: the poollet's certificate is always verified.")
    return struct(
        {"insecureSkipTLSVerifyBackend": ignored},
        description=f"{dialect.exec_options} is the query of {dialect.workload.plural}/exec.",
    )
