"""
Pods: the machines, as clients see them that know nothing but Pods.

Only what such a view can say truthfully is here, under Kubernetes' own names.  Source:
``k8s.io/api/core/v1`` for the fields, ``k8s.io/kubernetes/pkg/printers/internalversion``
for the columns, ``pkg/apis/core/v1/conversion.go`` for the field selectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted_exec.api import names
from twisted_exec.api.kinds.common.schemas import TOLERATIONS, strings
from twisted_exec.api.kinds.kind import Column, Connect, Kind, Object
from twisted_exec.api.logs import QUERY as LOG_QUERY
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import Schema, array, boolean, integer, string, struct

CONSOLE = "console"
"""The one container of every Pod, and the one command that it knows."""

EXPOSED_LABEL = "console.twisted-exec.dev/exposed"
"""Of a machine that other clusters may reach, and of its Pod: ``true``."""

_NONE = "<none>"

_CONTAINER = struct(
    {
        "name": string(f"Always {CONSOLE}."),
        "image": string("The machine's image, or its class when it has none of its own."),
        "stdin": boolean("Always true."),
        "tty": boolean("Always true."),
    },
    required=["name"],
    description="The machine's serial console.",
)

_SPEC = struct(
    {
        "containers": array(_CONTAINER),
        "nodeName": string("The machine's pool."),
        "restartPolicy": string("Always Never: that is up to the machine's spec.power."),
        "securityContext": struct({}, description="Always empty."),
        "tolerations": TOLERATIONS,
    },
    required=["containers"],
    description="The machine as a Pod.",
)

_STATE = struct(
    {
        "waiting": struct({"reason": string(), "message": string()}),
        "running": struct({"startedAt": string("When the machine was seen to run.")}),
        "terminated": struct(
            {
                "exitCode": integer("Always 0: a machine has none."),
                "reason": string(),
                "message": string(),
                "finishedAt": string(),
            },
            required=["exitCode"],
        ),
    },
    description="Exactly one of them.",
)

_CONTAINER_STATUS = struct(
    {
        "name": string(),
        "image": string(),
        "imageID": string("Always empty."),
        "containerID": string("TYPE://ID, as the runtime knows the machine."),
        "ready": boolean(),
        "started": boolean(),
        "restartCount": integer("Always 0: nobody counts."),
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
            "Running, or Unknown when its pool is not heard of; Succeeded when it is off.",
            enum=["Pending", "Running", "Succeeded", "Unknown"],
        ),
        "reason": string(),
        "message": string(),
        "conditions": array(_CONDITION),
        "containerStatuses": array(_CONTAINER_STATUS),
        "hostIP": string("An address of the pool's poollet."),
        "hostIPs": array(struct({"ip": string()}, required=["ip"])),
        "qosClass": string(),
    },
    description="What the machine is.",
)


def _streams(kind: str, **more: Schema) -> Connect:
    properties = {
        "container": string(f"Empty, or {CONSOLE}."),
        "stdin": boolean("Whether input is sent."),
        "stdout": boolean("Whether output is wanted."),
        "stderr": boolean("There never is any."),
        "tty": boolean("Ignored: a console is a terminal."),
        **more,
    }
    return Connect(kind, struct(properties, description=f"{kind} is the query of the subresource."))


_COMMAND = string(f"Only {CONSOLE}: a serial console runs no commands.")
_CONNECTS = {
    "attach": _streams("PodAttachOptions"),
    "exec": _streams("PodExecOptions", command=_COMMAND),
    "portforward": Connect(
        "PodPortForwardOptions",
        struct(
            {"ports": strings("The ports.")}, description="Always refused: a console has no ports."
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


def _told_status(pod: Object) -> str:
    """As Kubernetes' printer: what explains most."""
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
        "Pod is a machine, as clients see it that know nothing but Pods. It is read-only: "
        "work on the Machine of the same name."
    ),
    schema={"spec": _SPEC, "status": _STATUS},
    columns=(
        Column("Ready", _ready, "Whether the console can be reached."),
        Column("Status", _told_status, "What the machine is."),
        Column("Restarts", _restarts, "Always 0: nobody counts."),
        Column("IP", lambda pod: _NONE, "A console has none.", priority=1),
        Column("Node", lambda pod: _spec_of(pod, "nodeName") or _NONE, "Its pool.", priority=1),
        Column("Nominated Node", lambda pod: _NONE, "Always none.", priority=1),
        Column("Readiness Gates", lambda pod: _NONE, "Always none.", priority=1),
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
