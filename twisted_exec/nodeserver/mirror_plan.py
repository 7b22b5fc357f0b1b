"""
What a machine looks like as a Pod of the root, and what to do about that Pod: pure.

The Pod shows the machine, and is nothing else: it has none of the machine's labels, for a controller of
the root must not take it for one of its own; it tolerates whatever its Node is said to have; and whoever
deletes it deletes a picture.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.watch import Key
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.node_plan import KEPT_BY, LEAF
from twisted_exec.nodeserver.ours import MACHINE, MACHINE_UID
from twisted_exec.nodeserver.syncer_status import is_told, wanted_status

_OF_CONTAINER = ("name", "image", "stdin", "tty")
_NO_IMAGE = "none"


@dataclass(frozen=True)
class Create:
    """The root has no Pod for a machine."""


@dataclass(frozen=True)
class Delete:
    """The root's Pod shows what is no more, or is to be made anew."""


@dataclass(frozen=True, eq=False)
class Tell:
    """The machine is in another state than the root says."""

    status: Object


Step = Create | Delete | Tell | None


def plan(machine: Object | None, node: str, there: Object | None) -> Step:
    """
    The next step; each changes what is planned from.

    :param machine: the leaf's Pod that shows it; ``None`` when nothing is to be shown.
    :param node: the Node of the root that it is to be on.
    :param there: the root's Pod that was made for one; ``None`` for none that was.
    """
    if there is None:
        return Create() if machine is not None else None
    if machine is None or not _shows(there, machine, node):
        return Delete()
    status = wanted_status(there, machine)
    return None if is_told(there, status) else Tell(status)


def _shows(there: Object, machine: Object, node: str) -> bool:
    metadata = there["metadata"]
    told = metadata.get("annotations") or {}
    return (
        not metadata.get("deletionTimestamp")
        and told.get(MACHINE_UID) == machine["metadata"]["uid"]
        and there["spec"].get("nodeName") == node
    )


def node_for(machine: Object, nodes: tuple[LeafNode, ...]) -> str:
    """The Node of the root that a machine is on; empty for none that stands for its pool."""
    pool = machine["spec"].get("nodeName", "")
    for node in nodes:
        if pool in node.leaf_nodes:
            return node.name
    return next((node.name for node in nodes if not node.leaf_nodes and not node.selector), "")


def form(machine: Object, key: Key, node: str, leaf: str, keeper: str) -> Object:
    """
    The Pod to make.

    :param key: its namespace and name in the root.
    :param keeper: whose it is, as of Nodes.
    """
    containers = [
        {"image": _NO_IMAGE, **{name: each[name] for name in _OF_CONTAINER if each.get(name)}}
        for each in machine["spec"].get("containers") or []
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": key[0],
            "name": key[1],
            "labels": {MACHINE: "true"},
            "annotations": {
                LEAF: leaf,
                KEPT_BY: keeper,
                MACHINE_UID: machine["metadata"]["uid"],
            },
        },
        "spec": {
            "nodeName": node,
            "containers": containers,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
        },
    }
