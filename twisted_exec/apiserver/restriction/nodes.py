"""
NodeRestriction: limits each node server to its own Node.

RBAC gives all of them one role, which cannot say "the Node that your certificate names".  This
says it, as Kubernetes' node authorizer and its admission NodeRestriction do: its Node, whose taints
and whose labels of ``kubernetes.io`` others decide on; its Lease in ``kube-node-lease``; Events about its Node; the
certificates that it asks for.

A user is a node server when its name is ``system:node:NAME`` and it is in ``system:nodes``; someone in
the group whose name is no Node's may write nothing.

Source: ``plugin/pkg/admission/noderestriction`` and ``plugin/pkg/auth/authorizer/node`` of
Kubernetes, and ``k8s.io/kubelet/pkg/apis/well_known_labels.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api import kinds
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.nodes import LEASE_NAMESPACE
from twisted_exec.api.selectors import FieldSelector
from twisted_exec.api.status import Forbidden, TooManyRequests
from twisted_exec.apiserver.interfaces import CREATE, DELETE, UPDATE, Change, IAdmission
from twisted_exec.apiserver.restriction.filtered_storage import IVisibility
from twisted_exec.apiserver.restriction.own_requests import MOST_REQUESTS, OwnRequests, asks_for
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.apiserver.signing.csr import NODE_CLIENT, NODE_SERVING
from twisted_exec.apiserver.signing.nodes import NODE_PREFIX, node_of
from twisted_exec.auth.groups import NODE_SERVERS
from twisted_exec.auth.interfaces import User
from twisted_exec.storage.interfaces import IStorage

_OWN_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)
_OWN_LABEL_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESTRICTED = "node-restriction.kubernetes.io"
_KUBERNETES = ("kubernetes.io", "k8s.io")


@implementer(IAdmission)
class NodeRestriction:
    """
    Keeps each node server to its own Node.

    :param storage: has the requests for certificates, which are counted.
    """

    def __init__(self, storage: IStorage) -> None:
        self._storage = storage

    def pool_of(self, user: User) -> str | None:
        """Node servers have no pool."""
        return None

    def node_of(self, user: User) -> str | None:
        """
        The Node whose server this is, ``None`` for anyone else.

        :raises Forbidden: it is in the group of node servers, and is none's.
        """
        if NODE_SERVERS not in user.groups:
            return None
        name = node_of(user.name)
        if not name:
            raise Forbidden(
                f'user "{user.name}" of {NODE_SERVERS} is not the server of one node: its name must '
                f"be {NODE_PREFIX}NODE"
            )
        return name

    def check_get(self, user: User, kind: Kind, obj: Object) -> None:
        """
        :raises Forbidden: the object is not the node's.
        """
        node = self.node_of(user)
        if node is None:
            return
        name = obj["metadata"]["name"]
        if kind is kinds.PODS or (kind is kinds.NODES and name != node):
            raise _refuse(node, f"see {_told(kind, name)}")
        if kind is kinds.LEASES and not _is_own_lease(node, obj):
            raise _refuse(node, f"see {_told(kind, name)}")
        visibility = self.visibility_of(user, kind)
        if visibility is not None and not visibility.sees(obj):
            raise _refuse(node, f"see {_told(kind, name)}")

    def check_name(self, user: User, target: Target) -> None:
        """
        Whether something may be asked for, which may not even be there.

        :raises Forbidden: it would not be the node's.
        """
        node = self.node_of(user)
        if node is not None and target.kind is kinds.NODES and target.name not in ("", node):
            raise _refuse(node, f"see {_told(target.kind, target.name)}")

    def visibility_of(self, user: User, kind: Kind) -> IVisibility | None:
        """What of a kind this user sees; ``None``: whatever it may list at all."""
        if self.node_of(user) is None or kind is not kinds.CERTIFICATESIGNINGREQUESTS:
            return None
        return OwnRequests(user)

    def check_list(self, user: User, kind: Kind, chosen: FieldSelector) -> None:
        """
        :raises Forbidden: it would show what is others'.
        """
        node = self.node_of(user)
        if node is None or kind is kinds.CERTIFICATESIGNINGREQUESTS:
            return
        narrowed = kind in (kinds.NODES, kinds.LEASES)
        if kind is kinds.PODS or (narrowed and chosen.required("metadata.name") != node):
            raise _refuse(
                node,
                f"see {kind.resource.plural} without the field selector metadata.name={node}",
            )

    def check_connect(self, user: User, name: str) -> None:
        """
        :raises Forbidden: node servers open no consoles.
        """
        node = self.node_of(user)
        if node is not None:
            raise _refuse(node, f"open the console of {name}")

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`."""
        return Deferred.fromCoroutine(self._admit(change))

    async def _admit(self, change: Change) -> None:
        node = self.node_of(change.user)
        if node is None:
            return
        name = change.obj["metadata"].get("name", "")
        if not _allows(node, change):
            raise _refuse(node, f"{change.operation} {_told(change.kind, name)}")
        if change.kind is kinds.NODES and (problem := _node_problem(change)):
            raise _refuse(node, problem)
        if change.kind is kinds.CERTIFICATESIGNINGREQUESTS:
            await self._check_requests(node, change.user)

    async def _check_requests(self, node: str, user: User) -> None:
        """However wrong its clock or its addresses are, it does not ask without end."""
        visibility = OwnRequests(user)
        found = await self._storage.list(kinds.CERTIFICATESIGNINGREQUESTS.resource)
        if sum(map(visibility.sees, found.items)) >= MOST_REQUESTS:
            raise TooManyRequests(
                f'the server of node "{node}" has {MOST_REQUESTS} certificate signing requests '
                "already: they go an hour after they were decided"
            )


def _allows(node: str, change: Change) -> bool:
    kind, obj = change.kind, change.obj
    if kind is kinds.NODES:
        return change.operation != DELETE and bool(obj["metadata"].get("name") == node)
    if kind is kinds.LEASES:
        return _is_own_lease(node, obj)
    if kind is kinds.CERTIFICATESIGNINGREQUESTS:
        own = change.new is not None and asks_for(
            change.new, change.user.name, (NODE_SERVING, NODE_CLIENT)
        )
        return change.operation == CREATE and own
    if kind in (kinds.EVENTS, kinds.EVENTS_V1) and change.operation != DELETE:
        key = "involvedObject" if kind is kinds.EVENTS else "regarding"
        told = [event[key] for event in (change.old, change.new) if event is not None]
        return all(_is_own_node(node, each) for each in told)
    return False


def _is_own_lease(node: str, lease: Object) -> bool:
    metadata = lease["metadata"]
    return bool(metadata.get("name") == node and metadata.get("namespace") == LEASE_NAMESPACE)


def _is_own_node(node: str, involved: Mapping[str, Any]) -> bool:
    # Without the UID: kubelets tell the name in its place.
    return involved.get("kind") == "Node" and involved.get("name") == node


def _node_problem(change: Change) -> str:
    """What others decide about a Node, and this change decides; empty when it does not."""
    old, new = change.old or {}, change.new or {}
    before, after = old.get("spec", {}), new.get("spec", {})
    if after.get("configSource") and after["configSource"] != before.get("configSource"):
        return "have a configSource"
    if change.operation == UPDATE and before.get("taints", []) != after.get("taints", []):
        return "change its taints"
    labels, known = (each.get("metadata", {}).get("labels") or {} for each in (new, old))
    changed = {key for key, _ in labels.items() ^ known.items()}
    if forbidden := sorted(key for key in changed if not _is_own_label(key)):
        return f"change its labels {', '.join(forbidden)}"
    return ""


def _is_own_label(key: str) -> bool:
    domain = key.rpartition("/")[0]
    if _is_in(domain, (_RESTRICTED,)):
        return False
    return (
        not _is_in(domain, _KUBERNETES) or key in _OWN_LABELS or _is_in(domain, _OWN_LABEL_DOMAINS)
    )


def _is_in(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _told(kind: Kind, name: str) -> str:
    return f'{kind.resource.plural} "{name}"'


def _refuse(node: str, told: str) -> Forbidden:
    return Forbidden(f'the server of node "{node}" may not {told}')
