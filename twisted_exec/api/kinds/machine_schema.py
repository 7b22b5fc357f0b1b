"""
Schemas of machines, under the names of each dialect.

Sources: ironcore ``api/compute/v1alpha1``, and its counterparts in onmetal-api and spheric.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds.schemas import CONDITIONS, TOLERATIONS, strings
from twisted_exec.api.schema import (
    Schema,
    anything,
    array,
    integer,
    mapping,
    reference,
    string,
    struct,
)
from twisted_exec.api.schema import quantity as quantity_schema

_SIZE = quantity_schema("sizeLimit is the size of the disk. 0 leaves it to the runtime.")
_TEMPLATE = struct(
    {
        "metadata": anything("metadata holds the labels and annotations."),
        "spec": anything("spec is the desired state of the object."),
    },
    description="The template of an object that is created and deleted together with the machine.",
)
_EFI_VARIABLES = array(
    struct(
        {
            "name": string("name is the name of the variable."),
            "uuid": string("uuid is the UUID of the variable's vendor."),
            "value": string("value is the value of the variable."),
        },
        required=["name"],
    ),
    "efiVars are variables of the machine's UEFI firmware.",
)


def disk_sources(dialect: Dialect) -> tuple[str, ...]:
    """Return the possible sources of a disk: it has exactly one of these keys."""
    local = ("localDisk",) if dialect.local_disks else ()
    return (f"{dialect.disk_noun}Ref", "emptyDisk", *local, "ephemeral")


def interface_sources(dialect: Dialect) -> tuple[str, ...]:
    """Return the possible sources of a network interface, if it is described by a source."""
    return () if dialect.subnets else ("networkInterfaceRef", "ephemeral")


def _disk(dialect: Dialect) -> Schema:
    noun = dialect.disk_noun
    properties = {
        "name": string(f"name is unique within the {dialect.noun}."),
        "device": string(
            "device is the device name in the guest, such as oda.", pattern="[a-z]{3,4}"
        ),
        f"{noun}Ref": reference(description=f"{noun}Ref is an existing {noun.title()}."),
        "emptyDisk": struct(
            {"sizeLimit": _SIZE},
            description="emptyDisk is an initially empty disk on the pool's host.",
        ),
        "ephemeral": struct(
            {f"{noun}Template": _TEMPLATE},
            description=f"ephemeral creates a {noun.title()} that is deleted together with the {dialect.noun}.",
        ),
    }
    if dialect.local_disks:
        properties["localDisk"] = struct(
            {"sizeLimit": _SIZE, "image": string("image is an OCI image to copy to the disk.")},
            description="localDisk is a disk on the pool's host.",
        )
    return struct(properties, required=["name"])


def _interface(dialect: Dialect) -> Schema:
    name = {"name": string(f"name is unique within the {dialect.noun}.")}
    if dialect.subnets:
        subnet = {
            "networkName": string("networkName is the name of the network."),
            "name": string("name is the name of the subnet."),
        }
        return struct(
            {
                **name,
                "subnetRef": struct(
                    subnet, description="subnetRef is the subnet of the interface.", atomic=True
                ),
                "ipFamilies": strings("ipFamilies are IPv4, IPv6 or both."),
                "ips": strings("ips are fixed IP addresses of the interface."),
                "accessIPFamilies": strings(
                    "accessIPFamilies are the IP families of the external addresses."
                ),
                "accessIPs": strings("accessIPs are fixed external addresses of the interface."),
            },
            required=["name"],
        )
    return struct(
        {
            **name,
            "networkInterfaceRef": reference(
                description="networkInterfaceRef is an existing NetworkInterface."
            ),
            "ephemeral": struct(
                {"networkInterfaceTemplate": _TEMPLATE},
                description=f"ephemeral creates a NetworkInterface that is deleted together with the {dialect.noun}.",
            ),
        },
        required=["name"],
    )


def spec_schema(dialect: Dialect) -> Schema:
    """Return the schema of a machine's ``spec``."""
    noun, pool, classes = dialect.noun, dialect.pool.kind, dialect.workload_class.kind
    properties = {
        dialect.class_reference: reference(
            description=f"{dialect.class_reference} is the {classes} of the {noun}. It is immutable."
        ),
        dialect.pool_selector: mapping(
            string(),
            f"{dialect.pool_selector} selects the pools that may run the {noun}, by labels.",
            atomic=True,
        ),
        dialect.pool_reference: reference(
            description=f"{dialect.pool_reference} is the {pool} that the {noun} is bound to. It is immutable once set."
        ),
        "power": string(
            "power is On or Off. In YAML the value needs quotes: YAML 1.1 reads On as true.",
            enum=["On", "Off"],
            default="On",
        ),
        "networkInterfaces": array(
            _interface(dialect),
            f"networkInterfaces are the network interfaces of the {noun}.",
            keys=["name"],
        ),
        dialect.disks_field: array(
            _disk(dialect), f"{dialect.disks_field} are the disks of the {noun}.", keys=["name"]
        ),
        "ignitionRef": struct(
            {
                "name": string("name is the name of the Secret."),
                "key": string("key is the key in the Secret."),
            },
            description=f"ignitionRef is a Secret with the ignition of the {noun}.",
        ),
        "efiVars": _EFI_VARIABLES,
        "tolerations": TOLERATIONS,
        **_image(dialect),
    }
    if dialect.guest_config:
        properties["guestConfig"] = struct(
            {"hostname": string("hostname is the host name of the guest, a DNS label.")},
            description="guestConfig is configuration for the guest. It is immutable.",
        )
    return struct(
        properties,
        required=[dialect.class_reference],
        description=f"spec is the desired state of the {noun}.",
    )


def _image(dialect: Dialect) -> dict[str, Schema]:
    if not dialect.image_field:
        return {}
    return {
        dialect.image_field: string(
            f"{dialect.image_field} is the OCI image that the {dialect.noun} boots."
        ),
        "imagePullSecret": reference(
            description="imagePullSecret is the Secret to pull the image with."
        ),
    }


def status_schema(dialect: Dialect) -> Schema:
    """Return the schema of a machine's ``status``."""
    noun = dialect.noun
    properties = {
        dialect.id_field: string(
            f"{dialect.id_field} is the ID of the {noun} in its runtime, in the format TYPE://ID."
        ),
        **{
            name: integer(f"{name} is the metadata.generation that the runtime has observed.")
            for name in dialect.generation_fields
        },
        "state": string(f"state is the state of the {noun}.", enum=list(dialect.states)),
        "networkInterfaces": array(
            struct({**_attached(dialect), **_addresses(dialect)}),
            "networkInterfaces are the states of the network interfaces.",
        ),
        dialect.disks_field: array(
            struct(
                {
                    **_attached(dialect),
                    f"{dialect.disk_noun}Ref": reference(
                        description=f"{dialect.disk_noun}Ref is the source of the disk."
                    ),
                }
            ),
            f"{dialect.disks_field} are the states of the disks.",
        ),
    }
    if dialect.conditions:
        properties["conditions"] = CONDITIONS
    return struct(properties, description=f"status is the observed state of the {noun}.")


def _attached(dialect: Dialect) -> dict[str, Any]:
    states = ["Pending", "Attached", *(["Detached"] if dialect.phases else [])]
    properties = {
        "name": string("name is the name in the spec."),
        "handle": string("handle is the runtime's identifier."),
        "state": string(f"state is Attached once the {dialect.noun} has it.", enum=states),
        "lastStateTransitionTime": string(
            "lastStateTransitionTime is the last time the state changed."
        ),
    }
    if dialect.phases:
        properties |= {
            "phase": string(
                "phase is Bound once the referenced object is bound to it.",
                enum=["Pending", "Bound"],
            ),
            "lastPhaseTransitionTime": string(
                "lastPhaseTransitionTime is the last time the phase changed."
            ),
        }
    return properties


def _addresses(dialect: Dialect) -> dict[str, Any]:
    if dialect.subnets:
        return {
            "ips": strings("ips are the IP addresses of the interface."),
            "accessIPs": strings("accessIPs are the external addresses of the interface."),
        }
    properties = {
        "networkInterfaceRef": reference(description="networkInterfaceRef is the NetworkInterface.")
    }
    if dialect.phases:
        properties |= {
            "networkHandle": string("networkHandle is the runtime's identifier of the network."),
            "ips": strings("ips are the IP addresses of the interface."),
            "virtualIP": string("virtualIP is the external address of the interface."),
        }
    return properties
