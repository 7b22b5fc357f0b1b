"""
The roles and bindings that exist from the start.

Kubernetes' own where it has them, with its names; those of ironcore's machine
pools; and one for the API server that forwards people to poollets.  Nobody but
``system:masters`` may open a console until someone binds ``edit`` or ``admin``.

In Kubernetes ``view`` may read the logs of Pods.  Here it may not read those of machines: a container's
log is what a program chose to write, a console's is what people saw who were logged in there, and
much of what they typed.  Whoever may open the console sees it anyway, so ``edit`` has it.
Secrets, as in Kubernetes, are ``edit``'s as well, and not ``view``'s.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.api.dialects import IRONCORE
from twisted_exec.auth.groups import AUTHENTICATED, MASTERS, UNAUTHENTICATED
from twisted_exec.auth.rules import EVERYTHING, Rule
from twisted_exec.tls.pki import FORWARDING_USER

Object = dict[str, Any]

_GROUP = "rbac.authorization.k8s.io"
_COMPUTE = (IRONCORE.group,)
_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete", "deletecollection")
_EVENTS = ("", "events.k8s.io")
_MACHINES, _POOLS = IRONCORE.workload.plural, IRONCORE.pool.plural
_CLASSES = IRONCORE.workload_class.plural
_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")

POOL_ROLE = IRONCORE.pool_identity_group
PROXY_ROLE = f"{IRONCORE.group}:system:poollet-proxy"


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
    told = [rule.to_object() for rule in rules]
    return _object("ClusterRole", name, labels=labels, rules=told)


def _gathering(name: str, part_of: str = "") -> Object:
    """A role that is whatever is labelled as part of it, so that others can add to it."""
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


def _on(resources: str, verbs: tuple[str, ...], groups: tuple[str, ...] = _COMPUTE) -> Rule:
    return Rule(verbs, groups, tuple(resources.split()))


_CREATE_REVIEWS = (
    _on("tokenreviews", ("create",), ("authentication.k8s.io",)),
    _on("subjectaccessreviews", ("create",), ("authorization.k8s.io",)),
)

_ROLES = [
    _role("cluster-admin", *EVERYTHING),
    _gathering("admin"),
    _gathering("edit", part_of="admin"),
    _gathering("view", part_of="edit"),
    _role(
        "system:aggregate-to-admin",
        _on("roles rolebindings", (*_READ, *_WRITE), (_GROUP,)),
        _on("localsubjectaccessreviews", ("create",), ("authorization.k8s.io",)),
        part_of="admin",
    ),
    _role(
        "system:aggregate-to-edit",
        _on(_MACHINES, _WRITE),
        _on(f"{_MACHINES}/exec", ("create",)),
        _on(f"{_MACHINES}/log", ("get",)),
        _on("events", _WRITE, _EVENTS),
        _on("secrets", (*_READ, *_WRITE), ("",)),
        part_of="edit",
    ),
    _role(
        "system:aggregate-to-view",
        _on(f"{_MACHINES} {_MACHINES}/status {_POOLS} {_CLASSES}", _READ),
        _on("events", _READ, _EVENTS),
        _on("namespaces services", _READ, ("",)),
        part_of="view",
    ),
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
    _role(
        POOL_ROLE,
        _on(_POOLS, (*_READ, "create", "update", "patch", "delete")),
        _on(f"{_POOLS}/status {_MACHINES}/status", ("get", "update", "patch")),
        _on(_MACHINES, (*_READ, "update", "patch")),
        _on(f"{_MACHINES}/finalizers", ("update",)),
        _on(_CLASSES, _READ),
        _on("events", ("create", "update", "patch"), _EVENTS),
        _on("leases", (*_READ, "create", "update", "patch"), ("coordination.k8s.io",)),
        *_CREATE_REVIEWS,
    ),
    _role(PROXY_ROLE, _on(f"{_POOLS}/{IRONCORE.proxy_subresource}", ("create", "get"))),
]

_BINDINGS = [
    _binding("cluster-admin", ("Group", MASTERS)),
    _binding("system:basic-user", ("Group", AUTHENTICATED)),
    _binding("system:discovery", ("Group", AUTHENTICATED)),
    _binding("system:public-info-viewer", ("Group", AUTHENTICATED), ("Group", UNAUTHENTICATED)),
    _binding(POOL_ROLE, ("Group", IRONCORE.pool_identity_group)),
    _binding(PROXY_ROLE, ("User", FORWARDING_USER)),
]

BOOTSTRAP: tuple[Object, ...] = (*_ROLES, *_BINDINGS)
"""ClusterRoles, then ClusterRoleBindings.  Copy before changing."""
