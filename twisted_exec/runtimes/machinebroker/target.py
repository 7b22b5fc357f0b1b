"""
Where in the target a broker's machines are, and the names by which they are marked as such.

As whom the target is asked: as the user who asks, under a name that says where they come from.

``jane`` of the cluster ``site-a`` is ``site-a:jane`` in the target, and what she may there is what
Roles there give that name.  No groups travel: the runtime interface tells a name alone, and a group of
one cluster says nothing in another.  Names that begin with ``system:`` are Kubernetes' own and are
nobody's to act as; a cluster's components have no business on consoles elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Forbidden
from twisted_exec.kube.kubeconfig.client_config import Impersonation

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


@dataclass(frozen=True)
class Place:
    """
    Where in the target machines are made.

    :param source: the name of the cluster that asks, or empty.
    :param pool: the pool that they are bound to; empty leaves that to the target's scheduler.
    :param selector: labels of the pools that may run them.
    """

    dialect: Dialect
    namespace: str
    source: str = ""
    pool: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """Domain and slash of the broker's own labels and annotations."""
        return "machinebroker." + self.dialect.runtime_prefix.partition(".")[2]

    @property
    def labels_annotation(self) -> str:
        """Holds the machine's labels."""
        return f"{self.prefix}labels"

    @property
    def annotations_annotation(self) -> str:
        """Holds the machine's annotations."""
        return f"{self.prefix}annotations"

    @property
    def parts_annotation(self) -> str:
        """Holds what was told of volumes and network interfaces; ours alone."""
        return f"{self.prefix}parts"

    @property
    def manager_label(self) -> str:
        """Marks what a broker made."""
        return f"{self.prefix}manager"

    @property
    def created_label(self) -> str:
        """Marks a machine that has all that belongs to it."""
        return f"{self.prefix}created"

    @property
    def manager(self) -> str:
        """The selector of what a broker made."""
        return f"{self.manager_label}=machinebroker"

    @property
    def machines(self) -> Resource:
        """What has a console there."""
        return self.dialect.workload

    def labels(self) -> dict[str, str]:
        """Of everything that a broker makes."""
        return {self.manager_label: "machinebroker"}
