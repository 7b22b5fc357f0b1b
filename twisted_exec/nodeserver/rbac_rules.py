"""
What a node server must be allowed: in its root, and in each leaf.

Manifests say the same (``docs/deploy``), and a test holds them to this.  Whatever is only needed for
something that can be switched off is apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, EVENTS, LEASES, SECRETS
from twisted_exec.api.kinds.core import NAMESPACES
from twisted_exec.api.kinds.nodes import LEASE_NAMESPACE, NODES
from twisted_exec.api.kinds.pods.machine_pods import PODS
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import SPACES
from twisted_exec.auth.rbac.rules import Rule
from twisted_exec.nodeserver.kubelet_api.usage import NODE_METRICS, POD_METRICS
from twisted_exec.nodeserver.leaves.kosmos import CLUSTERS
from twisted_exec.nodeserver.nodes.options import LEASE
from twisted_exec.nodeserver.nodes.options import NAMESPACE as ELECTION
from twisted_exec.nodeserver.syncer.form import CONFIG_MAPS

DELEGATOR = "system:auth-delegator"
"""A ClusterRole of the root's own: to ask whose a token is, and who may."""

_FOLLOW = ("get", "list", "watch")


def _on(resource: Resource, *verbs: str, sub: str = "") -> Rule:
    plural = f"{resource.plural}/{sub}" if sub else resource.plural
    return Rule(verbs, (resource.group,), (plural,))


def root_rules() -> tuple[Rule, ...]:
    """Of a ClusterRole in the root: Pods are followed, Nodes kept, Events told."""
    return (
        _on(PODS.resource, *_FOLLOW),
        _on(NODES.resource, *_FOLLOW, "create", "patch", "delete"),
        _on(NODES.resource, "patch", sub="status"),
        _on(EVENTS.resource, "create", "patch"),
        _on(CLUSTERS, *_FOLLOW),
        _on(CERTIFICATESIGNINGREQUESTS.resource, "create", "get"),
    )


def root_namespaced_rules(election: str = ELECTION) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """
    Of Roles in the root, each with its namespace: of the replicas one is elected, Nodes have
    heartbeats.

    :param election: as ``--namespace``.
    """
    own = replace(_on(LEASES.resource, "get", "update"), resource_names=(LEASE,))
    # What is to be made has no name yet.
    yield election, (own, _on(LEASES.resource, "create"))
    yield LEASE_NAMESPACE, (_on(LEASES.resource, "create", "patch"),)


def probe_rules(nodes: Iterable[str]) -> tuple[Rule, ...]:
    """
    Of a ClusterRole in the root, for those who want to know whether the root reaches us.

    Only for Nodes that are ours: of a Node with a kubelet it would be as good as exec in all Pods
    there, by a WebSocket.
    """
    rule = _on(NODES.resource, "get", sub="proxy")
    return (replace(rule, resource_names=tuple(sorted(nodes))),)


def secret_rules() -> tuple[Rule, ...]:
    """Of a Role where the kubeconfigs of leaves are kept as Secrets."""
    return (_on(SECRETS.resource, *_FOLLOW),)


def space_rules() -> tuple[Rule, ...]:
    """
    Of a ClusterRole in the root, with ``--spaces``; to be bound in the namespace of each provider, or with
    ``--spaces '*'`` everywhere.
    """
    return (_on(SPACES, *_FOLLOW), _on(SECRETS.resource, *_FOLLOW))


def leaf_rules() -> tuple[Rule, ...]:
    """Of a ClusterRole in each leaf: its Pods are found, read and entered."""
    return (
        _on(PODS.resource, *_FOLLOW),
        _on(PODS.resource, "get", sub="log"),
        *(
            _on(PODS.resource, "get", "create", sub=each)
            for each in ("exec", "attach", "portforward")
        ),
        _on(NODES.resource, "list", "watch"),
        _on(POD_METRICS, "list"),
        _on(NODE_METRICS, "list"),
    )


def machine_rules() -> tuple[Rule, ...]:
    """Of a ClusterRole in the root, where a leaf's machines are shown there as Pods (``pods: machines``)."""
    return (
        _on(PODS.resource, "create", "delete"),
        _on(PODS.resource, "patch", sub="status"),
    )


def sync_root_rules() -> tuple[Rule, ...]:
    """
    Of a ClusterRole in the root, with ``--sync-pods``: what becomes of Pods is written, also that they
    are gone, and what they name is copied.
    """
    return (
        _on(PODS.resource, "delete"),
        _on(PODS.resource, "patch", sub="status"),
        *(_on(kind, *_FOLLOW) for kind in (CONFIG_MAPS, SECRETS.resource)),
    )


def sync_leaf_rules() -> tuple[Rule, ...]:
    """Of a ClusterRole in each leaf, with ``--sync-pods``: Pods are made, with what they name."""
    return (
        _on(PODS.resource, "create", "update", "delete"),
        _on(PODS.resource, "update", sub="ephemeralcontainers"),
        *(
            _on(kind, *_FOLLOW, "create", "update", "delete")
            for kind in (CONFIG_MAPS, SECRETS.resource)
        ),
        _on(NAMESPACES.resource, "create"),
    )
