"""
The ConsoleRecordings of a cluster as a table.
"""

from __future__ import annotations

import argparse
from typing import Any

from twisted_exec.api import times
from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.kinds.consolerecordings import end_of, size_of, state_of
from twisted_exec.cli import runner
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.messages import one_line
from twisted_exec.cli.suggestion import missing_machine
from twisted_exec.cli.table import table

_MINUTE = len("2026-11-20T08:00")

Object = dict[str, Any]


async def list_recordings(client: CommandClient, options: argparse.Namespace) -> str:
    """Return the table, the newest recording last."""
    namespace = "" if options.all_namespaces else client.config.namespace
    selector = f"spec.machine={options.machine}" if options.machine else ""
    listed = await client.list(CONSOLERECORDINGS.resource, namespace, field_selector=selector)
    if not listed["items"]:
        hint = await missing_machine(client, options.machine, namespace) if namespace else ""
        return runner.nothing_found("recordings", namespace, hint)
    recordings = sorted(listed["items"], key=lambda each: each["metadata"]["creationTimestamp"])
    head = ["NAME", "MACHINE", "INPUT", "STATE", "BEGIN", "LENGTH", "BYTES", "USERS"]
    rows = [_row(each) for each in recordings]
    if any(each["spec"].get("policies") for each in recordings):
        head.append("POLICIES")
        for row, each in zip(rows, recordings, strict=True):
            row.append(one_line(",".join(each["spec"].get("policies", ()))) or "<none>")
    if any(each.get("status", {}).get("message") for each in recordings):
        head.append("PROBLEM")
        for row, each in zip(rows, recordings, strict=True):
            row.append(one_line(each.get("status", {}).get("message", "")) or "<none>")
    if options.all_namespaces:
        head.insert(0, "NAMESPACE")
        for row, each in zip(rows, recordings, strict=True):
            row.insert(0, one_line(each["metadata"]["namespace"]))
    return table(head, rows)


def _row(recording: Object) -> list[str]:
    spec, status = recording["spec"], recording.get("status", {})
    begin, end, size = status.get("startTime", ""), end_of(recording), size_of(recording)
    length = times.human(end - times.seconds(begin)) if begin and end is not None else ""
    values = (
        recording["metadata"]["name"],
        spec["machine"],
        spec.get("input", ""),
        state_of(recording),
        f"{times.timestamp(times.seconds(begin))[:_MINUTE]}Z" if begin else "",
        length,
        "" if size is None else size,
        ",".join(spec.get("users", ())) or spec.get("user", ""),
    )
    return [one_line(str(value)) or "<none>" for value in values]
