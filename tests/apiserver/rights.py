"""Roles and bindings, as administrators create them."""

from __future__ import annotations

from typing import Any

from twisted_exec.api import kinds

BINDINGS = kinds.ROLEBINDINGS.resource
ROLES = kinds.CLUSTERROLES.resource


def binding(user: str, role: str) -> dict[str, Any]:
    """A role binding."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user}],
    }


def console_role(name: str, *verbs: str, resource: str = "machines/console") -> dict[str, Any]:
    """A cluster role with verbs on consoles."""
    group = kinds.MACHINES.resource.group if resource != "*" else "*"
    rule = {"verbs": list(verbs), "apiGroups": [group], "resources": [resource]}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [rule],
    }
