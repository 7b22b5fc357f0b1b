"""The status of a Machine, from the machine of its runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api.conditions import ConditionValue, with_conditions
from twisted_exec.api.dialects import Dialect
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines import conditions
from twisted_exec.poollet.machines.actions import PatchStatus
from twisted_exec.poollet.machines.conditions import (
    INTERFACES_READY,
    READY,
    UNREACHABLE,
    VOLUMES_READY,
)
from twisted_exec.poollet.machines.config import MachineConfig
from twisted_exec.poollet.machines.parts import Parts
from twisted_exec.poollet.machines.references import INTERFACE_NOT_READY, VOLUME_NOT_READY, Object


def status_patch(
    machine: Object,
    dialect: Dialect,
    now: str,
    conditions: Mapping[str, ConditionValue],
    *,
    only: bool = False,
    **fields: Any,
) -> list[PatchStatus]:
    """
    Return a patch for the status, or an empty list if the status is up to date.

    :param fields: other fields of the status; ``None`` leaves a field unchanged.
    """
    status = machine.get("status") or {}
    if fields.get("state") not in dialect.states:
        fields["state"] = None  # this dialect does not define the state
    patch = {
        key: value
        for key, value in fields.items()
        if value is not None and status.get(key) != value
    }
    if dialect.conditions:
        existing = status.get("conditions") or []
        compared = (
            [condition for condition in existing if condition.get("type") in conditions]
            if only
            else existing
        )
        generation = machine["metadata"].get("generation")
        new = with_conditions(compared, conditions, now, generation)
        if new != existing:
            patch["conditions"] = new
    return [PatchStatus(patch)] if patch else []


def reported_parts(
    machine: Object,
    observed: pb.Machine | None,
    parts: Parts,
    config: MachineConfig,
    trouble: str = "",
) -> dict[str, ConditionValue]:
    """Return the conditions of the Machine's parts."""
    part_conditions: dict[str, ConditionValue] = {}
    status = observed.status if observed is not None else pb.MachineStatus()
    for condition, field_name, reports, noun, reason in (
        (VOLUMES_READY, config.dialect.disks_field, status.volumes, "Volume", VOLUME_NOT_READY),
        (
            INTERFACES_READY,
            "networkInterfaces",
            status.network_interfaces,
            "NetworkInterface",
            INTERFACE_NOT_READY,
        ),
    ):
        names = [part["name"] for part in machine["spec"].get(field_name) or ()]
        if names:
            lacking = parts.lacks.get(reason, "")
            part_conditions[condition] = conditions.parts_ready(
                names, reports, noun, lacking, trouble
            )
    return part_conditions


def parts_status(
    machine: Object, observed: pb.Machine, parts: Parts, config: MachineConfig, now: str
) -> Object:
    """Return the fields of the status for disks and network interfaces."""
    dialect, status, statuses = config.dialect, machine.get("status") or {}, {}
    has, reported = observed.spec, observed.status
    for name, there, reports, referents, reference in (
        (
            dialect.disks_field,
            has.volumes,
            reported.volumes,
            parts.volume_referents,
            f"{dialect.disk_noun}Ref",
        ),
        (
            "networkInterfaces",
            has.network_interfaces,
            reported.network_interfaces,
            parts.interface_referents,
            "networkInterfaceRef",
        ),
    ):
        desired, before = machine["spec"].get(name) or [], status.get(name) or []
        if not (desired or before):
            continue
        names, current_names = (
            {part["name"] for part in desired},
            {current.name for current in there},
        )
        going = [part for part in before if part["name"] in current_names - names]
        recorded = {part["name"]: (part.get(reference) or {}).get("name", "") for part in going}
        statuses[name] = conditions.merged_parts_status(
            [*desired, *going], reports, before, {**recorded, **referents}, reference, now
        )
    return statuses


def says_unreachable(machine: Object) -> bool:
    """Return whether the status says already that the runtime is unreachable."""
    existing = (machine.get("status") or {}).get("conditions") or ()
    return any(
        (condition.get("type"), condition.get("status"), condition.get("reason"))
        == (READY, "Unknown", UNREACHABLE)
        for condition in existing
    )


def observed_generation(machine: Object, observed: pb.Machine, dialect: Dialect) -> int | None:
    """Return the generation of the Machine that the runtime has seen; ``None`` if unknown."""
    annotations = observed.metadata.annotations
    try:
        noted = int(annotations.get(dialect.generation_annotation, ""))
        needed = int(annotations.get(dialect.runtime_generation_annotation, ""))
    except ValueError:
        return None
    return noted if observed.status.observed_generation >= needed else None
