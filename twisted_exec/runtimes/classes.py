"""
The machine classes of a runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twisted_exec.journal.retention import Retention

from .interfaces import IAdoptsMachines, IHardware, IMachineDriver, IRunsHostProcesses

NAME, CAPABILITIES, AUTO = "name", "capabilities", "auto"
"""What selects a class: the name of a MachineClass, or its capabilities as well."""


@dataclass(frozen=True)
class RuntimeClass:
    """
    One machine class of this host.

    :param resources: capabilities: ``memory`` in bytes, ``cpu`` in whole units, others in units of
        their own.
    :param quantity: maximal number of machines.
    :param spare: number of machines beyond ``quantity`` that can be created as well.  A machine
        with a wrong name has no line, and must not keep out the machine that the line is for.
    :param retention: how long output is retained; by default that of the runtime.
    :param match: :data:`NAME`, :data:`CAPABILITIES`, or :data:`AUTO`, as the driver says.
    :param answers_queries: see :class:`~twisted_exec.console.shared_console.SharedConsole`.
    """

    name: str
    driver: IMachineDriver
    resources: Mapping[str, int] = field(default_factory=dict)
    quantity: int = 100
    spare: int = 0
    retention: Retention | None = None
    match: str = AUTO
    answers_queries: bool = False

    @property
    def only_by_name(self) -> bool:
        """True if capabilities alone do not select the class."""
        return self.match == NAME or (
            self.match == AUTO and bool(IRunsHostProcesses.providedBy(self.driver))
        )

    @property
    def can_adopt(self) -> bool:
        """True if machines can outlive a runtime, and the next one adopts them."""
        return bool(IAdoptsMachines.providedBy(self.driver))

    @property
    def has_hardware(self) -> bool:
        """True if machines have volumes, network interfaces and ignition data."""
        return bool(IHardware.providedBy(self.driver))
