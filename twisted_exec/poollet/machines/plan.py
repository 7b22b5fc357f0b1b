"""
The plan for one Machine.

It is a pure function of the desired and the observed state, without memory, so that a restart, a
lost answer and a new spec look the same.

Source of names and states: ironcore ``poollet/machinepoollet``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.dialects import Dialect
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines import conditions
from twisted_exec.poollet.machines.actions import (
    Action,
    Attachment,
    Create,
    Delete,
    MachinePlan,
    PatchStatus,
    SetAnnotations,
    SetFinalizers,
    SetPower,
    attachments,
)
from twisted_exec.poollet.machines.claims import PatchObject, provided, release
from twisted_exec.poollet.machines.conditions import READY, STATES, UNREACHABLE
from twisted_exec.poollet.machines.config import MachineConfig, wants_power
from twisted_exec.poollet.machines.parts import Parts, gather, referent
from twisted_exec.poollet.machines.references import (
    CLASS_NOT_READY,
    Key,
    MissingReference,
    Object,
    References,
    Unread,
)
from twisted_exec.poollet.machines.runtime_machine import POWERS, annotations_of, runtime_machine
from twisted_exec.poollet.machines.secret_data import ignition, ignition_key, with_secrets
from twisted_exec.poollet.machines.status import (
    observed_generation,
    parts_status,
    reported_parts,
    status_patch,
)

_MAX_LISTED = 10


def plan(
    machine: Object,
    observed: Sequence[pb.Machine],
    config: MachineConfig,
    *,
    now: str,
    trouble: str = "",
    references: References | None = None,
) -> MachinePlan:
    """
    Return the next actions.

    :param machine: bound to our pool.
    :param now: a timestamp, for conditions.
    """
    references = references or References()
    metadata = machine["metadata"]
    finalizers = tuple(metadata.get("finalizers") or ())
    ours = config.dialect.finalizer
    if metadata.get("deletionTimestamp"):
        return _ending(machine, observed, finalizers, config, now, references)
    if ours not in finalizers:
        return MachinePlan((_finalizers(machine, (*finalizers, ours)),))
    if len(observed) > 1:
        return _duplicates(machine, observed, config, now)
    if not observed:
        return _creating(machine, config, now, trouble, references)
    return _keeping(machine, observed[0], config, now, trouble, references)


def unreachable_plan(machine: Object, problem: str, dialect: Dialect, *, now: str) -> MachinePlan:
    """Return the plan for a Machine whose runtime is unreachable: its conditions become Unknown."""
    conditions: dict[str, ConditionValue] = {READY: ("Unknown", UNREACHABLE, problem)}
    for condition in (machine.get("status") or {}).get("conditions") or ():
        conditions[condition.get("type", READY)] = ("Unknown", UNREACHABLE, problem)
    return MachinePlan(tuple(status_patch(machine, dialect, now, conditions)))


def _finalizers(machine: Object, finalizers: tuple[str, ...]) -> SetFinalizers:
    return SetFinalizers(finalizers, str(machine["metadata"].get("resourceVersion", "")))


def _ending(
    machine: Object,
    observed: Sequence[pb.Machine],
    finalizers: tuple[str, ...],
    config: MachineConfig,
    now: str,
    references: References,
) -> MachinePlan:
    if observed:
        ready = {READY: ("False", "Terminating", "")}
        status_actions = status_patch(machine, config.dialect, now, ready, state="Terminating")
        return MachinePlan(
            (*status_actions, *(Delete(extra.metadata.id) for extra in observed)), unsettled=True
        )
    if config.dialect.finalizer in finalizers:
        try:
            given_up = _releases(machine, config, references, ending=True)
        except Unread as unread:
            return MachinePlan((), unread.problem, waits=True)
        remaining = tuple(name for name in finalizers if name != config.dialect.finalizer)
        return MachinePlan((*given_up, _finalizers(machine, remaining)))
    return MachinePlan()


def _duplicates(
    machine: Object, observed: Sequence[pb.Machine], config: MachineConfig, now: str
) -> MachinePlan:
    ids = ", ".join(sorted(extra.metadata.id for extra in observed)[:_MAX_LISTED])
    problem = f"the runtime has {len(observed)} machines for it: {ids}; delete all but one there"
    reason = "SeveralRuntimeMachines"
    actions = status_patch(machine, config.dialect, now, {READY: ("False", reason, problem)})
    return MachinePlan(tuple(actions), problem, reason=reason, waits=True)


def _creating(
    machine: Object, config: MachineConfig, now: str, trouble: str, references: References
) -> MachinePlan:
    parts = gather(machine, config.domain, references)
    if parts.soon:
        return MachinePlan(waits=True)
    try:
        class_name, problem = references.class_of(config.dialect.class_name(machine))
    except Unread:
        return MachinePlan(waits=True)
    if problem:
        parts.lack(MissingReference(CLASS_NOT_READY, problem))
    if parts.claims:
        lacking = _lacking(machine, parts, config, now, trouble).actions if trouble else ()
        return MachinePlan((*lacking, *parts.claims), trouble, unsettled=True)
    reads = _unread(machine, parts, parts.volumes, references)
    if reads:
        return MachinePlan(reads=reads)
    created = runtime_machine(machine, config, parts, class_name)
    _give_secrets(machine, created, parts, config, references)
    if parts.lacks:
        return _lacking(machine, parts, config, now)
    status = []
    if trouble or _is_status_outdated(machine):
        ready = ("False", "CreateFailed" if trouble else "Creating", trouble)
        conditions = {READY: ready, **reported_parts(machine, None, parts, config)}
        status = status_patch(machine, config.dialect, now, conditions, only=True, state="Pending")
    return MachinePlan((*status, Create(created)), trouble, unsettled=True)


def _is_status_outdated(machine: Object) -> bool:
    status = machine.get("status") or {}
    return bool(status.get("conditions")) or status.get("state", "Pending") != "Pending"


def _unread(
    machine: Object,
    parts: Parts,
    volumes: Sequence[pb.Volume],
    references: References,
    *,
    new: bool = True,
) -> tuple[Key, ...]:
    needed = [ignition_key(machine)] if new else []
    for volume in volumes:
        needed += parts.secrets.get(volume.name, ())
    return tuple({key: None for key in needed if key is not None and key not in references.secrets})


def _give_secrets(
    machine: Object,
    created: pb.Machine,
    parts: Parts,
    config: MachineConfig,
    references: References,
) -> None:
    """Fill secret data into ``created``; record in ``parts`` what is missing."""
    try:
        created.spec.ignition_data = ignition(machine, config.domain, references)
    except MissingReference as lacking:
        parts.lack(lacking)
    for volume in created.spec.volumes:
        try:
            volume.CopyFrom(
                with_secrets(volume, *parts.secrets.get(volume.name, (None, None)), references)
            )
        except MissingReference as lacking:
            parts.lack(
                MissingReference(lacking.reason, f'volume "{volume.name}": {lacking.message}')
            )


def _lacking(
    machine: Object, parts: Parts, config: MachineConfig, now: str, trouble: str = ""
) -> MachinePlan:
    reason, problem = next(iter(parts.lacks)), "; ".join(parts.lacks.values())
    if trouble:
        problem += f": {trouble}"
    conditions = {READY: ("False", reason, problem), **reported_parts(machine, None, parts, config)}
    return MachinePlan(
        tuple(status_patch(machine, config.dialect, now, conditions, state="Pending")),
        problem,
        reason=reason,
        waits=True,
    )


def _keeping(
    machine: Object,
    observed: pb.Machine,
    config: MachineConfig,
    now: str,
    trouble: str,
    references: References,
) -> MachinePlan:
    parts = gather(machine, config.domain, references)
    back_references = _back_references(machine, observed, parts, config, references)
    if parts.soon or back_references is None:
        return MachinePlan(waits=True)
    planned_changes = attachments(machine, parts, observed, config.dialect)
    giving = [change.volume for change in planned_changes if change.volume is not None]
    reads = _unread(machine, parts, giving, references, new=False)
    if reads:
        return MachinePlan(reads=reads)
    if parts.claims and not trouble:
        return MachinePlan(tuple(parts.claims), unsettled=True)
    changes: list[Action] = [*parts.claims, *_with_secrets(planned_changes, parts, references)]
    machine_id = observed.metadata.id
    power = POWERS["On" if wants_power(machine) else "Off"]
    if observed.spec.power != power:
        # Power on after attaching all parts, power off before detaching: a running guest may hold
        # on to a disk.
        place = len(changes) if wants_power(machine) else 0
        changes.insert(place, SetPower(machine_id, power))
    annotations = annotations_of(machine, observed, parts, config)
    if annotations != dict(observed.metadata.annotations):
        changes.append(SetAnnotations(machine_id, annotations))
    actions: list[Action] = [
        *back_references,
        *_running_status(machine, observed, parts, config, now, trouble),
    ]
    state = STATES.get(observed.status.state)
    problem = trouble or ("" if state else f"the runtime reports state {observed.status.state}")
    unsettled = state == "Pending" or (state == "Running" and not wants_power(machine))
    return MachinePlan(
        # Report the failure of a change before the retry, which may fail again.
        (*actions, *changes) if trouble else (*changes, *actions),
        problem or "; ".join(parts.lacks.values()),
        unsettled=unsettled,
        reason="" if problem else next(iter(parts.lacks), ""),
        waits=bool(parts.lacks) and not parts.claims,
    )


def _back_references(
    machine: Object,
    observed: pb.Machine,
    parts: Parts,
    config: MachineConfig,
    references: References,
) -> list[PatchObject] | None:
    """Return patches for the objects that the Machine refers to; ``None`` while these are read."""
    try:
        return [
            *provided(machine, parts.mapping, observed, config.domain, references),
            *_releases(machine, config, references, observed),
        ]
    except Unread as unread:
        # A status without the parts that are to be released would forget them.
        return None if unread.soon else []


def _running_status(
    machine: Object,
    observed: pb.Machine,
    parts: Parts,
    config: MachineConfig,
    now: str,
    trouble: str,
) -> list[PatchStatus]:
    is_known_state = observed.status.state in STATES
    problem = trouble or (
        "" if is_known_state else f"the runtime reports state {observed.status.state}"
    )
    reported_conditions = {
        READY: conditions.ready(observed, problem),
        **reported_parts(machine, observed, parts, config, trouble),
        **conditions.copied(observed),
    }
    machine_id = f"{config.runtime_name}://{observed.metadata.id}"
    return status_patch(
        machine,
        config.dialect,
        now,
        reported_conditions,
        only=True,
        state=STATES.get(observed.status.state),
        **dict.fromkeys(
            config.dialect.generation_fields,
            observed_generation(machine, observed, config.dialect),
        ),
        **{config.dialect.id_field: machine_id},
        **parts_status(machine, observed, parts, config, now),
    )


def _with_secrets(
    changes: Sequence[Attachment], parts: Parts, references: References
) -> list[Attachment]:
    """Return the possible changes; record in ``parts`` why others are not."""
    possible = []
    for change in changes:
        try:
            possible.append(change.completed(parts.secrets, references))
        except MissingReference as lacking:
            parts.lack(
                MissingReference(lacking.reason, f'volume "{change.name}": {lacking.message}')
            )
    return possible


def _releases(
    machine: Object,
    config: MachineConfig,
    references: References,
    observed: pb.Machine | None = None,
    *,
    ending: bool = False,
) -> list[PatchObject]:
    """
    Return patches that release the claims on objects that the Machine no longer uses.

    The status lists the objects in use until their claims are released.

    :raises Unread: the claimed objects are still being read.
    """
    dialect, status = config.dialect, machine.get("status") or {}
    if not dialect.domain:
        return []
    given_up = []
    for field_name, reference, resource in (
        (dialect.disks_field, f"{dialect.disk_noun}Ref", config.domain.volumes),
        ("networkInterfaces", "networkInterfaceRef", config.domain.interfaces),
    ):
        used_by_spec = {} if ending else _referents(machine, field_name)
        names_used_by_spec = set(used_by_spec.values())
        used = set() if observed is None else {part.name for part in _attached(observed, resource)}
        recorded = {
            entry["name"]: (entry.get(reference) or {}).get("name", "")
            for entry in status.get(field_name) or ()
        }
        if ending:
            recorded |= _referents(machine, field_name)
        unused = {
            part: name
            for part, name in recorded.items()
            if name and name not in names_used_by_spec and part not in used
        }
        given_up += release(machine, unused, resource, references)
    return given_up


def _attached(observed: pb.Machine, resource: Any) -> Any:
    volumes = resource.plural == "volumes"
    return observed.spec.volumes if volumes else observed.spec.network_interfaces


def _referents(machine: Object, field_name: str) -> dict[str, str]:
    return {part["name"]: referent(machine, part) for part in machine["spec"].get(field_name) or ()}
