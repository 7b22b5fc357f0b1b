"""
Nodes: servers that run Pods, or representations of clusters that do.

Sources: ``k8s.io/api/core/v1``, ``pkg/apis/core/validation`` and ``pkg/printers/internalversion``
of Kubernetes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from twisted_exec.api import fields, names, quantity
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import (
    anything,
    array,
    boolean,
    integer,
    mapping,
    moment,
    string,
    struct,
)
from twisted_exec.api.schema import quantity as quantity_schema

LEASE_NAMESPACE = "kube-node-lease"
"""Namespace of the nodes' heartbeats: Leases named like the Nodes."""

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ROLE_PREFIX, _ROLE = "node-role.kubernetes.io/", "kubernetes.io/role"
_NONE, _UNKNOWN = "<none>", "<unknown>"


def _validate(node: Object) -> list[Cause]:
    spec, status = node.get("spec", {}), node.get("status", {})
    return [
        *_taint_causes(spec.get("taints", [])),
        *_cidr_causes(spec.get("podCIDRs", [])),
        *_amount_causes(status),
    ]


def _taint_causes(taints: list[Object]) -> Iterator[Cause]:
    identities = set()
    for index, taint in enumerate(taints):
        here, identity = f"metadata.taints[{index}]", (taint["key"], taint["effect"])
        for problem in names.qualified_name(taint["key"]):
            yield fields.invalid(f"{here}.key", taint["key"], problem)
        for problem in names.label_value(taint.get("value", "")):
            yield fields.invalid(f"{here}.value", taint["value"], problem)
        if identity in identities:
            yield fields.duplicate(here, f"{taint['key']}:{taint['effect']}")
        identities.add(identity)


def _cidr_causes(cidrs: list[str]) -> Iterator[Cause]:
    families = []
    for index, each in enumerate(cidrs):
        try:
            families.append(ipaddress.ip_network(each, strict=False).version)
        except ValueError:
            problem = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield fields.invalid(f"spec.podCIDRs[{index}]", each, problem)
    if len(families) != len(set(families)):
        yield fields.invalid(
            "spec.podCIDRs", cidrs, "may specify no more than one CIDR for each IP family"
        )


def _amount_causes(status: Object) -> Iterator[Cause]:
    for part in ("capacity", "allocatable"):
        for key, amount in status.get(part, {}).items():
            try:
                good = quantity.parse(amount) >= 0
            except ValueError as error:
                yield fields.invalid(f"status.{part}.{key}", amount, str(error))
                continue
            if not good:
                problem = "must be greater than or equal to 0"
                yield fields.invalid(f"status.{part}.{key}", amount, problem)


def _prepare(node: Object) -> None:
    spec = node.get("spec")
    if not isinstance(spec, dict):
        return
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]
    elif isinstance(several := spec.get("podCIDRs"), list) and several:
        spec["podCIDR"] = several[0]


def _validate_update(new: Object, old: Object) -> list[Cause]:
    before, after = old.get("spec", {}), new.get("spec", {})
    message = 'node updates may not change {} except from "" to valid'
    return [
        fields.forbidden(f"spec.{key}", message.format(name))
        for key, name in (("podCIDRs", "podCIDR"), ("providerID", "providerID"))
        if before.get(key) and before.get(key) != after.get(key)
    ]


def _validate_status(new: Object, old: Object) -> list[Cause]:
    problems = list(_amount_causes(new.get("status", {})))
    addresses: set[tuple[str, str]] = set()
    for index, each in enumerate(new.get("status", {}).get("addresses", [])):
        address = each["type"], each["address"]
        if address in addresses:
            problems.append(fields.duplicate(f"status.addresses[{index}]", "=".join(address)))
        addresses.add(address)
    return problems


def _condition(node: Object) -> str:
    ready = condition_of(node, "Ready")
    status = "Unknown" if not ready else "Ready" if ready["status"] == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else status


def _roles(node: Object) -> str:
    labels = node["metadata"].get("labels", {})
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return ",".join(sorted(filter(None, roles | {labels.get(_ROLE, "")}))) or _NONE


def _address(kind: str) -> Column:
    def read(node: Object) -> str:
        addresses = node.get("status", {}).get("addresses", [])
        return next((each["address"] for each in addresses if each["type"] == kind), _NONE)

    return Column(kind.replace("IP", "-IP"), read, priority=1)


def _info(name: str, key: str, *, missing: str = _UNKNOWN, priority: int = 1) -> Column:
    def read(node: Object) -> str:
        return str(node.get("status", {}).get("nodeInfo", {}).get(key) or missing)

    return Column(name, read, priority=priority)


_TAINT = struct(
    {
        "key": string("key is the key of the taint."),
        "value": string("value is the value of the taint."),
        "effect": string(
            "effect is what happens to Pods that do not tolerate the taint.", enum=list(_EFFECTS)
        ),
        "timeAdded": moment("timeAdded is when the taint was added; only for NoExecute taints."),
    },
    required=["key", "effect"],
)
_SPEC = struct(
    {
        "podCIDR": string("podCIDR is the IP range of the node's Pods."),
        "podCIDRs": array(
            string(),
            "podCIDRs are the IP ranges of the node's Pods, at most one per IP family.",
            unique=True,
            uniqueItems=False,  # the rule about IP families refuses them, in kube-apiserver's words
        ),
        "providerID": string(
            "providerID is the node's ID at its cloud provider, in the format PROVIDER://ID."
        ),
        "unschedulable": boolean("unschedulable keeps new Pods off the node."),
        "taints": array(_TAINT, "taints keep Pods without matching tolerations off the node."),
        "configSource": anything("Deprecated and ignored."),
        "externalID": string("Deprecated and ignored."),
    },
    description="spec is the desired state of the node.",
)
_CONDITION = struct(
    {
        "type": string("type is the type of the condition, such as Ready."),
        "status": string(
            "status is the status of the condition: True, False or Unknown.",
            enum=["True", "False", "Unknown"],
        ),
        "lastHeartbeatTime": moment(
            "lastHeartbeatTime is the last time the condition was updated."
        ),
        "lastTransitionTime": moment(
            "lastTransitionTime is the last time the condition's status changed."
        ),
        "reason": string("reason is a one-word CamelCase reason for the last transition."),
        "message": string("message is a human-readable description of the last transition."),
    },
    required=["type", "status"],
)
_ADDRESS = struct(
    {
        "type": string("type is Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS."),
        "address": string("address is a host name or an IP address."),
    },
    required=["type", "address"],
)
_PORT = integer("Port is the port that the daemon listens on.", minimum=0, maximum=65535)
_INFO = {
    "machineID": "machineID is the machine ID of the operating system.",
    "systemUUID": "systemUUID is the UUID of the hardware.",
    "bootID": "bootID is an ID that changes with each boot.",
    "kernelVersion": "kernelVersion is the kernel version, as in uname -r.",
    "osImage": "osImage is the operating system, as in /etc/os-release.",
    "containerRuntimeVersion": "containerRuntimeVersion is the container runtime, in the format RUNTIME://VERSION.",
    "kubeletVersion": "kubeletVersion is the version of the kubelet, or of the program that acts as one.",
    "kubeProxyVersion": "Deprecated and ignored.",
    "operatingSystem": "operatingSystem is the operating system, such as linux.",
    "architecture": "architecture is the CPU architecture, such as amd64.",
}
_STATUS = struct(
    {
        "capacity": mapping(quantity_schema(), "capacity is the total of the node's resources."),
        "allocatable": mapping(
            quantity_schema(), "allocatable is the part of capacity that is available to Pods."
        ),
        "phase": string("Deprecated and ignored."),
        "conditions": array(
            _CONDITION, "conditions are the current conditions of the node.", keys=["type"]
        ),
        "addresses": array(_ADDRESS, "addresses are the addresses of the node."),
        "daemonEndpoints": struct(
            {
                "kubeletEndpoint": struct(
                    {"Port": _PORT}, description="kubeletEndpoint is the endpoint of the kubelet."
                )
            },
            description="daemonEndpoints are the endpoints of the node's daemons.",
        ),
        "nodeInfo": struct(
            {
                **{key: string(description) for key, description in _INFO.items()},
                "swap": anything("swap is the node's swap space."),
            },
            description="nodeInfo is general information about the node.",
        ),
        "images": array(anything(), "images are the container images on the node."),
        "volumesInUse": array(string(), "volumesInUse are the volumes that must not be detached."),
        "volumesAttached": array(
            anything(), "volumesAttached are the volumes attached to the node."
        ),
        "config": anything("Deprecated and ignored."),
        "runtimeHandlers": array(
            anything(), "runtimeHandlers are the available runtime handlers and their features."
        ),
        "features": anything("features are the features of the container runtime."),
        "declaredFeatures": array(
            string(), "declaredFeatures are the gated features that the kubelet supports."
        ),
    },
    description="status is the observed state of the node.",
)

NODES = Kind(
    resource=Resource("", "v1", "nodes", "Node", namespaced=False),
    singular="node",
    short_names=("no",),
    description="Node is a server that runs Pods, or represents a cluster that does.",
    schema={"spec": _SPEC, "status": _STATUS},
    own_columns=True,
    columns=(
        Column("Name", lambda node: node["metadata"]["name"]),
        Column("Status", _condition, "The status of the node"),
        Column("Roles", _roles, "The roles of the node"),
        Column("Age", lambda node: node["metadata"].get("creationTimestamp"), moment=True),
        _info("Version", "kubeletVersion", missing="", priority=0),
        _address("InternalIP"),
        _address("ExternalIP"),
        _info("OS-Image", "osImage"),
        _info("Kernel-Version", "kernelVersion"),
        _info("Container-Runtime", "containerRuntimeVersion"),
    ),
    has_status=True,
    fields={
        "spec.unschedulable": lambda node: (
            "true" if node.get("spec", {}).get("unschedulable") else "false"
        )
    },
    prepare=_prepare,
    validate=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
)
