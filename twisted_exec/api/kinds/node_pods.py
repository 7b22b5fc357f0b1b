"""
Pods on Nodes, which are stored, as in any cluster: their kind, schemas and columns.

Sources: ``k8s.io/api/core/v1``, and of Kubernetes ``pkg/apis/core/v1/defaults.go``,
``pkg/apis/core/validation``, ``pkg/registry/core/pod/strategy.go`` and
``pkg/printers/internalversion/printers.go``.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from twisted_exec.api import fields, names
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Connect, Kind, Object
from twisted_exec.api.kinds.validation import strings
from twisted_exec.api.logs import POD_QUERY
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import (
    Schema,
    anything,
    array,
    boolean,
    integer,
    mapping,
    reference,
    string,
    struct,
)

DEFAULT_GRACE_SECONDS = 30
LONGEST_GRACE_SECONDS = (1 << 31) - 1
OVER = ("Succeeded", "Failed")
"""Phases of a Pod that has ended."""

_ANY = array(anything())


def _several(objects: str, lists: str = "") -> dict[str, Schema]:
    return {
        **{name: anything() for name in objects.split()},
        **dict.fromkeys(lists.split(), _ANY),
    }


_CONTAINER_FIELDS: dict[str, Schema] = {
    "name": string("name is unique within the pod."),
    "image": string("image is the container image."),
    "imagePullPolicy": string(
        "imagePullPolicy determines when to pull the image.",
        enum=["Always", "IfNotPresent", "Never"],
    ),
    "command": strings("command is the entrypoint. Defaults to the image's."),
    "args": strings("args are the arguments of the entrypoint. Defaults to the image's."),
    "workingDir": string("workingDir is the working directory."),
    "restartPolicy": string("restartPolicy of an init container: Always makes it a sidecar."),
    "stdin": boolean("stdin allocates a buffer for stdin."),
    "stdinOnce": boolean("stdinOnce closes stdin after the first attach session."),
    "tty": boolean("tty allocates a terminal."),
    "terminationMessagePath": string(
        "terminationMessagePath is the file for the termination message.",
        default="/dev/termination-log",
    ),
    "terminationMessagePolicy": string(
        "terminationMessagePolicy is the source of the termination message.",
        enum=["File", "FallbackToLogsOnError"],
        default="File",
    ),
    "resources": {
        **anything("resources are the requests and limits of the container."),
        "default": {},
    },
    **_several(
        "livenessProbe readinessProbe startupProbe lifecycle securityContext",
        "ports env envFrom volumeMounts volumeDevices resizePolicy restartPolicyRules",
    ),
}
_CONTAINER = struct(_CONTAINER_FIELDS, required=["name"], description="A container of a pod.")
_EPHEMERAL = struct(
    {
        **_CONTAINER_FIELDS,
        "targetContainerName": string(
            "targetContainerName is the container whose process namespace is shared."
        ),
    },
    required=["name"],
    description="An ephemeral container for debugging.",
)

SPEC = struct(
    {
        "containers": array(_CONTAINER, "containers are the containers of the pod.", keys=["name"]),
        "initContainers": array(
            _CONTAINER,
            "initContainers run to completion before the containers start.",
            keys=["name"],
        ),
        "ephemeralContainers": array(
            _EPHEMERAL,
            "ephemeralContainers are containers added to a running pod for debugging.",
            keys=["name"],
        ),
        "nodeName": string("nodeName is the Node that the pod is bound to."),
        "restartPolicy": string(
            "restartPolicy determines when containers are restarted.",
            enum=["Always", "OnFailure", "Never"],
            default="Always",
        ),
        "terminationGracePeriodSeconds": integer(
            "terminationGracePeriodSeconds is how long the pod may take to stop.",
            minimum=0,
            maximum=LONGEST_GRACE_SECONDS,
            default=DEFAULT_GRACE_SECONDS,
        ),
        "activeDeadlineSeconds": integer(
            "activeDeadlineSeconds limits the pod's running time.", minimum=1
        ),
        "dnsPolicy": string("dnsPolicy is the DNS policy of the pod.", default="ClusterFirst"),
        "schedulerName": string(
            "schedulerName is the scheduler that binds the pod.", default="default-scheduler"
        ),
        "enableServiceLinks": {
            **boolean("enableServiceLinks passes services in environment variables."),
            "default": True,
        },
        "securityContext": {
            **anything("securityContext holds the security attributes of the pod."),
            "default": {},
        },
        "serviceAccountName": string("serviceAccountName is the ServiceAccount of the pod."),
        "serviceAccount": string("serviceAccount is the deprecated name of serviceAccountName."),
        "automountServiceAccountToken": boolean(
            "automountServiceAccountToken mounts a token of the ServiceAccount."
        ),
        "nodeSelector": mapping(
            string(), "nodeSelector are labels that the Node must have.", atomic=True
        ),
        "hostname": string("hostname is the host name of the pod."),
        "hostnameOverride": string("hostnameOverride overrides the host name."),
        "subdomain": string("subdomain is the subdomain of the host name."),
        "priorityClassName": string("priorityClassName is the priority class of the pod."),
        "runtimeClassName": string("runtimeClassName is the runtime class of the pod."),
        "preemptionPolicy": string(
            "preemptionPolicy determines whether the pod may preempt others."
        ),
        "priority": integer("priority is the priority of the pod."),
        "imagePullSecrets": array(
            reference(), "imagePullSecrets are the Secrets to pull images with."
        ),
        "readinessGates": array(
            struct({"conditionType": string("conditionType is a condition of the pod.")})
        ),
        "overhead": anything("overhead is the resource overhead of the runtime class."),
        **{
            name: boolean()
            for name in [
                "hostNetwork",
                "hostPID",
                "hostIPC",
                "hostUsers",
                "shareProcessNamespace",
                "setHostnameAsFQDN",
            ]
        },
        **_several(
            "affinity dnsConfig os resources workloadRef",
            "volumes tolerations hostAliases topologySpreadConstraints "
            "schedulingGates resourceClaims",
        ),
    },
    required=["containers"],
    description="spec is the desired state of the pod.",
)

_CONDITION = struct(
    {
        "type": string("type is the type of the condition, such as Ready."),
        "status": string(
            "status is the status of the condition: True, False or Unknown.",
            enum=["True", "False", "Unknown"],
        ),
        "observedGeneration": integer(
            "observedGeneration is the metadata.generation that this is based on."
        ),
        "lastProbeTime": string("lastProbeTime is the last time the condition was probed."),
        "lastTransitionTime": string(
            "lastTransitionTime is the last time the condition's status changed."
        ),
        "reason": string("reason is a one-word CamelCase reason for the last transition."),
        "message": string("message is a human-readable description of the last transition."),
    },
    required=["type", "status"],
)
_STATE = struct(
    {
        "waiting": struct({"reason": string(), "message": string()}),
        "running": struct({"startedAt": string()}),
        "terminated": struct(
            {
                "exitCode": integer(),
                "signal": integer(),
                "reason": string(),
                "message": string(),
                "startedAt": string(),
                "finishedAt": string(),
                "containerID": string(),
            }
        ),
    },
    description="At most one of the members is set.",
)
_CONTAINER_STATUS = struct(
    {
        "name": string("name is the name of the container."),
        "image": string("image is the container image."),
        "imageID": string("imageID is the digest of the image."),
        "containerID": string(
            "containerID is the ID of the container in its runtime, in the format TYPE://ID."
        ),
        "ready": boolean("ready is true if the container passes its readiness probe."),
        "started": boolean("started is true once the container has started."),
        "restartCount": integer("restartCount is the number of restarts."),
        "stopSignal": string("stopSignal is the signal that stops the container."),
        "state": _STATE,
        "lastState": _STATE,
        **_several(
            "allocatedResources resources user",
            "volumeMounts allocatedResourcesStatus",
        ),
    },
    required=["name"],
)
_STATUSES = array(_CONTAINER_STATUS)
_IPS = array(struct({"ip": string()}, required=["ip"]), keys=["ip"])
STATUS = struct(
    {
        "phase": string(
            "phase is a summary of the pod's lifecycle.",
            enum=["Pending", "Running", "Succeeded", "Failed", "Unknown"],
        ),
        "conditions": array(
            _CONDITION, "conditions are the current conditions of the pod.", keys=["type"]
        ),
        "message": string("message is a human-readable description of the pod's state."),
        "reason": string("reason is a one-word CamelCase reason for the pod's state."),
        "nominatedNodeName": string(
            "nominatedNodeName is a Node where pods are being preempted for this one."
        ),
        "hostIP": string("hostIP is the address of the pod's Node."),
        "hostIPs": array(
            struct({"ip": string()}, required=["ip"]),
            "hostIPs are the addresses of the pod's Node.",
        ),
        "podIP": string("podIP is the address of the pod."),
        "podIPs": _IPS,
        "startTime": string("startTime is when the kubelet accepted the pod."),
        "qosClass": string("qosClass is the quality of service class."),
        "resize": string("resize is the status of a resize of the pod's resources."),
        "observedGeneration": integer(
            "observedGeneration is the metadata.generation that this is based on."
        ),
        "containerStatuses": _STATUSES,
        "initContainerStatuses": _STATUSES,
        "ephemeralContainerStatuses": _STATUSES,
        **_several("extendedResourceClaimStatus", "resourceClaimStatuses"),
    },
    description="status is the observed state of the pod.",
)


def _streams(kind: str, **more: Schema) -> Connect:
    properties = {
        "container": string(
            "container is the name of the container. Optional if the pod has only one."
        ),
        "stdin": boolean("stdin opens a stream for input."),
        "stdout": boolean("stdout opens a stream for output."),
        "stderr": boolean("stderr opens a stream for errors."),
        "tty": boolean("tty allocates a terminal."),
        **more,
    }
    return Connect(
        kind, struct(properties, description=f"{kind} is the query options of the subresource.")
    )


CONNECTS = {
    "attach": _streams("PodAttachOptions"),
    "exec": _streams(
        "PodExecOptions", command=strings("command is the command to run, with its arguments.")
    ),
    "portforward": Connect(
        "PodPortForwardOptions",
        struct(
            {"ports": array(integer(), "ports are the ports to forward.")},
            description="PodPortForwardOptions is the query options of the subresource.",
        ),
    ),
}


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


CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
"""The lists of containers in a Pod's spec; a name is unique among all of them."""

_NARROW = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def containers_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, Object]]:
    """Yield all containers of a Pod's spec with their paths."""
    for key in CONTAINER_LISTS:
        for index, container in enumerate(pod.get("spec", {}).get(key, [])):
            yield f"spec.{key}[{index}]", container


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the Node that a Pod is bound to; empty if unbound."""
    return str(pod.get("spec", {}).get("nodeName", ""))


def is_over(pod: Mapping[str, Any]) -> bool:
    """Return whether a Pod has completed."""
    return pod.get("status", {}).get("phase") in OVER


def _held_by(pod: Object) -> list[str]:
    """Return what holds a Pod: finalizers, and its kubelet until a delete with grace period 0."""
    metadata = pod["metadata"]
    held = list(metadata.get("finalizers", []))
    if metadata.get("deletionGracePeriodSeconds"):
        held.append("its kubelet")
    return held


def _prepare(pod: Object) -> None:
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    for key in CONTAINER_LISTS:
        for container in spec.get(key, []):
            image = str(container.get("image", ""))
            container.setdefault("imagePullPolicy", "Always" if _latest(image) else "IfNotPresent")
    account, older = spec.get("serviceAccountName"), spec.get("serviceAccount")
    if account or older:
        spec["serviceAccountName"] = spec["serviceAccount"] = account or older


def _latest(image: str) -> bool:
    last = image.rpartition("/")[2]
    return "@" not in last and last.partition(":")[2] in ("", "latest")


def _validate(pod: Object) -> list[Cause]:
    spec = pod["spec"]
    causes = list(_container_causes(pod))
    if not spec.get("containers"):
        causes.append(fields.required("spec.containers"))
    if node := spec.get("nodeName"):
        causes += [
            fields.invalid("spec.nodeName", node, problem) for problem in names.dns_subdomain(node)
        ]
    return causes


def _container_causes(pod: Object) -> Iterator[Cause]:
    container_names = set()
    for place, container in containers_of(pod):
        name = container.get("name", "")
        if not name:
            yield fields.required(f"{place}.name")
            continue
        for problem in names.dns_label(name):
            yield fields.invalid(f"{place}.name", name, problem)
        if name in container_names:
            yield fields.duplicate(f"{place}.name", name)
        container_names.add(name)
        if not container.get("image"):
            yield fields.required(f"{place}.image")


def _changed(new: Object, old: Object) -> list[Cause]:
    """Check an update: only fields that a kubelet can apply to a running Pod may change."""
    before, after = old["spec"], new["spec"]
    for key in ("containers", "initContainers"):
        if len(before.get(key, [])) != len(after.get(key, [])):
            problem = "pod updates may not add or remove containers"
            return [fields.forbidden(f"spec.{key}", problem)]
    causes = list(_toleration_causes(before.get("tolerations", []), after.get("tolerations", [])))
    causes += _deadline_causes(before, after)
    if not causes and _fixed(after, before) != before:
        causes.append(fields.forbidden("spec", _NARROW))
    return causes


def _toleration_causes(before: list[Object], after: list[Object]) -> Iterator[Cause]:
    kept = {_text(each) for each in after}
    if any(_text(each) not in kept for each in before):
        problem = "existing toleration can not be modified except its tolerationSeconds"
        yield fields.forbidden("spec.tolerations", problem)


def _text(toleration: Object) -> str:
    return json.dumps(toleration, sort_keys=True)


def _deadline_causes(before: Object, after: Object) -> Iterator[Cause]:
    place, old = "spec.activeDeadlineSeconds", before.get("activeDeadlineSeconds")
    new = after.get("activeDeadlineSeconds")
    if old is not None and new is None:
        yield fields.invalid(place, None, "must not update from a positive integer to nil value")
    elif old is not None and new > old:
        yield fields.invalid(place, new, "must be less than or equal to previous value")


def _fixed(after: Object, before: Object) -> Object:
    spec = copy.deepcopy(after)
    for key in ("activeDeadlineSeconds", "tolerations"):
        spec.pop(key, None)
        if key in before:
            spec[key] = before[key]
    for key in ("containers", "initContainers"):
        for container, previous in zip(spec.get(key, []), before.get(key, []), strict=True):
            if "image" in previous:
                container["image"] = previous["image"]
    return spec


BINDINGS = Kind(
    resource=Resource("", "v1", "bindings", "Binding"),
    singular="binding",
    description="Binding binds a Pod to a Node. It is applied to the Pod and not stored.",
    schema={
        "target": struct(
            {
                "kind": string("kind is always Node."),
                "namespace": string("namespace is always empty."),
                "name": string("name is the name of the Node."),
                "uid": string("uid is the UID of the referent."),
                "apiVersion": string("apiVersion is the API version of the referent."),
                "resourceVersion": string("resourceVersion is the version of the referent."),
                "fieldPath": string("fieldPath is a part of the referent."),
            },
            description="target is the Node to bind the Pod to.",
        )
    },
    required=["target"],
    stored=False,
)

NODE_PODS = Kind(
    resource=Resource("", "v1", "pods", "Pod"),
    singular="pod",
    short_names=("po",),
    categories=("all",),
    description="Pod is a collection of containers on one Node.",
    schema={"spec": SPEC, "status": STATUS},
    required=["spec"],
    columns=COLUMNS,
    has_status=True,
    fields={
        "spec.nodeName": of_spec("nodeName"),
        "spec.restartPolicy": of_spec("restartPolicy"),
        "spec.schedulerName": of_spec("schedulerName"),
        "spec.serviceAccountName": of_spec("serviceAccountName"),
        "spec.hostNetwork": lambda pod: (
            "true" if pod.get("spec", {}).get("hostNetwork") else "false"
        ),
        "status.phase": of_status("phase"),
        "status.podIP": of_status("podIP"),
        "status.nominatedNodeName": of_status("nominatedNodeName"),
    },
    initial_status={"phase": "Pending", "qosClass": "BestEffort"},
    held_by=_held_by,
    prepare=_prepare,
    validate=_validate,
    validate_update=_changed,
    connects=CONNECTS,
    texts={"log": POD_QUERY},
    requests={"binding": BINDINGS},
)
