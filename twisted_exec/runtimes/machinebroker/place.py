"""The broker's place in the target: its namespace and cluster, and as whom it acts there for a user."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Forbidden
from twisted_exec.kube.kubeconfig.client_config import ImpersonatedUser

MAX_USER = 512

_SYSTEM = "system:"
_CLUSTER = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


def cluster_name(text: str) -> str:
    """
    Return the name of a cluster.

    :raises ValueError: the text cannot be a prefix of users' names.
    """
    if not _CLUSTER.fullmatch(text) or text == "system":
        raise ValueError(
            f"{text!r} is not a valid name of a cluster: lower case letters, digits, - and . only, at most "
            "63, and not system"
        )
    return text


@dataclass(frozen=True)
class BrokerIdentity:
    """
    The identities for consoles in the target.

    Unless ``own``, consoles are opened by impersonation: ``jane`` of the source cluster ``site-a``
    is ``site-a:jane`` in the target, with the rights of that user. Groups are not passed on: those
    of one cluster mean nothing in another. Users whose names begin with ``system:`` are refused.
    """

    source: str = ""
    own: bool = False

    def acting_as(self, user: str) -> ImpersonatedUser:
        """
        Return the impersonation for a user of the source cluster.

        :raises Forbidden: the user cannot be impersonated.
        """
        if self.own:
            return ImpersonatedUser()
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
        return ImpersonatedUser(user=name)


@dataclass(frozen=True)
class BrokerPlace:
    """
    The namespace and the pools of a broker's machines, and their labels and annotations.

    :param pool: pool of all machines; empty for the target's scheduler.
    """

    dialect: Dialect
    namespace: str
    source: str = ""
    pool: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        return "machinebroker." + self.dialect.runtime_prefix.partition(".")[2]

    @property
    def labels_annotation(self) -> str:
        return f"{self.prefix}labels"

    @property
    def annotations_annotation(self) -> str:
        return f"{self.prefix}annotations"

    @property
    def parts_annotation(self) -> str:
        """
        Annotation with descriptions of volumes and network interfaces; unknown to ironcore's
        broker.
        """
        return f"{self.prefix}parts"

    @property
    def manager_label(self) -> str:
        """Label of the objects that brokers create, but not of their Leases."""
        return f"{self.prefix}manager"

    @property
    def created_label(self) -> str:
        """Label of a machine whose other objects all exist."""
        return f"{self.prefix}created"

    @property
    def manager(self) -> str:
        return f"{self.manager_label}=machinebroker"

    @property
    def machines(self) -> Resource:
        return self.dialect.workload

    def labels(self) -> dict[str, str]:
        return {self.manager_label: "machinebroker"}
