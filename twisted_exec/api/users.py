"""
Users and groups as Kubernetes knows them, and those with well-known names.

Source: ``k8s.io/apiserver/pkg/authentication/user`` and ``.../group``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class User:
    """
    A user of the API, whose last three fields are not part of the identity.

    :param groups: usually with ``system:authenticated``.
    :param forwarded_by: the proxy that speaks for the user, if one does. Reviews of a session do
        not authenticate such a user again: the proxy does. Set it only for proxies that end
        sessions themselves.
    :param expires: when the credential that identified the user is no longer accepted, in seconds
        since 1970, the tolerance for clocks that differ included; infinite if it is not known.
    :param impersonated_by: the user who acts as this user.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    forwarded_by: User | None = field(default=None, compare=False, repr=False)
    expires: float = field(default=math.inf, compare=False, repr=False)
    impersonated_by: User | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.name, self.uid, self.groups))  # without ``extra``, which has no hash


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
FORWARDING_USER = "exec-apiserver"
"""Our API server where it forwards identities: the common name of its client certificate."""


def with_authenticated(name: str, groups: Iterable[str]) -> tuple[str, ...]:
    """
    Return a user's groups: unique, in order, with ``system:authenticated`` unless the user is
    anonymous.
    """
    unique = tuple(dict.fromkeys(group for group in groups if group))
    if name == ANONYMOUS or {AUTHENTICATED, UNAUTHENTICATED} & set(unique):
        return unique
    return (*unique, AUTHENTICATED)
