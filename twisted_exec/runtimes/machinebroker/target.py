"""
A broker's namespace, labels and identities in the target cluster.

Consoles are opened by impersonation: ``jane`` of the source cluster ``site-a`` is ``site-a:jane``
in the target, with the Roles of that name.  Groups are not passed on: the runtime interface has
only the user's name, and groups of one cluster mean nothing in another.  Users whose names begin
with ``system:`` are refused; a cluster's components have no business at consoles of another
cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Forbidden
from twisted_exec.kube.kubeconfig.client_config import Impersonation

MAX_USER = 512

_SYSTEM = "system:"
_CLUSTER = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


def cluster_name(text: str) -> str:
    """
    Check the name of a cluster.

    :raises ValueError: it cannot be a prefix of users' names.
    """
    if not _CLUSTER.fullmatch(text) or text == "system":
        raise ValueError(
            f"{text!r} is not a valid name of a cluster: lower case letters, digits, - and . only, at most "
            "63, and not system"
        )
    return text


@dataclass(frozen=True)
class Identity:
    """
    The identities for consoles in the target.

    :param source: name of the source cluster.
    :param own: open consoles with the broker's own identity, without impersonation.
    """

    source: str = ""
    own: bool = False

    def acting_as(self, user: str) -> Impersonation:
        """
        Return the impersonation for a user.

        :param user: name in the source cluster; empty if unknown.
        :raises Forbidden: the user is unknown, a component, or has a name that HTTP cannot carry.
        """
        if self.own:
            return Impersonation()
        if not user:
            raise Forbidden(
                "the poollet does not pass the user's name on, which this broker needs for "
                "impersonation (with --own-identity it uses its own identity)"
            )
        if user.startswith(_SYSTEM):
            raise Forbidden(
                f"user {user!r} is a component of its cluster and cannot open consoles in another "
                "cluster; use an ordinary user"
            )
        name = f"{self.source}:{user}"
        if len(user) > MAX_USER or not name.isprintable() or name != name.strip():
            raise Forbidden(
                "your user name cannot be passed to another cluster: it is too long or not printable"
            )
        return Impersonation(user=name)


@dataclass(frozen=True)
class Place:
    """
    The namespace and the pools of a broker's machines, and their labels and annotations.

    :param source: name of the source cluster, or empty.
    :param pool: pool of all machines; empty for the target's scheduler.
    :param selector: labels of permitted pools.
    """

    dialect: Dialect
    namespace: str
    source: str = ""
    pool: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """Domain and slash of the broker's labels and annotations."""
        return "machinebroker." + self.dialect.runtime_prefix.partition(".")[2]

    @property
    def labels_annotation(self) -> str:
        """Annotation with the machine's labels."""
        return f"{self.prefix}labels"

    @property
    def annotations_annotation(self) -> str:
        """Annotation with the machine's annotations."""
        return f"{self.prefix}annotations"

    @property
    def parts_annotation(self) -> str:
        """Annotation with descriptions of volumes and network interfaces; unknown to ironcore's broker."""
        return f"{self.prefix}parts"

    @property
    def manager_label(self) -> str:
        """Label of all objects of brokers."""
        return f"{self.prefix}manager"

    @property
    def created_label(self) -> str:
        """Label of a machine whose other objects all exist."""
        return f"{self.prefix}created"

    @property
    def manager(self) -> str:
        """Label selector of all objects of brokers."""
        return f"{self.manager_label}=machinebroker"

    @property
    def machines(self) -> Resource:
        """The kind of machines in the target."""
        return self.dialect.workload

    def labels(self) -> dict[str, str]:
        """Return the labels of all objects of brokers."""
        return {self.manager_label: "machinebroker"}
