"""
Conditions of a Node that stands for a leaf.

Each section of the path to a console has a condition of its own, and ``ExecReady`` summarizes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.nodes.status import is_ready, pressures

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
