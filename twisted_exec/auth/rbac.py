"""
RBAC: the authorizer for ``rbac.authorization.k8s.io`` objects, and the default roles and bindings.

Source: ``k8s.io/kubernetes/pkg/registry/rbac/validation/rule.go``.

Unlike in Kubernetes, ``view`` excludes the logs of machines: a console logs what its users saw and
much of what they typed. ``console-user`` and ``console-operator`` have no ``create`` on
``machines/exec``: it includes all rights unless the verbs are strict. They have no logs either,
because policies do not restrict logs.

Neither ``edit`` nor ``admin`` can write the providers of Spaces, which refer to Secrets of any
namespace, or ConsolePolicies, which restrict both roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Interface, implementer

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.display import listed
from twisted_exec.api.status import Forbidden
from twisted_exec.api.users import (
    AUTHENTICATED,
    MASTERS,
    NODE_BOOTSTRAPPERS,
    NODE_SERVERS,
    SERVICE_ACCOUNT_PREFIX,
    UNAUTHENTICATED,
)
from twisted_exec.auth.console_rights import CONSOLE
from twisted_exec.auth.interfaces import Decision, IRulesAuthorizer, User
from twisted_exec.auth.rules import ALL_RULES, Attributes, Rule, uncovered
from twisted_exec.tls.pki import FORWARDING_USER
from twisted_exec.wire.session_terms import Right

__all__ = [
    "CERTIFICATES",
    "CONSOLE_APPROVER",
    "CONSOLE_LOG_READER",
    "CONSOLE_OBSERVER",
    "CONSOLE_OPERATOR",
    "CONSOLE_POLICY_EDITOR",
    "CONSOLE_RECORDING_READER",
    "CONSOLE_SESSION_READER",
    "CONSOLE_USER",
    "PERMISSION_WATCHER",
    "IRuleSource",
    "Object",
    "Permissions",
    "RBACAuthorizer",
    "RBACObjects",
    "Rule",
    "bootstrap_objects",
    "bootstrappers",
    "smallest_role",
]


ReadOnlyObject = Mapping[str, Any]


@dataclass(frozen=True)
class RBACObjects:
    """All RBAC objects at one moment."""

    cluster_roles: Sequence[ReadOnlyObject] = ()
    cluster_role_bindings: Sequence[ReadOnlyObject] = ()
    roles: Sequence[ReadOnlyObject] = ()
    role_bindings: Sequence[ReadOnlyObject] = ()


class IRuleSource(Interface):
    """A source of roles and bindings."""

    def snapshot() -> Deferred[RBACObjects]:
        """
        Return the RBAC objects.

        :return: fires with all current RBAC objects: the *same instance* until one changes, since
            building a policy from a new one takes time.
        """


@implementer(IRulesAuthorizer)
class RBACAuthorizer:
    """Authorizes by the roles and bindings of a source."""

    def __init__(self, source: IRuleSource) -> None:
        self._source = source
        self._objects: RBACObjects | None = None
        self._current: Permissions | None = None

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        return self._policy().addCallback(lambda policy: policy.decide(attributes))

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        return self._policy().addCallback(lambda policy: policy.rules_for(user, namespace))

    def confirm_covered(self, user: User, namespace: str, rules: Iterable[Rule]) -> Deferred[None]:
        """
        Check for privilege escalation: users must not grant more than they have.

        :param rules: of the role, or of the bound role; :data:`~twisted_exec.auth.rules.ALL_RULES`
            for a role with an ``aggregationRule``.
        :return: fails with :class:`Forbidden` and the missing rules.
        """
        return Deferred.fromCoroutine(self._confirm_covered(user, namespace, tuple(rules)))

    def rules_of(self, reference: Mapping[str, Any], namespace: str) -> Deferred[tuple[Rule, ...]]:
        """Return the rules of a binding's ``roleRef``; empty if the role does not exist."""
        return self._policy().addCallback(
            lambda policy: policy.rules_of(reference, namespace) or ()
        )

    async def _confirm_covered(self, user: User, namespace: str, rules: tuple[Rule, ...]) -> None:
        own = await self.rules_for(user, namespace)
        missing = uncovered(own, rules)
        if missing:
            raise Forbidden(
                f"user {user.name!r} is attempting to grant RBAC permissions not currently held: "
                + listed((str(rule.to_object()) for rule in missing), 5, "; ")
            )

    def _policy(self) -> Deferred[Permissions]:
        return self._source.snapshot().addCallback(self._understood)

    def _understood(self, objects: RBACObjects) -> Permissions:
        if self._current is None or objects is not self._objects:
            self._objects, self._current = objects, Permissions(objects)
        return self._current


@dataclass(frozen=True)
class _Grant:
    rules: tuple[Rule, ...]
    description: str


_Subjects = dict[tuple[str, str], list[_Grant]]
"""Grants by ``("User", name)`` or ``("Group", name)``."""


class Permissions:
    """All permissions at one moment."""

    def __init__(self, objects: RBACObjects) -> None:
        self._cluster_roles = _gather(objects.cluster_roles)
        self._roles = {
            (_namespace(role), _name(role)): _rules(role.get("rules")) for role in objects.roles
        }
        self._scopes: dict[str, _Subjects] = {}
        """By namespace; empty for the whole cluster."""
        for binding in objects.cluster_role_bindings:
            self._bind(binding, "")
        for binding in objects.role_bindings:
            self._bind(binding, _namespace(binding))

    def decide(self, attributes: Attributes) -> Decision:
        """Return whether the request is allowed, with the reason."""
        if MASTERS in attributes.user.groups:
            return Decision(True, f"RBAC: group {MASTERS!r} may do everything")
        namespace = attributes.namespace if attributes.resource else ""
        for grant in self._grants(attributes.user, namespace):
            if any(rule.allows(attributes) for rule in grant.rules):
                return Decision(True, f"RBAC: allowed by {grant.description}")
        return Decision(False, "")

    def rules_for(self, user: User, namespace: str) -> tuple[Rule, ...]:
        """Return a user's rules in a namespace (empty: cluster-wide only), each once."""
        if MASTERS in user.groups:
            return ALL_RULES
        grants = self._grants(user, namespace)
        return tuple(dict.fromkeys(rule for grant in grants for rule in grant.rules))

    def rules_of(self, reference: ReadOnlyObject, namespace: str) -> tuple[Rule, ...] | None:
        """
        Return the rules of a ``roleRef``, or ``None`` if the role does not exist.

        :param namespace: of the binding; empty for a cluster role binding.
        """
        name = str(reference.get("name", ""))
        if reference.get("kind") == "ClusterRole":
            return self._cluster_roles.get(name)
        if reference.get("kind") == "Role" and namespace:
            return self._roles.get((namespace, name))
        return None

    def _grants(self, user: User, namespace: str) -> Iterator[_Grant]:
        subjects = [("User", user.name), *(("Group", group) for group in user.groups)]
        for scope in dict.fromkeys(("", namespace)):
            granted = self._scopes.get(scope, {})
            for subject in subjects:
                yield from granted.get(subject, ())

    def _bind(self, binding: ReadOnlyObject, namespace: str) -> None:
        reference = binding.get("roleRef")
        if not isinstance(reference, Mapping):
            return
        # A role that does not exist grants nothing until it is created.
        rules = self.rules_of(reference, namespace)
        if not rules:
            return
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        where = f"{namespace}/{_name(binding)}" if namespace else _name(binding)
        role = f"{reference.get('kind')} {str(reference.get('name'))!r}"
        grant = _Grant(rules, f"{kind} {where!r} of {role}")
        scope = self._scopes.setdefault(namespace, {})
        for subject in dict.fromkeys(subjects(binding, namespace)):
            scope.setdefault(subject, []).append(grant)


def subjects(binding: ReadOnlyObject, namespace: str) -> Iterator[tuple[str, str]]:
    for subject in _objects(binding.get("subjects")):
        kind, name = subject.get("kind"), str(subject.get("name") or "")
        if kind == "ServiceAccount":
            home = str(subject.get("namespace") or namespace)
            if home and name:
                yield "User", f"{SERVICE_ACCOUNT_PREFIX}{home}:{name}"
        elif kind in ("User", "Group") and name:
            yield str(kind), name


def _gather(roles: Sequence[ReadOnlyObject]) -> dict[str, tuple[Rule, ...]]:
    by_name = {_name(role): role for role in roles}
    gathered: dict[str, tuple[Rule, ...]] = {}
    for name, role in by_name.items():
        rules: dict[Rule, None] = {}
        for part in _reachable(role, roles):
            if not _selectors(part):
                rules.update(dict.fromkeys(_rules(part.get("rules"))))
        gathered[name] = tuple(rules)
    return gathered


def _reachable(role: ReadOnlyObject, roles: Sequence[ReadOnlyObject]) -> Iterator[ReadOnlyObject]:
    visited = {_name(role)}
    waiting = [role]
    while waiting:
        part = waiting.pop()
        yield part
        selectors = _selectors(part)
        for other in roles if selectors else ():
            labels = _labels(other)
            if _name(other) not in visited and any(_selects(each, labels) for each in selectors):
                visited.add(_name(other))
                waiting.append(other)


def _selectors(role: ReadOnlyObject) -> list[ReadOnlyObject]:
    aggregation = role.get("aggregationRule")
    if not isinstance(aggregation, Mapping):
        return []
    return list(_objects(aggregation.get("clusterRoleSelectors")))


def _selects(selector: ReadOnlyObject, labels: Mapping[str, str]) -> bool:
    """Match a ``metav1.LabelSelector``.  An invalid one selects nothing."""
    match_labels = selector.get("matchLabels") or {}
    if not isinstance(match_labels, Mapping):
        return False
    if any(labels.get(key) != value for key, value in match_labels.items()):
        return False
    expressions = selector.get("matchExpressions") or []
    return isinstance(expressions, list) and all(_holds(each, labels) for each in expressions)


def _holds(expression: object, labels: Mapping[str, str]) -> bool:
    if not isinstance(expression, Mapping):
        return False
    key = str(expression.get("key", ""))
    values = expression.get("values") or []
    if not isinstance(values, list):
        return False
    match expression.get("operator"):
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


def _objects(value: object) -> Iterable[ReadOnlyObject]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return [each for each in value if isinstance(each, Mapping)]


def _rules(value: object) -> tuple[Rule, ...]:
    return tuple(Rule.from_object(each) for each in _objects(value))


def _metadata(obj: ReadOnlyObject) -> ReadOnlyObject:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _name(obj: ReadOnlyObject) -> str:
    return str(_metadata(obj).get("name", ""))


def _namespace(obj: ReadOnlyObject) -> str:
    return str(_metadata(obj).get("namespace", ""))


def _labels(obj: ReadOnlyObject) -> Mapping[str, str]:
    labels = _metadata(obj).get("labels")
    return labels if isinstance(labels, Mapping) else {}


Object = dict[str, Any]

_GROUP = "rbac.authorization.k8s.io"
_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete", "deletecollection")
CERTIFICATES = "certificates.k8s.io"
_REQUESTS = "certificatesigningrequests"
_EVENTS = ("", "events.k8s.io")
_SESSIONS = ("console.twisted-exec.dev",)
_PRESENCE = "consolesessions deletedconsoles consolerequests consolerecordings"
_SPACES, _INVENTORY = ("space.kubestellar.io",), ("multicluster.x-k8s.io",)
CONSOLE_APPROVER = "console-approver"
CONSOLE_LOG_READER = "console-log-reader"
CONSOLE_OBSERVER = "console-observer"
CONSOLE_OPERATOR = "console-operator"
PERMISSION_WATCHER = "console-permission-watcher"
"""The role of hops that watch roles and bindings.  No default binding gives it to anyone."""
CONSOLE_POLICY_EDITOR = "console-policy-editor"
CONSOLE_RECORDING_READER = "console-recording-reader"
CONSOLE_SESSION_READER = "console-session-reader"
CONSOLE_USER = "console-user"
_SMALLEST_FIRST = (
    "view",
    CONSOLE_SESSION_READER,
    CONSOLE_OBSERVER,
    CONSOLE_LOG_READER,
    CONSOLE_RECORDING_READER,
    CONSOLE_APPROVER,
    CONSOLE_POLICY_EDITOR,
    CONSOLE_USER,
    CONSOLE_OPERATOR,
    "edit",
    "admin",
)
"""The roles of people."""
_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_ISSUER = (
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
)
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")


def _object(kind: str, name: str, **more: Any) -> Object:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults", **more.pop("labels", {})}
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        **more,
    }


def _role(name: str, *rules: Rule, part_of: str = "") -> Object:
    labels = {f"{_GROUP}/aggregate-to-{part_of}": "true"} if part_of else {}
    rule_objects = [rule.to_object() for rule in rules]
    return _object("ClusterRole", name, labels=labels, rules=rule_objects)


def _gathering(name: str, part_of: str = "") -> Object:
    label = {"matchLabels": {f"{_GROUP}/aggregate-to-{name}": "true"}}
    role = _role(name, part_of=part_of)
    return {**role, "aggregationRule": {"clusterRoleSelectors": [label]}}


def _binding(name: str, *subjects: tuple[str, str], role: str = "") -> Object:
    return _object(
        "ClusterRoleBinding",
        name,
        roleRef={"apiGroup": _GROUP, "kind": "ClusterRole", "name": role or name},
        subjects=[
            {"apiGroup": _GROUP, "kind": kind, "name": subject} for kind, subject in subjects
        ],
    )


def _on(resources: str, verbs: tuple[str, ...], groups: tuple[str, ...]) -> Rule:
    return Rule(verbs, groups, tuple(resources.split()))


_CREATE_REVIEWS = (
    _on("tokenreviews", ("create",), ("authentication.k8s.io",)),
    _on("subjectaccessreviews", ("create",), ("authorization.k8s.io",)),
)

_SYSTEM_ROLES = [
    _role("cluster-admin", *ALL_RULES),
    _gathering("admin"),
    _gathering("edit", part_of="admin"),
    _gathering("view", part_of="edit"),
    _role(
        "system:aggregate-to-admin",
        _on("roles rolebindings", (*_READ, *_WRITE), (_GROUP,)),
        _on("localsubjectaccessreviews", ("create",), ("authorization.k8s.io",)),
        _on(
            "consolesessions deletedconsoles consolerecordings",
            ("delete", "deletecollection"),
            _SESSIONS,
        ),
        _on("consolerecordings/content", ("get",), _SESSIONS),
        _on("deletedconsoles/log", ("get",), _SESSIONS),
        _on("consolerequests/approval", ("get", "update", "patch"), _SESSIONS),
        part_of="admin",
    ),
    _role(
        CONSOLE_APPROVER,
        _on("consolerequests", _READ, _SESSIONS),
        _on("consolerequests/approval", ("get", "update", "patch"), _SESSIONS),
    ),
    _role(
        PERMISSION_WATCHER,
        _on("roles rolebindings clusterroles clusterrolebindings", _READ, (_GROUP,)),
    ),
    _role(CONSOLE_POLICY_EDITOR, _on("consolepolicies", (*_READ, *_WRITE), _SESSIONS)),
    _role(
        CONSOLE_RECORDING_READER,
        _on("consolerecordings", _READ, _SESSIONS),
        _on("consolerecordings/content", ("get",), _SESSIONS),
    ),
    _role(CONSOLE_SESSION_READER, _on(_PRESENCE, _READ, _SESSIONS)),
    _role(
        "system:basic-user",
        _on(
            "selfsubjectaccessreviews selfsubjectrulesreviews",
            ("create",),
            ("authorization.k8s.io",),
        ),
        _on("selfsubjectreviews", ("create",), ("authentication.k8s.io",)),
    ),
    _role("system:discovery", Rule(("get",), non_resource_urls=(*_HEALTH, *_DISCOVERY))),
    _role("system:public-info-viewer", Rule(("get",), non_resource_urls=_HEALTH)),
    _role("system:auth-delegator", *_CREATE_REVIEWS),
    _role("system:service-account-issuer-discovery", Rule(("get",), non_resource_urls=_ISSUER)),
    _role(
        "system:node",
        *_CREATE_REVIEWS,
        _on("nodes", (*_READ, "create", "update", "patch"), ("",)),
        _on("nodes/status", ("get", "update", "patch"), ("",)),
        _on("events", ("create", "update", "patch"), _EVENTS),
        _on("leases", ("get", "create", "update", "patch", "delete"), ("coordination.k8s.io",)),
        _on(_REQUESTS, (*_READ, "create"), (CERTIFICATES,)),
    ),
    _role("system:node-bootstrapper", _on(_REQUESTS, (*_READ, "create"), (CERTIFICATES,))),
    *(
        _role(
            f"system:{CERTIFICATES}:{_REQUESTS}:{subresource}",
            _on(f"{_REQUESTS}/{subresource}", ("create",), (CERTIFICATES,)),
        )
        for subresource in ("nodeclient", "selfnodeclient")
    ),
]
_POD_ROLES = [
    _role(
        "system:aggregate-to-edit:pods",
        _on("pods", _WRITE, ("",)),
        # Opening a stream is a create; older servers authorize a WebSocket as a get.
        _on("pods/attach pods/exec pods/portforward", ("create", "get"), ("",)),
        part_of="edit",
    ),
    _role(
        "system:aggregate-to-view:pods",
        _on("pods pods/status", _READ, ("",)),
        _on("pods/log", ("get",), ("",)),
        part_of="view",
    ),
    # Permissions of a kube-apiserver's own certificate at kubelets.
    _role(
        "system:kubelet-api-admin",
        _on("nodes", _READ, ("",)),
        _on("nodes/proxy nodes/log nodes/stats nodes/metrics", ("*",), ("",)),
    ),
]
"""For servers with Pods on Nodes; as in Kubernetes, ``view`` includes their logs."""

_SYSTEM_BINDINGS = [
    _binding("cluster-admin", ("Group", MASTERS)),
    _binding("system:basic-user", ("Group", AUTHENTICATED)),
    _binding("system:discovery", ("Group", AUTHENTICATED)),
    _binding("system:service-account-issuer-discovery", ("Group", "system:serviceaccounts")),
    _binding("system:public-info-viewer", ("Group", AUTHENTICATED), ("Group", UNAUTHENTICATED)),
    # NodeRestriction narrows what each node server can do with this role.
    _binding("system:node", ("Group", NODE_SERVERS)),
    _binding(f"system:{CERTIFICATES}:{_REQUESTS}:selfnodeclient", ("Group", NODE_SERVERS)),
    _binding(f"system:{CERTIFICATES}:{_REQUESTS}:nodeclient", ("Group", NODE_BOOTSTRAPPERS)),
    _binding("system:node-bootstrapper", ("Group", NODE_BOOTSTRAPPERS)),
]


_BESIDE = {
    "storage": "volumes volumeclasses volumepools",
    "networking": "networkinterfaces networks",
    "ipam": "prefixes",
}
"""Further resources of a dialect, by the prefix of the group's name."""


_ROUTING = (
    "aliasprefixes aliasprefixroutings loadbalancers loadbalancerroutings "
    "natgateways natgatewayroutings virtualips"
)
"""Further networking resources of some dialects."""


def _beside(dialect: Dialect, verbs: tuple[str, ...]) -> tuple[Rule, ...]:
    if not dialect.domain:
        return ()
    rules = [
        _on(resources, verbs, (f"{group}.{dialect.domain}",))
        for group, resources in _BESIDE.items()
    ]
    if dialect.routings:
        rules.append(_on(_ROUTING, verbs, (f"networking.{dialect.domain}",)))
    return tuple(rules)


def _editing(dialect: Dialect) -> tuple[Rule, ...]:
    machines, groups = dialect.workload.plural, (dialect.group,)
    return (
        *_beside(dialect, _WRITE),
        _on(machines, _WRITE, groups),
        # Opening a console is a create; a kube-apiserver in front authorizes a WebSocket as a get.
        _on(f"{machines}/exec", ("create", "get"), groups),
        _on(f"{machines}/log", ("get",), groups),
        _on_screens(dialect),
        _on_consoles(dialect, ("observe", "drive")),
    )


def _on_consoles(dialect: Dialect, verbs: tuple[str, ...]) -> Rule:
    return _on(f"{dialect.workload.plural}/{CONSOLE}", verbs, (dialect.group,))


def _using_consoles(dialect: Dialect) -> tuple[Rule, ...]:
    machines = dialect.workload.plural
    return (
        _on_consoles(dialect, ("observe", "drive", "get")),
        # A kube-apiserver in front asks for this, and this server for ``drive``.
        _on(f"{machines} {machines}/exec {machines}/screen", ("get",), (dialect.group,)),
    )


def _on_screens(dialect: Dialect) -> Rule:
    return _on(f"{dialect.workload.plural}/screen", ("get",), (dialect.group,))


def _viewing(dialect: Dialect) -> tuple[Rule, ...]:
    machines, pools = dialect.workload.plural, dialect.pool.plural
    resources = f"{machines} {machines}/status {pools} {dialect.workload_class.plural}"
    return _on(resources, _READ, (dialect.group,)), *_beside(dialect, _READ)


def _asking_certificates(dialect: Dialect) -> tuple[Rule, ...]:
    """The right to request certificates, for poollets and bootstrappers."""
    groups, requests = (CERTIFICATES,), _REQUESTS
    return (
        _on(requests, (*_READ, "create"), groups),
        _on(f"{requests}/{dialect.pool.kind.lower()}client", ("create",), groups),
    )


def _claiming(dialect: Dialect) -> tuple[Rule, ...]:
    if not dialect.domain:
        return ()
    storage, networking = (f"{group}.{dialect.domain}" for group in ("storage", "networking"))
    return (
        _on("volumes", (*_READ, "update", "patch"), (storage,)),
        _on("networkinterfaces", (*_READ, "update", "patch"), (networking,)),
        _on("networkinterfaces/status", ("get", "update", "patch"), (networking,)),
        _on(f"networks {_ROUTING}" if dialect.routings else "networks", _READ, (networking,)),
        _on("prefixes", _READ, (f"ipam.{dialect.domain}",)),
    )


def _poollet_role(dialect: Dialect) -> Object:
    machines, pools, groups = dialect.workload.plural, dialect.pool.plural, (dialect.group,)
    return _role(
        dialect.pool_identity_group,
        _on(pools, (*_READ, "create", "update", "patch", "delete"), groups),
        _on(f"{pools}/status {machines}/status", ("get", "update", "patch"), groups),
        _on(machines, (*_READ, "update", "patch"), groups),
        _on(f"{machines}/finalizers", ("update",), groups),
        _on(dialect.workload_class.plural, _READ, groups),
        _on("events", ("create", "update", "patch"), _EVENTS),
        _on("leases", (*_READ, "create", "update", "patch"), ("coordination.k8s.io",)),
        _on("secrets", _READ, ("",)),
        _on("deletedconsoles", ("get",), _SESSIONS),
        _on("consolealerts consolerecordings", _READ, _SESSIONS),
        _on("consolepolicies", ("list", "watch"), _SESSIONS),
        _on(
            "consolealerts/status consolerecordings/status",
            ("get", "update", "patch"),
            _SESSIONS,
        ),
        *_claiming(dialect),
        *_asking_certificates(dialect),
        *_CREATE_REVIEWS,
    )


def _proxy_role(dialect: Dialect) -> Object:
    proxied = f"{dialect.pool.plural}/{dialect.proxy_subresource}"
    return _role(dialect.proxy_role, _on(proxied, ("create", "get"), (dialect.group,)))


def bootstrappers(dialect: Dialect) -> str:
    """The group of poollets' bootstrappers, as named by ironcore."""
    return f"system:bootstrappers:{dialect.group.replace('.', '-')}:{dialect.pool.plural}"


def bootstrap_objects(
    dialects: Iterable[Dialect], *, node_pods: bool = False
) -> tuple[Object, ...]:
    """Return ClusterRoles, then ClusterRoleBindings."""
    several = tuple(dialects)
    roles = [
        *_SYSTEM_ROLES,
        _role(
            "system:aggregate-to-edit",
            *(rule for dialect in several for rule in _editing(dialect)),
            _on("events", _WRITE, _EVENTS),
            _on("secrets", (*_READ, *_WRITE), ("",)),
            _on("serviceaccounts", (*_WRITE, "impersonate"), ("",)),
            _on("serviceaccounts/token", ("create",), ("",)),
            _on(_PRESENCE, _READ, _SESSIONS),
            _on("consolerecordings", ("create", "update", "patch"), _SESSIONS),
            _on("consolealerts consolerequests", _WRITE, _SESSIONS),
            _on("spaces", _WRITE, _SPACES),
            _on("clusterprofiles", _WRITE, _INVENTORY),
            part_of="edit",
        ),
        _role(
            "system:aggregate-to-view",
            *(rule for dialect in several for rule in _viewing(dialect)),
            _on("events", _READ, _EVENTS),
            _on("consolealerts consolealerts/status consolepolicies", _READ, _SESSIONS),
            _on("namespaces serviceaccounts services", _READ, ("",)),
            _on(
                "spaces spaces/status spaceproviderdescs spaceproviderdescs/status", _READ, _SPACES
            ),
            _on("clusterprofiles clusterprofiles/status", _READ, _INVENTORY),
            part_of="view",
        ),
    ]
    using = [rule for dialect in several for rule in _using_consoles(dialect)]
    # For policies that need an approval.
    using.append(_on("consolerequests", (*_READ, "create", "delete"), _SESSIONS))
    taking_over = [_on_consoles(dialect, ("takeover",)) for dialect in several]
    roles += [
        # A kube-apiserver in front asks for get on the observers' path.
        _role(
            CONSOLE_OBSERVER,
            *(_on_consoles(dialect, ("observe", "get")) for dialect in several),
            *(_on_screens(dialect) for dialect in several),
            # Stock kubectl reads the Pod that shows the machine before it attaches.
            *(_on(each.workload.plural, ("get",), (each.group,)) for each in several),
            # For policies that need an approval, which never gives more than the rights of the
            # role. Without delete, which would withdraw the approvals of others.
            _on("consolerequests", ("get", "create"), _SESSIONS),
        ),
        _role(CONSOLE_USER, *using),
        _role(
            CONSOLE_OPERATOR,
            *using,
            *taking_over,
            *(_on(each.workload.plural, ("list", "watch"), (each.group,)) for each in several),
        ),
        _role(
            CONSOLE_LOG_READER,
            *(
                _on(f"{each.workload.plural} {each.workload.plural}/log", ("get",), (each.group,))
                for each in several
            ),
        ),
        _role("system:aggregate-to-admin:consoles", *taking_over, part_of="admin"),
    ]
    roles += _POD_ROLES if node_pods else []
    bindings = list(_SYSTEM_BINDINGS)
    for dialect in several:
        group = dialect.pool_identity_group
        beginning = f"{group}-bootstrapper"
        roles += [
            _poollet_role(dialect),
            _proxy_role(dialect),
            _role(beginning, *_asking_certificates(dialect)),
        ]
        bindings += [
            _binding(group, ("Group", group)),
            _binding(beginning, ("Group", bootstrappers(dialect))),
            _binding(dialect.proxy_role, ("User", FORWARDING_USER)),
        ]
    return (*roles, *bindings)


def smallest_role(verb: str, group: str, resource: str, subresource: str = "") -> str:
    """
    Return the smallest default role of people that includes a permission; empty if none does.

    ``create`` on a machine's ``exec`` counts as the right to ``drive``.
    """
    if (verb, subresource) == ("create", "exec") and group:
        verb, subresource = Right.DRIVE.verb, CONSOLE
    roles = _default_roles()
    attributes = Attributes(User(""), verb, group, resource=resource, subresource=subresource)
    for name in _SMALLEST_FIRST:
        if any(rule.allows(attributes) for rule in roles[name]):
            return name
    return ""


@cache
def _default_roles() -> dict[str, tuple[Rule, ...]]:
    return _gather(bootstrap_objects(DIALECTS, node_pods=True))
