"""
The plan for one Node of the root; :mod:`.worker` carries it out.

A foreign Node is not touched: an annotation of the Node says who keeps it. A Node that Kosmos or an
administrator has declared to stand for the leaf may be adopted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from twisted_exec.api import quantity
from twisted_exec.api.conditions import ConditionValue, with_conditions
from twisted_exec.api.kinds.nodes import NODES
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.interfaces import LeafNode
from twisted_exec.nodeserver.leaves.kosmos import KOSMOS_LEAF
from twisted_exec.nodeserver.nodes.addresses import NODE_LABEL, Address
from twisted_exec.nodeserver.nodes.conditions import NOT_PROBED
from twisted_exec.nodeserver.ownership import PREFIX

FULL, ENDPOINTS, NONE = "full", "endpoints", "none"
NODE_SOURCES = (FULL, ENDPOINTS, NONE)

KEPT_BY = f"{PREFIX}kept-by"
"""Annotation: the node server that keeps the Node, as namespace/name of its Lease."""
LEAF = f"{PREFIX}leaf"
"""Annotation: the leaf that the Node stands for, or that a machine comes from."""

METRICS_PATH = "metrics.k8s.io/resource-metrics-path"
"""Annotation: path of the Node's metrics for metrics-server (its ``AnnotationResourceMetricsPath``)."""

MINE, CLAIMABLE, FOREIGN = "mine", "claimable", "foreign"


@dataclass(frozen=True)
class DesiredNode:
    """
    The desired state of a Node.

    :param fields: of ``status``, without conditions.
    :param labels: in addition to those of ``node``, which take precedence.
    :param own: how many of the addresses are ours; they come first.
    """

    node: LeafNode
    keeper: str
    fields: Object
    conditions: Mapping[str, ConditionValue] = field(default_factory=dict)
    upkeep: str = FULL
    labels: Mapping[str, str] = field(default_factory=dict)
    own: int = 1


@dataclass(frozen=True)
class Create:
    """Create the Node."""

    node: Object


@dataclass(frozen=True)
class Patch:
    """Merge into the Node, except its status."""

    patch: Object


@dataclass(frozen=True)
class PatchNodeStatus:
    """Merge into the Node's status."""

    status: Object


Action = Create | Patch | PatchNodeStatus


@dataclass(frozen=True)
class NodePlan:
    """The actions for one Node, in order."""

    actions: Sequence[Action] = ()
    problem: str = ""
    adopts: bool = False


def claim(observed: Object, node: LeafNode, keeper: str) -> str:
    """Return to whom a Node belongs."""
    annotations = observed["metadata"].get("annotations") or {}
    kept_by = annotations.get(KEPT_BY)
    if kept_by:
        return MINE if kept_by == keeper else FOREIGN
    stands_for = annotations.get(LEAF) or annotations.get(KOSMOS_LEAF)
    leaf_names = {node.leaf, node.annotations.get(KOSMOS_LEAF)} - {None}
    return CLAIMABLE if stands_for in leaf_names else FOREIGN


def plan(
    desired: DesiredNode, observed: Object | None, now: str, *, beat: bool = False
) -> NodePlan:
    """Return the actions that bring the Node to its desired state."""
    name = desired.node.name
    if observed is None:
        if desired.upkeep != FULL:
            return NodePlan(
                problem=f'node "{name}" does not exist, and --upkeep={desired.upkeep} creates none'
            )
        return NodePlan([Create(_new_node(desired, now))])
    if observed["metadata"].get("deletionTimestamp"):
        return NodePlan(problem=f'node "{name}" is being deleted')
    owned = claim(observed, desired.node, desired.keeper)
    if owned == FOREIGN:
        return NodePlan(problem=_foreign_problem(observed, desired))
    status = _status_patch(desired, observed.get("status") or {}, now, beat)
    if desired.upkeep != FULL:
        return NodePlan(status)
    return NodePlan([*_metadata_patch(desired, observed), *status], adopts=owned == CLAIMABLE)


def orphans(nodes: Iterable[Object], leaf_node_names: Iterable[str], keeper: str) -> list[Object]:
    """Return our Nodes that no leaf has any more."""
    current_names = set(leaf_node_names)
    return [
        node
        for node in nodes
        if node["metadata"]["name"] not in current_names
        and (node["metadata"].get("annotations") or {}).get(KEPT_BY) == keeper
        and not node["metadata"].get("deletionTimestamp")
    ]


def is_our_address(status: Object, fields: Object, own: int) -> bool:
    """Return whether a status lists our addresses first, and our port."""
    addresses = fields.get("addresses") or []
    first = (status.get("addresses") or [])[:own]
    port = status.get("daemonEndpoints") == fields.get("daemonEndpoints")
    return port and first == addresses[:own]


def contested(status: Object, own: Sequence[Address], port: int) -> str:
    """Describe what another writer publishes instead of us, with a remedy."""
    addresses = status.get("addresses") or [{}]
    kind, address = own[0]
    if (addresses[0].get("type"), addresses[0].get("address")) != (kind, address):
        return (
            "addresses in turns; let one of them do so: where Kosmos keeps the node, set its "
            f"LEAF_NODE_IP={address} and PREFERRED-ADDRESS-TYPE={kind}"
        )
    theirs = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port", 0)
    if theirs == port:
        return f"addresses behind {address} in turns; name that one alone as --node-address"
    # For a Node that stands for a single node, Kosmos writes that node's whole status, port
    # included.
    return (
        f"port {theirs} and {port} in turns; let the node server be reached at {theirs} (--listen and "
        "--node-port): where a node of Kosmos stands for one of the leaf's, its port is that one's"
    )


def writers(observed: Object, us: str) -> list[str]:
    """Return the other field managers that wrote addresses or port."""
    managers = []
    for entry in observed["metadata"].get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:status") or {}
        if "f:addresses" in fields or "f:daemonEndpoints" in fields:
            managers.append(str(entry.get("manager", "")))
    return sorted({name for name in managers if name and name != us})


def _foreign_problem(observed: Object, desired: DesiredNode) -> str:
    name, leaf = desired.node.name, desired.node.leaf
    kept_by = (observed["metadata"].get("annotations") or {}).get(KEPT_BY)
    if kept_by:
        return (
            f'node "{name}" is kept by the node server {kept_by}, not by {desired.keeper}; '
            "two of them need names of their own"
        )
    return (
        f'node "{name}" is there and does not stand for leaf "{leaf}": it is left alone. '
        f"Rename the leaf's node, or if it is to be taken over, annotate it with {LEAF}={leaf}"
    )


def _labels(desired: DesiredNode) -> dict[str, str]:
    return {**desired.labels, **desired.node.labels, NODE_LABEL: "true"}


def _annotations(desired: DesiredNode) -> dict[str, str]:
    return {
        # Several Nodes may share an address; the path tells them apart.
        METRICS_PATH: f"/metrics/resource/{desired.node.name}",
        **desired.node.annotations,
        LEAF: desired.node.leaf,
        KEPT_BY: desired.keeper,
    }


def _new_node(desired: DesiredNode, now: str) -> Object:
    node: Object = {
        "apiVersion": NODES.resource.api_version,
        "kind": NODES.resource.kind,
        "metadata": {
            "name": desired.node.name,
            "labels": _labels(desired),
            "annotations": _annotations(desired),
        },
        "spec": {"taints": [dict(taint) for taint in desired.node.taints]},
    }
    status = {key: value for key, value in desired.fields.items() if value}
    node["status"] = {**status, "conditions": _with_heartbeat([], desired.conditions, now)}
    return node


def _metadata_patch(desired: DesiredNode, observed: Object) -> list[Action]:
    """Return patches for our labels and annotations."""
    patch: Object = {}
    for key, ours in (("labels", _labels(desired)), ("annotations", _annotations(desired))):
        existing = observed["metadata"].get(key) or {}
        missing = {name: value for name, value in ours.items() if existing.get(name) != value}
        if missing:
            patch[key] = missing
    return [Patch({"metadata": patch})] if patch else []


def _status_patch(
    desired: DesiredNode, status: Object, now: str, beat: bool
) -> list[PatchNodeStatus]:
    patch = _endpoints(desired.fields, status)
    if desired.upkeep != FULL and is_our_address(status, desired.fields, desired.own):
        patch = {}  # addresses after ours belong to the other writer
    if desired.upkeep == FULL:
        patch |= _amounts(desired.fields, status)
        patch |= _info(desired.fields, status)
        patch |= _features(desired.fields, status)
        patch |= _conditions(desired.conditions, status, now, beat or bool(patch))
        if patch:
            # Every patch carries all endpoints, so that one write restores what another writer has
            # changed meanwhile.
            patch = {**_whole_endpoints(desired.fields), **patch}
    return [PatchNodeStatus(patch)] if patch else []


def _whole_endpoints(fields: Object) -> Object:
    return {key: fields[key] for key in ("addresses", "daemonEndpoints") if key in fields}


def _endpoints(fields: Object, status: Object) -> Object:
    endpoints = _whole_endpoints(fields)
    return {key: value for key, value in endpoints.items() if status.get(key) != value}


def _amounts(fields: Object, status: Object) -> Object:
    patch: Object = {}
    for part in ("capacity", "allocatable"):
        if part not in fields:
            continue
        desired, existing_types = fields[part], status.get(part) or {}
        changed = {
            key: value
            for key, value in desired.items()
            if not _same(value, existing_types.get(key, ""))
        }
        changed |= {key: None for key in existing_types if key not in desired}
        if changed:
            patch[part] = changed
    return patch


def _same(left: str, other: str) -> bool:
    """Compare quantities, whose notation API servers normalize."""
    try:
        return quantity.parse(left) == quantity.parse(other)
    except ValueError:
        return left == other


def _info(fields: Object, status: Object) -> Object:
    desired, existing_types = fields.get("nodeInfo") or {}, status.get("nodeInfo") or {}
    changed = {key: value for key, value in desired.items() if existing_types.get(key, "") != value}
    return {"nodeInfo": changed} if changed else {}


def _features(fields: Object, status: Object) -> Object:
    """Return our features, not the leaf's: they describe our routes."""
    desired = fields.get("declaredFeatures")
    if desired is None or desired == (status.get("declaredFeatures") or []):
        return {}
    return {"declaredFeatures": desired or None}


def _conditions(
    conditions: Mapping[str, ConditionValue], status: Object, now: str, beat: bool
) -> Object:
    listed = status.get("conditions") or []
    existing_types = {condition.get("type") for condition in listed}
    news = {
        type: condition
        for type, condition in conditions.items()
        if not (condition[1] == NOT_PROBED and type in existing_types)
    }
    if with_conditions(listed, news, now) == listed and not beat:
        return {}
    return {"conditions": _with_heartbeat(listed, news, now, conditions)}


def _with_heartbeat(
    listed: list[Object], news: Mapping[str, ConditionValue], now: str, ours: Iterable[str] = ()
) -> list[Object]:
    merged = with_conditions(listed, news, now)
    for condition in merged:
        if condition["type"] in news or condition["type"] in ours:
            condition["lastHeartbeatTime"] = now
    return merged
