"""
Columns of Pods on Nodes, as ``kubectl get pods`` shows them.

Source: ``pkg/printers/internalversion/printers.go`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted_exec.api.kinds.kind import Column, Object
from twisted_exec.api.kinds.pods.schema import OVER

_NONE = "<none>"


def _statuses(pod: Object, key: str = "containerStatuses") -> list[Object]:
    statuses: list[Object] = pod.get("status", {}).get(key, [])
    return statuses


def _sidecars(pod: Object) -> set[str]:
    containers = pod.get("spec", {}).get("initContainers", [])
    return {each["name"] for each in containers if each.get("restartPolicy") == "Always"}


def _counted(pod: Object) -> list[Object]:
    sidecars = _sidecars(pod)
    inits = _statuses(pod, "initContainerStatuses")
    return [*_statuses(pod), *(each for each in inits if each.get("name") in sidecars)]


def _ready(pod: Object) -> str:
    ready = sum(1 for each in _counted(pod) if each.get("ready") and "running" in _state(each))
    total = len(pod.get("spec", {}).get("containers", [])) + len(_sidecars(pod))
    return f"{ready}/{total}"


def _state(status: Object) -> Object:
    state: Object = status.get("state") or {}
    return state


def _termination(state: Object) -> str:
    ending = state["terminated"]
    if ending.get("reason"):
        return str(ending["reason"])
    if ending.get("signal"):
        return f"Signal:{ending['signal']}"
    return f"ExitCode:{ending.get('exitCode', 0)}"


def _init_state(pod: Object) -> str:
    sidecars, statuses = _sidecars(pod), _statuses(pod, "initContainerStatuses")
    for index, status in enumerate(statuses):
        state = _state(status)
        if "terminated" in state:
            if state["terminated"].get("exitCode", 0) == 0:
                continue
            return f"Init:{_termination(state)}"
        if status.get("name") in sidecars and status.get("started"):
            continue
        waiting = state.get("waiting", {}).get("reason", "")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(pod.get('spec', {}).get('initContainers', []))}"
    return ""


def _container_state(pod: Object, reason: str) -> str:
    running = False
    for status in reversed(_statuses(pod)):
        state = _state(status)
        if waiting := state.get("waiting", {}).get("reason"):
            reason = str(waiting)
        elif "terminated" in state:
            reason = _termination(state)
        elif status.get("ready") and "running" in state:
            running = True
    if reason == "Completed" and running:
        return "Running" if _is_ready(pod) else "NotReady"
    return reason


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _display_status(pod: Object) -> str:
    status = pod.get("status", {})
    reason = str(status.get("reason") or status.get("phase", ""))
    reason = _init_state(pod) or _container_state(pod, reason)
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in OVER:
            return "Terminating"
    return reason


def _restarts(pod: Object) -> str:
    return str(sum(each.get("restartCount", 0) for each in _counted(pod)))


def _gates(pod: Object) -> str:
    gates = pod.get("spec", {}).get("readinessGates", [])
    if not gates:
        return _NONE
    conditions = {each["type"]: each for each in pod.get("status", {}).get("conditions", [])}
    met = (conditions.get(each.get("conditionType"), {}).get("status") for each in gates)
    return f"{sum(each == 'True' for each in met)}/{len(gates)}"


_Read = Callable[[Mapping[str, Any]], str]


def of_status(key: str) -> _Read:
    """Return a reader for a field of a Pod's status; empty if unset."""
    return lambda pod: str(pod.get("status", {}).get(key, ""))


def of_spec(key: str) -> _Read:
    """Return a reader for a field of a Pod's spec; empty if unset."""
    return lambda pod: str(pod.get("spec", {}).get(key, ""))


def _or_none(read: _Read) -> _Read:
    return lambda pod: read(pod) or _NONE


COLUMNS = (
    Column("Ready", _ready, "The number of ready containers"),
    Column("Status", _display_status, "The state of the pod"),
    Column("Restarts", _restarts, "The number of container restarts"),
    Column("IP", _or_none(of_status("podIP")), "The address of the pod", priority=1),
    Column("Node", _or_none(of_spec("nodeName")), "The node of the pod", priority=1),
    Column("Nominated Node", _or_none(of_status("nominatedNodeName")), priority=1),
    Column("Readiness Gates", _gates, "The number of readiness gates that hold", priority=1),
)
