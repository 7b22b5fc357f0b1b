"""
The RBAC rules that a node server needs, in its root and in each leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, EVENTS, LEASES, SECRETS
from twisted_exec.api.kinds.namespaces import NAMESPACES
from twisted_exec.api.kinds.nodes import LEASE_NAMESPACE, NODES
from twisted_exec.api.kinds.pods.machine_pods import PODS
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import SPACES
from twisted_exec.auth.rules import Rule
from twisted_exec.nodeserver.kubelet_api.usage import NODE_METRICS, POD_METRICS
from twisted_exec.nodeserver.leaves.kosmos import CLUSTERS
from twisted_exec.nodeserver.options import LEASE
from twisted_exec.nodeserver.options import NAMESPACE as ELECTION
from twisted_exec.nodeserver.syncer.leaf_pods import CONFIG_MAPS

_FOLLOW = ("get", "list", "watch")


def _on(resource: Resource, *verbs: str, sub: str = "") -> Rule:
    plural = f"{resource.plural}/{sub}" if sub else resource.plural
    return Rule(verbs, (resource.group,), (plural,))


def root_rules() -> tuple[Rule, ...]:
    """Rules of a ClusterRole in the root."""
    return (
        _on(PODS.resource, *_FOLLOW),
        _on(NODES.resource, *_FOLLOW, "create", "patch", "delete"),
        _on(NODES.resource, "patch", sub="status"),
        _on(EVENTS.resource, "create", "patch"),
        _on(CLUSTERS, *_FOLLOW),
        _on(CERTIFICATESIGNINGREQUESTS.resource, "create", "get"),
    )


def root_namespaced_rules(election: str = ELECTION) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """Rules of Roles in the root, each with its namespace."""
    own = replace(_on(LEASES.resource, "get", "update"), resource_names=(LEASE,))
    # RBAC cannot restrict create by name: the object has none yet.
    yield election, (own, _on(LEASES.resource, "create"))
    yield LEASE_NAMESPACE, (_on(LEASES.resource, "create", "patch"),)


def probe_rules(nodes: Iterable[str]) -> tuple[Rule, ...]:
    """
    Rules of a ClusterRole in the root that lets probes go through ``nodes/proxy``.

    They are restricted to our Nodes: for a Node with a real kubelet ``nodes/proxy`` amounts to exec
    in its Pods, by way of a WebSocket.
    """
    rule = _on(NODES.resource, "get", sub="proxy")
    return (replace(rule, resource_names=tuple(sorted(nodes))),)


def secret_rules() -> tuple[Rule, ...]:
    """Rules of a Role in a namespace with kubeconfigs of leaves."""
    return (_on(SECRETS.resource, *_FOLLOW),)


def space_rules() -> tuple[Rule, ...]:
    """
    Rules of a ClusterRole in the root, with ``--spaces``; bind it in the namespace of each
    provider, or cluster-wide with ``--spaces '*'``.
    """
    return (_on(SPACES, *_FOLLOW), _on(SECRETS.resource, *_FOLLOW))


def leaf_rules() -> tuple[Rule, ...]:
    """Rules of a ClusterRole in each leaf."""
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
    """Rules of a ClusterRole in the root, for leaves with ``pods: machines``."""
    return (
        _on(PODS.resource, "create", "delete"),
        _on(PODS.resource, "patch", sub="status"),
    )


def sync_root_rules() -> tuple[Rule, ...]:
    """Rules of a ClusterRole in the root, with ``--sync-pods``."""
    return (
        _on(PODS.resource, "delete"),
        _on(PODS.resource, "patch", sub="status"),
        *(_on(kind, *_FOLLOW) for kind in (CONFIG_MAPS, SECRETS.resource)),
    )


def sync_leaf_rules() -> tuple[Rule, ...]:
    """Rules of a ClusterRole in each leaf, with ``--sync-pods``."""
    return (
        _on(PODS.resource, "create", "update", "delete"),
        _on(PODS.resource, "update", sub="ephemeralcontainers"),
        *(
            _on(kind, *_FOLLOW, "create", "update", "delete")
            for kind in (CONFIG_MAPS, SECRETS.resource)
        ),
        _on(NAMESPACES.resource, "create"),
    )
