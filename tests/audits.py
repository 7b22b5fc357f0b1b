"""
An audit sink that keeps its records.
"""

from __future__ import annotations

from typing import Any

from zope.interface import implementer

from twisted_exec.program.interfaces import IAuditSink


@implementer(IAuditSink)
class AuditList(list[dict[str, Any]]):
    """A list of audit records, in order."""

    def record(self, event: dict[str, Any]) -> None:
        """As :meth:`IAuditSink.record`."""
        self.append(event)

    def ends(self) -> list[tuple[str, int | None]]:
        """The reason and code of every end."""
        return [(each["reason"], each.get("code")) for each in self if each["event"] == "end"]

    def check_pairs(self) -> None:
        """Every session has exactly one start and one end."""
        for name in ("start", "end"):
            ids = [event["session"] for event in self if event["event"] == name]
            assert len(ids) == len(set(ids)), f"a session with two {name}s"
        starts = {event["session"] for event in self if event["event"] == "start"}
        ends = {event["session"] for event in self if event["event"] == "end"}
        assert starts == ends, f"starts {starts}, ends {ends}"
