"""
Roles and bindings of ``rbac.authorization.k8s.io/v1``.

Source: ``k8s.io/api/rbac/v1`` and ``pkg/apis/rbac/validation`` of Kubernetes.
"""

from __future__ import annotations

from twisted_exec.api import fields, names
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import validation
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.schemas import LABEL_SELECTOR, strings
from twisted_exec.api.kinds.subjects import (
    GROUP,
    SUBJECT,
    prepare_subjects,
    subject_name,
    subject_problems,
)
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import Schema, array, string, struct

_RULES = array(
    struct(
        {
            "verbs": strings("verbs are the verbs that the rule allows, such as get; * means all."),
            "apiGroups": strings(
                'apiGroups are the API groups of the resources; "" means the core group, * all.'
            ),
            "resources": strings(
                "resources are the resources of the rule, such as machines or machines/exec; * means all."
            ),
            "resourceNames": strings(
                "resourceNames restrict the rule to objects with these names; empty means all."
            ),
            "nonResourceURLs": strings(
                "nonResourceURLs are the non-resource paths of the rule, such as /metrics or /logs/*."
            ),
        },
        required=["verbs"],
    ),
    "rules are the permissions that the role grants.",
)
_SUBJECTS = array(
    SUBJECT, "subjects are the users, groups and ServiceAccounts that the role is granted to."
)
_ROLE_REF = struct(
    {
        "apiGroup": string("apiGroup is the API group of the role."),
        "kind": string("kind is Role or ClusterRole."),
        "name": string("name is the name of the role."),
    },
    required=["kind", "name"],
    description="roleRef is the role that is granted. It is immutable.",
    atomic=True,
)


_AGGREGATION = struct(
    {
        "clusterRoleSelectors": array(
            LABEL_SELECTOR,
            "clusterRoleSelectors select the roles to aggregate; a role needs to match one of them.",
        )
    },
    description="aggregationRule selects ClusterRoles whose rules are combined into this role's rules.",
)


def _validate_role(role: Object) -> list[Cause]:
    causes: list[Cause] = []
    namespaced = role["kind"] == "Role"
    if "aggregationRule" in role and not role["aggregationRule"].get("clusterRoleSelectors"):
        problem = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        causes.append(fields.required("aggregationRule.clusterRoleSelectors", problem))
    for index, selector in enumerate(
        role.get("aggregationRule", {}).get("clusterRoleSelectors", [])
    ):
        here = f"aggregationRule.clusterRoleSelectors[{index}]"
        causes += validation.label_selector(selector, here)
    for index, rule in enumerate(role.get("rules", [])):
        here = f"rules[{index}]"
        if not rule["verbs"]:
            causes.append(fields.required(f"{here}.verbs", "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            causes += _url_causes(rule, here, namespaced)
            continue
        if not rule.get("apiGroups"):
            causes.append(
                fields.required(
                    f"{here}.apiGroups", "resource rules must supply at least one api group"
                )
            )
        if not rule.get("resources"):
            causes.append(
                fields.required(
                    f"{here}.resources", "resource rules must supply at least one resource"
                )
            )
    return causes


def _url_causes(rule: Object, here: str, namespaced: bool) -> list[Cause]:
    field = f"{here}.nonResourceURLs"
    if namespaced:
        return [
            fields.invalid(
                field,
                rule["nonResourceURLs"],
                "namespaced rules cannot apply to non-resource URLs",
            )
        ]
    if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
        return [
            fields.invalid(
                field,
                rule["nonResourceURLs"],
                "rules cannot apply to both regular resources and non-resource URLs",
            )
        ]
    return []


def _prepare_binding(binding: Object) -> None:
    reference = binding.get("roleRef")
    if isinstance(reference, dict):
        reference.setdefault("apiGroup", GROUP)
    prepare_subjects(binding.get("subjects"))


def _validate_binding(binding: Object) -> list[Cause]:
    causes: list[Cause] = []
    reference = binding["roleRef"]
    allowed = (
        ["ClusterRole"] if binding["kind"] == "ClusterRoleBinding" else ["ClusterRole", "Role"]
    )
    if reference["apiGroup"] != GROUP:
        causes.append(fields.not_supported("roleRef.apiGroup", reference["apiGroup"], [GROUP]))
    if reference["kind"] not in allowed:
        causes.append(fields.not_supported("roleRef.kind", reference["kind"], allowed))
    if not reference["name"]:
        causes.append(fields.required("roleRef.name"))
    causes += subject_problems(binding.get("subjects", []), "subjects")
    return causes


def _binding_changed(new: Object, old: Object) -> list[Cause]:
    if new["roleRef"] != old["roleRef"]:
        return [fields.invalid("roleRef", new["roleRef"], "cannot change roleRef")]
    return []


def _created(obj: Object) -> str:
    return str(obj["metadata"].get("creationTimestamp", ""))


_ROLE_COLUMNS = (
    Column(
        "Name",
        lambda obj: str(obj["metadata"]["name"]),
        "Name of the object, unique within its scope",
    ),
    Column("Created At", _created, "When the object was created"),
)
_SUBJECT_COLUMNS = (("Users", "User"), ("Groups", "Group"), ("ServiceAccounts", "ServiceAccount"))


def _subjects_column(title: str, kind: str) -> Column:
    def read(binding: Object) -> str:
        return ", ".join(
            subject_name(subject)
            for subject in binding.get("subjects", [])
            if subject["kind"] == kind
        )

    return Column(title, read, f"{title} in the binding", priority=1)


def _role(plural: str, kind: str, namespaced: bool, **more: Schema) -> Kind:
    return Kind(
        resource=Resource(GROUP, "v1", plural, kind, namespaced=namespaced),
        singular=kind.lower(),
        description=f"{kind} is a set of permissions.",
        schema={"rules": _RULES, **more},
        own_columns=True,
        columns=_ROLE_COLUMNS,
        name_rule=names.path_segment,
        validate=_validate_role,
    )


def _role_name(binding: Object) -> str:
    return f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}"


def _binding(plural: str, kind: str, namespaced: bool) -> Kind:
    return Kind(
        resource=Resource(GROUP, "v1", plural, kind, namespaced=namespaced),
        singular=kind.lower(),
        description=f"{kind} grants a role to subjects.",
        schema={"roleRef": _ROLE_REF, "subjects": _SUBJECTS},
        required=("roleRef",),
        columns=(
            Column("Role", _role_name, "The role that is granted"),
            *(_subjects_column(*column) for column in _SUBJECT_COLUMNS),
        ),
        name_rule=names.path_segment,
        prepare=_prepare_binding,
        validate=_validate_binding,
        validate_update=_binding_changed,
    )


ROLES = _role("roles", "Role", True)
CLUSTERROLES = _role("clusterroles", "ClusterRole", False, aggregationRule=_AGGREGATION)
ROLEBINDINGS = _binding("rolebindings", "RoleBinding", True)
CLUSTERROLEBINDINGS = _binding("clusterrolebindings", "ClusterRoleBinding", False)
