"""The machine to request from the runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping

from twisted_exec.api.display import BANNER, banner_lines
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
