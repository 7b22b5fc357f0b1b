"""
Conditions, state and part status of a Machine.

A condition of ours is True only if the runtime says so now.

Source of names: ironcore ``poollet/machinepoollet/controllers/machine_controller.go``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twisted_exec.api.conditions import MAX_MESSAGE, POWER_SWITCHED, ConditionValue
from twisted_exec.api.status import one_line
from twisted_exec.iri.protos import machine_pb2 as pb

Object = dict[str, Any]
READY = "Ready"
VOLUMES_READY = "VolumesReady"
INTERFACES_READY = "NetworkInterfacesReady"
UNREACHABLE = "RuntimeUnreachable"
OFF = "powered off, as spec.power says"
CLOSED = "the console is closed, as spec.power says; the machine itself was not switched"

MAX_COPIED = 16
"""Limit of conditions that are copied from one machine of the runtime."""
_MAX_REASON = 128

STATES: Mapping[int, str] = {
    pb.MACHINE_PENDING: "Pending",
    pb.MACHINE_RUNNING: "Running",
    pb.MACHINE_SUSPENDED: "Shutdown",
    pb.MACHINE_STOPPED: "Shutdown",
    pb.MACHINE_TERMINATED: "Terminated",
    pb.MACHINE_TERMINATING: "Terminating",
}
"""State of a Machine by the state of the runtime's machine."""

_ATTACHED = {0: "Pending", 1: "Attached"}
_TYPE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]{0,314}[A-Za-z0-9])?", re.ASCII)
_STATUSES = ("True", "False")


def ready(observed: pb.Machine, trouble: str = "") -> ConditionValue:
    """
    Return the condition Ready of a machine that exists in the runtime.

    It is True if the machine runs, unless the runtime reports Ready with another status.
    """
    state = STATES.get(observed.status.state)
    denied = next(
        (
            condition
            for condition in observed.status.machine_conditions
            if condition.type == READY and condition.status != "True"
        ),
        None,
    )
    if denied is None and state == "Shutdown" and observed.spec.power == pb.POWER_OFF:
        is_closed = any(
            condition.type == POWER_SWITCHED and condition.status == "False"
            for condition in observed.status.machine_conditions
        )
        return "False", state, trouble or (CLOSED if is_closed else OFF)
    if denied is None:
        return ("True" if state == "Running" else "False", state or "Unknown", trouble)
    return "False", denied.reason[:_MAX_REASON] or state or "Unknown", trouble or denied.message


def parts_ready(
    names: Iterable[str], reports: Iterable[Any], noun: str, lacking: str, trouble: str = ""
) -> ConditionValue:
    """
    Return the condition of a Machine's volumes or network interfaces.

    :param noun: ``Volume`` or ``NetworkInterface``.
    :param lacking: why a part cannot be passed to the runtime, or empty.
    """
    attached = {report.name for report in reports if report.state == 1}
    waiting = [name for name in names if name not in attached]
    if lacking:
        return "False", f"{noun}NotReady", lacking
    if waiting:
        listed = ", ".join(waiting)
        why = f"the machine runtime has not attached {listed} yet"
        return "False", f"{noun}NotReady", f"{why}: {trouble}" if trouble else why
    return "True", f"{noun}sReady", ""


def merged_parts_status(
    parts: Sequence[Object],
    reports: Iterable[Any],
    previous: Sequence[Object],
    referents: Mapping[str, str],
    field: str,
    now: str,
) -> list[Object]:
    """
    Return the status of a Machine's disks or network interfaces, in the order of ``parts``.

    :param previous: the status so far, whose transition times stay while the states do.
    """
    by_name = {report.name: report for report in reversed(list(reports))}
    before = {entry.get("name"): entry for entry in previous}
    statuses = []
    for part in parts:
        name = part["name"]
        report = by_name.get(name)
        status: Object = {
            "name": name,
            "state": _ATTACHED.get(report.state, "Pending") if report is not None else "Pending",
        }
        if report is not None and report.handle:
            status["handle"] = one_line(report.handle)[:MAX_MESSAGE]
        if referents.get(name):
            status[field] = {"name": referents[name]}
        old = before.get(name, {})
        moved = old.get("state") != status["state"]
        status["lastStateTransitionTime"] = (
            now if moved else old.get("lastStateTransitionTime", now)
        )
        statuses.append(status)
    return statuses


def copied(observed: pb.Machine) -> dict[str, ConditionValue]:
    """Return the runtime's own conditions, by type."""
    copied_conditions: dict[str, ConditionValue] = {}
    for condition in observed.status.machine_conditions:
        if condition.type in (READY, VOLUMES_READY, INTERFACES_READY) or not _TYPE.fullmatch(
            condition.type
        ):
            continue
        if len(copied_conditions) < MAX_COPIED:
            status = condition.status if condition.status in _STATUSES else "Unknown"
            copied_conditions.setdefault(
                condition.type, (status, condition.reason[:_MAX_REASON], condition.message)
            )
    return copied_conditions
