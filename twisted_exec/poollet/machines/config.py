"""
What is the same for every Machine of a poollet, and what it is called in its runtime.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twisted_exec.api.dialects import Dialect
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.downward import Downward
from twisted_exec.poollet.machines.references import Domain, Object


@dataclass(frozen=True)
class MachineConfig:
    """What is the same for every Machine of a poollet."""

    dialect: Dialect
    pool: str
    runtime_name: str
    """The TYPE of a ``machineID`` ``TYPE://ID``."""
    downward: Downward = field(default_factory=Downward)
    """What the runtime is told of Machines, besides their names."""
    about: Domain | None = None
    """What Machines refer to, if operators want the runtime told of that, too."""

    @property
    def domain(self) -> Domain:
        """What Machines refer to."""
        return self.about or Domain(self.dialect)

    @property
    def mapping_annotation(self) -> str:
        """The runtime's annotation that holds which NetworkInterfaces are attached."""
        return f"{self.dialect.runtime_prefix}networkinterfacemapping"

    @property
    def pool_label(self) -> str:
        """
        The runtime's label that holds the pool.

        Ours, not ironcore's: it tells our orphans from another pool's machines
        when two poollets share a runtime.
        """
        return f"{self.dialect.runtime_prefix}{self.dialect.noun}-pool"


def machine_uid(machine: pb.Machine, dialect: Dialect) -> str:
    """The UID of the Machine that a runtime's machine stands for, or empty."""
    return str(machine.metadata.labels.get(dialect.uid_label, ""))


def wants_power(machine: Object) -> bool:
    """The Machine is to be powered on."""
    return bool(machine.get("spec", {}).get("power", "On") != "Off")
