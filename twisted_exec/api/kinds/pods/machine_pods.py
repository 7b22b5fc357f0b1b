"""
Pods that represent machines, for clients that only know Pods.

Sources: ``k8s.io/api/core/v1``, and of Kubernetes ``pkg/printers/internalversion`` and
``pkg/apis/core/v1/conversion.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.kinds.kind import Column, Connect, Kind, Object
from twisted_exec.api.kinds.schemas import TOLERATIONS, strings
from twisted_exec.api.logs import QUERY as LOG_QUERY
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import Schema, array, boolean, integer, string, struct

CONSOLE = "console"
"""The only container of each Pod, and its only command."""

EXPOSED_LABEL = "console.twisted-exec.dev/exposed"
"""Label of a machine that other clusters may reach, and of its Pod: ``true``."""

_NONE = "<none>"

_CONTAINER = struct(
    {
        "name": string(f"name is always {CONSOLE}."),
        "image": string("image is the machine's image, or its class if it has no image."),
        "stdin": boolean("stdin is always true."),
        "tty": boolean("tty is always true."),
    },
    required=["name"],
    description="A container that represents the machine's serial console.",
)

_SPEC = struct(
    {
        "containers": array(_CONTAINER),
        "nodeName": string("nodeName is the machine's pool."),
        "restartPolicy": string("restartPolicy is always Never: the machine's spec.power decides."),
        "securityContext": struct({}, description="securityContext is always empty."),
        "tolerations": TOLERATIONS,
    },
    required=["containers"],
    description="spec is the machine's spec in the form of a Pod.",
)

_STATE = struct(
    {
        "waiting": struct({"reason": string(), "message": string()}),
        "running": struct(
            {"startedAt": string("startedAt is when the machine was first observed running.")}
        ),
        "terminated": struct(
            {
                "exitCode": integer("exitCode is always 0: machines have no exit code."),
                "reason": string(),
                "message": string(),
                "finishedAt": string(),
            },
            required=["exitCode"],
        ),
    },
    description="Exactly one of the members is set.",
)

_CONTAINER_STATUS = struct(
    {
        "name": string(),
        "image": string(),
        "imageID": string("imageID is always empty."),
        "containerID": string(
            "containerID is the machine's ID in its runtime, in the format TYPE://ID."
        ),
        "ready": boolean(),
        "started": boolean(),
        "restartCount": integer("restartCount is always 0: restarts are not counted."),
        "state": _STATE,
        "lastState": struct({}),
    },
    required=["name", "image", "imageID", "ready", "restartCount"],
)

_CONDITION = struct(
    {
        "type": string(),
        "status": string(enum=["True", "False", "Unknown"]),
        "reason": string(),
        "message": string(),
        "lastTransitionTime": string(),
    },
    required=["type", "status"],
)

_STATUS = struct(
    {
        "phase": string(
            "phase is Pending until the machine runs; Running; Unknown if the pool is not responding; "
            "or Succeeded if the machine is off.",
            enum=["Pending", "Running", "Succeeded", "Unknown"],
        ),
        "reason": string(),
        "message": string(),
        "conditions": array(_CONDITION),
        "containerStatuses": array(_CONTAINER_STATUS),
        "hostIP": string("hostIP is an address of the pool's poollet."),
        "hostIPs": array(struct({"ip": string()}, required=["ip"])),
        "qosClass": string(),
    },
    description="status is the machine's status in the form of a Pod.",
)


def _streams(kind: str, **more: Schema) -> Connect:
    properties = {
        "container": string(f"container is empty or {CONSOLE}."),
        "stdin": boolean("stdin opens a stream for input."),
        "stdout": boolean("stdout opens a stream for output."),
        "stderr": boolean("stderr opens a stream that never carries data."),
        "tty": boolean("tty is ignored: a console is always a terminal."),
        **more,
    }
    return Connect(
        kind, struct(properties, description=f"{kind} is the query options of the subresource.")
    )


_COMMAND = string(f"command is empty or {CONSOLE}: a serial console cannot run commands.")
_CONNECTS = {
    "attach": _streams("PodAttachOptions"),
    "exec": _streams("PodExecOptions", command=_COMMAND),
    "portforward": Connect(
        "PodPortForwardOptions",
        struct(
            {"ports": strings("ports are the ports to forward.")},
            description="PodPortForwardOptions is always refused: a console has no ports.",
        ),
    ),
}


def _status_of(pod: Mapping[str, Any], key: str) -> str:
    return str(pod.get("status", {}).get(key, ""))


def _spec_of(pod: Mapping[str, Any], key: str) -> str:
    return str(pod.get("spec", {}).get(key, ""))


def _ready(pod: Object) -> str:
    statuses = pod["status"]["containerStatuses"]
    return f"{sum(each['ready'] for each in statuses)}/{len(statuses)}"


def _display_status(pod: Object) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    (status,) = pod["status"]["containerStatuses"]
    for state in ("waiting", "terminated"):
        if reason := status["state"].get(state, {}).get("reason"):
            return str(reason)
    return str(pod["status"]["phase"])


def _restarts(pod: Object) -> str:
    return str(sum(each["restartCount"] for each in pod["status"]["containerStatuses"]))


PODS = Kind(
    resource=Resource("", "v1", "pods", "Pod"),
    singular="pod",
    short_names=("po",),
    categories=("all",),
    description=(
        "Pod represents a Machine, for clients that only know Pods. It is read-only: "
        "change the Machine of the same name instead."
    ),
    schema={"spec": _SPEC, "status": _STATUS},
    columns=(
        Column("Ready", _ready, "Whether the console is reachable"),
        Column("Status", _display_status, "The state of the machine"),
        Column("Restarts", _restarts, "Always 0: restarts are not counted"),
        Column("IP", lambda pod: _NONE, "Always none: a console has no address", priority=1),
        Column(
            "Node",
            lambda pod: _spec_of(pod, "nodeName") or _NONE,
            "The pool of the machine",
            priority=1,
        ),
        Column("Nominated Node", lambda pod: _NONE, "Always none", priority=1),
        Column("Readiness Gates", lambda pod: _NONE, "Always none", priority=1),
    ),
    name_rule=names.dns_label,
    fields={
        "spec.nodeName": lambda pod: _spec_of(pod, "nodeName"),
        "spec.restartPolicy": lambda pod: _spec_of(pod, "restartPolicy"),
        "status.phase": lambda pod: _status_of(pod, "phase"),
        "status.podIP": lambda pod: "",
    },
    stored=False,
    read_only=True,
    has_status=True,
    connects=_CONNECTS,
    texts={"log": LOG_QUERY},
)
