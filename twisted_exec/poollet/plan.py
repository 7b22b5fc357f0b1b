"""
What to do about one Machine: decided here, done elsewhere.

A pure function from what is wanted (the Machine, as the API server has it) and
what is there (the runtime's machines that carry its UID) to actions.  It is
asked again after every action and every change, so it never needs to remember:
a restart, a lost answer and a new wish all look the same.

Source of names and states: ironcore ``poollet/machinepoollet``; its panic on
two runtime machines, its missing state and its powered-on creation are mended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted_exec.api import quantity
from twisted_exec.api.dialects import Dialect
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.protos import meta_pb2

Object = dict[str, Any]

STATES: Mapping[int, str] = {
    pb.MACHINE_PENDING: "Pending",
    pb.MACHINE_RUNNING: "Running",
    pb.MACHINE_SUSPENDED: "Shutdown",
    pb.MACHINE_STOPPED: "Shutdown",
    pb.MACHINE_TERMINATED: "Terminated",
    pb.MACHINE_TERMINATING: "Terminating",
}
"""The state of a Machine for each state of a runtime's machine."""

POWERS: Mapping[str, int] = {"On": pb.POWER_ON, "Off": pb.POWER_OFF}

READY = "Ready"

_MAX_MESSAGE = 1024


@dataclass(frozen=True)
class Terms:
    """What is the same for every Machine of a poollet."""

    dialect: Dialect
    pool: str
    runtime_name: str
    """The TYPE of a ``machineID`` ``TYPE://ID``."""

    @property
    def pool_label(self) -> str:
        """
        The runtime's label that holds the pool.

        Ours, not ironcore's: it tells our orphans from another pool's machines
        when two poollets share a runtime.
        """
        return f"{self.dialect.runtime_prefix}{self.dialect.noun}-pool"


@dataclass(frozen=True)
class SetFinalizers:
    """Replace the Machine's finalizers, if it is still of ``resource_version``."""

    finalizers: tuple[str, ...]
    resource_version: str


@dataclass(frozen=True)
class PatchStatus:
    """Merge into the Machine's status."""

    status: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Create:
    """Make the runtime's machine."""

    machine: pb.Machine = field(hash=False)


@dataclass(frozen=True)
class Delete:
    """End one of the runtime's machines."""

    machine_id: str


@dataclass(frozen=True)
class SetPower:
    """Power one of the runtime's machines on or off."""

    machine_id: str
    power: int


@dataclass(frozen=True)
class SetAnnotations:
    """Replace the annotations of one of the runtime's machines."""

    machine_id: str
    annotations: Mapping[str, str] = field(hash=False)


Action = SetFinalizers | PatchStatus | Create | Delete | SetPower | SetAnnotations


@dataclass(frozen=True)
class Plan:
    """
    :param actions: to be done in order; then plan again.
    :param problem: what keeps the Machine from being as wanted, for the log; or empty.
    :param reason: of the problem, in one word, when nobody but the plan has noticed it.
    :param unsettled: the runtime is about to change something: look again soon.
    """

    actions: tuple[Action, ...] = ()
    problem: str = ""
    unsettled: bool = False
    reason: str = ""


def plan(
    machine: Object,
    observed: Sequence[pb.Machine],
    terms: Terms,
    *,
    now: str,
    trouble: str = "",
) -> Plan:
    """
    What to do next.

    :param machine: the Machine; bound to our pool.
    :param observed: the runtime's machines with its UID, none usually means not yet made.
    :param now: the time as Kubernetes writes it, for conditions.
    :param trouble: why the last action failed, for the Machine's condition; or empty.
    """
    metadata = machine["metadata"]
    finalizers = tuple(metadata.get("finalizers") or ())
    ours = terms.dialect.finalizer
    if metadata.get("deletionTimestamp"):
        return _ending(machine, observed, finalizers, ours, now)
    if ours not in finalizers:
        return Plan((_finalizers(machine, (*finalizers, ours)),))
    if len(observed) > 1:
        return _several(machine, observed, now)
    if not observed:
        return _creating(machine, terms, now, trouble)
    return _keeping(machine, observed[0], terms, now, trouble)


def not_known(machine: Object, problem: str, *, now: str) -> Plan:
    """
    What to do when the runtime cannot be asked about a Machine.

    :param problem: why not.
    """
    return Plan(tuple(_status(machine, now, ready=("Unknown", "RuntimeUnreachable", problem))))


def machine_uid(machine: pb.Machine, dialect: Dialect) -> str:
    """The UID of the Machine that a runtime's machine stands for, or empty."""
    return str(machine.metadata.labels.get(dialect.uid_label, ""))


def wants_power(machine: Object) -> bool:
    """The Machine is to be powered on."""
    return bool(machine.get("spec", {}).get("power", "On") != "Off")


def _finalizers(machine: Object, finalizers: tuple[str, ...]) -> SetFinalizers:
    return SetFinalizers(finalizers, str(machine["metadata"].get("resourceVersion", "")))


def _ending(
    machine: Object,
    observed: Sequence[pb.Machine],
    finalizers: tuple[str, ...],
    ours: str,
    now: str,
) -> Plan:
    if observed:
        told = _status(machine, now, state="Terminating", ready=("False", "Terminating", ""))
        return Plan((*told, *(Delete(one.metadata.id) for one in observed)), unsettled=True)
    if ours in finalizers:
        kept = tuple(name for name in finalizers if name != ours)
        return Plan((_finalizers(machine, kept),))
    return Plan()


def _several(machine: Object, observed: Sequence[pb.Machine], now: str) -> Plan:
    ids = ", ".join(sorted(one.metadata.id for one in observed))
    problem = f"the runtime has {len(observed)} machines for it: {ids}; delete all but one there"
    reason = "SeveralRuntimeMachines"
    told = _status(machine, now, ready=("False", reason, problem))
    return Plan(tuple(told), problem, reason=reason)


def _creating(machine: Object, terms: Terms, now: str, trouble: str) -> Plan:
    unsupported = _unsupported(machine["spec"])
    if unsupported:
        reason = "Unsupported"
        told = _status(machine, now, state="Pending", ready=("False", reason, unsupported))
        return Plan(tuple(told), unsupported, reason=reason)
    reason = "CreateFailed" if trouble else "Creating"
    told = _status(machine, now, state="Pending", ready=("False", reason, trouble))
    return Plan((*told, Create(runtime_machine(machine, terms))), trouble, unsettled=True)


def _keeping(machine: Object, observed: pb.Machine, terms: Terms, now: str, trouble: str) -> Plan:
    actions: list[Action] = []
    machine_id = observed.metadata.id
    power = POWERS["On" if wants_power(machine) else "Off"]
    if observed.spec.power != power:
        actions.append(SetPower(machine_id, power))
    annotations = _annotations(machine, observed, terms.dialect)
    if annotations != dict(observed.metadata.annotations):
        actions.append(SetAnnotations(machine_id, annotations))
    state = STATES.get(observed.status.state)
    problem = trouble or ("" if state else f"the runtime reports state {observed.status.state}")
    running = state == "Running"
    ready = ("True", state or "", problem)
    if not running:
        reason, why = _explained(observed)
        ready = ("False", reason or state or "Unknown", problem or why)
    told = _status(
        machine,
        now,
        state=state,
        ready=ready,
        machineID=f"{terms.runtime_name}://{machine_id}",
        observedGeneration=_observed_generation(machine, observed, terms.dialect),
    )
    unsettled = state == "Pending" or (running and not wants_power(machine))
    return Plan((*actions, *told), problem, unsettled=unsettled)


def _explained(observed: pb.Machine) -> tuple[str, str]:
    """Reason and message of why a machine is not ready, as far as its runtime tells."""
    for condition in observed.status.machine_conditions:
        if condition.type == READY and condition.status != "True":
            return condition.reason, condition.message[:_MAX_MESSAGE]
    return "", ""


def runtime_machine(machine: Object, terms: Terms) -> pb.Machine:
    """The machine to ask the runtime for."""
    dialect, metadata, spec = terms.dialect, machine["metadata"], machine["spec"]
    made = pb.Machine(
        metadata=meta_pb2.ObjectMetadata(
            labels={
                dialect.uid_label: metadata["uid"],
                dialect.namespace_label: metadata.get("namespace", ""),
                dialect.name_label: metadata["name"],
                terms.pool_label: terms.pool,
            },
            annotations={
                dialect.generation_annotation: str(metadata.get("generation", 0)),
                dialect.runtime_generation_annotation: "0",
            },
        )
    )
    made.spec.power = POWERS["On" if wants_power(machine) else "Off"]  # type: ignore[assignment]
    # "class" is a Python keyword: only setattr can name the field.
    setattr(made.spec, "class", spec[dialect.class_reference]["name"])
    made.spec.volumes.extend(_volume(one) for one in spec.get("volumes") or ())
    hostname = (spec.get("guestConfig") or {}).get("hostname", "")
    if hostname:
        made.spec.guest_config.hostname = hostname
    return made


def _volume(volume: Object) -> pb.Volume:
    disk = volume.get("localDisk") or volume.get("emptyDisk") or {}
    made = pb.Volume(name=volume["name"], device=volume.get("device", ""))
    made.local_disk.size_bytes = quantity.value(disk.get("sizeLimit", 0))
    if disk.get("image"):
        made.local_disk.image.image = disk["image"]
    return made


def _unsupported(spec: Object) -> str:
    """Why the Machine cannot be made here: what it refers to is served nowhere; or empty."""
    if spec.get("ignitionRef"):
        return "spec.ignitionRef is not supported by this poollet"
    for volume in spec.get("volumes") or ():
        if not ("localDisk" in volume or "emptyDisk" in volume):
            return f'volume "{volume["name"]}": only localDisk and emptyDisk are supported'
        try:
            _volume(volume)
        except ValueError as problem:  # of a quantity, of protobuf's range or text
            return f'volume "{volume["name"]}": {problem}'
    if spec.get("networkInterfaces"):
        return "spec.networkInterfaces is not supported by this poollet"
    return ""


def _annotations(machine: Object, observed: pb.Machine, dialect: Dialect) -> dict[str, str]:
    """
    The annotations that the runtime's machine should have.

    The runtime's own generation is noted only together with a new one of the
    Machine: noting it may itself be a change that the runtime counts.
    """
    wanted = dict(observed.metadata.annotations)
    generation = str(machine["metadata"].get("generation", 0))
    if wanted.get(dialect.generation_annotation) != generation:
        wanted[dialect.generation_annotation] = generation
        wanted[dialect.runtime_generation_annotation] = str(observed.metadata.generation)
    return wanted


def _observed_generation(machine: Object, observed: pb.Machine, dialect: Dialect) -> int | None:
    """Which generation of the Machine the runtime has seen; ``None`` when it does not say."""
    annotations = observed.metadata.annotations
    try:
        noted = int(annotations.get(dialect.generation_annotation, ""))
        needed = int(annotations.get(dialect.runtime_generation_annotation, ""))
    except ValueError:
        return None
    return noted if observed.status.observed_generation >= needed else None


def _status(
    machine: Object, now: str, *, ready: tuple[str, str, str], **wanted: Any
) -> list[PatchStatus]:
    """
    A patch that makes the status say this, or nothing when it does already.

    :param ready: status, reason and message of the Ready condition.
    :param wanted: other fields; ``None`` leaves one as it is.
    """
    status = machine.get("status") or {}
    patch = {
        key: value
        for key, value in wanted.items()
        if value is not None and status.get(key) != value
    }
    known = status.get("conditions") or []
    conditions = with_condition(known, ready, now, machine["metadata"].get("generation"))
    if conditions != known:
        patch["conditions"] = conditions
    return [PatchStatus(patch)] if patch else []


def with_condition(
    conditions: Sequence[Object],
    ready: tuple[str, str, str],
    now: str,
    generation: int | None = None,
) -> list[Object]:
    """``conditions`` with the Ready condition set; its times move only when it changes."""
    status, reason, message = ready
    before = next((one for one in conditions if one.get("type") == READY), {})
    new: Object = {"type": READY, "status": status, "reason": reason, "message": message}
    if generation is not None:
        new["observedGeneration"] = generation
    if {key: before.get(key, "") for key in new} == new:
        return [dict(one) for one in conditions]
    moved = before.get("status") != status
    new["lastTransitionTime"] = now if moved else before.get("lastTransitionTime", now)
    return [dict(one) for one in conditions if one.get("type") != READY] + [new]
