"""
The Pod that a machine is shown as.

A Pod has one container, the console, and a node named after its machine's pool. A running machine
on a silent pool has phase Unknown: its workload may still be running.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.api.conditions import condition_of, unplaced
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLE, PODS, Object, image_of

_PHASES = {
    "": "Pending",
    "Pending": "Pending",
    "Running": "Running",
    "Suspended": "Running",
    "Terminating": "Running",
    "Shutdown": "Succeeded",
    "Stopped": "Succeeded",
    "Terminated": "Succeeded",
}
"""Pod phases by machine state, for all dialects."""

_COPIED_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
)
_HOST_TYPES = ("InternalIP", "ExternalIP")


@dataclass(frozen=True)
class Host:
    """
    The pool's contribution to the Pod.

    :param silent: why the state of the pool's machines is unknown, or empty.
    """

    address: str = ""
    silent: str = ""


NOWHERE = Host()
"""For a machine without a pool."""


def host_of(name: str, pool: Object | None, noun: str) -> Host:
    """Return the pool's contribution to its machines' Pods."""
    if not name:
        return NOWHERE
    if pool is None:
        return Host(silent=f'{noun} "{name}" does not exist')
    status = pool.get("status", {})
    return Host(_address(status), _silence(f'{noun} "{name}"', status))


def _address(status: Object) -> str:
    by_type = {each["type"]: each["address"] for each in reversed(status.get("addresses", []))}
    return next((by_type[each] for each in _HOST_TYPES if each in by_type), "")


def _silence(pool: str, status: Object) -> str:
    # Foreign poollets may set no Ready condition.
    ready = condition_of({"status": status}, "Ready")
    if ready.get("status", "True") == "True":
        return ""
    reason = ready.get("message") or ready.get("reason") or "no reason given"
    return f"{pool} is not ready: {reason}"


def pod_of(machine: Object, host: Host, dialect: Dialect, name: str) -> Object:
    """Convert a machine; the result shares parts with it."""
    metadata = {
        key: machine["metadata"][key] for key in _COPIED_METADATA if key in machine["metadata"]
    }
    metadata["name"] = name
    metadata["ownerReferences"] = [_owner(machine)]
    resource = PODS.resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": _spec(machine, dialect),
        "status": _status(machine, host, dialect),
    }


def _owner(machine: Object) -> Object:
    return {
        "apiVersion": machine["apiVersion"],
        "kind": machine["kind"],
        "name": machine["metadata"]["name"],
        "uid": machine["metadata"]["uid"],
        "controller": True,
    }


def _image(machine: Object, dialect: Dialect) -> str:
    return image_of(machine, dialect) or dialect.class_name(machine)


def _spec(machine: Object, dialect: Dialect) -> Object:
    image = _image(machine, dialect)
    console = {"name": CONSOLE, "image": image, "stdin": True, "tty": True}
    # Every Pod in Kubernetes has at least an empty securityContext; kubectl debug relies on it.
    spec: Object = {"containers": [console], "restartPolicy": "Never", "securityContext": {}}
    if pool := dialect.pool_name(machine):
        spec["nodeName"] = pool
    if tolerations := machine.get("spec", {}).get("tolerations"):
        spec["tolerations"] = tolerations
    return spec


def _status(machine: Object, host: Host, dialect: Dialect) -> Object:
    observed = machine.get("status", {})
    phase = _PHASES.get(observed.get("state", ""), "Unknown")
    lost = bool(host.silent) and phase == "Running"
    status: Object = {"phase": "Unknown" if lost else phase}
    if lost:
        status |= {"reason": "NodeLost", "message": host.silent}
    ready = condition_of(machine, "Ready")
    reachable = phase == "Running" and not lost and ready.get("status", "True") == "True"
    status["conditions"] = _conditions(machine, reachable, ready, dialect)
    status["containerStatuses"] = [_console(machine, phase, reachable, ready, dialect)]
    if host.address:
        status |= {"hostIP": host.address, "hostIPs": [{"ip": host.address}]}
    return status | {"qosClass": "BestEffort"}


def _console(
    machine: Object, phase: str, reachable: bool, ready: Object, dialect: Dialect
) -> Object:
    status: Object = {
        "name": CONSOLE,
        "image": _image(machine, dialect),
        "imageID": "",
        "ready": reachable,
        "started": phase == "Running",
        "restartCount": 0,
        "state": _container_state(machine, phase, ready, dialect.noun),
        "lastState": {},
    }
    if machine_id := machine.get("status", {}).get(dialect.id_field):
        status["containerID"] = machine_id
    return status


def _conditions(machine: Object, reachable: bool, ready: Object, dialect: Dialect) -> list[Object]:
    scheduled = {"type": "PodScheduled", "status": "True"}
    if not dialect.pool_name(machine):
        scheduled |= {
            "status": "False",
            "reason": "Unschedulable",
            "message": unplaced(machine, dialect.noun, dialect.pool_noun),
        }
    readiness: Object = {"status": str(reachable)}
    if not reachable:
        readiness |= {key: ready[key] for key in ("reason", "message") if ready.get(key)}
    if str(reachable) == ready.get("status"):
        readiness |= _at("lastTransitionTime", ready)
    return [scheduled, *({"type": name, **readiness} for name in ("ContainersReady", "Ready"))]


def _at(key: str, condition: Object) -> Object:
    moved = condition.get("lastTransitionTime")
    return {key: moved} if moved else {}


def _container_state(machine: Object, phase: str, ready: Object, noun: str) -> Object:
    if phase == "Running":
        started = _at("startedAt", ready) if ready.get("status") == "True" else {}
        return {"running": started}
    if phase == "Succeeded":
        state: Object = {"exitCode": 0, "reason": "Completed"}
        if machine.get("spec", {}).get("power") == "Off":
            state["message"] = f"the {noun} is powered off: set its spec.power to On"
        return {"terminated": state | _at("finishedAt", ready)}
    waiting = {"reason": ready.get("reason") or phase}
    if ready.get("message"):
        waiting["message"] = ready["message"]
    return {"waiting": waiting}
