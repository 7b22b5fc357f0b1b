"""
RBAC rules that an aggregated server's user needs in the host.

The manifests (``docs/deploy``) contain the same rules; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    EVENTS,
    LEASES,
    ROLEBINDINGS,
    ROLES,
)
from twisted_exec.api.resource import Resource
from twisted_exec.apiserver.aggregated.admission.sources import FOLLOWED
from twisted_exec.apiserver.controllers.leader_election import LEASE
from twisted_exec.apiserver.controllers.leader_election import NAMESPACE as ELECTION
from twisted_exec.auth.rbac.rules import Rule

DELEGATOR = "system:auth-delegator"
"""A ClusterRole of the host: TokenReviews and SubjectAccessReviews."""
READER = "extension-apiserver-authentication-reader"
"""A Role of the host in ``kube-system``: read the authentication ConfigMap."""

RBAC = (ROLES, ROLEBINDINGS, CLUSTERROLES, CLUSTERROLEBINDINGS)
"""Kinds whose changes are hints that a session may have lost its permission."""

_FOLLOW = ("get", "list", "watch")


def _on(resource: Resource, *verbs: str) -> Rule:
    return Rule(verbs, (resource.group,), (resource.plural,))


def cluster_rules() -> tuple[Rule, ...]:
    """Rules of a ClusterRole: follow namespaces, admission objects, roles and bindings; record Events."""
    followed = dict.fromkeys(
        (resource.group, resource.plural) for versions in FOLLOWED for resource in versions
    )
    return (
        *(Rule(_FOLLOW, (group,), (plural,)) for group, plural in followed),
        # A server that may create access reviews can find out the same, one question after the other.
        *(_on(kind.resource, *_FOLLOW) for kind in RBAC),
        _on(EVENTS.resource, "get", "create", "update"),
    )


def namespaced_rules(dialects: Iterable[Dialect]) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """
    Rules of Roles, by namespace: leader election among the servers, and the heartbeats of
    poollets.
    """
    own = replace(_on(LEASES.resource, *_FOLLOW, "update"), resource_names=(LEASE,))
    # Other programs elect their leaders in this namespace, so only our Lease is named; a create
    # cannot be limited by name.
    yield ELECTION, (own, _on(LEASES.resource, "create"))
    for namespace in sorted({each.lease_namespace for each in dialects} - {""}):
        yield namespace, (_on(LEASES.resource, *_FOLLOW),)
