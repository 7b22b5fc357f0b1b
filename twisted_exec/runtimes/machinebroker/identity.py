"""
As whom the target is asked: as the user who asks, under a name that says where they come from.

``jane`` of the cluster ``site-a`` is ``site-a:jane`` in the target, and what she may there is what
Roles there give that name.  No groups travel: the runtime interface tells a name alone, and a group of
one cluster says nothing in another.  Names that begin with ``system:`` are Kubernetes' own and are
nobody's to act as; a cluster's components have no business on consoles elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from twisted_exec.api.status import Forbidden
from twisted_exec.kube.config import Impersonation

LONGEST_USER = 512

_SYSTEM = "system:"
_CLUSTER = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


def cluster_name(text: str) -> str:
    """
    A name for a cluster.

    :raises ValueError: it is none that can precede a user's name.
    """
    if not _CLUSTER.fullmatch(text) or text == "system":
        raise ValueError(
            f"{text!r} is no name of a cluster: lower case letters, digits, - and . only, at most "
            "63, and not system"
        )
    return text


@dataclass(frozen=True)
class Identity:
    """
    :param source: name of the cluster whose users come.
    :param own: the target is asked as the broker itself, whoever asks.
    """

    source: str = ""
    own: bool = False

    def acting_as(self, user: str) -> Impersonation:
        """
        Whom to act as for a user; nobody when the broker asks for itself.

        :param user: as the source cluster's API server knows them; empty when nobody told.
        :raises Forbidden: nobody can be acted as.
        """
        if self.own:
            return Impersonation()
        if not user:
            raise Forbidden(
                "the poollet does not say for which user it asks, and this broker opens consoles "
                "only in the name of a user (--own-identity opens them in its own)"
            )
        if user.startswith(_SYSTEM):
            raise Forbidden(
                f"user {user!r} is one of its cluster's own: nobody acts as such in another "
                "cluster; ask as a user"
            )
        name = f"{self.source}:{user}"
        if len(user) > LONGEST_USER or not name.isprintable() or name != name.strip():
            raise Forbidden("your user name cannot be told to another cluster")
        return Impersonation(user=name)
