"""Configuration that all Machines of a poollet share."""

from __future__ import annotations

from dataclasses import dataclass, field

from twisted_exec.api.dialects import Dialect
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.downward import Downward
from twisted_exec.poollet.machines.references import Object, ReferencedKinds


@dataclass(frozen=True)
class MachineConfig:
    """Configuration that all Machines of a poollet share."""

    dialect: Dialect
    pool: str
    runtime_name: str
    """The TYPE of a ``machineID`` ``TYPE://ID``."""
    downward: Downward = field(default_factory=Downward)
    """Fields of Machines that the runtime gets as labels and annotations, besides names and UID."""
    about: ReferencedKinds | None = None
    """Resources that Machines refer to, with their downward API labels; ``None``: no such labels."""

    @property
    def domain(self) -> ReferencedKinds:
        return self.about or ReferencedKinds(self.dialect)

    @property
    def mapping_annotation(self) -> str:
        """Annotation of the runtime's machine with the mapping of attached NetworkInterfaces (JSON)."""
        return f"{self.dialect.runtime_prefix}networkinterfacemapping"

    @property
    def pool_label(self) -> str:
        """
        Label of the runtime's machine that holds the name of the pool.

        It tells orphans of this pool from the machines of another pool when two poollets share a
        runtime.
        """
        return f"{self.dialect.runtime_prefix}{self.dialect.noun}-pool"


def machine_uid(machine: pb.Machine, dialect: Dialect) -> str:
    """Return the UID of the Machine behind a runtime's machine, or an empty string."""
    return str(machine.metadata.labels.get(dialect.uid_label, ""))


def wants_power(machine: Object) -> bool:
    """Return whether ``spec.power`` of the Machine is not ``Off``."""
    return bool(machine.get("spec", {}).get("power", "On") != "Off")
