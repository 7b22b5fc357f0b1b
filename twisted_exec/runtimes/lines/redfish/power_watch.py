"""What a BMC reports of the power of its server."""

from __future__ import annotations

from twisted_exec.runtimes.interfaces import MachineFacts

ON, OFF = "On", "Off"


class PowerWatch:
    """Follows ``PowerState``: its changes become Events, and marks of boots in the journal."""

    def __init__(self, facts: MachineFacts) -> None:
        self._facts = facts
        self.state = ""

    def note(self, state: str) -> None:
        """Note a state that the BMC reports; empty if it reports none."""
        before, self.state = self.state, state or self.state
        if not before or state == before:
            return
        if state == ON:
            self._facts.event("Normal", "PoweredOn", "the server is on")
            self._facts.booted()
        elif state == OFF:
            self._facts.event("Normal", "PoweredOff", "the server is off")
