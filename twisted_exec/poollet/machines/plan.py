"""
The plan for one Machine.

It is a pure function of the desired and the observed state, without memory, so that a restart, a
lost answer and a new spec look the same.

Source of names and states: ironcore ``poollet/machinepoollet``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twisted_exec.api.conditions import ConditionValue, with_conditions
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.display import BANNER, banner_lines
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.protos import meta_pb2
from twisted_exec.poollet.machines import conditions
from twisted_exec.poollet.machines import config as downward
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
from twisted_exec.poollet.machines.conditions import (
    INTERFACES_READY,
    READY,
    STATES,
    UNREACHABLE,
    VOLUMES_READY,
)
from twisted_exec.poollet.machines.config import (
    INTERFACE_NOT_READY,
    VOLUME_NOT_READY,
    Key,
    MachineConfig,
    MissingReference,
    Object,
    PatchObject,
    References,
    Unread,
    wants_power,
)
from twisted_exec.poollet.machines.parts import (
    Parts,
    gather,
    ignition,
    ignition_key,
    provided,
    referent,
    release,
    with_secrets,
)

CLASS_NOT_READY = "MachineClassNotReady"
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


POWERS: Mapping[str, int] = {"On": pb.POWER_ON, "Off": pb.POWER_OFF}


def runtime_machine(
    machine: Object, config: MachineConfig, parts: Parts | None = None, class_name: str = ""
) -> pb.Machine:
    """
    Return the machine to request from the runtime, without secret data.

    :param class_name: the runtime's name of the class, by default the Machine's.
    """
    dialect, metadata, spec = config.dialect, machine["metadata"], machine["spec"]
    parts = parts or gather(machine, config.domain, References())
    desired = pb.Machine(
        metadata=meta_pb2.ObjectMetadata(
            labels={
                **downward.values(config.downward.labels, machine, dialect.downward_prefix),
                dialect.uid_label: metadata["uid"],
                dialect.namespace_label: metadata.get("namespace", ""),
                dialect.name_label: metadata["name"],
                config.pool_label: config.pool,
            },
            annotations={
                **downward.values(config.downward.annotations, machine, dialect.downward_prefix),
                dialect.generation_annotation: str(metadata.get("generation", 0)),
                dialect.runtime_generation_annotation: "0",
                config.mapping_annotation: _mapping(parts),
                **_banner(machine),
            },
        )
    )
    desired.spec.power = POWERS["On" if wants_power(machine) else "Off"]  # type: ignore[assignment]
    # "class" is a Python keyword: only setattr can name the field.
    setattr(desired.spec, "class", class_name or dialect.class_name(machine))
    desired.spec.volumes.extend(parts.volumes)
    desired.spec.network_interfaces.extend(parts.interfaces)
    hostname = (spec.get("guestConfig") or {}).get("hostname", "")
    if hostname:
        desired.spec.guest_config.hostname = hostname
    return desired


def _mapping(parts: Parts) -> str:
    return json.dumps(parts.mapping, sort_keys=True, separators=(",", ":"))


def _banner(machine: Object) -> dict[str, str]:
    lines = banner_lines(str(machine["metadata"].get("annotations", {}).get(BANNER, "")))
    return {BANNER: "\n".join(lines)} if lines else {}


def annotations_of(
    machine: Object, observed: pb.Machine, parts: Parts, config: MachineConfig
) -> dict[str, str]:
    """
    Return the annotations that the runtime's machine should have.

    The runtime's own generation is recorded only with a new generation of the Machine: some
    runtimes count the recording itself as a change.
    """
    dialect, annotations = config.dialect, dict(observed.metadata.annotations)
    annotations.pop(BANNER, None)
    annotations |= _banner(machine)
    annotations |= downward.values(config.downward.annotations, machine, dialect.downward_prefix)
    if INTERFACE_NOT_READY not in parts.lacks:
        annotations[config.mapping_annotation] = _mapping(parts)
    generation = str(machine["metadata"].get("generation", 0))
    if annotations.get(dialect.generation_annotation) != generation:
        annotations[dialect.generation_annotation] = generation
        annotations[dialect.runtime_generation_annotation] = str(observed.metadata.generation)
    return annotations


def observed_generation(machine: Object, observed: pb.Machine, dialect: Dialect) -> int | None:
    """Return the generation of the Machine that the runtime has seen; ``None`` if unknown."""
    annotations = observed.metadata.annotations
    try:
        noted = int(annotations.get(dialect.generation_annotation, ""))
        needed = int(annotations.get(dialect.runtime_generation_annotation, ""))
    except ValueError:
        return None
    return noted if observed.status.observed_generation >= needed else None
