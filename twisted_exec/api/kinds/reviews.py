"""
Questions that are answered and not stored: who is this, and may they?

Source: ``k8s.io/api/authentication/v1`` and ``k8s.io/api/authorization/v1``.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted_exec.api.kinds.kind import Kind
from twisted_exec.api.kinds.shapes import STRINGS
from twisted_exec.api.meta import Resource
from twisted_exec.api.schema import Schema, anything, array, boolean, mapping, string, struct

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"

_EXTRA = mapping(STRINGS)
_USER_INFO = struct({"username": string(), "uid": string(), "groups": STRINGS, "extra": _EXTRA})
_RESOURCE_ATTRIBUTES = struct(
    {
        "namespace": string(),
        "verb": string(),
        "group": string(),
        "version": string(),
        "resource": string(),
        "subresource": string(),
        "name": string(),
        "fieldSelector": anything(),
        "labelSelector": anything(),
    }
)
_ACCESS = {
    "resourceAttributes": _RESOURCE_ATTRIBUTES,
    "nonResourceAttributes": struct({"path": string(), "verb": string()}),
}
_DECISION = struct(
    {
        "allowed": boolean(),
        "denied": boolean(),
        "reason": string(),
        "evaluationError": string(),
    }
)
_RULE = struct(
    {
        "verbs": STRINGS,
        "apiGroups": STRINGS,
        "resources": STRINGS,
        "resourceNames": STRINGS,
        "nonResourceURLs": STRINGS,
    }
)


def _review(
    group: str,
    plural: str,
    kind: str,
    schema: Mapping[str, Schema],
    *,
    version: str = "v1",
    namespaced: bool = False,
) -> Kind:
    return Kind(
        resource=Resource(group, version, plural, kind, namespaced=namespaced),
        singular=kind.lower(),
        schema=schema,
        stored=False,
    )


TOKENREVIEWS = _review(
    AUTHENTICATION,
    "tokenreviews",
    "TokenReview",
    {
        "spec": struct({"token": string(), "audiences": STRINGS}),
        "status": struct(
            {
                "authenticated": boolean(),
                "user": _USER_INFO,
                "audiences": STRINGS,
                "error": string(),
            }
        ),
    },
)

_SELF = {"status": struct({"userInfo": _USER_INFO})}
SELFSUBJECTREVIEWS = _review(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview", _SELF)
SELFSUBJECTREVIEWS_V1BETA1 = _review(
    AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview", _SELF, version="v1beta1"
)
"""What kubectl 1.27 asks."""

_SUBJECT_ACCESS = {
    "spec": struct(
        {**_ACCESS, "user": string(), "uid": string(), "groups": STRINGS, "extra": _EXTRA}
    ),
    "status": _DECISION,
}
SUBJECTACCESSREVIEWS = _review(
    AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview", _SUBJECT_ACCESS
)
LOCALSUBJECTACCESSREVIEWS = _review(
    AUTHORIZATION,
    "localsubjectaccessreviews",
    "LocalSubjectAccessReview",
    _SUBJECT_ACCESS,
    namespaced=True,
)
SELFSUBJECTACCESSREVIEWS = _review(
    AUTHORIZATION,
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    {"spec": struct(_ACCESS), "status": _DECISION},
)
SELFSUBJECTRULESREVIEWS = _review(
    AUTHORIZATION,
    "selfsubjectrulesreviews",
    "SelfSubjectRulesReview",
    {
        "spec": struct({"namespace": string()}),
        "status": struct(
            {
                "resourceRules": array(_RULE),
                "nonResourceRules": array(_RULE),
                "incomplete": boolean(),
                "evaluationError": string(),
            }
        ),
    },
)
