"""
The patch that makes a Machine's status say what is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api.conditions import Told, with_conditions
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
from twisted_exec.poollet.machines.config import Terms
from twisted_exec.poollet.machines.parts import Parts
from twisted_exec.poollet.machines.references import INTERFACE_NOT_READY, VOLUME_NOT_READY, Object


def status_patch(
    machine: Object,
    dialect: Dialect,
    now: str,
    told: Mapping[str, Told],
    *,
    only: bool = False,
    **wanted: Any,
) -> list[PatchStatus]:
    """
    A patch that makes the status say this, or nothing when it does already.

    :param told: conditions, by type.
    :param only: conditions of other types are no longer true.
    :param wanted: other fields; ``None`` leaves one as it is.
    """
    status = machine.get("status") or {}
    if wanted.get("state") not in dialect.states:
        wanted["state"] = None  # the dialect has no word for it
    patch = {
        key: value
        for key, value in wanted.items()
        if value is not None and status.get(key) != value
    }
    if dialect.conditions:
        known = status.get("conditions") or []
        kept = [one for one in known if one.get("type") in told] if only else known
        generation = machine["metadata"].get("generation")
        new = with_conditions(kept, told, now, generation)
        if new != known:
            patch["conditions"] = new
    return [PatchStatus(patch)] if patch else []


def reported_parts(
    machine: Object, observed: pb.Machine | None, parts: Parts, terms: Terms, trouble: str = ""
) -> dict[str, Told]:
    """The conditions of the Machine's parts; a Machine without any has none."""
    told: dict[str, Told] = {}
    status = observed.status if observed is not None else pb.MachineStatus()
    for condition, field_name, reports, noun, reason in (
        (VOLUMES_READY, terms.dialect.disks_field, status.volumes, "Volume", VOLUME_NOT_READY),
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
            told[condition] = conditions.parts_ready(names, reports, noun, lacking, trouble)
    return told


def parts_status(
    machine: Object, observed: pb.Machine, parts: Parts, terms: Terms, now: str
) -> Object:
    """
    ``status.volumes`` and ``status.networkInterfaces``, of those that there are or were.

    What the Machine no longer names stays as long as its runtime has it: so it is known what
    is to be given up then.
    """
    dialect, known, found = terms.dialect, machine.get("status") or {}, {}
    has, told = observed.spec, observed.status
    for name, there, reports, referents, reference in (
        (
            dialect.disks_field,
            has.volumes,
            told.volumes,
            parts.volume_referents,
            f"{dialect.disk_noun}Ref",
        ),
        (
            "networkInterfaces",
            has.network_interfaces,
            told.network_interfaces,
            parts.interface_referents,
            "networkInterfaceRef",
        ),
    ):
        wanted, before = machine["spec"].get(name) or [], known.get(name) or []
        if not (wanted or before):
            continue
        names, kept = {one["name"] for one in wanted}, {one.name for one in there}
        going = [one for one in before if one["name"] in kept - names]
        references = {one["name"]: (one.get(reference) or {}).get("name", "") for one in going}
        found[name] = conditions.parts_status(
            [*wanted, *going], reports, before, {**references, **referents}, reference, now
        )
    return found


def is_not_known(machine: Object) -> bool:
    """The Machine says already that its runtime cannot be asked."""
    known = (machine.get("status") or {}).get("conditions") or ()
    return any(
        (one.get("type"), one.get("status"), one.get("reason")) == (READY, "Unknown", UNREACHABLE)
        for one in known
    )
