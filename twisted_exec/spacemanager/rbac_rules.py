"""
What a space manager must be allowed in the cluster that has the Spaces.

Manifests say the same (``docs/deploy``), and a test holds them to this.  What it does elsewhere it does with the
credentials of each provider, and with those of each Space.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from twisted_exec.api.kinds import (
    CLUSTERPROFILES,
    EVENTS,
    LEASES,
    NAMESPACES,
    SECRETS,
    SPACEPROVIDERDESCS,
    SPACES,
)
from twisted_exec.api.resource import Resource
from twisted_exec.auth.rbac.rules import Rule
from twisted_exec.spacemanager.provider_views.namespaces import LOOKED_AT
from twisted_exec.spacemanager.providers.kubeflex.controlplanes import CONTROLPLANES
from twisted_exec.spacemanager.service import LEASE, NAMESPACE

_FOLLOW = ("get", "list", "watch")


def _on(resource: Resource, *verbs: str, sub: str = "") -> Rule:
    plural = f"{resource.plural}/{sub}" if sub else resource.plural
    return Rule(verbs, (resource.group,), (plural,))


def cluster_rules() -> tuple[Rule, ...]:
    """Of a ClusterRole: Spaces are kept, providers told how they are, namespaces made for them."""
    spaces, profiles = SPACES.resource, CLUSTERPROFILES.resource
    seen = (SPACES.resource, SECRETS.resource)
    return (
        _on(SPACEPROVIDERDESCS.resource, *_FOLLOW),
        _on(SPACEPROVIDERDESCS.resource, "patch", sub="status"),
        _on(spaces, *_FOLLOW, "create", "patch", "delete"),
        _on(spaces, "update", sub="status"),
        _on(NAMESPACES.resource, *_FOLLOW, "create", "delete"),
        # What may be left in a namespace whose provider is gone.
        *(_on(each, "list") for each in LOOKED_AT if each not in seen),
        _on(profiles, *_FOLLOW, "create", "update", "delete"),
        _on(profiles, "update", sub="status"),
        _on(EVENTS.resource, "create", "patch"),
    )


def secret_rules() -> tuple[Rule, ...]:
    """
    Of a ClusterRole of its own, as it weighs more than all the rest: kubeconfigs are written beside
    their Spaces, and read where SpaceProviderDescs and imported Spaces say.
    """
    return (_on(SECRETS.resource, *_FOLLOW, "create", "update", "delete"),)


def namespaced_rules(election: str = NAMESPACE) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """
    Of Roles, each with its namespace: of the replicas one is elected.

    :param election: as ``--namespace``.
    """
    own = replace(_on(LEASES.resource, "get", "update"), resource_names=(LEASE,))
    # What is to be made has no name yet.
    yield election, (own, _on(LEASES.resource, "create"))


def kubeflex_rules() -> tuple[Rule, ...]:
    """Of a ClusterRole, where KubeFlex is in the cluster that has the Spaces, and no Secret leads there."""
    return (_on(CONTROLPLANES, *_FOLLOW, "create", "delete"),)
