"""
How a Machine looks as a Pod.

Stock kubectl, k9s and every client library open streams of Pods only.  So each Machine is shown as
one: of the same name (:mod:`.pods_names` has the exception), namespace, uid and labels, on a node named after its pool, with one
container, its console.  What the Machine does not tell is left out, or has the value that says
least where clients demand one (``restartCount``, ``imageID``, a ``terminated`` state's
``exitCode``).

A Machine on a pool that nothing is heard of is of phase Unknown, as what ran on it may run on.

Which Pod is which machine, where a server has machines of several dialects.

The first dialect's machines are Pods of the same name.  Those of the others carry their
dialect's name behind a dot, such as ``vm-1.spheric``: names of machines have no dots, so no two
Pods are ever called the same, and no Pod's name comes to mean another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLE, PODS, Object, image_of


class PodNames:
    """
    Names of Pods and names of machines.

    :param dialects: those of the server, in its order; at least one.
    """

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self.dialects = tuple(dialects)
        self._suffixes = {f".{dialect.name}": dialect for dialect in self.dialects[1:]}

    def pod(self, dialect: Dialect, machine: str) -> str:
        """The name of the Pod that shows a machine."""
        return machine if dialect == self.dialects[0] else f"{machine}.{dialect.name}"

    def machine(self, pod: str) -> tuple[Dialect, str]:
        """The dialect and the name of the machine that a Pod of this name would show."""
        name, dot, suffix = pod.partition(".")
        dialect = self._suffixes.get(dot + suffix)
        return (self.dialects[0], pod) if dialect is None else (dialect, name)


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
"""By a machine's state, of any dialect."""

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
    What its pool says about a machine.

    :param address: where its poollet is, or empty.
    :param silent: why nothing is known of the pool's machines, or empty.
    """

    address: str = ""
    silent: str = ""


NOWHERE = Host()
"""Of a machine without a pool."""


def host_of(name: str, pool: Object | None, noun: str) -> Host:
    """
    What a pool says about its machines.

    :param name: of the pool that a machine is bound to; empty for none.
    :param pool: ``None`` when there is none of that name.
    :param noun: what a pool is called.
    """
    if not name:
        return NOWHERE
    if pool is None:
        return Host(silent=f'there is no {noun} "{name}"')
    status = pool.get("status", {})
    return Host(_address(status), _silence(f'{noun} "{name}"', status))


def _address(status: Object) -> str:
    by_type = {each["type"]: each["address"] for each in reversed(status.get("addresses", []))}
    return next((by_type[each] for each in _HOST_TYPES if each in by_type), "")


def _silence(pool: str, status: Object) -> str:
    # Poollets of foreign make may set no such condition at all.
    ready = _ready_condition(status)
    if ready.get("status", "True") == "True":
        return ""
    told = ready.get("message") or ready.get("reason") or "no reason given"
    return f"{pool} is not ready: {told}"


def _ready_condition(status: Object) -> Object:
    conditions: list[Object] = status.get("conditions", [])
    return next((each for each in conditions if each["type"] == "Ready"), {})


def pod_of(machine: Object, host: Host, dialect: Dialect, name: str) -> Object:
    """
    A machine as a Pod; shares what it can with the machine.

    :param name: of the Pod.
    """
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
    """So that whoever looks at the Pod learns what it is."""
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
    # The empty one is what every Pod of Kubernetes has at least, and kubectl debug counts on it.
    spec: Object = {"containers": [console], "restartPolicy": "Never", "securityContext": {}}
    if pool := dialect.pool_name(machine):
        spec["nodeName"] = pool
    if tolerations := machine.get("spec", {}).get("tolerations"):
        spec["tolerations"] = tolerations
    return spec


def _status(machine: Object, host: Host, dialect: Dialect) -> Object:
    known = machine.get("status", {})
    phase = _PHASES.get(known.get("state", ""), "Unknown")
    lost = bool(host.silent) and phase == "Running"
    status: Object = {"phase": "Unknown" if lost else phase}
    if lost:
        status |= {"reason": "NodeLost", "message": host.silent}
    ready = _ready_condition(known)
    reachable = phase == "Running" and not lost and ready.get("status", "True") == "True"
    status["conditions"] = _conditions(machine, reachable, ready, dialect)
    status["containerStatuses"] = [_console(machine, phase, reachable, ready, dialect)]
    if host.address:
        status |= {"hostIP": host.address, "hostIPs": [{"ip": host.address}]}
    return status | {"qosClass": "BestEffort"}


def _console(
    machine: Object, phase: str, reachable: bool, ready: Object, dialect: Dialect
) -> Object:
    """The container's status."""
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
    if known := machine.get("status", {}).get(dialect.id_field):
        status["containerID"] = known
    return status


def _conditions(machine: Object, reachable: bool, ready: Object, dialect: Dialect) -> list[Object]:
    scheduled = {"type": "PodScheduled", "status": "True"}
    if not dialect.pool_name(machine):
        scheduled |= {
            "status": "False",
            "reason": "Unschedulable",
            "message": f"{dialect.noun} {machine['metadata']['name']} has no "
            f"{dialect.pool_noun} assigned",
        }
    told: Object = {"status": str(reachable)}
    if not reachable:
        told |= {key: ready[key] for key in ("reason", "message") if ready.get(key)}
    if str(reachable) == ready.get("status"):
        told |= _at("lastTransitionTime", ready)
    return [scheduled, *({"type": name, **told} for name in ("ContainersReady", "Ready"))]


def _at(key: str, condition: Object) -> Object:
    """When a condition last changed, under another name; nothing when that is not known."""
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
