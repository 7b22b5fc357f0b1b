"""
Pods that are stored: what runs on Nodes, as any cluster has it.

Nothing is scheduled or run here.  They are kept for those who do that (whoever binds a Pod to a Node,
and the kubelet of that Node), and for those who open streams of them.  What nobody acts on has any form.

Source: ``k8s.io/api/core/v1``, ``pkg/apis/core/v1/defaults.go``, ``pkg/apis/core/validation``
(``ValidatePodCreate``, ``ValidatePodUpdate``), ``pkg/registry/core/pod/strategy.go`` and
``pkg/printers/internalversion`` of Kubernetes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from twisted_exec.api import fields, names
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Connect, Kind, Object
from twisted_exec.api.kinds.shapes import strings
from twisted_exec.api.logs import POD_QUERY
from twisted_exec.api.meta import Resource
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

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
"""Where a Pod's spec has containers; a name is unique among all of them."""

DEFAULT_GRACE_SECONDS = 30
LONGEST_GRACE_SECONDS = (1 << 31) - 1
_OVER = ("Succeeded", "Failed")
_NONE = "<none>"

_NARROW = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def containers_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, Object]]:
    """Every container of a Pod's spec, with the path of its place."""
    for key in CONTAINER_LISTS:
        for index, container in enumerate(pod.get("spec", {}).get(key, [])):
            yield f"spec.{key}[{index}]", container


def node_of(pod: Mapping[str, Any]) -> str:
    """The Node that a Pod is bound to; empty for none."""
    return str(pod.get("spec", {}).get("nodeName", ""))


def is_over(pod: Mapping[str, Any]) -> bool:
    """Whether all that it was for has ended."""
    return pod.get("status", {}).get("phase") in _OVER


def _held_by(pod: Object) -> list[str]:
    """Besides finalizers, its kubelet holds it, which says with a grace of 0 that it is gone."""
    metadata = pod["metadata"]
    held = list(metadata.get("finalizers", []))
    if metadata.get("deletionGracePeriodSeconds"):
        held.append("its kubelet")
    return held


def _prepare(pod: Object) -> None:
    """What has a default that depends on something else."""
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
    """Whether an image's name says the newest one, as one without a tag does."""
    last = image.rpartition("/")[2]
    return "@" not in last and last.partition(":")[2] in ("", "latest")


def _validate(pod: Object) -> list[Cause]:
    spec = pod["spec"]
    found = list(_container_causes(pod))
    if not spec.get("containers"):
        found.append(fields.required("spec.containers"))
    if node := spec.get("nodeName"):
        found += [fields.invalid("spec.nodeName", node, told) for told in names.dns_subdomain(node)]
    return found


def _container_causes(pod: Object) -> Iterator[Cause]:
    seen = set()
    for place, container in containers_of(pod):
        name = container.get("name", "")
        if not name:
            yield fields.required(f"{place}.name")
            continue
        for told in names.dns_label(name):
            yield fields.invalid(f"{place}.name", name, told)
        if name in seen:
            yield fields.duplicate(f"{place}.name", name)
        seen.add(name)
        if not container.get("image"):
            yield fields.required(f"{place}.image")


def _changed(new: Object, old: Object) -> list[Cause]:
    """A Pod is what it was made as; only what a kubelet can carry out on a running one changes."""
    before, after = old["spec"], new["spec"]
    for key in ("containers", "initContainers"):
        if len(before.get(key, [])) != len(after.get(key, [])):
            told = "pod updates may not add or remove containers"
            return [fields.forbidden(f"spec.{key}", told)]
    found = list(_toleration_causes(before.get("tolerations", []), after.get("tolerations", [])))
    found += _deadline_causes(before, after)
    if not found and _fixed(after, before) != before:
        found.append(fields.forbidden("spec", _NARROW))
    return found


def _toleration_causes(before: list[Object], after: list[Object]) -> Iterator[Cause]:
    if any(each not in after for each in before):
        told = "existing toleration can not be modified except its tolerationSeconds"
        yield fields.forbidden("spec.tolerations", told)


def _deadline_causes(before: Object, after: Object) -> Iterator[Cause]:
    place, old = "spec.activeDeadlineSeconds", before.get("activeDeadlineSeconds")
    new = after.get("activeDeadlineSeconds")
    if old is not None and new is None:
        yield fields.invalid(place, None, "must not update from a positive integer to nil value")
    elif old is not None and new > old:
        yield fields.invalid(place, new, "must be less than or equal to previous value")


def _fixed(after: Object, before: Object) -> Object:
    """The new spec with what may change as it was."""
    spec = copy.deepcopy(after)
    for key in ("activeDeadlineSeconds", "tolerations"):
        spec.pop(key, None)
        if key in before:
            spec[key] = before[key]
    for key in ("containers", "initContainers"):
        for container, known in zip(spec.get(key, []), before.get(key, []), strict=True):
            if "image" in known:
                container["image"] = known["image"]
    return spec


# What kubectl shows of it.


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
        if not is_over(pod):
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


def _of_status(key: str) -> _Read:
    return lambda pod: str(pod.get("status", {}).get(key, ""))


def _of_spec(key: str) -> _Read:
    return lambda pod: str(pod.get("spec", {}).get(key, ""))


def _or_none(read: _Read) -> _Read:
    return lambda pod: read(pod) or _NONE


# What it looks like.

_ANY = array(anything())


def _several(objects: str, lists: str = "") -> dict[str, Schema]:
    """Fields of any form: objects, and lists of objects, by their names."""
    return {
        **{name: anything() for name in objects.split()},
        **dict.fromkeys(lists.split(), _ANY),
    }


_CONTAINER_FIELDS: dict[str, Schema] = {
    "name": string("Unique in the Pod."),
    "image": string("What it runs."),
    "imagePullPolicy": string("When to pull it.", enum=["Always", "IfNotPresent", "Never"]),
    "command": strings("What is run; the image's own by default."),
    "args": strings("What that is given; the image's own by default."),
    "workingDir": string("Where it begins."),
    "restartPolicy": string("Of an init container: Always makes it one that goes on."),
    "stdin": boolean("Whether it has an input."),
    "stdinOnce": boolean("Whether that ends with the first who attaches."),
    "tty": boolean("Whether it has a terminal."),
    "terminationMessagePath": string("Where it says why it ends.", default="/dev/termination-log"),
    "terminationMessagePolicy": string(
        "From where that is told.", enum=["File", "FallbackToLogsOnError"], default="File"
    ),
    "resources": {**anything("What it may use."), "default": {}},
    **_several(
        "livenessProbe readinessProbe startupProbe lifecycle securityContext",
        "ports env envFrom volumeMounts volumeDevices resizePolicy restartPolicyRules",
    ),
}
_CONTAINER = struct(_CONTAINER_FIELDS, required=["name"], description="One program, in its image.")
_EPHEMERAL = struct(
    {**_CONTAINER_FIELDS, "targetContainerName": string("Whose processes it sees.")},
    required=["name"],
    description="A container for who looks for a fault.",
)

_SPEC = struct(
    {
        "containers": array(_CONTAINER, "What runs in it.", keys=["name"]),
        "initContainers": array(_CONTAINER, "What runs before.", keys=["name"]),
        "ephemeralContainers": array(_EPHEMERAL, "What was put in later.", keys=["name"]),
        "nodeName": string("The Node that it is bound to."),
        "restartPolicy": string(
            "What follows the end of a container.",
            enum=["Always", "OnFailure", "Never"],
            default="Always",
        ),
        "terminationGracePeriodSeconds": integer(
            "How long it may take to end.",
            minimum=0,
            maximum=LONGEST_GRACE_SECONDS,
            default=DEFAULT_GRACE_SECONDS,
        ),
        "activeDeadlineSeconds": integer("How long it may run.", minimum=1),
        "dnsPolicy": string("How names are found.", default="ClusterFirst"),
        "schedulerName": string("Who binds it.", default="default-scheduler"),
        "enableServiceLinks": {**boolean("Whether services are told."), "default": True},
        "securityContext": {**anything("As whom it runs."), "default": {}},
        "serviceAccountName": string("The account that it acts as."),
        "serviceAccount": string("The same by its older name."),
        "automountServiceAccountToken": boolean("Whether it is given a token of that."),
        "nodeSelector": mapping(string(), "Labels that its Node must have.", atomic=True),
        "hostname": string("What it is called within."),
        "hostnameOverride": string("The same, whatever else would be."),
        "subdomain": string("What that is in."),
        "priorityClassName": string("How important it is."),
        "runtimeClassName": string("What runs it."),
        "preemptionPolicy": string("Whether others may go for it."),
        "priority": integer("How important it is, as a number."),
        "imagePullSecrets": array(reference(), "By which images are pulled."),
        "readinessGates": array(struct({"conditionType": string("A condition of the Pod.")})),
        "overhead": anything("What running it takes besides."),
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
    description="What it shall be.",
)

_CONDITION = struct(
    {
        "type": string("What it is about, such as Ready."),
        "status": string("Whether it holds.", enum=["True", "False", "Unknown"]),
        "observedGeneration": integer("The metadata.generation that it was made from."),
        "lastProbeTime": string("When it was looked at last."),
        "lastTransitionTime": string("When its status changed last."),
        "reason": string("Why, in one word for programs."),
        "message": string("Why, for people."),
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
    description="At most one of them.",
)
_CONTAINER_STATUS = struct(
    {
        "name": string("Of the container."),
        "image": string("What it runs."),
        "imageID": string("Which that is."),
        "containerID": string("TYPE://ID, as the runtime knows it."),
        "ready": boolean("Whether it takes requests."),
        "started": boolean("Whether it has started."),
        "restartCount": integer("How often it was started again."),
        "stopSignal": string("How it is asked to end."),
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
_STATUS = struct(
    {
        "phase": string(
            "Where in its life it is.",
            enum=["Pending", "Running", "Succeeded", "Failed", "Unknown"],
        ),
        "conditions": array(_CONDITION, "What holds of it just now.", keys=["type"]),
        "message": string("Why it is so, for people."),
        "reason": string("Why it is so, in one word."),
        "nominatedNodeName": string("The Node that is made free for it."),
        "hostIP": string("An address of its Node."),
        "hostIPs": array(struct({"ip": string()}, required=["ip"]), "All of them."),
        "podIP": string("Its address."),
        "podIPs": _IPS,
        "startTime": string("When its kubelet has heard of it."),
        "qosClass": string("How it is treated when there is too little of something."),
        "resize": string("What has become of a change of what it may use."),
        "observedGeneration": integer("The metadata.generation that it was made from."),
        "containerStatuses": _STATUSES,
        "initContainerStatuses": _STATUSES,
        "ephemeralContainerStatuses": _STATUSES,
        **_several("extendedResourceClaimStatus", "resourceClaimStatuses"),
    },
    description="What it is.",
)


def _streams(kind: str, **more: Schema) -> Connect:
    properties = {
        "container": string("Which; may be left out when there is one."),
        "stdin": boolean("Whether input is sent."),
        "stdout": boolean("Whether output is wanted."),
        "stderr": boolean("Whether errors are wanted."),
        "tty": boolean("Whether it has a terminal."),
        **more,
    }
    return Connect(kind, struct(properties, description=f"{kind} is the query of the subresource."))


_CONNECTS = {
    "attach": _streams("PodAttachOptions"),
    "exec": _streams("PodExecOptions", command=strings("What is run, and what that is given.")),
    "portforward": Connect(
        "PodPortForwardOptions",
        struct(
            {"ports": array(integer(), "The ports.")},
            description="PodPortForwardOptions is the query of the subresource.",
        ),
    ),
}

BINDINGS = Kind(
    resource=Resource("", "v1", "bindings", "Binding"),
    singular="binding",
    description="Binding says on which Node a Pod is to run; it is carried out and not kept.",
    schema={
        "target": struct(
            {
                "kind": string("Node."),
                "namespace": string("Empty: Nodes are in none."),
                "name": string("Which Node."),
                "uid": string("UID of the referent."),
                "apiVersion": string("API version of the referent."),
                "resourceVersion": string("The resourceVersion that is meant."),
                "fieldPath": string("The part of the referent that is meant."),
            },
            description="Where to.",
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
    description="Pod is a set of containers on one Node.",
    schema={"spec": _SPEC, "status": _STATUS},
    required=["spec"],
    columns=(
        Column("Ready", _ready, "How many of its containers take requests."),
        Column("Status", _told_status, "What it is at."),
        Column("Restarts", _restarts, "How often its containers were started again."),
        Column("IP", _or_none(_of_status("podIP")), "Its address.", priority=1),
        Column("Node", _or_none(_of_spec("nodeName")), "Where it runs.", priority=1),
        Column("Nominated Node", _or_none(_of_status("nominatedNodeName")), priority=1),
        Column("Readiness Gates", _gates, "What else must hold.", priority=1),
    ),
    has_status=True,
    fields={
        "spec.nodeName": _of_spec("nodeName"),
        "spec.restartPolicy": _of_spec("restartPolicy"),
        "spec.schedulerName": _of_spec("schedulerName"),
        "spec.serviceAccountName": _of_spec("serviceAccountName"),
        "spec.hostNetwork": lambda pod: (
            "true" if pod.get("spec", {}).get("hostNetwork") else "false"
        ),
        "status.phase": _of_status("phase"),
        "status.podIP": _of_status("podIP"),
        "status.nominatedNodeName": _of_status("nominatedNodeName"),
    },
    initial_status={"phase": "Pending", "qosClass": "BestEffort"},
    held_by=_held_by,
    prepare=_prepare,
    validate=_validate,
    validate_update=_changed,
    connects=_CONNECTS,
    texts={"log": POD_QUERY},
    asked={"binding": BINDINGS},
)
