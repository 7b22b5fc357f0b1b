"""
What ``kubectl get pods`` shows of a Pod on a Node: its state in one word, as Kubernetes finds that.

Source: ``printPod`` of ``pkg/printers/internalversion/printers.go`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted_exec.api.kinds.kind import Column, Object
from twisted_exec.api.kinds.pods.schema import OVER

_NONE = "<none>"


def _statuses(pod: Object, key: str = "containerStatuses") -> list[Object]:
    found: list[Object] = pod.get("status", {}).get(key, [])
    return found


def _sidecars(pod: Object) -> set[str]:
    """Init containers that go on beside the others."""
    told = pod.get("spec", {}).get("initContainers", [])
    return {each["name"] for each in told if each.get("restartPolicy") == "Always"}


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


def _ended(state: Object) -> str:
    """How a container ended, in one word."""
    told = state["terminated"]
    if told.get("reason"):
        return str(told["reason"])
    if told.get("signal"):
        return f"Signal:{told['signal']}"
    return f"ExitCode:{told.get('exitCode', 0)}"


def _beginning(pod: Object) -> str:
    """What its init containers are at; empty when they are done."""
    sidecars, known = _sidecars(pod), _statuses(pod, "initContainerStatuses")
    for index, status in enumerate(known):
        state = _state(status)
        if "terminated" in state:
            if state["terminated"].get("exitCode", 0) == 0:
                continue
            return f"Init:{_ended(state)}"
        if status.get("name") in sidecars and status.get("started"):
            continue
        waiting = state.get("waiting", {}).get("reason", "")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(pod.get('spec', {}).get('initContainers', []))}"
    return ""


def _going_on(pod: Object, reason: str) -> str:
    """What its containers are at: the first that something can be said of."""
    running = False
    for status in reversed(_statuses(pod)):
        state = _state(status)
        if told := state.get("waiting", {}).get("reason"):
            reason = str(told)
        elif "terminated" in state:
            reason = _ended(state)
        elif status.get("ready") and "running" in state:
            running = True
    if reason == "Completed" and running:
        return "Running" if _is_ready(pod) else "NotReady"
    return reason


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _told_status(pod: Object) -> str:
    """As Kubernetes' printer: what explains most."""
    status = pod.get("status", {})
    reason = str(status.get("reason") or status.get("phase", ""))
    reason = _beginning(pod) or _going_on(pod, reason)
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
    """Reads a field of a Pod's status; empty where there is none."""
    return lambda pod: str(pod.get("status", {}).get(key, ""))


def of_spec(key: str) -> _Read:
    """Likewise of its spec."""
    return lambda pod: str(pod.get("spec", {}).get(key, ""))


def _or_none(read: _Read) -> _Read:
    return lambda pod: read(pod) or _NONE


COLUMNS = (
    Column("Ready", _ready, "How many of its containers take requests."),
    Column("Status", _told_status, "What it is at."),
    Column("Restarts", _restarts, "How often its containers were started again."),
    Column("IP", _or_none(of_status("podIP")), "Its address.", priority=1),
    Column("Node", _or_none(of_spec("nodeName")), "Where it runs.", priority=1),
    Column("Nominated Node", _or_none(of_status("nominatedNodeName")), priority=1),
    Column("Readiness Gates", _gates, "What else must hold.", priority=1),
)
