"""
NodeRestriction: limit each node server to its own Node.

It opens no streams, which would show it what tenants type, and does not become another user, to
whom no restriction applies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.nodes import LEASE_NAMESPACE
from twisted_exec.api.status import Forbidden
from twisted_exec.api.users import NODE_SERVERS
from twisted_exec.apiserver.interfaces import CREATE, DELETE, UPDATE, Change
from twisted_exec.apiserver.restriction.agents import (
    asks_for,
    check_limit,
    forbidden_action,
    is_requested_by,
)
from twisted_exec.apiserver.restriction.visibility import FixedVisibility
from twisted_exec.apiserver.signing.interfaces import NODE_CLIENT, NODE_SERVING
from twisted_exec.apiserver.signing.nodes import NODE_PREFIX, node_of
from twisted_exec.auth.interfaces import Decision, User
from twisted_exec.auth.rules import Attributes
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


class NodeRestriction:
    """
    Limits each node server to its own Node, and to its Lease, Events and certificate signing
    requests.

    A user is a node server if its name is ``system:node:NAME`` and it is in the group
    ``system:nodes``. A member of that group with another name may read and write no objects.

    Source: ``plugin/pkg/admission/noderestriction`` and ``plugin/pkg/auth/authorizer/node`` of
    Kubernetes, and ``k8s.io/kubelet/pkg/apis/well_known_labels.go``.
    """

    groups: Collection[str] = (NODE_SERVERS,)
    prefixes: Collection[str] = ()

    def __init__(self, storage: IStorage, *, pods_view: bool) -> None:
        self._storage, self._pods_view = storage, pods_view

    def node_of(self, user: User) -> str | None:
        """
        Return the name of the Node whose server the user is, or ``None``.

        :raises Forbidden: the user is in the group of node servers, but has another name.
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

    def decide(self, attributes: Attributes) -> Decision | None:
        try:
            node = self.node_of(attributes.user)
        except Forbidden as problem:
            return Decision(False, problem.message)
        if node is None:
            return None
        if action := forbidden_action(attributes):
            return Decision(False, _reason(node, action))
        if self._pods_view and (attributes.group, attributes.resource) == ("", "pods"):
            return Decision(False, _reason(node, "see pods"))
        if attributes.verb == "get":
            return self._decide_get(node, attributes)
        if attributes.verb in ("list", "watch"):
            return self._decide_list(node, attributes)
        return None  # admission decides when both states of the object are known

    def _decide_get(self, node: str, attributes: Attributes) -> Decision | None:
        user, name = attributes.user, attributes.name
        refused = Decision(False, _reason(node, f'see {attributes.resource} "{name}"'))
        match (attributes.group, attributes.resource):
            case ("", "nodes"):
                return None if name == node else refused
            case ("coordination.k8s.io", "leases"):
                return _only_of_node(node, "leases", partial(_is_own_lease, node))
            case ("certificates.k8s.io", "certificatesigningrequests"):
                return _only_own_requests(node, user)
        return None

    def _decide_list(self, node: str, attributes: Attributes) -> Decision | None:
        selects_own = attributes.field_selector.required("metadata.name") == node
        match (attributes.group, attributes.resource):
            case ("certificates.k8s.io", "certificatesigningrequests"):
                return _only_own_requests(node, attributes.user)
            case ("", "nodes") | ("coordination.k8s.io", "leases") if not selects_own:
                pass
            case _:
                return None
        needed = f"without the field selector metadata.name={node}"
        return Decision(False, _reason(node, f"see {attributes.resource} {needed}"))

    async def admit(self, change: Change) -> None:
        node = self.node_of(change.user)
        if node is None:
            return
        if not _allows(node, change):
            name = change.obj["metadata"].get("name", "")
            raise _refuse(node, f'{change.operation} {change.kind.resource.plural} "{name}"')
        if change.kind is kinds.NODES and (problem := _node_problem(change)):
            raise _refuse(node, problem)
        if change.kind is kinds.CERTIFICATESIGNINGREQUESTS:
            await check_limit(self._storage, change.user, f'the server of node "{node}"')


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
        events = [event for event in (change.old, change.new) if event is not None]
        return all(_is_own_node(node, event[key]) for event in events)
    return False


def _is_own_lease(node: str, lease: Object) -> bool:
    metadata = lease["metadata"]
    return bool(metadata.get("name") == node and metadata.get("namespace") == LEASE_NAMESPACE)


def _is_own_node(node: str, involved: Mapping[str, Any]) -> bool:
    # Not the UID: kubelets put the name of the Node there.
    return involved.get("kind") == "Node" and involved.get("name") == node


def _node_problem(change: Change) -> str:
    old, new = change.old or {}, change.new or {}
    before, after = old.get("spec", {}), new.get("spec", {})
    if after.get("configSource") and after["configSource"] != before.get("configSource"):
        return "have a configSource"
    if change.operation == UPDATE and before.get("taints", []) != after.get("taints", []):
        return "change its taints"
    # A garbage collector would delete the Node, which then comes back without taints (CVE-2025-5187).
    owners, previous_owners = (
        each.get("metadata", {}).get("ownerReferences") or [] for each in (new, old)
    )
    if change.operation == UPDATE and owners != previous_owners:
        return "change its ownerReferences"
    labels, previous = (each.get("metadata", {}).get("labels") or {} for each in (new, old))
    changed = {key for key, _ in labels.items() ^ previous.items()}
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


def _only_own_requests(node: str, user: User) -> Decision:
    resource = kinds.CERTIFICATESIGNINGREQUESTS.resource
    return _only_of_node(node, resource.plural, partial(is_requested_by, user=user))


def _only_of_node(node: str, plural: str, sees: Callable[[Object], bool]) -> Decision:
    def refusal(obj: Object) -> Forbidden:
        return _refuse(node, f'see {plural} "{obj["metadata"]["name"]}"')

    return Decision(True, visibility=FixedVisibility(sees, refusal))


def _reason(node: str, action: str) -> str:
    return f'the server of node "{node}" may not {action}'


def _refuse(node: str, action: str) -> Forbidden:
    return Forbidden(_reason(node, action))
