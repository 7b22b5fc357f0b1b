"""
Deadlines of gRPC calls of the machine runtime interface.
"""

from __future__ import annotations

from collections.abc import Mapping

DEADLINE_SECONDS: Mapping[str, float] = {
    "version": 5.0,
    "status": 5.0,
    "exec": 60.0,  # a poollet gives up sooner if the runtime answers no such call
    "log": 5.0,
    "list_machines": 10.0,
    "list_events": 10.0,
    "update_machine_annotations": 10.0,
    "set_alerts": 10.0,
    "list_matches": 35.0,
    "set_recordings": 10.0,
    "list_recordings": 35.0,
    "recording": 5.0,
}
"""Deadlines of read-only methods, and of those that a poollet depends on, by attribute."""

CHANGE_SECONDS = 30.0
"""Deadline of all other methods, which change something."""
