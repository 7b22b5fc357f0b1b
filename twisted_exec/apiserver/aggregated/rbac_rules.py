"""
What a server must be allowed at its host: the roles that its user there has to have.

Manifests say the same (``docs/deploy``), and a test holds them to this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import EVENTS, LEASES
from twisted_exec.api.resource import Resource
from twisted_exec.apiserver.aggregated.admission.sources import FOLLOWED
from twisted_exec.apiserver.controllers.leader_election import LEASE
from twisted_exec.apiserver.controllers.leader_election import NAMESPACE as ELECTION
from twisted_exec.auth.rbac.rules import Rule

DELEGATOR = "system:auth-delegator"
"""A ClusterRole of the host's own: to ask whose a token is, and who may."""
READER = "extension-apiserver-authentication-reader"
"""A Role of the host's own in ``kube-system``: to read whom to believe."""

_FOLLOW = ("get", "list", "watch")


def _on(resource: Resource, *verbs: str) -> Rule:
    return Rule(verbs, (resource.group,), (resource.plural,))


def cluster_rules() -> tuple[Rule, ...]:
    """Of a ClusterRole: namespaces and what the host's admission is made of are followed, Events told."""
    followed = dict.fromkeys(
        (resource.group, resource.plural) for versions in FOLLOWED for resource in versions
    )
    return (
        *(Rule(_FOLLOW, (group,), (plural,)) for group, plural in followed),
        _on(EVENTS.resource, "get", "create", "update"),
    )


def namespaced_rules(dialects: Iterable[Dialect]) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """
    Of Roles, each with its namespace: of several servers one is elected, and poollets' heartbeats
    are heard.
    """
    own = replace(_on(LEASES.resource, *_FOLLOW, "update"), resource_names=(LEASE,))
    # Other programs of the host elect theirs there.  What is to be made has no name yet.
    yield ELECTION, (own, _on(LEASES.resource, "create"))
    for namespace in sorted({each.lease_namespace for each in dialects} - {""}):
        yield namespace, (_on(LEASES.resource, *_FOLLOW),)
