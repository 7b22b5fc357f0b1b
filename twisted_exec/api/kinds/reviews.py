"""
Reviews: requests about identity and permissions, which are answered and not stored.

Source: ``k8s.io/api/authentication/v1`` and ``k8s.io/api/authorization/v1``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Kind, Object
from twisted_exec.api.kinds.schemas import strings
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import Schema, anything, array, boolean, mapping, string, struct

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"

_UID = string("uid is the UID of the user.")
_GROUPS = strings("groups are the groups of the user.")
_EXTRA = mapping(array(string()), "extra is additional information from the authenticator.")
_USER_INFO = struct(
    {
        "username": string("username is the name of the user."),
        "uid": _UID,
        "groups": _GROUPS,
        "extra": _EXTRA,
    },
    description="user is the user of the token.",
)
_RESOURCE_ATTRIBUTES = struct(
    {
        "namespace": string(
            "namespace is the namespace of the request; empty means all namespaces."
        ),
        "verb": string("verb is the verb of the request, such as get; * means all."),
        "group": string("group is the API group of the resource; * means all."),
        "version": string("version is the API version of the resource; * means all."),
        "resource": string(
            "resource is the resource of the request, such as machines; * means all."
        ),
        "subresource": string("subresource is the subresource of the request, such as exec."),
        "name": string("name is the name of the object; empty means all."),
        "fieldSelector": anything("fieldSelector limits the request to objects with these fields."),
        "labelSelector": anything("labelSelector limits the request to objects with these labels."),
    },
    description="resourceAttributes describe a request for a resource.",
)
_ACCESS = {
    "resourceAttributes": _RESOURCE_ATTRIBUTES,
    "nonResourceAttributes": struct(
        {
            "path": string("path is the URL path of the request."),
            "verb": string("verb is the HTTP method in lower case."),
        },
        description="nonResourceAttributes describe a request for a path that is not a resource.",
    ),
}
_DECISION = struct(
    {
        "allowed": boolean("allowed is true if the request is allowed."),
        "denied": boolean(
            "denied is true if the request is denied regardless of other authorizers."
        ),
        "reason": string("Why."),
        "evaluationError": string("evaluationError is an error that occurred during the check."),
    },
    description="status is the result of the review.",
)
_RULE = struct(
    {
        "verbs": strings("verbs are the allowed verbs."),
        "apiGroups": strings("apiGroups are the API groups of the resources."),
        "resources": strings("resources are the resources that the verbs apply to."),
        "resourceNames": strings("resourceNames are the names of the objects; empty means all."),
        "nonResourceURLs": strings("nonResourceURLs are the paths that the verbs apply to."),
    }
)


def _validate_access(review: Object) -> list[Cause]:
    spec = review.get("spec", {})
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    both = "cannot be specified in combination with resourceAttributes"
    problem = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    if resource is not None and path is not None:
        return [fields.invalid("spec.nonResourceAttributes", path, both)]
    if resource is None and path is None:
        return [fields.invalid("spec.resourceAttributes", None, problem)]
    return []


def _validate_subject(review: Object) -> list[Cause]:
    spec, causes = review.get("spec", {}), _validate_access(review)
    if not spec.get("user") and not spec.get("groups"):
        problem = "at least one of user or group must be specified"
        causes.append(fields.invalid("spec.user", spec.get("user", ""), problem))
    return causes


def _validate_local(review: Object) -> list[Cause]:
    spec, causes = review.get("spec", {}), _validate_subject(review)
    if "nonResourceAttributes" in spec:
        problem = "disallowed on this kind of request"
        causes.append(fields.forbidden("spec.nonResourceAttributes", problem))
    namespace = spec.get("resourceAttributes", {}).get("namespace", "")
    if namespace != review["metadata"].get("namespace", ""):
        problem = "must match metadata.namespace"
        causes.append(fields.invalid("spec.resourceAttributes.namespace", namespace, problem))
    return causes


def _no_causes(review: Object) -> list[Cause]:
    return []


def _review(
    group: str,
    plural: str,
    kind: str,
    schema: Mapping[str, Schema],
    *,
    version: str = "v1",
    namespaced: bool = False,
    validate: Callable[[Object], list[Cause]] = _no_causes,
) -> Kind:
    return Kind(
        resource=Resource(group, version, plural, kind, namespaced=namespaced),
        singular=kind.lower(),
        description=f"{kind} is a request that is answered in its status and not stored.",
        schema=schema,
        stored=False,
        validate=validate,
    )


TOKENREVIEWS = _review(
    AUTHENTICATION,
    "tokenreviews",
    "TokenReview",
    {
        "spec": struct(
            {
                "token": string("token is the bearer token."),
                "audiences": strings("audiences are the intended audiences of the token."),
            },
            description="spec is the token to authenticate.",
        ),
        "status": struct(
            {
                "authenticated": boolean(
                    "authenticated is true if the token belongs to a known user."
                ),
                "user": _USER_INFO,
                "audiences": strings("audiences are those audiences that the token is valid for."),
                "error": string("error is the reason why the token was rejected."),
            },
            description="status is the result of the review.",
        ),
    },
)

_SELF = {
    "status": struct({"userInfo": _USER_INFO}, description="status is the user of the request.")
}
SELFSUBJECTREVIEWS = _review(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview", _SELF)
SELFSUBJECTREVIEWS_V1BETA1 = _review(
    AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview", _SELF, version="v1beta1"
)
"""The version of SelfSubjectReviews that kubectl 1.27 uses."""

_SUBJECT_ACCESS = {
    "spec": struct(
        {
            **_ACCESS,
            "user": string("user is the name of the user."),
            "uid": _UID,
            "groups": _GROUPS,
            "extra": _EXTRA,
        },
        description="spec is the user and the request to check.",
    ),
    "status": _DECISION,
}
SUBJECTACCESSREVIEWS = _review(
    AUTHORIZATION,
    "subjectaccessreviews",
    "SubjectAccessReview",
    _SUBJECT_ACCESS,
    validate=_validate_subject,
)
LOCALSUBJECTACCESSREVIEWS = _review(
    AUTHORIZATION,
    "localsubjectaccessreviews",
    "LocalSubjectAccessReview",
    _SUBJECT_ACCESS,
    namespaced=True,
    validate=_validate_local,
)
SELFSUBJECTACCESSREVIEWS = _review(
    AUTHORIZATION,
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    {
        "spec": struct(_ACCESS, description="spec is the request to check for the current user."),
        "status": _DECISION,
    },
    validate=_validate_access,
)
SELFSUBJECTRULESREVIEWS = _review(
    AUTHORIZATION,
    "selfsubjectrulesreviews",
    "SelfSubjectRulesReview",
    {
        "spec": struct(
            {"namespace": string("Where.")},
            description="spec is the namespace to list the current user's permissions in.",
        ),
        "status": struct(
            {
                "resourceRules": array(_RULE, "resourceRules are the permissions for resources."),
                "nonResourceRules": array(
                    _RULE, "nonResourceRules are the permissions for paths that are not resources."
                ),
                "incomplete": boolean("incomplete is true if the user may have more permissions."),
                "evaluationError": string(
                    "evaluationError is an error that occurred during the check."
                ),
            },
            description="status is the result of the review.",
        ),
    },
)
