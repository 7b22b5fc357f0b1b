"""
Status of a Node that stands for a leaf: addresses, conditions, and sums of the leaf's nodes.

Each section of the path to a console has a condition of its own, and ``ExecReady`` summarizes them.

A Node publishes our address first, under a type that users rarely read (by default InternalDNS).

Source of the parts of a Node: ``k8s.io/api/core/v1`` (``NodeStatus``).  Addresses:
``pkg/util/node/node.go`` (``GetPreferredNodeAddress``) and
``cmd/kube-apiserver/app/options/options.go`` of Kubernetes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from twisted_exec.api import quantity
from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.api.names import label_value, qualified_name
from twisted_exec.api.status import one_line
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.objects import mapping, texts
from twisted_exec.nodeserver.ownership import PREFIX

READY = "Ready"
EXEC_READY = "ExecReady"
ROOT_REACHES = "RootReachesNodeServer"
PREFERRED = "AddressPreferred"
LEAF_READY = "LeafReady"
LEAF_EXEC = "LeafExecAllowed"
OURS = (READY, EXEC_READY, ROOT_REACHES, PREFERRED, LEAF_READY, LEAF_EXEC)

NOT_PROBED = "NotProbedYet"
UNPROBED: ConditionValue = ("Unknown", NOT_PROBED, "not probed yet")
"""Not written over an existing condition of that type: our restart changes nothing."""

ALWAYS, LEAF, EXEC = "always", "leaf", "exec"
READY_POLICIES = (ALWAYS, LEAF, EXEC)
LEAF_GRACE_SECONDS = 40.0
"""Grace period for a silent leaf before its Nodes are not ready, as for kubelets before Kubernetes 1.32."""


@dataclass(frozen=True)
class NodeObservation:
    """
    The results of probing the path of one Node.

    :param silent_seconds: since the leaf was last ready; 0 while it is.
    """

    root: ConditionValue = UNPROBED
    leaf: ConditionValue = UNPROBED
    allowed: ConditionValue = UNPROBED
    not_chosen: str = ""
    silent_seconds: float = 0.0


def conditions(
    observation: NodeObservation, nodes: Sequence[Object] | None, ready_when: str
) -> dict[str, ConditionValue]:
    """
    Return the conditions of a Node, by type.

    :param nodes: the leaf's nodes that it stands for; ``None`` if they are unknown.
    """
    preferred = address_preferred(observation)
    opens = _exec_ready(observation, preferred)
    return {
        READY: _ready(observation, opens, nodes or (), ready_when),
        EXEC_READY: opens,
        ROOT_REACHES: observation.root,
        PREFERRED: preferred,
        LEAF_READY: observation.leaf,
        LEAF_EXEC: observation.allowed,
        **(pressures(nodes) if nodes is not None else {}),
    }


def address_preferred(observation: NodeObservation) -> ConditionValue:
    """Return the condition that the root dials us."""
    if observation.root[0] == "True":
        return ("True", "RootDialsUs", "")
    if observation.not_chosen:
        return ("False", "AnotherAddressFirst", observation.not_chosen)
    return ("True", "FirstByPreference", "")


def _exec_ready(observation: NodeObservation, preferred: ConditionValue) -> ConditionValue:
    parts = (observation.root, observation.leaf, observation.allowed)
    # If the leaf does not answer, nothing behind it is known: of several failures this is the
    # cause.
    for status, reason, message in (
        observation.root,
        observation.leaf,
        observation.allowed,
        preferred,
    ):
        if status == "False":
            return (status, reason, message)
    for status, reason, message in parts:
        if status != "True":
            return ("Unknown", reason, message)
    return (
        "True",
        "ProbeSucceeded",
        "the root reaches the node server, and the leaf lets it open streams",
    )


def _ready(
    observation: NodeObservation, opens: ConditionValue, nodes: Sequence[Object], ready_when: str
) -> ConditionValue:
    if ready_when == ALWAYS:
        return ("True", "NodeServerRuns", "the node server runs; the leaf does not count")
    status, reason, message = observation.leaf
    if reason == NOT_PROBED or (
        status == "False" and observation.silent_seconds < LEAF_GRACE_SECONDS
    ):
        return ("Unknown", NOT_PROBED, message)
    if status != "True":
        return ("False", reason, message)
    if nodes and not any(map(is_ready, nodes)):
        return ("False", "LeafNodesNotReady", f"none of the leaf's {len(nodes)} nodes is ready")
    if ready_when == EXEC and opens[0] == "False":
        return opens
    return ("True", "LeafReady", "the leaf's API server is ready")


NETWORK_UNAVAILABLE = "NetworkUnavailable"
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", NETWORK_UNAVAILABLE)
"""Conditions of a Node besides Ready."""
_MAX_LISTED = 64
_MAX_TEXT = 253
_OWN_INFO = ("operatingSystem", "architecture", "osImage", "kernelVersion")
_INFO = (
    *_OWN_INFO,
    "containerRuntimeVersion",
    "kubeletVersion",
    "machineID",
    "systemUUID",
    "bootID",
)


def trimmed(node: Object) -> Object:
    """
    Return a leaf's node with only the fields that are read here, in their proper shape.

    A leaf may be foreign, and its values end up in the root. The result does not change with a
    heartbeat alone.
    """
    metadata, status = node["metadata"], mapping(node.get("status"))
    identity = {key: str(metadata.get(key, "")) for key in ("name", "uid")}
    return {
        "metadata": {**identity, "labels": texts(metadata.get("labels"))},
        "spec": {"unschedulable": mapping(node.get("spec")).get("unschedulable") is True},
        "status": {
            "addresses": _addresses(status.get("addresses")),
            "capacity": _amounts(status.get("capacity")),
            "allocatable": _amounts(status.get("allocatable")),
            "conditions": [
                {"type": entry["type"], "status": entry["status"]}
                for entry in map(texts, _listed(status.get("conditions")))
                if "type" in entry and entry.get("status") in ("True", "False", "Unknown")
            ],
            "nodeInfo": {
                key: one_line(value)[:_MAX_TEXT]
                for key, value in texts(status.get("nodeInfo")).items()
                if key in _INFO
            },
        },
    }


def _listed(value: object) -> list[Any]:
    return value[:_MAX_LISTED] if isinstance(value, list) else []


def _addresses(value: object) -> list[Object]:
    entries = map(texts, _listed(value))
    return [
        {"type": entry["type"], "address": entry["address"]}
        for entry in entries
        if entry.get("type") in ADDRESS_TYPES
        and entry.get("address", "").isprintable()
        and 0 < len(entry.get("address", "")) <= _MAX_TEXT
    ]


def _amounts(value: object) -> dict[str, str]:
    """
    Return valid resources only, because a root refuses a whole status for one bad quantity or name.
    """
    amounts = {}
    for key, amount in list(mapping(value).items())[:_MAX_LISTED]:
        if isinstance(amount, (str, int, float)) and not qualified_name(key):
            try:
                if quantity.parse(amount) >= 0:
                    amounts[key] = str(amount)
            except ValueError:
                continue  # not a quantity: its meaning is unknown
    return amounts


def stood_for(node: LeafNode, nodes: Iterable[Object]) -> list[Object]:
    """Return the leaf's nodes that a Node of the root stands for, sorted by name."""

    def is_one(each: Object) -> bool:
        metadata = each["metadata"]
        if node.leaf_nodes:
            return metadata["name"] in node.leaf_nodes
        labels = metadata["labels"]
        return all(labels.get(key) == value for key, value in node.selector.items())

    return sorted(filter(is_one, nodes), key=lambda each: str(each["metadata"]["name"]))


def condition(node: Object, type: str) -> str:
    """Return ``True``, ``False`` or ``Unknown``; empty if the node lacks the condition."""
    listed = node["status"]["conditions"]
    return next((str(entry["status"]) for entry in listed if entry["type"] == type), "")


def is_ready(node: Object) -> bool:
    """Return whether the node's condition Ready is True."""
    return condition(node, "Ready") == "True"


def capacity(nodes: Iterable[Object]) -> dict[str, str]:
    """Return the nodes' total capacity."""
    return _summed(node["status"]["capacity"] for node in nodes)


def allocatable(nodes: Iterable[Object]) -> dict[str, str]:
    """Return the total that Pods may use, of ready and schedulable nodes."""
    taking = (node for node in nodes if is_ready(node) and not node["spec"]["unschedulable"])
    return _summed(node["status"]["allocatable"] for node in taking)


def _summed(listed: Iterable[Object]) -> dict[str, str]:
    sums: dict[str, Decimal] = {}
    for amounts in listed:
        for key, text in amounts.items():
            sums[key] = sums.get(key, Decimal(0)) + quantity.parse(text)
    return {key: _written(amount) for key, amount in sorted(sums.items())}


def _written(amount: Decimal) -> str:
    if amount == amount.to_integral_value():
        return quantity.binary(int(amount))
    return f"{int(amount * 1000)}m"


def pressures(nodes: Sequence[Object]) -> dict[str, ConditionValue]:
    """
    Return the pressure conditions of the Node.

    A missing condition, other than NetworkUnavailable, is False: the root's node lifecycle
    controller would otherwise set it to Unknown after a while.
    """
    conditions: dict[str, ConditionValue] = {}
    for type in PRESSURES:
        statuses = {condition(node, type) for node in nodes} - {""}
        if statuses:
            status = (
                "False" if "False" in statuses else "True" if statuses == {"True"} else "Unknown"
            )
            reason = f"Leaf{type}" if status == "True" else f"LeafHasNo{type}"
            conditions[type] = (status, reason, "")
        elif type != NETWORK_UNAVAILABLE:
            conditions[type] = ("False", "NotReported", "the leaf's nodes do not say")
    return conditions


def labels(node: LeafNode, info: Mapping[str, str]) -> dict[str, str]:
    """Return labels that kubelets set on their Nodes and that Pods select by."""
    labels = {}
    if not label_value(node.name):  # a Node's name may be longer than a label value
        labels["kubernetes.io/hostname"] = node.name
    for key, label in (("operatingSystem", "os"), ("architecture", "arch")):
        if info.get(key) and not label_value(info[key]):
            labels[f"kubernetes.io/{label}"] = info[key]
    return labels


def node_info(node: LeafNode, nodes: Sequence[Object], version: str) -> dict[str, str]:
    """Return ``status.nodeInfo``."""
    infos = [each["status"]["nodeInfo"] for each in nodes]
    if node.mode == "node" and len(infos) == 1:
        return {key: infos[0].get(key, "") for key in _INFO}
    shared_info = {}
    for key in _OWN_INFO:
        values = {info.get(key, "") for info in infos}
        shared_info[key] = values.pop() if len(values) == 1 else ""
    if version:
        shared_info["kubeletVersion"] = version
    return shared_info


Address = tuple[str, str]
"""Type and address."""

INTERNAL_DNS, INTERNAL_IP, EXTERNAL_IP = "InternalDNS", "InternalIP", "ExternalIP"

NODE_LABEL = f"{PREFIX}node"
"""Label with the value ``true`` on every Node that we keep."""
VIRTUAL: Mapping[str, str] = {
    NODE_LABEL: "true",
    "kosmos.io/node": "true",
    "type": "virtual-kubelet",
}
"""Labels of virtual Nodes."""
_MAX_ADDRESSES = 32


def parse_types(text: str) -> tuple[str, ...]:
    """
    Parse comma-separated address types.

    :raises ValueError: a type is unknown or repeated.
    """
    listed = tuple(each.strip() for each in text.split(",") if each.strip())
    for each in listed:
        if each not in ADDRESS_TYPES:
            raise ValueError(f"{each} is not an address type; there are {', '.join(ADDRESS_TYPES)}")
    if len(set(listed)) < len(listed):
        raise ValueError(f"{text} names a type twice")
    return listed


def addresses_of(node: Object) -> list[Address]:
    """Return a Node's addresses without duplicates."""
    unique: dict[Address, None] = {}
    for each in (node.get("status") or {}).get("addresses") or ():
        if each.get("type") and each.get("address"):
            unique.setdefault((each["type"], each["address"]))
    return list(unique)


def root_family(nodes: Iterable[Object]) -> int:
    """
    Return the IP family that a root prefers: that of the first InternalIP of its real Nodes, by
    name; 0 if it is unknown.
    """
    real = [node for node in nodes if not is_virtual(node)]
    for node in sorted(real, key=lambda node: str(node["metadata"]["name"])):
        for kind, address in addresses_of(node):
            if kind == INTERNAL_IP and (family := family_of(address)):
                return family
    return 0


def is_virtual(node: Object) -> bool:
    """Return whether a Node is known to be virtual."""
    labels = node["metadata"].get("labels") or {}
    return any(labels.get(key) == value for key, value in VIRTUAL.items())


def family_of(address: str) -> int:
    """Return 4 or 6; 0 for other text."""
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 0


def publication_order(
    own: Sequence[Address], leaf: Iterable[Address], family: int
) -> list[Address]:
    """
    Return the addresses that a Node publishes.

    The order is: ours, the leaf's InternalIPs, its other addresses.
    """
    # An address of the leaf that equals ours would be a duplicate.
    rest = list(dict.fromkeys(each for each in leaf if each not in own))[:_MAX_ADDRESSES]

    def rank(address: Address) -> int:
        if address[0] != INTERNAL_IP:
            return 2
        return 0 if family_of(address[1]) == family or not family else 1

    return [*dict.fromkeys(own), *sorted(rest, key=rank)]  # sorted() is stable


def chosen(addresses: Iterable[Address], preferred: Sequence[str]) -> Address | None:
    """Return the address that a root dials, or ``None``."""
    listed = list(addresses)
    for kind in preferred:
        for address in listed:
            if address[0] == kind:
                return address
    return None


def not_chosen(
    addresses: Sequence[Address], own: Sequence[Address], preferred: Sequence[str]
) -> str:
    """Return why the root would not dial us, with a remedy, or empty."""
    winner = chosen(addresses, preferred)
    if winner in own:
        return ""
    ours = ", ".join(f"{kind} {address}" for kind, address in own)
    order = ",".join(preferred)
    if winner is None:
        return (
            f"a root with --kubelet-preferred-address-types={order} would dial none of this node's "
            f"addresses; publish those of the node server ({ours}) under one of these types (--preferred-address-type)"
        )
    kind = own[0][0] if own else INTERNAL_DNS
    first = ",".join([kind, *(each for each in preferred if each != kind)])
    return (
        f"a root with --kubelet-preferred-address-types={order} dials the leaf's {winner[0]} "
        f"{winner[1]}, not that of the node server ({ours}); let the root's kube-apiserver have "
        f"--kubelet-preferred-address-types={first}, or publish this one as {winner[0]} "
        f"(--preferred-address-type={winner[0]}), or leave the leaf's {winner[0]} addresses out "
        f"(--leaf-address-types)"
    )
