"""
The decision about one MachineNote: its conditions MachineFound and Due.
"""

from __future__ import annotations

from twisted_exec.api.conditions import with_conditions
from twisted_exec.api.kinds import Object
from twisted_exec.api.times import NANOSECONDS, nanoseconds, timestamp
from twisted_exec.kube.informers import Key

FOUND, NOT_FOUND, DUE = "MachineFound", "MachineNotFound", "Due"


def due_at(note: Object) -> float | None:
    """Return when a note is due, in seconds since the epoch."""
    text = note["spec"].get("dueTime")
    return None if text is None else nanoseconds(text) / NANOSECONDS


def plan(note: Object, found: bool, now: float) -> Object | None:
    """Return the note with its new status; ``None`` if nothing changes."""
    status, machine, due = note.get("status", {}), note["spec"]["machine"], due_at(note)
    values = {
        FOUND: ("True", "Found", "the machine exists"),
        DUE: ("False", "NotDue", "its dueTime, if it has one, is in the future"),
    }
    if not found:
        values[FOUND] = ("False", NOT_FOUND, f'there is no machine "{machine}"')
    if due is not None and due <= now:
        values[DUE] = ("True", "DueTimePassed", "its dueTime has passed")
    generation = note["metadata"]["generation"]  # becomes observedGeneration
    before = status.get("conditions", [])
    conditions = with_conditions(before, values, timestamp(now), generation)
    if conditions == status.get("conditions"):
        return None
    return {**note, "status": {**status, "conditions": conditions}}


def machine_of(note: Object) -> Key:
    """Return the key of the machine that a note is about."""
    return note["metadata"]["namespace"], note["spec"]["machine"]
