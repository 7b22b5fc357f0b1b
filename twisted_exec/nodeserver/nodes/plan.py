"""
What to do about one Node of the root: decided here, done by :mod:`.kept_node`.

A pure function from what the Node is to be and what is there.  It is asked again each heartbeat and
after each change, so it remembers nothing.  A Node that is not ours is never touched: whose it is
says the Node itself, in an annotation; where it stands for a leaf by somebody else's word (Kosmos's,
or an administrator's) it may be taken over.

Kosmos's own upkeep sets a Node's port when it makes the Node, and where the Node stands for one node
copies that one's port over it; it deletes by a name that no Node has (``leaf_model_handler.go``,
``cluster_controller.go``).  Here both are looked at again and again.
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
"""Annotation: which node server keeps the Node, by namespace and name of its election's Lease."""
LEAF = f"{PREFIX}leaf"
"""Annotation: the leaf that the Node stands for, or that a machine is of."""

METRICS_PATH = "metrics.k8s.io/resource-metrics-path"
"""Annotation: where metrics-server finds the Node's figures (its ``AnnotationResourceMetricsPath``)."""

MINE, CLAIMABLE, FOREIGN = "mine", "claimable", "foreign"


@dataclass(frozen=True)
class Wanted:
    """
    What a Node is to be.

    :param keeper: who keeps it, for :data:`KEPT_BY`.
    :param fields: of ``status``, conditions aside.
    :param conditions: by type.
    :param upkeep: :data:`FULL` or :data:`ENDPOINTS`.
    :param labels: besides those of ``node``, which win.
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
    """Make the Node."""

    node: Object


@dataclass(frozen=True)
class Patch:
    """A merge patch of what is not its status."""

    patch: Object


@dataclass(frozen=True)
class PatchStatus:
    """A merge patch of the status."""

    status: Object


Action = Create | Patch | PatchStatus


@dataclass(frozen=True)
class Plan:
    """
    What to do, in order.

    :param problem: why the Node cannot be kept, or empty.
    :param adopts: it was somebody else's until now.
    """

    actions: Sequence[Action] = ()
    problem: str = ""
    adopts: bool = False


def claim(observed: Object, node: LeafNode, keeper: str) -> str:
    """Whose a Node is: :data:`MINE`, :data:`CLAIMABLE` or :data:`FOREIGN`."""
    annotations = observed["metadata"].get("annotations") or {}
    kept_by = annotations.get(KEPT_BY)
    if kept_by:
        return MINE if kept_by == keeper else FOREIGN
    stands_for = annotations.get(LEAF) or annotations.get(KOSMOS_LEAF)
    leaf_names = {node.leaf, node.annotations.get(KOSMOS_LEAF)} - {None}
    return CLAIMABLE if stands_for in leaf_names else FOREIGN


def plan(desired: Wanted, observed: Object | None, now: str, *, beat: bool = False) -> Plan:
    """
    What makes the Node as it is to be.

    :param observed: the Node as last seen; ``None`` when there is none.
    :param now: a timestamp.
    :param beat: the conditions are to be told again although they are the same.
    """
    name = desired.node.name
    if observed is None:
        if desired.upkeep != FULL:
            return Plan(
                problem=f'node "{name}" is not there, and --upkeep={desired.upkeep} makes none'
            )
        return Plan([Create(_made(desired, now))])
    if observed["metadata"].get("deletionTimestamp"):
        return Plan(problem=f'node "{name}" is being deleted')
    owned = claim(observed, desired.node, desired.keeper)
    if owned == FOREIGN:
        return Plan(problem=_foreign(observed, desired))
    status = _status_patch(desired, observed.get("status") or {}, now, beat)
    if desired.upkeep != FULL:
        return Plan(status)
    return Plan([*_metadata_patch(desired, observed), *status], adopts=owned == CLAIMABLE)


def orphans(nodes: Iterable[Object], leaf_node_names: Iterable[str], keeper: str) -> list[Object]:
    """Nodes that we keep and that no leaf has any more."""
    current_names = set(leaf_node_names)
    return [
        node
        for node in nodes
        if node["metadata"]["name"] not in current_names
        and (node["metadata"].get("annotations") or {}).get(KEPT_BY) == keeper
        and not node["metadata"].get("deletionTimestamp")
    ]


def is_our_address(status: Object, fields: Object, own: int) -> bool:
    """
    Whether a status says our addresses before others, and our port.

    :param fields: what it is to say; ``own`` as in :class:`Wanted`.
    """
    addresses = fields.get("addresses") or []
    first = (status.get("addresses") or [])[:own]
    port = status.get("daemonEndpoints") == fields.get("daemonEndpoints")
    return port and first == addresses[:own]


def contested(status: Object, own: Sequence[Address], port: int) -> str:
    """
    What somebody else says of where we are, and how to make them say what we do.

    :param status: as they have left it.
    :param own: our addresses, one at least.
    """
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
    # Where a Node stands for one node Kosmos writes all of that one's status, its port included.
    return (
        f"port {theirs} and {port} in turns; let us be reached at {theirs} (--listen and "
        "--node-port): where a node of Kosmos stands for one of the leaf's, its port is that one's"
    )


def writers(observed: Object, us: str) -> list[str]:
    """
    Who else wrote the addresses or the port, as the API server noted it.

    :param us: our own name there.
    """
    managers = []
    for entry in observed["metadata"].get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:status") or {}
        if "f:addresses" in fields or "f:daemonEndpoints" in fields:
            managers.append(str(entry.get("manager", "")))
    return sorted({name for name in managers if name and name != us})


def _foreign(observed: Object, desired: Wanted) -> str:
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


def _labels(desired: Wanted) -> dict[str, str]:
    return {**desired.labels, **desired.node.labels, NODE_LABEL: "true"}


def _annotations(desired: Wanted) -> dict[str, str]:
    return {
        # Several Nodes may have one address, so the path says which one is meant.
        METRICS_PATH: f"/metrics/resource/{desired.node.name}",
        **desired.node.annotations,
        LEAF: desired.node.leaf,
        KEPT_BY: desired.keeper,
    }


def _made(desired: Wanted, now: str) -> Object:
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
    node["status"] = {**status, "conditions": _beaten([], desired.conditions, now)}
    return node


def _metadata_patch(desired: Wanted, observed: Object) -> list[Action]:
    """Labels and annotations of ours; taints are left to others once the Node is there."""
    patch: Object = {}
    for key, ours in (("labels", _labels(desired)), ("annotations", _annotations(desired))):
        existing = observed["metadata"].get(key) or {}
        missing = {name: value for name, value in ours.items() if existing.get(name) != value}
        if missing:
            patch[key] = missing
    return [Patch({"metadata": patch})] if patch else []


def _status_patch(desired: Wanted, status: Object, now: str, beat: bool) -> list[PatchStatus]:
    patch = _endpoints(desired.fields, status)
    if desired.upkeep != FULL and is_our_address(status, desired.fields, desired.own):
        patch = {}  # what stands behind ours is the other's to say
    if desired.upkeep == FULL:
        patch |= _amounts(desired.fields, status)
        patch |= _info(desired.fields, status)
        patch |= _features(desired.fields, status)
        patch |= _conditions(desired.conditions, status, now, beat or bool(patch))
        if patch:
            # Who has it changed meanwhile may have meant a part of what is told here.
            patch = {**_whole_endpoints(desired.fields), **patch}
    return [PatchStatus(patch)] if patch else []


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
        desired, there = fields[part], status.get(part) or {}
        changed = {
            key: value for key, value in desired.items() if not _same(value, there.get(key, ""))
        }
        changed |= {key: None for key in there if key not in desired}
        if changed:
            patch[part] = changed
    return patch


def _same(left: str, other: str) -> bool:
    """API servers write amounts in their own way."""
    try:
        return quantity.parse(left) == quantity.parse(other)
    except ValueError:
        return left == other


def _info(fields: Object, status: Object) -> Object:
    desired, there = fields.get("nodeInfo") or {}, status.get("nodeInfo") or {}
    changed = {key: value for key, value in desired.items() if there.get(key, "") != value}
    return {"nodeInfo": changed} if changed else {}


def _features(fields: Object, status: Object) -> Object:
    """Never a leaf's: what our routes can do is ours to say."""
    desired = fields.get("declaredFeatures")
    if desired is None or desired == (status.get("declaredFeatures") or []):
        return {}
    return {"declaredFeatures": desired or None}


def _conditions(
    conditions: Mapping[str, ConditionValue], status: Object, now: str, beat: bool
) -> Object:
    listed = status.get("conditions") or []
    there = {condition.get("type") for condition in listed}
    news = {
        type: condition
        for type, condition in conditions.items()
        if not (condition[1] == NOT_PROBED and type in there)
    }
    if with_conditions(listed, news, now) == listed and not beat:
        return {}
    return {"conditions": _beaten(listed, news, now, conditions)}


def _beaten(
    listed: list[Object], news: Mapping[str, ConditionValue], now: str, ours: Iterable[str] = ()
) -> list[Object]:
    """
    With these conditions told, just now.

    :param ours: types of others that are ours as well.
    """
    merged = with_conditions(listed, news, now)
    for condition in merged:
        if condition["type"] in news or condition["type"] in ours:
            condition["lastHeartbeatTime"] = now
    return merged
