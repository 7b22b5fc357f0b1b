"""
The parts of ``docs/deploy/kubernetes`` that follow from the code: API groups and cluster roles.

When alone, exec-apiserver makes roles for people and poollets by itself
(``twisted_exec.auth.bootstrap``).  Behind a kube-apiserver roles are the host's, so they are
manifests: the same rules, without those about kinds that the host has roles for already, and
with names of ours where Kubernetes' own are taken.  What the server itself must be allowed at
the host says ``twisted_exec.apiserver.aggregated.needs``.

``python -m tests.docs.deploy_roles`` writes them: for each dialect a kustomize component, and the
roles of what is every dialect's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from twisted_exec.api import crds, kinds
from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.kinds import spaces
from twisted_exec.api.spaces import DEFAULT_PROVIDER, namespace_of
from twisted_exec.apiserver.aggregated import needs
from twisted_exec.auth.bootstrap import bootstrap_objects
from twisted_exec.auth.rules import Rule
from twisted_exec.nodeserver import needs as node_needs
from twisted_exec.spacemanager import needs as space_needs

Object = dict[str, Any]

KUBERNETES = Path(__file__).parents[2] / "docs" / "deploy" / "kubernetes"
SESSIONS = kinds.CONSOLESESSIONS.resource.group
HEAD = "# Written by python -m tests.docs.deploy_roles, from what the code says.\n"
NAMESPACE, SERVER = "twisted-exec", "exec-apiserver"
"""Where the API server is, and what it and its ServiceAccount are called."""
NODE_SERVER = "exec-nodeserver"
"""What node servers, their ServiceAccount and their namespace are called, in root and leaf."""
CRDS = "spaces/crds"
SPACE_MANAGER = "exec-spacemanager"
"""What space managers, their ServiceAccount and their namespace are called."""
RBAC = "rbac.authorization.k8s.io/v1"
PEOPLE = "system:aggregate-to-"
"""What the names of roles begin with that become part of Kubernetes' own for people."""


def groups_of(dialect: Dialect) -> list[tuple[str, str]]:
    """The API groups that a dialect brings, with their versions."""
    everyones = {kind.resource.group for kind in kinds.served(())}
    found = (kind.resource for kind in kinds.served((dialect,)))
    pairs = ((each.group, each.version) for each in found if each.group not in everyones)
    return list(dict.fromkeys(pairs))


def api_services(dialect: Dialect) -> list[Object]:
    """One for each group; the certificate's CA is the overlay's to say."""
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
    """Of people who use a dialect's machines, and of its poollets."""
    groups = {group for group, _version in groups_of(dialect)}
    made = {
        (each["kind"], each["metadata"]["name"]): each for each in bootstrap_objects((dialect,))
    }
    found = list(_of_people(made.values(), groups, dialect.name))
    known = {(each["kind"], each["metadata"]["name"]) for each in bootstrap_objects(())}
    for key, each in made.items():
        if key not in known:
            found += _apart(_ours(each), dialect)
    return found


def roles_of_sessions() -> list[Object]:
    """Of people, for the sessions of all dialects."""
    return list(_of_people(bootstrap_objects(()), {SESSIONS}, "sessions"))


def _of_people(objects: Iterable[Object], groups: set[str], whose: str) -> Iterator[Object]:
    """Those that are part of ``admin``, ``edit`` and ``view``, with the rules about some groups."""
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
    A rule about consoles, as it must be behind a kube-apiserver.

    It asks by the method for itself before it passes a request on; ours asks for ``create``,
    whatever the method.
    """
    if any(each.endswith("/exec") for each in rule.get("resources", [])):
        return {**rule, "verbs": ["get", *rule["verbs"]]}
    return rule


def _groups(rule: Object) -> list[str]:
    # A rule without groups is about URLs.
    return list(rule.get("apiGroups", [""]))


def _ours(made: Object) -> Object:
    """Without the label by which kube-apiserver knows the objects that it keeps itself."""
    copied = copy.deepcopy(made)
    del copied["metadata"]["labels"]["kubernetes.io/bootstrapping"]
    if not copied["metadata"]["labels"]:
        del copied["metadata"]["labels"]
    return copied


def _apart(made: Object, dialect: Dialect) -> list[Object]:
    """
    What a poollet may do to kinds of the host: Secrets in a role of their own, to be bound
    namespace by namespace, and Leases where poollets keep theirs alone.

    When alone, the server shows a poollet only what its machines name, and lets it write its own
    Lease only; kube-apiserver knows no such bounds, and keeps other programs' elections as Leases.
    """
    name = dialect.pool_identity_group
    if made["kind"] != "ClusterRole" or made["metadata"]["name"] != name:
        return [made]
    secrets, leases = (_taken(made, resource) for resource in ("secrets", "leases"))
    found = [made, _role(f"{name}:secrets", secrets)]
    if dialect.lease_namespace:
        found += _leases(dialect, leases)
    return found


def _taken(role: Object, resource: str) -> list[Object]:
    """The rules about a resource, which the role then no longer has."""
    found = [rule for rule in role["rules"] if rule.get("resources") == [resource]]
    role["rules"] = [rule for rule in role["rules"] if rule not in found]
    return found


def _role(name: str, rules: list[Object], namespace: str = "") -> Object:
    kind = "Role" if namespace else "ClusterRole"
    told = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": RBAC, "kind": kind, "metadata": told, "rules": rules}


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
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    seen = dict(needs.namespaced_rules((dialect,)))[namespace]
    poollets = [_role(name, rules, namespace), binding]
    return [made, *poollets, *_granted(seen, namespace)]


def rights() -> list[Object]:
    """What the API server itself may do at kube-apiserver, whosever machines there are."""
    account = _account(SERVER, NAMESPACE)
    found: list[Object] = [account]
    found += _granted(needs.cluster_rules())
    for namespace, rules in needs.namespaced_rules(()):
        found += _granted(rules, namespace)
    found.append(_bound(f"{SERVER}:{needs.DELEGATOR}", "ClusterRole", needs.DELEGATOR))
    found.append(_bound(f"{SERVER}:{needs.READER}", "Role", needs.READER, "kube-system"))
    return found


def rights_in_root() -> list[Object]:
    """What a node server may do in its root; kubeconfigs of leaves may be Secrets beside it."""
    whose = _account(NODE_SERVER, NODE_SERVER)
    found: list[Object] = [whose, *_granted(node_needs.root_rules(), whose=whose)]
    for namespace, rules in node_needs.root_namespaced_rules(NODE_SERVER):
        if namespace == NODE_SERVER:
            rules += node_needs.secret_rules()
        found += _granted(rules, namespace, whose)
    role = node_needs.DELEGATOR
    found.append(_bound(f"{NODE_SERVER}:{role}", "ClusterRole", role, whose=whose))
    return found


def rights_in_leaf() -> list[Object]:
    """What a node server may do in a leaf; what a syncer may is bound where Pods are mirrored."""
    whose = _account(NODE_SERVER, NODE_SERVER)
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NODE_SERVER}}
    return [made, whose, *_granted(node_needs.leaf_rules(), whose=whose)]


def rights_of_spaces() -> list[Object]:
    """What a space manager may do where its Spaces are."""
    whose = _account(SPACE_MANAGER, SPACE_MANAGER)
    found: list[Object] = [whose, *_granted(space_needs.cluster_rules(), whose=whose)]
    secrets = f"{SPACE_MANAGER}:secrets"
    found.append(_role(secrets, [rule.to_object() for rule in space_needs.secret_rules()]))
    found.append(_bound(secrets, "ClusterRole", secrets, whose=whose))
    for namespace, rules in space_needs.namespaced_rules(SPACE_MANAGER):
        found += _granted(rules, namespace, whose)
    return found


def roles_of_spaces() -> list[Object]:
    """Of people, for Spaces and what tells of them."""
    groups = {each.resource.group for each in (kinds.SPACES, kinds.CLUSTERPROFILES)}
    return list(_of_people(bootstrap_objects(()), groups, "spaces"))


def rights_beside_kubeflex() -> list[Object]:
    """What a space manager may do besides, where KubeFlex is."""
    name = f"{SPACE_MANAGER}:kubeflex"
    role = _role(name, [rule.to_object() for rule in space_needs.kubeflex_rules()])
    return [role, _bound(name, "ClusterRole", name, whose=_account(SPACE_MANAGER, SPACE_MANAGER))]


def rights_of_space_leaves() -> list[Object]:
    """What a node server may do in its root for Spaces as leaves, bound for one provider's alone."""
    name = f"{NODE_SERVER}:spaces"
    role = _role(name, [rule.to_object() for rule in node_needs.space_rules()])
    where, whose = namespace_of(DEFAULT_PROVIDER), _account(NODE_SERVER, NODE_SERVER)
    return [role, _bound(name, "ClusterRole", name, where, whose)]


def more_rights(what: str, rules: Iterable[Rule]) -> list[Object]:
    """What a node server may do besides, for something that it need not do."""
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
    """A role of a server's own, bound to it."""
    name = whose["metadata"]["name"] if whose else SERVER
    role = _role(name, [rule.to_object() for rule in rules], namespace)
    return [role, _bound(name, role["kind"], name, namespace, whose)]


def _bound(
    name: str, kind: str, role: str, namespace: str = "", whose: Object | None = None
) -> Object:
    """
    :param whose: a ServiceAccount; that of the API server when nothing is said.
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
    """By their files: what a kube-apiserver is told to keep Spaces, which no server of ours serves there."""
    return {
        "spaces": crds.definition(kinds.SPACES, name=spaces.SPACE_NAME),
        "spaceproviderdescs": crds.definition(kinds.SPACEPROVIDERDESCS, name=spaces.PROVIDER_NAME),
        "clusterprofiles": crds.definition(kinds.CLUSTERPROFILES),
    }


def component(dialect: Dialect) -> Object:
    """Says that there are a dialect's machines."""
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
    """What each file is to be, by its path below ``docs/deploy/kubernetes``."""
    found = {
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
        found[f"{CRDS}/{name}.yaml"] = _dump(each)
    for dialect in DIALECTS:
        found[f"{dialect.name}/apiservices.yaml"] = _dump(*api_services(dialect))
        found[f"{dialect.name}/roles.yaml"] = _dump(*roles_of(dialect))
        found[f"{dialect.name}/kustomization.yaml"] = _dump(component(dialect))
    return {path: HEAD + text for path, text in found.items()}


def main() -> None:
    for path, text in written().items():
        (KUBERNETES / path).parent.mkdir(exist_ok=True, parents=True)
        (KUBERNETES / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
