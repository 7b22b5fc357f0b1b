"""
Machines, under the name of each dialect.

Sources: ironcore ``api/compute/v1alpha1`` and ``internal/apis/compute/validation``, and their
counterparts in onmetal-api and spheric. Unlike in these systems, the status is not writable through
the main resource, and ``metadata.generation`` is maintained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from twisted_exec.api import fields, names, quantity
from twisted_exec.api.conditions import (
    CONSOLE_HEALTHY,
    CONSOLE_OUTPUT,
    CONSOLE_STORED,
    condition_of,
)
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Connect, Kind, Object
from twisted_exec.api.kinds.machine_schema import (
    disk_sources,
    interface_sources,
    spec_schema,
    status_schema,
)
from twisted_exec.api.logs import QUERY as LOG_QUERY
from twisted_exec.api.schema import (
    Schema,
    boolean,
    struct,
)
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
            f"status.conditions.{CONSOLE_HEALTHY}": partial(_status_of, CONSOLE_HEALTHY),
            f"status.conditions.{CONSOLE_STORED}": partial(_status_of, CONSOLE_STORED),
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


def _status_of(condition: str, machine: Mapping[str, Any]) -> str:
    return str(condition_of(machine, condition).get("status") or "")


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


def exec_options(dialect: Dialect) -> Schema:
    ignored = boolean("Ignored: the poollet's certificate is always verified.")
    return struct(
        {"insecureSkipTLSVerifyBackend": ignored},
        description=f"{dialect.exec_options} is the query options of {dialect.workload.plural}/exec.",
    )
