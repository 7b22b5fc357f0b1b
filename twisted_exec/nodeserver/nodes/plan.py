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
from twisted_exec.api.conditions import Told, with_conditions
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
    :param told: conditions, by type.
    :param upkeep: :data:`FULL` or :data:`ENDPOINTS`.
    :param labels: besides those of ``node``, which win.
    :param own: how many of the addresses are ours; they come first.
    """

    node: LeafNode
    keeper: str
    fields: Object
    told: Mapping[str, Told] = field(default_factory=dict)
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


def claim(observed: Object, wanted: LeafNode, keeper: str) -> str:
    """Whose a Node is: :data:`MINE`, :data:`CLAIMABLE` or :data:`FOREIGN`."""
    annotations = observed["metadata"].get("annotations") or {}
    kept_by = annotations.get(KEPT_BY)
    if kept_by:
        return MINE if kept_by == keeper else FOREIGN
    stands_for = annotations.get(LEAF) or annotations.get(KOSMOS_LEAF)
    known = {wanted.leaf, wanted.annotations.get(KOSMOS_LEAF)} - {None}
    return CLAIMABLE if stands_for in known else FOREIGN


def plan(wanted: Wanted, observed: Object | None, now: str, *, beat: bool = False) -> Plan:
    """
    What makes the Node as it is to be.

    :param observed: the Node as last seen; ``None`` when there is none.
    :param now: a timestamp.
    :param beat: the conditions are to be told again although they are the same.
    """
    name = wanted.node.name
    if observed is None:
        if wanted.upkeep != FULL:
            return Plan(
                problem=f'node "{name}" is not there, and --upkeep={wanted.upkeep} makes none'
            )
        return Plan([Create(_made(wanted, now))])
    if observed["metadata"].get("deletionTimestamp"):
        return Plan(problem=f'node "{name}" is being deleted')
    owned = claim(observed, wanted.node, wanted.keeper)
    if owned == FOREIGN:
        return Plan(problem=_foreign(observed, wanted))
    status = _status_patch(wanted, observed.get("status") or {}, now, beat)
    if wanted.upkeep != FULL:
        return Plan(status)
    return Plan([*_metadata_patch(wanted, observed), *status], adopts=owned == CLAIMABLE)


def orphans(nodes: Iterable[Object], wanted: Iterable[str], keeper: str) -> list[Object]:
    """Nodes that we keep and that no leaf has any more."""
    known = set(wanted)
    return [
        node
        for node in nodes
        if node["metadata"]["name"] not in known
        and (node["metadata"].get("annotations") or {}).get(KEPT_BY) == keeper
        and not node["metadata"].get("deletionTimestamp")
    ]


def is_our_address(status: Object, fields: Object, own: int) -> bool:
    """
    Whether a status says our addresses before others, and our port.

    :param fields: what it is to say; ``own`` as in :class:`Wanted`.
    """
    wanted = fields.get("addresses") or []
    first = (status.get("addresses") or [])[:own]
    port = status.get("daemonEndpoints") == fields.get("daemonEndpoints")
    return port and first == wanted[:own]


def contested(status: Object, own: Sequence[Address], port: int) -> str:
    """
    What somebody else says of where we are, and how to make them say what we do.

    :param status: as they have left it.
    :param own: our addresses, one at least.
    """
    told = status.get("addresses") or [{}]
    kind, address = own[0]
    if (told[0].get("type"), told[0].get("address")) != (kind, address):
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
    found = []
    for entry in observed["metadata"].get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:status") or {}
        if "f:addresses" in fields or "f:daemonEndpoints" in fields:
            found.append(str(entry.get("manager", "")))
    return sorted({name for name in found if name and name != us})


def _foreign(observed: Object, wanted: Wanted) -> str:
    name, leaf = wanted.node.name, wanted.node.leaf
    kept_by = (observed["metadata"].get("annotations") or {}).get(KEPT_BY)
    if kept_by:
        return (
            f'node "{name}" is kept by the node server {kept_by}, not by {wanted.keeper}; '
            "two of them need names of their own"
        )
    return (
        f'node "{name}" is there and does not stand for leaf "{leaf}": it is left alone. '
        f"Rename the leaf's node, or if it is to be taken over, annotate it with {LEAF}={leaf}"
    )


def _labels(wanted: Wanted) -> dict[str, str]:
    return {**wanted.labels, **wanted.node.labels, NODE_LABEL: "true"}


def _annotations(wanted: Wanted) -> dict[str, str]:
    return {
        # Several Nodes may have one address, so the path says which one is meant.
        METRICS_PATH: f"/metrics/resource/{wanted.node.name}",
        **wanted.node.annotations,
        LEAF: wanted.node.leaf,
        KEPT_BY: wanted.keeper,
    }


def _made(wanted: Wanted, now: str) -> Object:
    made: Object = {
        "apiVersion": NODES.resource.api_version,
        "kind": NODES.resource.kind,
        "metadata": {
            "name": wanted.node.name,
            "labels": _labels(wanted),
            "annotations": _annotations(wanted),
        },
        "spec": {"taints": [dict(taint) for taint in wanted.node.taints]},
    }
    status = {key: value for key, value in wanted.fields.items() if value}
    made["status"] = {**status, "conditions": _beaten([], wanted.told, now)}
    return made


def _metadata_patch(wanted: Wanted, observed: Object) -> list[Action]:
    """Labels and annotations of ours; taints are left to others once the Node is there."""
    patch: Object = {}
    for key, ours in (("labels", _labels(wanted)), ("annotations", _annotations(wanted))):
        known = observed["metadata"].get(key) or {}
        missing = {name: value for name, value in ours.items() if known.get(name) != value}
        if missing:
            patch[key] = missing
    return [Patch({"metadata": patch})] if patch else []


def _status_patch(wanted: Wanted, known: Object, now: str, beat: bool) -> list[PatchStatus]:
    patch = _endpoints(wanted.fields, known)
    if wanted.upkeep != FULL and is_our_address(known, wanted.fields, wanted.own):
        patch = {}  # what stands behind ours is the other's to say
    if wanted.upkeep == FULL:
        patch |= _amounts(wanted.fields, known)
        patch |= _info(wanted.fields, known)
        patch |= _features(wanted.fields, known)
        patch |= _conditions(wanted.told, known, now, beat or bool(patch))
        if patch:
            # Who has it changed meanwhile may have meant a part of what is told here.
            patch = {**_whole_endpoints(wanted.fields), **patch}
    return [PatchStatus(patch)] if patch else []


def _whole_endpoints(fields: Object) -> Object:
    return {key: fields[key] for key in ("addresses", "daemonEndpoints") if key in fields}


def _endpoints(fields: Object, known: Object) -> Object:
    wanted = _whole_endpoints(fields)
    return {key: value for key, value in wanted.items() if known.get(key) != value}


def _amounts(fields: Object, known: Object) -> Object:
    patch: Object = {}
    for part in ("capacity", "allocatable"):
        if part not in fields:
            continue
        wanted, there = fields[part], known.get(part) or {}
        changed = {
            key: value for key, value in wanted.items() if not _same(value, there.get(key, ""))
        }
        changed |= {key: None for key in there if key not in wanted}
        if changed:
            patch[part] = changed
    return patch


def _same(one: str, other: str) -> bool:
    """API servers write amounts in their own way."""
    try:
        return quantity.parse(one) == quantity.parse(other)
    except ValueError:
        return one == other


def _info(fields: Object, known: Object) -> Object:
    wanted, there = fields.get("nodeInfo") or {}, known.get("nodeInfo") or {}
    changed = {key: value for key, value in wanted.items() if there.get(key, "") != value}
    return {"nodeInfo": changed} if changed else {}


def _features(fields: Object, known: Object) -> Object:
    """Never a leaf's: what our routes can do is ours to say."""
    wanted = fields.get("declaredFeatures")
    if wanted is None or wanted == (known.get("declaredFeatures") or []):
        return {}
    return {"declaredFeatures": wanted or None}


def _conditions(told: Mapping[str, Told], known: Object, now: str, beat: bool) -> Object:
    listed = known.get("conditions") or []
    there = {one.get("type") for one in listed}
    news = {type: one for type, one in told.items() if not (one[1] == NOT_PROBED and type in there)}
    if with_conditions(listed, news, now) == listed and not beat:
        return {}
    return {"conditions": _beaten(listed, news, now, told)}


def _beaten(
    listed: list[Object], news: Mapping[str, Told], now: str, ours: Iterable[str] = ()
) -> list[Object]:
    """
    With these conditions told, just now.

    :param ours: types of others that are ours as well.
    """
    made = with_conditions(listed, news, now)
    for one in made:
        if one["type"] in news or one["type"] in ours:
            one["lastHeartbeatTime"] = now
    return made
