"""
The namespace, the labels and the annotations of a broker's objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.resource import Resource


@dataclass(frozen=True)
class BrokerPlace:
    """
    The namespace and the pools of a broker's machines, and their labels and annotations.

    :param pool: pool of all machines; empty for the target's scheduler.
    """

    dialect: Dialect
    namespace: str
    source: str = ""
    pool: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        return "machinebroker." + self.dialect.runtime_prefix.partition(".")[2]

    @property
    def labels_annotation(self) -> str:
        return f"{self.prefix}labels"

    @property
    def annotations_annotation(self) -> str:
        return f"{self.prefix}annotations"

    @property
    def parts_annotation(self) -> str:
        """
        Annotation with descriptions of volumes and network interfaces; unknown to ironcore's
        broker.
        """
        return f"{self.prefix}parts"

    @property
    def manager_label(self) -> str:
        """Label of the objects that brokers create, but not of their Leases."""
        return f"{self.prefix}manager"

    @property
    def created_label(self) -> str:
        """Label of a machine whose other objects all exist."""
        return f"{self.prefix}created"

    @property
    def manager(self) -> str:
        return f"{self.manager_label}=machinebroker"

    @property
    def machines(self) -> Resource:
        return self.dialect.workload

    def labels(self) -> dict[str, str]:
        return {self.manager_label: "machinebroker"}
