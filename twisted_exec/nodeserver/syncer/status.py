"""
The status of a Pod in the root, from its Pod in the leaf.

A Pod of the root with ``readinessGates`` is ready if the leaf's Pod is ready and the gates are
True.
"""

from __future__ import annotations

import copy
from typing import Any

from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.pod_fields import STATUSES

LOST = "LeafPodGone"
"""Reason of a failed Pod whose Pod in the leaf disappeared by itself."""

_TAKEN = (
    "phase",
    "reason",
    "message",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "qosClass",
)
_KUBELET_CONDITIONS = frozenset(
    {
        "PodScheduled",
        "PodReadyToStartContainers",
        "Initialized",
        "ContainersReady",
        "Ready",
        "PodResizePending",
        "PodResizeInProgress",
    }
)
_KILLED = 137


def has_run(root: Object) -> bool:
    """Return whether a leaf's kubelet has accepted this Pod."""
    status = root.get("status") or {}
    return bool(status.get("startTime") or status.get("containerStatuses"))


def is_over(pod: Object) -> bool:
    """Return whether all containers have ended for good."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def desired_status(root: Object, leaf: Object) -> Object:
    """Return the status for the root's Pod; ``None`` as value removes a field."""
    reported = leaf.get("status") or {}
    before = root.get("status") or {}
    status = {
        key: copy.deepcopy(reported.get(key))
        for key in _TAKEN
        if reported.get(key) or key in before
    }
    status["conditions"] = _conditions(root, reported.get("conditions") or [])
    return status


def _conditions(root: Object, reported: list[Object]) -> list[Object]:
    here = (root.get("status") or {}).get("conditions") or []
    gates = [each.get("conditionType") for each in root["spec"].get("readinessGates") or []]
    # Only the root knows whether a readiness gate is open.
    reported_conditions = [
        _without_generation(each) for each in reported if each["type"] not in gates
    ]
    types = {each["type"] for each in reported_conditions} | _KUBELET_CONDITIONS
    others = [each for each in here if each["type"] not in types]
    held = {each["type"]: each.get("status") for each in others}
    closed = [gate for gate in gates if held.get(gate) != "True"]
    if closed:
        reported_conditions = [
            _held_back(each, closed) if each["type"] == "Ready" else each
            for each in reported_conditions
        ]
    return [*reported_conditions, *others]


def _without_generation(condition: Object) -> Object:
    return {key: value for key, value in condition.items() if key != "observedGeneration"}


def _held_back(condition: Object, closed: list[Any]) -> Object:
    if condition.get("status") != "True":
        return condition
    gates = ", ".join(f'"{gate}"' for gate in closed)
    return {
        **condition,
        "status": "False",
        "reason": "ReadinessGatesNotReady",
        "message": f"the status of pod readiness gates {gates} is not True",
    }


def lost_status(root: Object, leaf: str, now: str) -> Object:
    """Return the status of a root Pod whose leaf Pod disappeared without a deletion from here."""
    before = root.get("status") or {}
    why = f'the pod in leaf cluster "{leaf}" is gone; it was not deleted from here'
    status: Object = {"phase": "Failed", "reason": LOST, "message": why}
    for key in STATUSES:
        if before.get(key):
            status[key] = [_ended_container(each, now) for each in before[key]]
    status["conditions"] = [_unready(each, now) for each in before.get("conditions") or []]
    return status


def _ended_container(container: Object, now: str) -> Object:
    state = container.get("state") or {}
    if state.get("terminated"):
        return container
    ended: Object = {
        "exitCode": _KILLED,
        "reason": "ContainerStatusUnknown",
        "message": "the container was gone with its pod",
        "finishedAt": now,
    }
    if (state.get("running") or {}).get("startedAt"):
        ended["startedAt"] = state["running"]["startedAt"]
    return {**container, "ready": False, "started": False, "state": {"terminated": ended}}


def _unready(condition: Object, now: str) -> Object:
    if condition["type"] not in ("Ready", "ContainersReady") or condition["status"] != "True":
        return condition
    return {**condition, "status": "False", "reason": "PodFailed", "lastTransitionTime": now}


def is_status_current(root: Object, status: Object) -> bool:
    """Return whether a Pod of the root has this status already."""
    here = root.get("status") or {}
    return all(here.get(key) == value for key, value in status.items())
