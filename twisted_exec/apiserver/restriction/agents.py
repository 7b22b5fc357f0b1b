"""
NodeRestriction and PoolRestriction: limit each agent to its own Node or pool.

Neither opens streams, which would show it what tenants type, and neither may become another user,
to whom no restriction applies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from zope.interface import implementer

from twisted_exec.api import kinds
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CERTIFICATESIGNINGREQUESTS, Object
from twisted_exec.api.kinds.certificates import request_of
from twisted_exec.api.kinds.nodes import LEASE_NAMESPACE
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Forbidden, NotFound, TooManyRequests
from twisted_exec.api.users import NODE_SERVERS
from twisted_exec.apiserver.interfaces import CREATE, DELETE, UPDATE, Change
from twisted_exec.apiserver.restriction.pool_graph import PoolGraph
from twisted_exec.apiserver.restriction.visibility import FixedVisibility
from twisted_exec.apiserver.signing.interfaces import CLIENT, NODE_CLIENT, NODE_SERVING, SERVING
from twisted_exec.apiserver.signing.nodes import NODE_PREFIX, node_of
from twisted_exec.apiserver.signing.requests import subject_of
from twisted_exec.auth.interfaces import Decision, IVisibility, User
from twisted_exec.auth.rules import Attributes
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import IStorage

CONSOLES = ("exec", "attach", "portforward", "log", "console", "content")
"""Subresources that show, or carry, what a machine or a Pod prints."""

LIMIT_REQUESTS = 50
"""CertificateSigningRequests of one poollet or node server at a time."""


def forbidden_action(attributes: Attributes, noun: str = "") -> str:
    """
    Return the action of a request that no poollet or node server needs; empty if there is none.
    """
    resource = attributes.resource
    if attributes.verb == "impersonate":
        return f'impersonate {resource} "{attributes.name}"'
    if attributes.subresource in CONSOLES:
        return f"open the console of {f'{noun} {attributes.name}'.strip()}"
    if attributes.subresource in ("token", "proxy"):
        return f'{attributes.verb} {resource}/{attributes.subresource} of "{attributes.name}"'
    # Admission would refuse each object by its name, which the client may not know.
    return f"delete collections of {resource}" if attributes.verb == "deletecollection" else ""


def is_requested_by(request: Object, user: User) -> bool:
    """Return whether a user has created a CertificateSigningRequest."""
    return bool(request["spec"].get("username") == user.name)


def asks_for(csr: Object, user: str, signers: Collection[str]) -> bool:
    """Return whether the certificate would name this user, and come from one of these signers."""
    try:
        subject = subject_of(request_of(csr))
    except ValueError:
        return False
    return csr["spec"]["signerName"] in signers and subject.common_name == user


async def check_limit(storage: IStorage, user: User, label: str) -> None:
    """
    Limit the number of certificate signing requests of a client.

    :raises TooManyRequests: the user has :data:`LIMIT_REQUESTS` already.
    """
    listing = await storage.list(CERTIFICATESIGNINGREQUESTS.resource)
    if sum(is_requested_by(each, user) for each in listing.items) >= LIMIT_REQUESTS:
        raise TooManyRequests(
            f"{label} has {LIMIT_REQUESTS} certificate signing requests already: each is deleted "
            "an hour after its certificate or refusal, at the latest after a day"
        )


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


_CLAIM_FIELDS = {"volumes": ("claimRef",), "networkinterfaces": ("machineRef", "providerID")}
"""Fields of the spec that a poollet writes; the first names the Machine that has the object."""

_WRITABLE_METADATA = ("finalizers", "annotations", "managedFields", "resourceVersion", "generation")
"""The fields of a Machine that a poollet may change besides its status."""

_OF_MANY = ("list", "watch")
_REQUESTS = kinds.CERTIFICATESIGNINGREQUESTS.resource
_DELETED = kinds.DELETEDCONSOLES.resource
_RECORDINGS = kinds.CONSOLERECORDINGS.resource
_ALERTS = kinds.CONSOLEALERTS.resource


class PoolRestriction:
    """
    Limits each poollet of one dialect to its own pool.

    A poollet reads the Machines that are bound to its pool, and of objects such as Secrets what
    these Machines need (:mod:`twisted_exec.apiserver.restriction.pool_graph`). It writes its pool,
    and little more than the status of the objects that it sees. It opens no consoles.

    A user with only the name, or only the group, of a poollet may read and write no objects.
    """

    def __init__(
        self, dialect: Dialect, storage: IStorage, graph: PoolGraph, *, pods_view: bool
    ) -> None:
        self._dialect, self._storage, self._graph = dialect, storage, graph
        self._pods_view = pods_view
        self.groups: Collection[str] = (dialect.pool_identity_group,)
        self.prefixes: Collection[str] = (dialect.pool_identity_prefix,)
        self._needed = {(each.group, each.plural): each for each in graph.resources}

    def pool_of(self, user: User) -> str | None:
        """
        Return the pool whose poollet the user is, or ``None``.

        :raises Forbidden: the user claims to be a poollet, but is not that of one pool.
        """
        pool = self._dialect.pool_of(user.name)
        is_member = self._dialect.pool_identity_group in user.groups
        has_prefix = user.name.startswith(self._dialect.pool_identity_prefix)
        if pool is None and not is_member and not has_prefix:
            return None
        if pool is None or not is_member:
            raise Forbidden(
                f'user "{user.name}" is not the poollet of one pool: its name must be '
                f"{self._dialect.pool_identity_prefix}POOL, its group "
                f"{self._dialect.pool_identity_group}"
            )
        return pool

    def decide(self, attributes: Attributes) -> Decision | None:
        try:
            pool = self.pool_of(attributes.user)
        except Forbidden as problem:
            return Decision(False, problem.message)
        if pool is None:
            return None
        if action := forbidden_action(attributes, self._dialect.noun):
            return self._refused(pool, action)
        if attributes.verb == "create":
            return None  # there is no object yet; admission sees what is to be created
        resource = (attributes.group, attributes.resource)
        if resource == ("", "pods") and self._pods_view:
            return self._refused(pool, "see pods")
        if resource == (self._dialect.group, self._dialect.workload.plural):
            return self._decide_workload(pool, attributes)
        if resource == (_DELETED.group, _DELETED.plural):
            if attributes.verb in _OF_MANY:
                return self._refused(pool, f"list {_DELETED.plural}")
            was_own = partial(_was_in, pool=pool, resource=self._dialect.workload.qualified)
            return _only_of_pool(was_own, _DELETED)
        if resource == (_RECORDINGS.group, _RECORDINGS.plural):
            is_here = partial(_was_in, pool=pool, resource=self._dialect.workload.qualified)
            return _only_of_pool(is_here, _RECORDINGS)
        if resource == (_REQUESTS.group, _REQUESTS.plural):
            is_own = partial(is_requested_by, user=attributes.user)
            return _only_of_pool(is_own, _REQUESTS)
        if resource in self._needed:
            return self._decide_needed(pool, attributes, self._needed[resource])
        return None

    def _decide_workload(self, pool: str, attributes: Attributes) -> Decision | None:
        if attributes.verb not in _OF_MANY:
            # Reading it shows its owner.
            workload = self._dialect.workload
            return _only_of_pool(lambda machine: self._dialect.pool_name(machine) == pool, workload)
        # The selector says it all; a visibility would cost each watch a copy of what it has sent.
        field = self._dialect.pool_field
        if attributes.field_selector.required(field) == pool:
            return None
        plural = self._dialect.workload.plural
        return self._refused(pool, f"see {plural} without the field selector {field}={pool}")

    def _decide_needed(
        self, pool: str, attributes: Attributes, resource: Resource
    ) -> Decision | None:
        namespace, name = attributes.namespace, attributes.name
        # By name alone: the answer must not tell whether an object exists.
        if attributes.verb not in _OF_MANY and not self._graph.sees(
            pool, resource, namespace, name
        ):
            needs_none = f"no {self._dialect.noun} of it needs that"
            return self._refused(pool, f'see {resource.plural} "{name}": {needs_none}')
        refusal = partial(self._invisible, pool, resource)
        return Decision(True, visibility=NeededByPool(self._graph, pool, resource, refusal))

    def _invisible(self, pool: str, resource: Resource, obj: Object) -> Forbidden:
        return self._refuse(pool, f'see {resource.plural} "{obj["metadata"]["name"]}"')

    async def admit(self, change: Change) -> None:
        pool = self.pool_of(change.user)
        if pool is None:
            return
        if change.kind is kinds.EVENTS or change.kind is kinds.EVENTS_V1:
            allowed = await self._allows_event(pool, change)
        else:
            allowed = self._allows(pool, change)
        if not allowed:
            name = change.obj["metadata"].get("name", "")
            action = f'{change.operation} {change.kind.resource.plural} "{name}"'
            raise self._refuse(pool, action)
        if change.kind is kinds.CERTIFICATESIGNINGREQUESTS:
            label = f'the poollet of {self._dialect.pool_noun} "{pool}"'
            await check_limit(self._storage, change.user, label)

    def _pool(self, machine: Object) -> str:
        return self._dialect.pool_name(machine)

    def _allows(self, pool: str, change: Change) -> bool:
        name = change.obj["metadata"].get("name")
        if change.kind.resource == self._dialect.pool:
            return bool(name == pool)
        if change.kind is kinds.LEASES:
            # The pool's heartbeat.  A Lease of the same name in another namespace may be that of a
            # Node, or the leader election of the API servers.
            home = self._dialect.lease_namespace
            return bool(name == pool and home and change.obj["metadata"].get("namespace") == home)
        if change.kind is kinds.CERTIFICATESIGNINGREQUESTS and change.new is not None:
            return change.operation == CREATE and asks_for(
                change.new, change.user.name, (SERVING, CLIENT)
            )
        if change.operation != UPDATE:
            return False
        if change.kind.resource == self._dialect.workload:
            return self._allows_machine(pool, change)
        if change.kind is kinds.CONSOLEALERTS:
            return self._allows_alert(pool, change)
        if change.kind is kinds.CONSOLERECORDINGS:
            return (
                change.subresource == "status"
                and change.old is not None
                and _was_in(change.old, pool=pool, resource=self._dialect.workload.qualified)
            )
        return self._allows_claim(pool, change)

    def _allows_claim(self, pool: str, change: Change) -> bool:
        changing = _CLAIM_FIELDS.get(change.kind.resource.plural)
        resource, (namespace, name) = change.kind.resource, key_of(change.obj)
        if changing is None or change.old is None or change.new is None:
            return False
        if not self._graph.sees(pool, resource, namespace, name):
            return False
        if change.subresource:
            return "providerID" in changing
        for obj in (change.old, change.new):
            claim = obj["spec"].get(changing[0])
            if claim and not self._graph.is_own(pool, claim.get("uid", "")):
                return False
        return _fixed(_without(change.old, changing)) == _fixed(_without(change.new, changing))

    def _allows_machine(self, pool: str, change: Change) -> bool:
        old, new = change.old, change.new
        if old is None or new is None or self._pool(old) != pool:
            return False
        if change.subresource == "status":
            return True
        return _fixed(old) == _fixed(new)

    def _allows_alert(self, pool: str, change: Change) -> bool:
        if change.subresource != "status" or change.old is None or change.new is None:
            return False
        namespace, name = key_of(change.obj)
        if not self._graph.sees(pool, change.kind.resource, namespace, name):
            return False
        own = f"{self._dialect.pool.plural}.{self._dialect.pool.group}", pool
        return _of_others(change.old, own) == _of_others(change.new, own)

    async def _allows_event(self, pool: str, change: Change) -> bool:
        if change.operation == DELETE:
            return False
        key = "involvedObject" if change.kind is kinds.EVENTS else "regarding"
        for event in (change.old, change.new):
            if event is not None and not await self._is_own(pool, event[key]):
                return False
        return True

    async def _is_own(self, pool: str, involved: Object) -> bool:
        kind = (involved.get("apiVersion"), involved.get("kind"))
        workload, own_pool = self._dialect.workload, self._dialect.pool
        if kind == (own_pool.api_version, own_pool.kind):
            return bool(involved.get("name") == pool)
        for resource in (workload, _RECORDINGS, _ALERTS):
            if kind == (resource.api_version, resource.kind):
                break
        else:
            return False
        namespace, name = involved.get("namespace", ""), involved.get("name", "")
        try:
            obj = await self._storage.get(resource, namespace, name)
        except NotFound:
            return False
        if obj["metadata"]["uid"] != involved.get("uid"):
            return False  # one of the same name was deleted
        if resource == _ALERTS:
            return self._graph.sees(pool, resource, namespace, name)
        if resource == _RECORDINGS:
            return _was_in(obj, pool=pool, resource=workload.qualified)
        return self._pool(obj) == pool  # it may belong to another pool now

    def _reason(self, pool: str, action: str) -> str:
        return f'the poollet of {self._dialect.pool_noun} "{pool}" may not {action}'

    def _refuse(self, pool: str, action: str) -> Forbidden:
        return Forbidden(self._reason(pool, action))

    def _refused(self, pool: str, action: str) -> Decision:
        return Decision(False, self._reason(pool, action))


@implementer(IVisibility)
class NeededByPool:
    """The objects of one resource that the Machines of a pool need."""

    def __init__(
        self,
        graph: PoolGraph,
        pool: str,
        resource: Resource,
        refusal: Callable[[Object], APIError],
    ) -> None:
        self._graph, self._pool, self._resource = graph, pool, resource
        self._refusal = refusal

    def sees(self, obj: Object) -> bool:
        namespace, name = key_of(obj)
        return self._graph.sees(self._pool, self._resource, namespace, name)

    def refusal(self, obj: Object) -> APIError:
        return self._refusal(obj)

    def since(self) -> int:
        return self._graph.since(self._pool)

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        count = self._graph.changes(self._pool)

        def compare() -> None:
            nonlocal count
            before, count = count, self._graph.changes(self._pool)
            if count != before:  # else another pool's Machines have changed
                changed()

        return self._graph.on_change(compare)


def _only_of_pool(sees: Callable[[Object], bool], resource: Resource) -> Decision:
    def refusal(obj: Object) -> NotFound:
        # As if there were none: another answer would tell the names of other pools' objects.
        return NotFound(resource.plural, obj["metadata"]["name"], resource.group)

    return Decision(True, visibility=FixedVisibility(sees, refusal))


def _was_in(obj: Object, *, pool: str, resource: str) -> bool:
    spec = obj["spec"]
    return bool(spec.get("pool") == pool and spec.get("machineResource") == resource)


def _of_others(alert: Object, own: tuple[str, str]) -> list[Object]:
    pools = (alert.get("status") or {}).get("pools") or ()
    return [each for each in pools if (each.get("resource"), each.get("name")) != own]


def _without(obj: Object, keys: Iterable[str]) -> Object:
    spec = {key: value for key, value in obj["spec"].items() if key not in keys}
    return {**obj, "spec": spec}


def _fixed(obj: Mapping[str, Any]) -> Object:
    metadata = {
        key: value for key, value in obj["metadata"].items() if key not in _WRITABLE_METADATA
    }
    return {**obj, "metadata": metadata}
