"""
Status of a Node that stands for a leaf, from the leaf's nodes: sums, pressures, labels and info.

Source: ``k8s.io/api/core/v1`` (``NodeStatus``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from twisted_exec.api import quantity
from twisted_exec.api.conditions import ConditionValue
from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.api.lenient import mapping, texts
from twisted_exec.api.names import label_value, qualified_name
from twisted_exec.api.status import one_line
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafNode

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


def trim_node(node: Object) -> Object:
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

    def is_one(candidate: Object) -> bool:
        metadata = candidate["metadata"]
        if node.leaf_nodes:
            return metadata["name"] in node.leaf_nodes
        labels = metadata["labels"]
        return all(labels.get(key) == value for key, value in node.selector.items())

    return sorted(filter(is_one, nodes), key=lambda node: str(node["metadata"]["name"]))


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
    infos = [node["status"]["nodeInfo"] for node in nodes]
    if node.mode == "node" and len(infos) == 1:
        return {key: infos[0].get(key, "") for key in _INFO}
    shared_info = {}
    for key in _OWN_INFO:
        values = {info.get(key, "") for info in infos}
        shared_info[key] = values.pop() if len(values) == 1 else ""
    if version:
        shared_info["kubeletVersion"] = version
    return shared_info


def _addresses(value: object) -> list[Object]:
    entries = map(texts, _listed(value))
    return [
        {"type": entry["type"], "address": entry["address"]}
        for entry in entries
        if entry.get("type") in ADDRESS_TYPES
        and entry.get("address", "").isprintable()
        and 0 < len(entry.get("address", "")) <= _MAX_TEXT
    ]
