"""
What Pods on Nodes look like, and what the queries of their streams hold.

Only what somebody here acts on, or shows, has a type; all else is kept in whatever form it came.

Source: ``k8s.io/api/core/v1`` of Kubernetes.
"""

from __future__ import annotations

from twisted_exec.api.kinds.common.schemas import strings
from twisted_exec.api.kinds.kind import Connect
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

SPEC = struct(
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
STATUS = struct(
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


CONNECTS = {
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
