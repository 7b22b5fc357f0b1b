"""
Well-known user and group names, and the group of all authenticated users.

Source: ``k8s.io/apiserver/pkg/authentication/user`` and ``.../group``.
"""

from __future__ import annotations

from collections.abc import Iterable

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
ANONYMOUS = "system:anonymous"
NODE_SERVERS = "system:nodes"
"""Node servers and kubelets: users ``system:node:NAME`` of this group."""
NODE_BOOTSTRAPPERS = "system:bootstrappers:nodes"
"""Users who may request the first certificate of a node server."""
EXPOSED = "console.twisted-exec.dev:exposed"
"""Other clusters' users, who see only machines that are exposed to them."""
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"


def with_authenticated(name: str, groups: Iterable[str]) -> tuple[str, ...]:
    """
    Return an authenticated user's groups: unique, in order, with ``system:authenticated``.

    A proxy may forward an anonymous user (``system:anonymous`` or ``system:unauthenticated``), who
    stays anonymous.
    """
    unique = tuple(dict.fromkeys(group for group in groups if group))
    if name == ANONYMOUS or {AUTHENTICATED, UNAUTHENTICATED} & set(unique):
        return unique
    return (*unique, AUTHENTICATED)
