"""
Questions that are answered and not stored: who is this, and may they?

Source: ``k8s.io/api/authentication/v1`` and ``k8s.io/api/authorization/v1``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.common.schemas import strings
from twisted_exec.api.kinds.kind import Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import Schema, anything, array, boolean, mapping, string, struct

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"

_UID = string("The user's UID.")
_GROUPS = strings("Groups that the user is in.")
_EXTRA = mapping(array(string()), "What else is known of the user.")
_USER_INFO = struct(
    {"username": string("The user's name."), "uid": _UID, "groups": _GROUPS, "extra": _EXTRA},
    description="A user.",
)
_RESOURCE_ATTRIBUTES = struct(
    {
        "namespace": string("Where; empty is everywhere."),
        "verb": string("What is to be done, such as get; * is everything."),
        "group": string("Group of the resource; * is all."),
        "version": string("Version of the resource; * is all."),
        "resource": string("The resource, such as machines; * is all."),
        "subresource": string("Its subresource, such as exec."),
        "name": string("To one object; empty is all."),
        "fieldSelector": anything("Only to objects of these fields."),
        "labelSelector": anything("Only to objects of these labels."),
    },
    description="What is to be done to which resource.",
)
_ACCESS = {
    "resourceAttributes": _RESOURCE_ATTRIBUTES,
    "nonResourceAttributes": struct(
        {"path": string("The path."), "verb": string("The method, in lower case.")},
        description="What is to be done to which path.",
    ),
}
_DECISION = struct(
    {
        "allowed": boolean("Whether they may."),
        "denied": boolean("Whether it is forbidden whatever others say."),
        "reason": string("Why."),
        "evaluationError": string("What went wrong while that was found out."),
    },
    description="The answer.",
)
_RULE = struct(
    {
        "verbs": strings("What may be done."),
        "apiGroups": strings("Groups of the resources."),
        "resources": strings("The resources."),
        "resourceNames": strings("Only objects of these names."),
        "nonResourceURLs": strings("Paths that are no resources."),
    }
)


def _validate_access(review: Object) -> list[Cause]:
    """About one thing, and not about two."""
    spec = review.get("spec", {})
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    both = "cannot be specified in combination with resourceAttributes"
    one = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    if resource is not None and path is not None:
        return [fields.invalid("spec.nonResourceAttributes", path, both)]
    if resource is None and path is None:
        return [fields.invalid("spec.resourceAttributes", None, one)]
    return []


def _validate_subject(review: Object) -> list[Cause]:
    spec, causes = review.get("spec", {}), _validate_access(review)
    if not spec.get("user") and not spec.get("groups"):
        told = "at least one of user or group must be specified"
        causes.append(fields.invalid("spec.user", spec.get("user", ""), told))
    return causes


def _validate_local(review: Object) -> list[Cause]:
    """A namespace is asked about, and it is the one that is asked."""
    spec, causes = review.get("spec", {}), _validate_subject(review)
    if "nonResourceAttributes" in spec:
        told = "disallowed on this kind of request"
        causes.append(fields.forbidden("spec.nonResourceAttributes", told))
    wanted = spec.get("resourceAttributes", {}).get("namespace", "")
    if wanted != review["metadata"].get("namespace", ""):
        told = "must match metadata.namespace"
        causes.append(fields.invalid("spec.resourceAttributes.namespace", wanted, told))
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
        description=f"{kind} is a question, answered at once and not kept.",
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
            {"token": string("The token."), "audiences": strings("For whom it should be.")},
            description="Whose token is this?",
        ),
        "status": struct(
            {
                "authenticated": boolean("Whether it is anyone's."),
                "user": _USER_INFO,
                "audiences": strings("For whom it is."),
                "error": string("Why nobody is known by it."),
            },
            description="The answer.",
        ),
    },
)

_SELF = {"status": struct({"userInfo": _USER_INFO}, description="Who asks.")}
SELFSUBJECTREVIEWS = _review(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview", _SELF)
SELFSUBJECTREVIEWS_V1BETA1 = _review(
    AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview", _SELF, version="v1beta1"
)
"""What kubectl 1.27 asks."""

_SUBJECT_ACCESS = {
    "spec": struct(
        {
            **_ACCESS,
            "user": string("The user's name."),
            "uid": _UID,
            "groups": _GROUPS,
            "extra": _EXTRA,
        },
        description="May this user do that?",
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
    {"spec": struct(_ACCESS, description="May I do that?"), "status": _DECISION},
    validate=_validate_access,
)
SELFSUBJECTRULESREVIEWS = _review(
    AUTHORIZATION,
    "selfsubjectrulesreviews",
    "SelfSubjectRulesReview",
    {
        "spec": struct({"namespace": string("Where.")}, description="What may I do?"),
        "status": struct(
            {
                "resourceRules": array(_RULE, "What may be done to resources."),
                "nonResourceRules": array(_RULE, "What may be done to other paths."),
                "incomplete": boolean("Whether there may be more."),
                "evaluationError": string("What went wrong while that was found out."),
            },
            description="The answer.",
        ),
    },
)
