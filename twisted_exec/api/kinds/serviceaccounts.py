"""
ServiceAccounts, and requests for their tokens.
"""

from __future__ import annotations

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.reviews import AUTHENTICATION
from twisted_exec.api.kinds.schemas import strings
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import (
    array,
    boolean,
    integer,
    moment,
    reference,
    string,
    struct,
)

DEFAULT_SECONDS = 3600
SHORTEST_SECONDS = 600
_LONGEST_SECONDS = 1 << 32

_OBJECT = struct(
    {
        "kind": string("kind is the kind of the referent."),
        "namespace": string("namespace is the namespace of the referent."),
        "name": string("name is the name of the referent."),
        "uid": string("uid is the UID of the referent."),
        "apiVersion": string("apiVersion is the API version of the referent."),
        "resourceVersion": string("resourceVersion is the version of the referent."),
        "fieldPath": string("fieldPath is a part of the referent."),
    },
    description="A reference to an object.",
    atomic=True,
)


def _validate_request(request: Object) -> list[Cause]:
    seconds = request["spec"]["expirationSeconds"]
    where = "spec.expirationSeconds"
    if seconds < SHORTEST_SECONDS:
        return [fields.invalid(where, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > _LONGEST_SECONDS:
        problem = "may not specify a duration larger than 2^32 seconds"
        return [fields.invalid(where, seconds, problem)]
    return []


TOKENREQUESTS = Kind(
    resource=Resource(AUTHENTICATION, "v1", "tokenrequests", "TokenRequest"),
    singular="tokenrequest",
    description="TokenRequest requests a token for a ServiceAccount. It is answered in its status and not stored.",
    schema={
        "spec": struct(
            {
                "audiences": strings(
                    "audiences are the intended audiences of the token. Defaults to the API server's."
                ),
                "expirationSeconds": integer(
                    "expirationSeconds is the requested lifetime of the token. The server may return a shorter one.",
                    default=DEFAULT_SECONDS,
                ),
                "boundObjectRef": struct(
                    {
                        "kind": string("kind is the kind of the object: Secret or Node."),
                        "apiVersion": string("apiVersion is the API version of the object."),
                        "name": string("name is the name of the object."),
                        "uid": string("uid is the UID of the object."),
                    },
                    description="boundObjectRef is an object that the token is bound to: deleting the object invalidates the token.",
                ),
            },
            description="spec is the requested token.",
        ),
        "status": struct(
            {
                "token": string("token is the token."),
                "expirationTimestamp": moment("expirationTimestamp is when the token expires."),
            },
            description="status is the result of the request.",
        ),
    },
    stored=False,
    validate=_validate_request,
)

SERVICEACCOUNTS = Kind(
    resource=Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    singular="serviceaccount",
    short_names=("sa",),
    description="ServiceAccount is the identity of a program.",
    schema={
        "secrets": array(
            _OBJECT, "secrets are the Secrets that Pods with this account may use.", keys=["name"]
        ),
        "imagePullSecrets": array(
            reference(),
            "imagePullSecrets are the Secrets to pull images with for Pods with this account.",
        ),
        "automountServiceAccountToken": boolean(
            "automountServiceAccountToken mounts a token in Pods with this account if true."
        ),
    },
    columns=(
        Column(
            "Secrets",
            lambda account: str(len(account.get("secrets", []))),
            "The number of secrets of the account",
        ),
    ),
    requests={"token": TOKENREQUESTS},
)
