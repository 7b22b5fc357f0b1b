"""RBAC rules of a Space Manager in the cluster with the Spaces."""

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
from twisted_exec.auth.rules import Rule
from twisted_exec.spacemanager.namespaces import BLOCKING
from twisted_exec.spacemanager.providers.kubeflex.controlplanes import CONTROLPLANES
from twisted_exec.spacemanager.settings import LEASE, NAMESPACE

_FOLLOW = ("get", "list", "watch")


def _on(resource: Resource, *verbs: str, sub: str = "") -> Rule:
    plural = f"{resource.plural}/{sub}" if sub else resource.plural
    return Rule(verbs, (resource.group,), (plural,))


def cluster_rules() -> tuple[Rule, ...]:
    """Return the rules of the ClusterRole."""
    spaces, profiles = SPACES.resource, CLUSTERPROFILES.resource
    covered = (SPACES.resource, SECRETS.resource)
    return (
        _on(SPACEPROVIDERDESCS.resource, *_FOLLOW),
        _on(SPACEPROVIDERDESCS.resource, "patch", sub="status"),
        _on(spaces, *_FOLLOW, "create", "patch", "delete"),
        _on(spaces, "update", sub="status"),
        _on(NAMESPACES.resource, *_FOLLOW, "create", "delete"),
        # Possible content of a deleted provider's namespace.
        *(_on(each, "list") for each in BLOCKING if each not in covered),
        _on(profiles, *_FOLLOW, "create", "update", "delete"),
        _on(profiles, "update", sub="status"),
        _on(EVENTS.resource, "create", "patch"),
    )


def secret_rules() -> tuple[Rule, ...]:
    """Return the rules of a separate ClusterRole for Secrets, the most sensitive permission."""
    return (_on(SECRETS.resource, *_FOLLOW, "create", "update", "delete"),)


def namespaced_rules(election: str = NAMESPACE) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """Yield Roles with their namespaces, for leader election."""
    own = replace(_on(LEASES.resource, "get", "update"), resource_names=(LEASE,))
    # ``create`` cannot be restricted by name.
    yield election, (own, _on(LEASES.resource, "create"))


def kubeflex_rules() -> tuple[Rule, ...]:
    """Return the rules for a KubeFlex in the cluster with the Spaces."""
    return (_on(CONTROLPLANES, *_FOLLOW, "create", "delete"),)
