"""
Where in the target a broker's machines are, and the names by which they are marked as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.meta import Resource


@dataclass(frozen=True)
class Place:
    """
    Where in the target machines are made.

    :param source: the name of the cluster that asks, or empty.
    :param pool: the pool that they are bound to; empty leaves that to the target's scheduler.
    :param selector: labels of the pools that may run them.
    """

    dialect: Dialect
    namespace: str
    source: str = ""
    pool: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """Domain and slash of the broker's own labels and annotations."""
        return "machinebroker." + self.dialect.runtime_prefix.partition(".")[2]

    @property
    def labels_annotation(self) -> str:
        """Holds the machine's labels."""
        return f"{self.prefix}labels"

    @property
    def annotations_annotation(self) -> str:
        """Holds the machine's annotations."""
        return f"{self.prefix}annotations"

    @property
    def parts_annotation(self) -> str:
        """Holds what was told of volumes and network interfaces; ours alone."""
        return f"{self.prefix}parts"

    @property
    def manager_label(self) -> str:
        """Marks what a broker made."""
        return f"{self.prefix}manager"

    @property
    def created_label(self) -> str:
        """Marks a machine that has all that belongs to it."""
        return f"{self.prefix}created"

    @property
    def manager(self) -> str:
        """The selector of what a broker made."""
        return f"{self.manager_label}=machinebroker"

    @property
    def machines(self) -> Resource:
        """What has a console there."""
        return self.dialect.workload

    def labels(self) -> dict[str, str]:
        """Of everything that a broker makes."""
        return {self.manager_label: "machinebroker"}
