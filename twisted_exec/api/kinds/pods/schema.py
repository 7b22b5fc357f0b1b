"""
Schemas of the spec and status of Pods on Nodes.

Sources: ``k8s.io/api/core/v1`` and ``pkg/apis/core/v1/defaults.go`` of Kubernetes.
"""

from __future__ import annotations

from twisted_exec.api.kinds.schemas import strings
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
