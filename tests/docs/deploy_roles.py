"""
Generate the parts of ``docs/deploy/kubernetes`` that follow from the code: API groups and roles.

A standalone exec-apiserver creates the roles of people and poollets itself
(``twisted_exec.auth.rbac``).  Behind a kube-apiserver they are manifests: the same rules,
without those for kinds that the host cluster has roles for, and with names of ours where
Kubernetes' own are taken.  ``twisted_exec.apiserver.aggregated.control_plane`` has the server's own
permissions at the host.

``python -m tests.docs.deploy_roles`` writes a kustomize component for each dialect, the roles that all dialects
share, and the same objects as templates of the chart in ``docs/deploy/helm``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.kinds import crds, spaces
from twisted_exec.api.spaces import DEFAULT_PROVIDER, namespace_of
from twisted_exec.apiserver.aggregated import control_plane
from twisted_exec.auth.default_roles import (
    CONSOLE_APPROVER,
    CONSOLE_LOG_READER,
    CONSOLE_OBSERVER,
    CONSOLE_OPERATOR,
    CONSOLE_POLICY_EDITOR,
    CONSOLE_RECORDING_READER,
    CONSOLE_SESSION_READER,
    CONSOLE_USER,
    PERMISSION_WATCHER,
    bootstrap_objects,
)
from twisted_exec.auth.rules import Rule
from twisted_exec.nodeserver import rbac_rules as node_needs
from twisted_exec.spacemanager import rbac_rules as space_needs

Object = dict[str, Any]

KUBERNETES = Path(__file__).parents[2] / "docs" / "deploy" / "kubernetes"
SESSIONS = kinds.CONSOLESESSIONS.resource.group
HEAD = "# Written by python -m tests.docs.deploy_roles, from what the code says.\n"
NAMESPACE, SERVER = "twisted-exec", "exec-apiserver"
"""Namespace of the API server, and its name and its ServiceAccount's."""
NODE_SERVER = "exec-nodeserver"
"""Name of node servers, their ServiceAccount and their namespace, in root and leaf."""
CHART = "../helm/twisted-exec"
CRDS = "spaces/crds"
SPACE_MANAGER = "exec-spacemanager"
"""Name of Space Managers, their ServiceAccount and their namespace."""
RBAC = "rbac.authorization.k8s.io/v1"
DELEGATOR = "system:auth-delegator"
"""ClusterRole of each cluster: TokenReviews and SubjectAccessReviews."""
CONFIGURATION_READER = "extension-apiserver-authentication-reader"
"""Role of each cluster in ``kube-system``: read the authentication ConfigMap."""
UNBOUND = (
    CONSOLE_APPROVER,
    CONSOLE_POLICY_EDITOR,
    CONSOLE_RECORDING_READER,
    CONSOLE_SESSION_READER,
    PERMISSION_WATCHER,
)
"""Roles that are part of no other role."""
OF_DIALECTS = (CONSOLE_OBSERVER, CONSOLE_USER, CONSOLE_OPERATOR, CONSOLE_LOG_READER)
"""Roles with rules of each dialect, which the host's controller aggregates."""
CHART_CONDITIONS = {
    "apiserver/rights.yaml": ".Values.apiserver.enabled",
    "apiserver/roles.yaml": ".Values.apiserver.enabled",
    "nodeserver/rights.yaml": ".Values.nodeserver.enabled",
    **{
        f"{component}/rights.yaml": f"and .Values.nodeserver.enabled .Values.nodeserver.{value}"
        for component, value in (
            ("sync-pods", "syncPods"),
            ("machine-pods", "machinePods"),
            ("space-leaves", "spaceLeaves"),
        )
    },
    "spaces/rights.yaml": ".Values.spacemanager.enabled",
    "spaces/roles.yaml": ".Values.spacemanager.enabled",
    "spaces-kubeflex/rights.yaml": "and .Values.spacemanager.enabled .Values.spacemanager.kubeflex",
    **{
        f"{dialect.name}/roles.yaml": f'and .Values.apiserver.enabled (has "{dialect.name}" .Values.apiserver.dialects)'
        for dialect in DIALECTS
    },
}
"""Files that are templates of the chart, with the conditions under which it has their objects."""
CHART_NAMESPACES = {
    NAMESPACE: ".Release.Namespace",
    NODE_SERVER: ".Values.nodeserver.namespace",
    SPACE_MANAGER: ".Values.spacemanager.namespace",
}
PEOPLE = "system:aggregate-to-"
"""Prefix of roles that are aggregated to Kubernetes' own ``admin``, ``edit`` and ``view``."""


def groups_of(dialect: Dialect) -> list[tuple[str, str]]:
    """Return the API groups of a dialect with their versions."""
    shared = {kind.resource.group for kind in kinds.served(())}
    resources = (kind.resource for kind in kinds.served((dialect,)))
    pairs = ((each.group, each.version) for each in resources if each.group not in shared)
    return list(dict.fromkeys(pairs))


def api_services(dialect: Dialect) -> list[Object]:
    """Return an APIService for each group; the overlay sets the CA."""
    return [
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 2000,
                "versionPriority": 100,
                "service": {"namespace": NAMESPACE, "name": SERVER, "port": 443},
            },
        }
        for group, version in groups_of(dialect)
    ]


def roles_of(dialect: Dialect) -> list[Object]:
    """Return the roles of a dialect, for people and for poollets."""
    groups = {group for group, _version in groups_of(dialect)}
    objects = {
        (each["kind"], each["metadata"]["name"]): each for each in bootstrap_objects((dialect,))
    }
    roles = list(_of_people(objects.values(), groups, dialect.name))
    for name in OF_DIALECTS:
        role = _ours(objects["ClusterRole", name])
        labels = {_aggregate_to(name): "true"}
        role["metadata"] = {"name": f"twisted-exec:{dialect.name}:{name}", "labels": labels}
        roles.append(role)
    shared = {(each["kind"], each["metadata"]["name"]) for each in bootstrap_objects(())}
    for key, each in objects.items():
        if key not in shared:
            roles += _apart(_ours(each), dialect)
    return roles


def roles_of_sessions() -> list[Object]:
    """Return the roles of people for console sessions, which all dialects share."""
    objects = bootstrap_objects(())
    unbound = [each for each in objects if each["metadata"]["name"] in UNBOUND]
    gathering = [
        {
            "apiVersion": RBAC,
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "aggregationRule": {
                "clusterRoleSelectors": [{"matchLabels": {_aggregate_to(name): "true"}}]
            },
        }
        for name in OF_DIALECTS
    ]
    return [*_of_people(objects, {SESSIONS}, "sessions"), *map(_ours, unbound), *gathering]


def _aggregate_to(role: str) -> str:
    return f"{SESSIONS}/aggregate-to-{role}"


def _of_people(objects: Iterable[Object], groups: set[str], whose: str) -> Iterator[Object]:
    """Yield the roles of ``objects`` that are aggregated for people, with their rules for ``groups``."""
    for each in objects:
        name = each["metadata"]["name"]
        rules = [rule for rule in each.get("rules", []) if groups.issuperset(_groups(rule))]
        if name.startswith(PEOPLE) and rules:
            role = _ours(each)
            part = name.removeprefix(PEOPLE)
            role["metadata"]["name"] = f"twisted-exec:{whose}:aggregate-to-{part}"
            role["rules"] = [_asked_twice(rule) for rule in rules]
            yield role


def _asked_twice(rule: Object) -> Object:
    """
    Add ``get`` to a rule for consoles.

    kube-apiserver checks the verb of the HTTP method before it forwards a WebSocket, which is a
    GET; our API server checks ``create``, whatever the method.
    """
    if any(each.endswith("/exec") for each in rule.get("resources", [])):
        return {**rule, "verbs": ["get", *rule["verbs"]]}
    return rule


def _groups(rule: Object) -> list[str]:
    # A rule without groups is for non-resource URLs.
    return list(rule.get("apiGroups", [""]))


def _ours(original: Object) -> Object:
    """Copy an object without the label of objects that kube-apiserver itself reconciles."""
    copied = copy.deepcopy(original)
    del copied["metadata"]["labels"]["kubernetes.io/bootstrapping"]
    if not copied["metadata"]["labels"]:
        del copied["metadata"]["labels"]
    return copied


def _apart(role: Object, dialect: Dialect) -> list[Object]:
    """
    Split the role of poollets by what administrators should grant separately.

    Secrets have a role of their own, to be bound for each namespace.  Leases have a role in the
    namespace of poollets only.  A standalone server restricts a poollet to the objects of its
    machines and to its own Lease; kube-apiserver has no such restriction, and Leases of other
    programs' elections.
    """
    name = dialect.pool_identity_group
    if role["kind"] != "ClusterRole" or role["metadata"]["name"] != name:
        return [role]
    secrets, leases = (_taken(role, resource) for resource in ("secrets", "leases"))
    roles = [role, _role(f"{name}:secrets", secrets)]
    if dialect.lease_namespace:
        roles += _leases(dialect, leases)
    return roles


def _taken(role: Object, resource: str) -> list[Object]:
    """Remove the rules for a resource from a role, and return them."""
    rules = [rule for rule in role["rules"] if rule.get("resources") == [resource]]
    role["rules"] = [rule for rule in role["rules"] if rule not in rules]
    return rules


def _role(name: str, rules: list[Object], namespace: str = "") -> Object:
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": RBAC, "kind": kind, "metadata": metadata, "rules": rules}


def _leases(dialect: Dialect, rules: list[Object]) -> list[Object]:
    name, namespace = dialect.pool_identity_group, dialect.lease_namespace
    group = RBAC.partition("/")[0]
    binding = {
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": name}],
    }
    created = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    server_rules = dict(control_plane.namespaced_rules((dialect,)))[namespace]
    poollets = [_role(name, rules, namespace), binding]
    return [created, *poollets, *_granted(server_rules, namespace)]


def rights() -> list[Object]:
    """Return the permissions of the API server at kube-apiserver that all dialects share."""
    account = _account(SERVER, NAMESPACE)
    objects: list[Object] = [account]
    objects += _granted(control_plane.cluster_rules())
    for namespace, rules in control_plane.namespaced_rules(()):
        objects += _granted(rules, namespace)
    objects.append(_bound(f"{SERVER}:{DELEGATOR}", "ClusterRole", DELEGATOR))
    objects.append(
        _bound(f"{SERVER}:{CONFIGURATION_READER}", "Role", CONFIGURATION_READER, "kube-system")
    )
    return objects


def rights_in_root() -> list[Object]:
    """Return the permissions of a node server in its root, including Secrets with kubeconfigs of leaves."""
    whose = _account(NODE_SERVER, NODE_SERVER)
    objects: list[Object] = [whose, *_granted(node_needs.root_rules(), whose=whose)]
    for namespace, rules in node_needs.root_namespaced_rules(NODE_SERVER):
        if namespace == NODE_SERVER:
            rules += node_needs.secret_rules()
        objects += _granted(rules, namespace, whose)
    objects.append(_bound(f"{NODE_SERVER}:{DELEGATOR}", "ClusterRole", DELEGATOR, whose=whose))
    return objects


def rights_in_leaf() -> list[Object]:
    """Return the permissions of a node server in a leaf, without those for mirroring Pods."""
    whose = _account(NODE_SERVER, NODE_SERVER)
    created = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NODE_SERVER}}
    return [created, whose, *_granted(node_needs.leaf_rules(), whose=whose)]


def rights_of_spaces() -> list[Object]:
    """Return the permissions of a Space Manager in the cluster of its Spaces."""
    whose = _account(SPACE_MANAGER, SPACE_MANAGER)
    objects: list[Object] = [whose, *_granted(space_needs.cluster_rules(), whose=whose)]
    secrets = f"{SPACE_MANAGER}:secrets"
    objects.append(_role(secrets, [rule.to_object() for rule in space_needs.secret_rules()]))
    objects.append(_bound(secrets, "ClusterRole", secrets, whose=whose))
    for namespace, rules in space_needs.namespaced_rules(SPACE_MANAGER):
        objects += _granted(rules, namespace, whose)
    return objects


def roles_of_spaces() -> list[Object]:
    """Return the roles of people for Spaces and ClusterProfiles."""
    groups = {each.resource.group for each in (kinds.SPACES, kinds.CLUSTERPROFILES)}
    return list(_of_people(bootstrap_objects(()), groups, "spaces"))


def rights_beside_kubeflex() -> list[Object]:
    """Return the additional permissions of a Space Manager in the cluster of KubeFlex."""
    name = f"{SPACE_MANAGER}:kubeflex"
    role = _role(name, [rule.to_object() for rule in space_needs.kubeflex_rules()])
    return [role, _bound(name, "ClusterRole", name, whose=_account(SPACE_MANAGER, SPACE_MANAGER))]


def rights_of_space_leaves() -> list[Object]:
    """Return the permissions of a node server for Spaces as leaves, bound for one provider only."""
    name = f"{NODE_SERVER}:spaces"
    role = _role(name, [rule.to_object() for rule in node_needs.space_rules()])
    where, whose = namespace_of(DEFAULT_PROVIDER), _account(NODE_SERVER, NODE_SERVER)
    return [role, _bound(name, "ClusterRole", name, where, whose)]


def more_rights(what: str, rules: Iterable[Rule]) -> list[Object]:
    """Return the permissions of a node server for an optional feature."""
    whose = _account(NODE_SERVER, NODE_SERVER)
    name = f"{NODE_SERVER}:{what}"
    role = _role(name, [rule.to_object() for rule in rules])
    return [role, _bound(name, "ClusterRole", name, whose=whose)]


def _account(name: str, namespace: str) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _granted(
    rules: Iterable[Rule], namespace: str = "", whose: Object | None = None
) -> list[Object]:
    """Return a role and its binding to a server's ServiceAccount."""
    name = whose["metadata"]["name"] if whose else SERVER
    role = _role(name, [rule.to_object() for rule in rules], namespace)
    return [role, _bound(name, role["kind"], name, namespace, whose)]


def _bound(
    name: str, kind: str, role: str, namespace: str = "", whose: Object | None = None
) -> Object:
    """
    Return a binding.

    :param whose: a ServiceAccount; default: the API server's.
    """
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    account = (whose or _account(SERVER, NAMESPACE))["metadata"]
    return {
        "apiVersion": RBAC,
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC.partition("/")[0], "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", **account}],
    }


def definitions() -> dict[str, Object]:
    """Return the CustomResourceDefinitions for Spaces by file name, for use in a kube-apiserver."""
    return {
        "spaces": crds.definition(kinds.SPACES, name=spaces.SPACE_NAME),
        "spaceproviderdescs": crds.definition(kinds.SPACEPROVIDERDESCS, name=spaces.PROVIDER_NAME),
        "clusterprofiles": crds.definition(kinds.CLUSTERPROFILES),
    }


def component(dialect: Dialect) -> Object:
    """Return the kustomize component that adds a dialect to the API server."""
    argument = {
        "op": "add",
        "path": "/spec/template/spec/containers/0/args/-",
        "value": f"--dialect={dialect.name}",
    }
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": ["apiservices.yaml", "roles.yaml"],
        "patches": [
            {
                "target": {"kind": "Deployment", "name": SERVER},
                "patch": _dump([argument]),
            }
        ],
    }


def _dump(*documents: Any) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False, width=100)


def written() -> dict[str, str]:
    """Return the content of each file, by its path below ``docs/deploy/kubernetes``."""
    files = {
        "apiserver/rights.yaml": _dump(*rights()),
        "apiserver/roles.yaml": _dump(*roles_of_sessions()),
        "nodeserver/rights.yaml": _dump(*rights_in_root()),
        "leaf/rights.yaml": _dump(*rights_in_leaf()),
        "sync-pods/rights.yaml": _dump(*more_rights("sync-pods", node_needs.sync_root_rules())),
        "sync-pods-leaf/rights.yaml": _dump(
            *more_rights("sync-pods", node_needs.sync_leaf_rules())
        ),
        "spaces/rights.yaml": _dump(*rights_of_spaces()),
        "spaces/roles.yaml": _dump(*roles_of_spaces()),
        "spaces-kubeflex/rights.yaml": _dump(*rights_beside_kubeflex()),
        "space-leaves/rights.yaml": _dump(*rights_of_space_leaves()),
        "machine-pods/rights.yaml": _dump(*more_rights("machine-pods", node_needs.machine_rules())),
    }
    for name, each in definitions().items():
        files[f"{CRDS}/{name}.yaml"] = _dump(each)
    for dialect in DIALECTS:
        files[f"{dialect.name}/apiservices.yaml"] = _dump(*api_services(dialect))
        files[f"{dialect.name}/roles.yaml"] = _dump(*roles_of(dialect))
        files[f"{dialect.name}/kustomization.yaml"] = _dump(component(dialect))
    return {path: HEAD + text for path, text in (files | chart(files)).items()}


def chart(files: dict[str, str]) -> dict[str, str]:
    """Return the content of the chart's files, of the content of the others."""
    found = {
        f"{CHART}/templates/{path.replace('/', '-')}": _template(files[path], condition)
        for path, condition in CHART_CONDITIONS.items()
    }
    for name, each in definitions().items():
        # Without its definition every Space would be deleted: not by "helm uninstall".
        annotations = {"helm.sh/resource-policy": "keep", **each["metadata"].get("annotations", {})}
        kept = {**each, "metadata": {**each["metadata"], "annotations": annotations}}
        value = ".Values.spacemanager"
        condition = f"{value}.enabled"
        if name == "clusterprofiles":
            condition = f"and {condition} {value}.clusterProfileDefinition"
        found[f"{CHART}/templates/crds-{name}.yaml"] = _template(_dump(kept), condition)
    served = {"sessions": [{"group": SESSIONS, "version": kinds.CONSOLESESSIONS.resource.version}]}
    for dialect in DIALECTS:
        pairs = groups_of(dialect)
        served[dialect.name] = [{"group": group, "version": version} for group, version in pairs]
    found[f"{CHART}/groups.yaml"] = _dump(served)
    kubeconfig = (KUBERNETES / "consoles/poollet.kubeconfig").read_text(encoding="utf-8")
    found[f"{CHART}/poollet.kubeconfig"] = kubeconfig
    return found


def _template(text: str, condition: str) -> str:
    for namespace, value in CHART_NAMESPACES.items():
        text = text.replace(f"namespace: {namespace}\n", f"namespace: {{{{ {value} }}}}\n")
    return f"{{{{- if {condition} }}}}\n---\n{text}{{{{- end }}}}\n"


def main() -> None:
    for path, text in written().items():
        (KUBERNETES / path).parent.mkdir(exist_ok=True, parents=True)
        (KUBERNETES / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
