"""
Names that mean something to everyone, and the group that every known user is in.

Source: ``k8s.io/apiserver/pkg/authentication/user`` and ``.../group``.
"""

from __future__ import annotations

from collections.abc import Iterable

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
ANONYMOUS = "system:anonymous"
NODE_SERVERS = "system:nodes"
"""Those who speak for Nodes, as kubelets do: each is a user ``system:node:NAME`` of this group."""
NODE_BOOTSTRAPPERS = "system:bootstrappers:nodes"
"""Who may ask for the first certificate of a node server."""
EXPOSED = "console.twisted-exec.dev:exposed"
"""Who comes for another cluster, and sees of machines only those that are exposed to it."""
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"


def with_authenticated(name: str, groups: Iterable[str]) -> tuple[str, ...]:
    """
    A known user's groups: each once, in order, and ``system:authenticated``.

    A proxy may forward someone *it* does not know (``system:anonymous`` or
    ``system:unauthenticated``): they stay unknown.
    """
    unique = tuple(dict.fromkeys(group for group in groups if group))
    if name == ANONYMOUS or {AUTHENTICATED, UNAUTHENTICATED} & set(unique):
        return unique
    return (*unique, AUTHENTICATED)
