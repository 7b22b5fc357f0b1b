"""What a BMC reports of the power of its server."""

from __future__ import annotations

from twisted_exec.api.conditions import SERVER_OFF
from twisted_exec.runtimes.interfaces import MachineFacts

ON, OFF = "On", "Off"

OFF_BY_OTHERS = "the server is off, though spec.power is On"


class PowerWatch:
    """
    Follows ``PowerState``: its changes become Events, and marks of boots in the journal.

    :ivar state: the last one; empty at first.
    :ivar notes: number of answers of the BMC so far.
    """

    def __init__(self, facts: MachineFacts) -> None:
        self._facts = facts
        self.state = ""
        self.notes = 0
        self._is_switched_off = False

    def switched_off(self) -> None:
        """Write no Event until the server is off: the machine is being powered off, which has its own."""
        self._is_switched_off = True

    def note(self, state: str) -> None:
        """Note a state that the BMC reports; empty if it reports none."""
        self.notes += 1
        before, self.state = self.state, state or self.state
        if not before or state == before:
            return
        if state == ON and not self._is_switched_off:
            self._facts.event("Normal", "PoweredOn", "the server is on")
            self._facts.booted()
        elif state == OFF:
            if not self._is_switched_off:
                self._facts.event("Warning", SERVER_OFF, OFF_BY_OTHERS)
            self._is_switched_off = False
