"""
The machine to ask a runtime for, and the annotations that it is to have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from twisted_exec.api.dialects import Dialect
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.protos import meta_pb2
from twisted_exec.poollet.machines import downward
from twisted_exec.poollet.machines.config import MachineConfig, wants_power
from twisted_exec.poollet.machines.parts import Parts, gather
from twisted_exec.poollet.machines.references import INTERFACE_NOT_READY, Object, References

POWERS: Mapping[str, int] = {"On": pb.POWER_ON, "Off": pb.POWER_OFF}


def runtime_machine(
    machine: Object, config: MachineConfig, parts: Parts | None = None, class_name: str = ""
) -> pb.Machine:
    """
    The machine to ask the runtime for, without what is secret.

    :param parts: what it is made of.
    :param class_name: the runtime's own name of the class; usually that of the Machine's.
    """
    dialect, metadata, spec = config.dialect, machine["metadata"], machine["spec"]
    parts = parts or gather(machine, config.domain, References())
    made = pb.Machine(
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
            },
        )
    )
    made.spec.power = POWERS["On" if wants_power(machine) else "Off"]  # type: ignore[assignment]
    # "class" is a Python keyword: only setattr can name the field.
    setattr(made.spec, "class", class_name or dialect.class_name(machine))
    made.spec.volumes.extend(parts.volumes)
    made.spec.network_interfaces.extend(parts.interfaces)
    hostname = (spec.get("guestConfig") or {}).get("hostname", "")
    if hostname:
        made.spec.guest_config.hostname = hostname
    return made


def _mapping(parts: Parts) -> str:
    return json.dumps(parts.mapping, sort_keys=True, separators=(",", ":"))


def annotations_of(
    machine: Object, observed: pb.Machine, parts: Parts, config: MachineConfig
) -> dict[str, str]:
    """
    The annotations that the runtime's machine should have.

    The runtime's own generation is noted only together with a new one of the
    Machine: noting it may itself be a change that the runtime counts.
    """
    dialect, annotations = config.dialect, dict(observed.metadata.annotations)
    annotations |= downward.values(config.downward.annotations, machine, dialect.downward_prefix)
    if INTERFACE_NOT_READY not in parts.lacks:
        annotations[config.mapping_annotation] = _mapping(parts)
    generation = str(machine["metadata"].get("generation", 0))
    if annotations.get(dialect.generation_annotation) != generation:
        annotations[dialect.generation_annotation] = generation
        annotations[dialect.runtime_generation_annotation] = str(observed.metadata.generation)
    return annotations


def observed_generation(machine: Object, observed: pb.Machine, dialect: Dialect) -> int | None:
    """Which generation of the Machine the runtime has seen; ``None`` when it does not say."""
    annotations = observed.metadata.annotations
    try:
        noted = int(annotations.get(dialect.generation_annotation, ""))
        needed = int(annotations.get(dialect.runtime_generation_annotation, ""))
    except ValueError:
        return None
    return noted if observed.status.observed_generation >= needed else None
