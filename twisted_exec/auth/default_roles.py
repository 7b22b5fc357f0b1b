"""
The default ClusterRoles and ClusterRoleBindings.

Unlike in Kubernetes, ``view`` excludes the logs of machines: a console logs what its users saw and
much of what they typed. ``console-user`` and ``console-operator`` have no ``create`` on
``machines/exec``: it includes all rights unless the verbs are strict. They have no logs either,
because policies do not restrict logs.

Neither ``edit`` nor ``admin`` can write the providers of Spaces, which refer to Secrets of any
namespace, or ConsolePolicies, which restrict both roles.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.missing_right import MissingRight
from twisted_exec.api.users import (
    AUTHENTICATED,
    FORWARDING_USER,
    MASTERS,
    NODE_BOOTSTRAPPERS,
    NODE_SERVERS,
    UNAUTHENTICATED,
)
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rbac import aggregated_rules
from twisted_exec.auth.rules import ALL_RULES, CONSOLE, Attributes, Rule
from twisted_exec.wire.session_terms import Right

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
    right = MissingRight("", verb, group, resource, subresource)
    return next((name for name in _SMALLEST_FIRST if _includes(name, right)), "")


def smallest_roles(rights: Iterable[MissingRight]) -> list[str]:
    """
    Return the roles of :func:`smallest_role` for rights, without those whose rights another of them includes.

    :return: empty if no role includes one of the rights.
    """
    needed: dict[str, list[MissingRight]] = {}
    for right in rights:
        role = smallest_role(right.verb, right.group, right.resource, right.subresource)
        needed.setdefault(role, []).append(right)
    if "" in needed:
        return []
    return [
        role
        for role, its_rights in needed.items()
        if not any(
            other != role and all(_includes(other, right) for right in its_rights)
            for other in needed
        )
    ]


def _includes(role: str, right: MissingRight) -> bool:
    verb, subresource = right.verb, right.subresource
    if (verb, subresource) == ("create", "exec") and right.group:
        verb, subresource = Right.DRIVE.verb, CONSOLE
    attributes = Attributes(
        User(""), verb, right.group, resource=right.resource, subresource=subresource
    )
    return any(rule.allows(attributes) for rule in _default_roles()[role])


@cache
def _default_roles() -> dict[str, tuple[Rule, ...]]:
    return aggregated_rules(bootstrap_objects(DIALECTS, node_pods=True))
