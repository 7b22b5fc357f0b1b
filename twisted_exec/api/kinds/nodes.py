"""
Nodes: what stands for a server that runs Pods, or speaks for a cluster that does.

Nothing is scheduled to them here.  They are kept for node servers, which report where they are
reached and that they live, and for those who look at them.  What nobody acts on has any form.

Source: ``k8s.io/api/core/v1``, ``pkg/apis/core/validation`` (``ValidateNode``,
``ValidateNodeUpdate``) and ``pkg/printers/internalversion`` of Kubernetes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from twisted_exec.api import fields, names, quantity
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
"""Where each node server tells that it lives, by a Lease of its Node's name."""

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
    seen = set()
    for index, taint in enumerate(taints):
        here, identity = f"metadata.taints[{index}]", (taint["key"], taint["effect"])
        for problem in names.qualified_name(taint["key"]):
            yield fields.invalid(f"{here}.key", taint["key"], problem)
        for problem in names.label_value(taint.get("value", "")):
            yield fields.invalid(f"{here}.value", taint["value"], problem)
        if identity in seen:
            yield fields.duplicate(here, f"{taint['key']}:{taint['effect']}")
        seen.add(identity)


def _cidr_causes(told: list[str]) -> Iterator[Cause]:
    families = []
    for index, each in enumerate(told):
        try:
            families.append(ipaddress.ip_network(each, strict=False).version)
        except ValueError:
            known = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield fields.invalid(f"spec.podCIDRs[{index}]", each, known)
    if len(families) != len(set(families)):
        yield fields.invalid(
            "spec.podCIDRs", told, "may specify no more than one CIDR for each IP family"
        )


def _amount_causes(status: Object) -> Iterator[Cause]:
    for part in ("capacity", "allocatable"):
        for key, given in status.get(part, {}).items():
            try:
                good = quantity.parse(given) >= 0
            except ValueError as error:
                yield fields.invalid(f"status.{part}.{key}", given, str(error))
                continue
            if not good:
                told = "must be greater than or equal to 0"
                yield fields.invalid(f"status.{part}.{key}", given, told)


def _prepare(node: Object) -> None:
    """The older field and the newer one say the same."""
    spec = node.get("spec")
    if not isinstance(spec, dict):
        return
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]
    elif isinstance(several := spec.get("podCIDRs"), list) and several:
        spec["podCIDR"] = several[0]


def _changed(new: Object, old: Object) -> list[Cause]:
    before, after = old.get("spec", {}), new.get("spec", {})
    told = 'node updates may not change {} except from "" to valid'
    return [
        fields.forbidden(f"spec.{key}", told.format(shown))
        for key, shown in (("podCIDRs", "podCIDR"), ("providerID", "providerID"))
        if before.get(key) and before.get(key) != after.get(key)
    ]


def _status_changed(new: Object, old: Object) -> list[Cause]:
    found = list(_amount_causes(new.get("status", {})))
    addresses = new.get("status", {}).get("addresses", [])
    for index, each in enumerate(addresses):
        if each in addresses[:index]:
            shown = f"{each['type']}={each['address']}"
            found.append(fields.duplicate(f"status.addresses[{index}]", shown))
    return found


def _condition(node: Object) -> str:
    conditions = node.get("status", {}).get("conditions", [])
    ready = next((each for each in conditions if each["type"] == "Ready"), None)
    told = "Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"
    return f"{told},SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else told


def _roles(node: Object) -> str:
    labels = node["metadata"].get("labels", {})
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return ",".join(sorted(filter(None, roles | {labels.get(_ROLE, "")}))) or _NONE


def _address(kind: str) -> Column:
    def read(node: Object) -> str:
        found = node.get("status", {}).get("addresses", [])
        return next((each["address"] for each in found if each["type"] == kind), _NONE)

    return Column(kind.replace("IP", "-IP"), read, priority=1)


def _info(name: str, key: str, *, missing: str = _UNKNOWN, priority: int = 1) -> Column:
    def read(node: Object) -> str:
        return str(node.get("status", {}).get("nodeInfo", {}).get(key) or missing)

    return Column(name, read, priority=priority)


_TAINT = struct(
    {
        "key": string("Key of the taint."),
        "value": string("Value of the taint."),
        "effect": string("What it does to those that do not tolerate it.", enum=list(_EFFECTS)),
        "timeAdded": moment("Since when; for NoExecute."),
    },
    required=["key", "effect"],
)
_SPEC = struct(
    {
        "podCIDR": string("The addresses of its Pods."),
        "podCIDRs": array(string(), "The same; one of each IP family.", unique=True),
        "providerID": string("Identifies it to its provider, as PROVIDER://ID."),
        "unschedulable": boolean("Nothing new shall be put there."),
        "taints": array(_TAINT, "What keeps those away that do not tolerate it."),
        "configSource": anything("Not used any more."),
        "externalID": string("Not used any more."),
    },
    description="What the node shall be.",
)
_CONDITION = struct(
    {
        "type": string("What it is about, such as Ready."),
        "status": string("Whether it holds.", enum=["True", "False", "Unknown"]),
        "lastHeartbeatTime": moment("When it was told last."),
        "lastTransitionTime": moment("When its status changed last."),
        "reason": string("Why, in one word for programs."),
        "message": string("Why, for people."),
    },
    required=["type", "status"],
)
_ADDRESS = struct(
    {
        "type": string("Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS."),
        "address": string("A host name or an IP address."),
    },
    required=["type", "address"],
)
_PORT = integer("Where it listens.", minimum=0, maximum=65535)
_INFO = {
    "machineID": "Of its operating system.",
    "systemUUID": "Of its hardware.",
    "bootID": "Another one after each start.",
    "kernelVersion": "As uname -r tells it.",
    "osImage": "As /etc/os-release tells it.",
    "containerRuntimeVersion": "As RUNTIME://VERSION.",
    "kubeletVersion": "Of what speaks for it.",
    "kubeProxyVersion": "Not used any more.",
    "operatingSystem": "Such as linux.",
    "architecture": "Such as amd64.",
}
_STATUS = struct(
    {
        "capacity": mapping(quantity_schema(), "What it has in all."),
        "allocatable": mapping(quantity_schema(), "What of that is for Pods."),
        "phase": string("Not used any more."),
        "conditions": array(_CONDITION, "What holds of it just now.", keys=["type"]),
        "addresses": array(_ADDRESS, "Where it is reached."),
        "daemonEndpoints": struct(
            {"kubeletEndpoint": struct({"Port": _PORT}, description="What speaks for it.")},
            description="The ports of its programs.",
        ),
        "nodeInfo": struct(
            {
                **{key: string(told) for key, told in _INFO.items()},
                "swap": anything("What it may swap."),
            },
            description="What it is made of.",
        ),
        "images": array(anything(), "The images that are there."),
        "volumesInUse": array(string(), "Volumes that must not be detached yet."),
        "volumesAttached": array(anything(), "Volumes that are there."),
        "config": anything("Not used any more."),
        "runtimeHandlers": array(anything(), "What its runtime can do."),
        "features": anything("What it can do."),
        "declaredFeatures": array(string(), "What of the newest its kubelet can do."),
    },
    description="What the node is.",
)

NODES = Kind(
    resource=Resource("", "v1", "nodes", "Node", namespaced=False),
    singular="node",
    short_names=("no",),
    description="Node is a server that runs Pods, or speaks for a cluster that does.",
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
    validate_update=_changed,
    validate_status=_status_changed,
)
