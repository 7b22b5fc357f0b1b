"""
Machines: what has a console.

Source: ironcore ``api/compute/v1alpha1`` and ``internal/apis/compute/validation``,
with two of its quirks mended: status is not writable through the main
resource, and ``metadata.generation`` counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted_exec.api import fields, names, quantity
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Connect, Kind, Object
from twisted_exec.api.kinds.shapes import CONDITIONS, TOLERATIONS
from twisted_exec.api.logs import QUERY as LOG_QUERY
from twisted_exec.api.schema import (
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

_EPHEMERAL_TEMPLATE = struct(
    {
        "metadata": anything("Its labels and annotations."),
        "spec": anything("What it shall be."),
    },
    description="What is made for the machine, and goes with it.",
)

_SIZE = quantity_schema("How large it is; 0 leaves that to the runtime.")
_VOLUME = struct(
    {
        "name": string("Unique within the machine."),
        "device": string("The device in the guest, such as oda.", pattern="[a-z]{3,4}"),
        "volumeRef": reference(description="A Volume that there is."),
        "emptyDisk": struct({"sizeLimit": _SIZE}, description="An empty disk of the pool's host."),
        "localDisk": struct(
            {"sizeLimit": _SIZE, "image": string("An OCI image that it begins as.")},
            description="A disk of the pool's host.",
        ),
        "ephemeral": struct(
            {"volumeTemplate": _EPHEMERAL_TEMPLATE},
            description="A Volume that lives as long as the machine.",
        ),
    },
    required=["name"],
)
_LARGEST_SIZE = 2**63 - 1
_VOLUME_SOURCES = ("volumeRef", "emptyDisk", "localDisk", "ephemeral")

_INTERFACE = struct(
    {
        "name": string("Unique within the machine."),
        "networkInterfaceRef": reference(description="A NetworkInterface that there is."),
        "ephemeral": struct(
            {"networkInterfaceTemplate": _EPHEMERAL_TEMPLATE},
            description="A NetworkInterface that lives as long as the machine.",
        ),
    },
    required=["name"],
)
_INTERFACE_SOURCES = ("networkInterfaceRef", "ephemeral")

_MACHINE_SPEC = struct(
    {
        "machineClassRef": reference(description="The MachineClass; it cannot be changed."),
        "machinePoolSelector": mapping(
            string(), "Labels of pools that may run the machine.", atomic=True
        ),
        "machinePoolRef": reference(
            description="The MachinePool that runs it; once set it cannot be changed."
        ),
        "power": string(
            "Whether the machine runs. In YAML it needs quotes: without, On is read as true.",
            enum=["On", "Off"],
            default="On",
        ),
        "networkInterfaces": array(_INTERFACE, "Its network interfaces.", keys=["name"]),
        "volumes": array(_VOLUME, "Its disks.", keys=["name"]),
        "ignitionRef": struct(
            {"name": string("Name of the Secret."), "key": string("Key in the Secret.")},
            description="A Secret with the machine's ignition.",
        ),
        "efiVars": array(
            struct(
                {
                    "name": string("Name of the variable."),
                    "uuid": string("UUID of its vendor."),
                    "value": string("Its value."),
                },
                required=["name"],
            ),
            "Variables of the machine's firmware.",
        ),
        "tolerations": TOLERATIONS,
        "guestConfig": struct(
            {"hostname": string("The guest's host name, a DNS label.")},
            description="What the guest is told; it cannot be changed.",
        ),
    },
    required=["machineClassRef"],
    description="What the machine shall be.",
)

_ATTACHED = {
    "name": string("As in the spec."),
    "handle": string("What the runtime calls it."),
    "state": string("Whether the machine has it.", enum=["Pending", "Attached"]),
    "lastStateTransitionTime": string("When its state changed last."),
}
_MACHINE_STATUS = struct(
    {
        "machineID": string("TYPE://ID, as the runtime knows the machine."),
        "observedGeneration": integer("The metadata.generation that the runtime has seen."),
        "state": string(
            "What the machine does.",
            enum=["Pending", "Running", "Shutdown", "Terminated", "Terminating"],
        ),
        "conditions": CONDITIONS,
        "networkInterfaces": array(
            struct(
                {**_ATTACHED, "networkInterfaceRef": reference(description="The NetworkInterface.")}
            ),
            "What its network interfaces are.",
        ),
        "volumes": array(
            struct({**_ATTACHED, "volumeRef": reference(description="The Volume.")}),
            "What its disks are.",
        ),
    },
    description="What the machine is.",
)


def _referent(obj: Object, key: str) -> str:
    return str(obj.get("spec", {}).get(key, {}).get("name", ""))


def pool_name(machine: Object) -> str:
    """The pool a machine is bound to, or empty."""
    return _referent(machine, IRONCORE.pool_reference)


def class_name(machine: Object) -> str:
    """The class a machine is of, or empty."""
    return _referent(machine, IRONCORE.class_reference)


def _size_causes(volumes: list[Object]) -> Iterator[Cause]:
    for index, volume in enumerate(volumes):
        for disk in ("emptyDisk", "localDisk"):
            size = volume.get(disk, {}).get("sizeLimit", 0)
            field = f"spec.volume[{index}].{disk}.sizeLimit"
            try:
                amount = quantity.value(size)
            except ValueError as error:
                yield fields.invalid(field, size, str(error))
                continue
            if not 0 <= amount <= _LARGEST_SIZE:
                yield fields.invalid(field, size, f"must be from 0 to {_LARGEST_SIZE} bytes")


def image_of(machine: Object) -> str:
    """The image that a machine boots, or empty."""
    for volume in machine.get("spec", {}).get("volumes", ()):
        if image := volume.get("localDisk", {}).get("image"):
            return str(image)
    return ""


def _validate_machine(machine: Object) -> list[Cause]:
    spec = machine["spec"]
    causes = list(_reference_causes(spec, IRONCORE.class_reference, needed=True))
    causes += _reference_causes(spec, IRONCORE.pool_reference)
    causes += _selector_causes(spec.get("machinePoolSelector", {}))
    causes += _part_causes(spec.get("volumes", []), "spec.volume", _VOLUME_SOURCES)
    causes += _device_causes(spec.get("volumes", []))
    causes += _size_causes(spec.get("volumes", []))
    causes += _part_causes(
        spec.get("networkInterfaces", []), "spec.networkInterface", _INTERFACE_SOURCES
    )
    hostname = spec.get("guestConfig", {}).get("hostname")
    if hostname is not None:
        causes += _told("spec.guestConfig.hostname", hostname, names.dns_label(hostname))
    return causes


def _told(field: str, value: Any, problems: list[str]) -> list[Cause]:
    return [fields.invalid(field, value, problem) for problem in problems]


def _reference_causes(spec: Object, key: str, *, needed: bool = False) -> Iterator[Cause]:
    field = f"spec.{key}.name"
    name = spec.get(key, {}).get("name", "")
    if name:
        yield from _told(field, name, names.dns_subdomain(name))
    elif needed or key in spec:
        yield fields.required(field, "must specify a name")


def _selector_causes(selector: dict[str, str]) -> Iterator[Cause]:
    for key, value in selector.items():
        yield from _told("spec.machinePoolSelector", key, names.qualified_name(key))
        yield from _told("spec.machinePoolSelector", value, names.label_value(value))


def _part_causes(parts: list[Object], field: str, sources: tuple[str, ...]) -> Iterator[Cause]:
    """Names are unique DNS labels; each part has exactly one source."""
    seen: set[str] = set()
    for index, part in enumerate(parts):
        here = f"{field}[{index}]"
        if part["name"] in seen:
            yield fields.duplicate(f"{here}.name", part["name"])
        seen.add(part["name"])
        yield from _told(f"{here}.name", part["name"], names.dns_label(part["name"]))
        given = [source for source in sources if source in part]
        if not given:
            yield fields.required(here, f"must specify one of {', '.join(sources)}")
        for source in given[1:]:
            yield fields.forbidden(f"{here}.{source}", "must only specify one source")


def _device_causes(volumes: list[Object]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        if not (device := volume.get("device")):
            continue
        if device in seen:
            yield fields.duplicate(f"spec.volume[{index}].device", device)
        seen.add(device)


def _name_devices(machine: Object) -> None:
    """Volumes without a device get oda, odb, ..., as ironcore's admission gives them."""
    volumes = machine["spec"].get("volumes", [])
    taken = {volume.get("device") for volume in volumes}
    letters = "abcdefghijklmnopqrstuvwxyz"
    free = (
        device
        for first in ["", *letters]
        for second in letters
        if (device := f"od{first}{second}") not in taken
    )
    for volume in volumes:
        if not volume.get("device"):
            # More than 702 volumes: the device stays empty and the runtime chooses.
            volume["device"] = next(free, "")


def _prepare_machine(machine: Object) -> None:
    if isinstance(machine.get("spec"), dict):
        _name_devices(machine)


def _machine_changed(new: Object, old: Object) -> list[Cause]:
    causes: list[Cause] = []
    if class_name(new) != class_name(old):
        causes.append(fields.forbidden(f"spec.{IRONCORE.class_reference}", "field is immutable"))
    if pool_name(old) and pool_name(new) != pool_name(old):
        causes.append(fields.forbidden(f"spec.{IRONCORE.pool_reference}", "field is immutable"))
    if new["spec"].get("guestConfig") != old["spec"].get("guestConfig"):
        causes.append(fields.forbidden("spec.guestConfig", "field is immutable"))
    kept = {volume["name"]: volume for volume in new["spec"].get("volumes", [])}
    for volume in old["spec"].get("volumes", []):
        if volume.get("localDisk", {}).get("image") and kept.get(volume["name"]) != volume:
            causes.append(
                fields.forbidden(
                    "spec.volume", f"volume {volume['name']} with an image is immutable"
                )
            )
    return causes


_EXEC_OPTIONS = struct(
    {
        "insecureSkipTLSVerifyBackend": boolean(
            "Ignored: the poollet's certificate is always verified."
        )
    },
    description="MachineExecOptions is the query of machines/exec.",
)

MACHINES = Kind(
    resource=IRONCORE.workload,
    singular="machine",
    categories=("all",),
    description="Machine is a machine whose console can be reached.",
    schema={"spec": _MACHINE_SPEC, "status": _MACHINE_STATUS},
    required=("spec",),
    columns=(
        Column("MachineClassRef", lambda machine: class_name(machine) or "<none>"),
        Column("Image", lambda machine: image_of(machine) or "<none>"),
        Column("MachinePoolRef", lambda machine: pool_name(machine) or "<none>"),
        Column("State", lambda machine: machine.get("status", {}).get("state") or "<unknown>"),
    ),
    has_status=True,
    counts_generation=True,
    name_rule=names.dns_label,
    fields={
        IRONCORE.pool_field: lambda machine: pool_name(dict(machine)),
        f"spec.{IRONCORE.class_reference}.name": lambda machine: class_name(dict(machine)),
    },
    unconditional_update=False,
    connects={"exec": Connect("MachineExecOptions", _EXEC_OPTIONS)},
    texts={"log": LOG_QUERY},
    initial_status={"state": "Pending"},
    prepare=_prepare_machine,
    validate=_validate_machine,
    validate_update=_machine_changed,
)
