"""
Subjects: users, groups and ServiceAccounts, as bindings of RBAC name them.

Source: ``k8s.io/api/rbac/v1`` and ``pkg/apis/rbac/validation`` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.schema import string, struct

GROUP = "rbac.authorization.k8s.io"
_USER, _GROUP, _ACCOUNT = "User", "Group", "ServiceAccount"

SUBJECT = struct(
    {
        "kind": string("kind is User, Group or ServiceAccount."),
        "apiGroup": string("apiGroup is the API group of the kind; empty for a ServiceAccount."),
        "name": string("name is the name of the subject."),
        "namespace": string("namespace is the namespace of a ServiceAccount."),
    },
    required=["kind", "name"],
    atomic=True,
)


def prepare_subjects(subjects: object) -> None:
    """Set the default ``apiGroup`` of each subject, in place; the value may be malformed."""
    for subject in subjects if isinstance(subjects, list) else ():
        if isinstance(subject, dict):
            subject.setdefault("apiGroup", _api_group(subject))


def subject_problems(subjects: Sequence[Mapping[str, Any]], field: str) -> Iterator[Cause]:
    """Yield what is wrong with subjects that have the types of the schema."""
    for index, subject in enumerate(subjects):
        here = f"{field}[{index}]"
        if not subject["name"]:
            yield fields.required(f"{here}.name")
        elif subject["kind"] not in (_USER, _GROUP, _ACCOUNT):
            kinds = [_USER, _GROUP, _ACCOUNT]
            yield fields.not_supported(f"{here}.kind", subject["kind"], kinds)
        elif subject["kind"] == _ACCOUNT and not subject.get("namespace"):
            yield fields.required(f"{here}.namespace")
        elif subject["apiGroup"] != _api_group(subject):
            api_groups = [_api_group(subject)]
            yield fields.not_supported(f"{here}.apiGroup", subject["apiGroup"], api_groups)


def subject_name(subject: Mapping[str, Any]) -> str:
    """Return the name of a subject for a column of a Table."""
    if subject["kind"] == _ACCOUNT:
        return f"{subject['namespace']}/{subject['name']}"
    return str(subject["name"])


def _api_group(subject: Mapping[str, Any]) -> str:
    return "" if subject.get("kind") == _ACCOUNT else GROUP
