"""
Machines and their schemas, under the name of each dialect.

Sources: ironcore ``api/compute/v1alpha1`` and ``internal/apis/compute/validation``, and their
counterparts in onmetal-api and spheric. Unlike in these systems, the status is not writable through
the main resource, and ``metadata.generation`` is maintained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from twisted_exec.api import fields, names, quantity
from twisted_exec.api.conditions import CONSOLE_HEALTHY, CONSOLE_OUTPUT, condition_of
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Connect, Kind, Object
from twisted_exec.api.kinds.validation import CONDITIONS, TOLERATIONS, strings
from twisted_exec.api.logs import QUERY as LOG_QUERY
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
from twisted_exec.api.screens import QUERY as SCREEN_QUERY
from twisted_exec.api.screens import TYPES as SCREEN_TYPES

_LARGEST_SIZE = 2**63 - 1


def image_of(machine: Object, dialect: Dialect) -> str:
    """Return the boot image of a machine, or empty."""
    spec = machine.get("spec", {})
    if image := spec.get(dialect.image_field):
        return str(image)
    for volume in spec.get(dialect.disks_field, ()):
        if image := volume.get("localDisk", {}).get("image"):
            return str(image)
    return ""


@dataclass(frozen=True)
class _Rules:
    dialect: Dialect

    def _disks(self, machine: Object) -> list[Object]:
        return list(machine["spec"].get(self.dialect.disks_field, ()))

    def validate(self, machine: Object) -> list[Cause]:
        dialect, spec, disks = self.dialect, machine["spec"], self._disks(machine)
        # Errors name disks in the singular, as in the systems themselves.
        field = f"spec.{dialect.disk_noun}"
        causes = list(self._reference(spec, dialect.class_reference, needed=True))
        causes += _reference_causes(spec, dialect.pool_reference, names.dns_subdomain)
        causes += self._reference(spec, "imagePullSecret")
        causes += _selector_causes(f"spec.{dialect.pool_selector}", spec.get(dialect.pool_selector))
        causes += _part_causes(disks, field, disk_sources(dialect))
        causes += _device_causes(disks, field)
        causes += _size_causes(disks, field)
        interfaces = spec.get("networkInterfaces", [])
        causes += _part_causes(interfaces, "spec.networkInterface", interface_sources(dialect))
        hostname = spec.get("guestConfig", {}).get("hostname")
        if hostname is not None:
            causes += _name_causes("spec.guestConfig.hostname", hostname, names.dns_label(hostname))
        return causes

    def _reference(self, spec: Object, key: str, *, needed: bool = False) -> Iterator[Cause]:
        rule = names.dns_label if self.dialect.label_names else names.dns_subdomain
        return _reference_causes(spec, key, rule, needed=needed)

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        dialect, causes = self.dialect, []
        if dialect.class_name(new) != dialect.class_name(old):
            causes.append(_immutable(dialect.class_reference))
        if dialect.pool_name(old) and dialect.pool_name(new) != dialect.pool_name(old):
            causes.append(_immutable(dialect.pool_reference))
        for key in filter(None, ("guestConfig", dialect.image_field)):
            if new["spec"].get(key) != old["spec"].get(key):
                causes.append(_immutable(key))
        disks = {disk["name"]: disk for disk in self._disks(new)}
        for disk in self._disks(old):
            if disk.get("localDisk", {}).get("image") and disks.get(disk["name"]) != disk:
                problem = f"{dialect.disk_noun} {disk['name']} with an image is immutable"
                causes.append(fields.forbidden(f"spec.{dialect.disk_noun}", problem))
        return causes

    def prepare(self, machine: Object) -> None:
        if isinstance(machine.get("spec"), dict):
            _name_devices(self._disks(machine))


def _immutable(key: str) -> Cause:
    return fields.forbidden(f"spec.{key}", "field is immutable")


def _size_causes(volumes: list[Object], spec_field: str) -> Iterator[Cause]:
    for index, volume in enumerate(volumes):
        for disk in ("emptyDisk", "localDisk"):
            size = volume.get(disk, {}).get("sizeLimit", 0)
            field = f"{spec_field}[{index}].{disk}.sizeLimit"
            try:
                amount = quantity.value(size)
            except ValueError as error:
                yield fields.invalid(field, size, str(error))
                continue
            if not 0 <= amount <= _LARGEST_SIZE:
                yield fields.invalid(field, size, f"must be from 0 to {_LARGEST_SIZE} bytes")


def _name_causes(field: str, value: Any, problems: list[str]) -> list[Cause]:
    return [fields.invalid(field, value, problem) for problem in problems]


def _reference_causes(
    spec: Object, key: str, rule: Callable[[str], list[str]], *, needed: bool = False
) -> Iterator[Cause]:
    field = f"spec.{key}.name"
    name = spec.get(key, {}).get("name", "")
    if name:
        yield from _name_causes(field, name, rule(name))
    elif needed or key in spec:
        yield fields.required(field, "must specify a name")


def _selector_causes(field: str, selector: dict[str, str] | None) -> Iterator[Cause]:
    for key, value in (selector or {}).items():
        yield from _name_causes(field, key, names.qualified_name(key))
        yield from _name_causes(field, value, names.label_value(value))


def _part_causes(parts: list[Object], field: str, sources: tuple[str, ...]) -> Iterator[Cause]:
    part_names: set[str] = set()
    for index, part in enumerate(parts):
        here = f"{field}[{index}]"
        if part["name"] in part_names:
            yield fields.duplicate(f"{here}.name", part["name"])
        part_names.add(part["name"])
        yield from _name_causes(f"{here}.name", part["name"], names.dns_label(part["name"]))
        present = [source for source in sources if source in part]
        if sources and not present:
            yield fields.required(here, f"must specify one of {', '.join(sources)}")
        for source in present[1:]:
            yield fields.forbidden(f"{here}.{source}", "must only specify one source")


def _device_causes(volumes: list[Object], spec_field: str) -> Iterator[Cause]:
    devices: set[str] = set()
    for index, volume in enumerate(volumes):
        if not (device := volume.get("device")):
            continue
        if device in devices:
            yield fields.duplicate(f"{spec_field}[{index}].device", device)
        devices.add(device)


def _name_devices(volumes: list[Object]) -> None:
    used = {volume.get("device") for volume in volumes}
    letters = "abcdefghijklmnopqrstuvwxyz"
    free = (
        device
        for first in ["", *letters]
        for second in letters
        if (device := f"od{first}{second}") not in used
    )
    for volume in volumes:
        if not volume.get("device"):
            # After 702 volumes the device stays empty, and the runtime chooses.
            volume["device"] = next(free, "")


@cache
def kind(dialect: Dialect) -> Kind:
    """Return the kind of machines."""
    rules, resource = _Rules(dialect), dialect.workload
    options = Connect(dialect.exec_options, exec_options(dialect))
    return Kind(
        resource=resource,
        singular=dialect.noun,
        categories=("all",),
        description=f"{resource.kind} is a machine with a console.",
        schema={"spec": spec_schema(dialect), "status": status_schema(dialect)},
        required=("spec",),
        columns=_columns(dialect),
        has_status=True,
        counts_generation=True,
        name_rule=names.dns_label,
        fields={
            dialect.pool_field: dialect.pool_name,
            f"spec.{dialect.class_reference}.name": dialect.class_name,
            f"status.conditions.{CONSOLE_HEALTHY}": _health,
        },
        unconditional_update=False,
        # A host API server asks for ``get`` on ``machines/console``, not for ``create`` on ``exec``.
        connects={"exec": options, "console": replace(options, methods=("GET",))},
        texts={"log": LOG_QUERY, "screen": SCREEN_QUERY},
        text_types={"screen": SCREEN_TYPES},
        initial_status={"state": "Pending"},
        prepare=rules.prepare,
        validate=rules.validate,
        validate_update=rules.validate_update,
    )


def _columns(dialect: Dialect) -> tuple[Column, ...]:
    def capital(key: str) -> str:
        return key[0].upper() + key[1:]

    columns = (
        Column(dialect.class_column, lambda machine: dialect.class_name(machine) or "<none>"),
        # With these two, a row is longer than the 80 columns of a terminal.
        Column("Image", lambda machine: image_of(machine, dialect) or "<none>", priority=1),
        Column(
            capital(dialect.pool_reference),
            lambda machine: dialect.pool_name(machine) or "<none>",
            priority=1,
        ),
        Column("State", lambda machine: machine.get("status", {}).get("state") or "<unknown>"),
    )
    return (*columns, *_READY_COLUMNS) if dialect.conditions else columns


def _health(machine: Mapping[str, Any]) -> str:
    return str(condition_of(machine, CONSOLE_HEALTHY).get("status") or "")


def _last_line(machine: Object) -> str:
    conditions = machine.get("status", {}).get("conditions", ())
    lines = (each.get("message") for each in conditions if each.get("type") == CONSOLE_OUTPUT)
    return str(next(lines, "") or "<none>")


def _why_not_ready(key: str) -> Callable[[Object], str]:
    def read(machine: Object) -> str:
        ready = condition_of(machine, "Ready")
        return "<none>" if ready.get("status") == "True" else ready.get(key) or "<none>"

    return read


# A machine whose console line is lost still runs, so its state does not show the problem.
_READY_COLUMNS = (
    Column("Ready", lambda machine: condition_of(machine, "Ready").get("status") or "<unknown>"),
    Column("Reason", _why_not_ready("reason"), "Why the machine is not ready"),
    Column("Message", _why_not_ready("message"), "Why the machine is not ready", priority=1),
    Column("Last Line", _last_line, "The last line that the machine has printed", priority=1),
)


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


def exec_options(dialect: Dialect) -> Schema:
    ignored = boolean("Ignored: the poollet's certificate is always verified.")
    return struct(
        {"insecureSkipTLSVerifyBackend": ignored},
        description=f"{dialect.exec_options} is the query options of {dialect.workload.plural}/exec.",
    )
