"""
Users as Kubernetes knows them.  Source: ``k8s.io/apiserver/pkg/authentication/user``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class User:
    """
    A user of the API.

    :param groups: with ``system:authenticated``, unless the user is anonymous.
    :param forwarded_by: the proxy that speaks for the user, if one does; not part of the user's
        identity.  Reviews of a session do not authenticate such a user again: the proxy does.  Set
        it only for proxies that end sessions themselves.
    :param expires: the end of the credential that identified the user, in seconds since 1970;
        infinite if nobody knows it.  Not part of the user's identity either.
    :param impersonated_by: the user who acts as this one by ``Impersonate-`` headers; not part of
        the user's identity.
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
