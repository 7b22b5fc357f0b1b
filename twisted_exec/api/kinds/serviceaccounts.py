"""
ServiceAccounts: programs as users; and how one asks for a token of one.

A ServiceAccount holds nothing that anyone could be known by.  Whoever may create its subresource
``token`` is given a token, which is written down nowhere: it says of itself whose it is, for whom
and until when.

Sources: ``k8s.io/api/core/v1`` and ``k8s.io/api/authentication/v1``;
``pkg/apis/authentication/validation`` of Kubernetes.
"""

from __future__ import annotations

from twisted_exec.api import fields
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.common.schemas import strings
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.reviews import AUTHENTICATION
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import array, boolean, integer, moment, reference, string, struct

DEFAULT_SECONDS = 3600
SHORTEST_SECONDS = 600
_LONGEST_SECONDS = 1 << 32

_OBJECT = struct(
    {
        "kind": string("Kind of the referent."),
        "namespace": string("Namespace of the referent."),
        "name": string("Name of the referent."),
        "uid": string("UID of the referent."),
        "apiVersion": string("API version of the referent."),
        "resourceVersion": string("The resourceVersion that is meant."),
        "fieldPath": string("The part of the referent that is meant."),
    },
    description="An object.",
    atomic=True,
)


def _validate_request(request: Object) -> list[Cause]:
    seconds = request["spec"]["expirationSeconds"]
    where = "spec.expirationSeconds"
    if seconds < SHORTEST_SECONDS:
        return [fields.invalid(where, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > _LONGEST_SECONDS:
        told = "may not specify a duration larger than 2^32 seconds"
        return [fields.invalid(where, seconds, told)]
    return []


TOKENREQUESTS = Kind(
    resource=Resource(AUTHENTICATION, "v1", "tokenrequests", "TokenRequest"),
    singular="tokenrequest",
    description="TokenRequest asks for a token of a ServiceAccount; it is answered and not kept.",
    schema={
        "spec": struct(
            {
                "audiences": strings("For whom the token is; the API server's own by default."),
                "expirationSeconds": integer(
                    "For how long it is good; it may be less.", default=DEFAULT_SECONDS
                ),
                "boundObjectRef": struct(
                    {
                        "kind": string("Kind of the object: Secret or Node."),
                        "apiVersion": string("API version of the object."),
                        "name": string("Name of the object."),
                        "uid": string("UID of the object."),
                    },
                    description="The token is good for as long as this object is there.",
                ),
            },
            description="What kind of token.",
        ),
        "status": struct(
            {
                "token": string("The token."),
                "expirationTimestamp": moment("Until when it is good."),
            },
            description="The answer.",
        ),
    },
    stored=False,
    validate=_validate_request,
)

SERVICEACCOUNTS = Kind(
    resource=Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    singular="serviceaccount",
    short_names=("sa",),
    description="ServiceAccount is a program as a user: who has a token of it acts as it.",
    schema={
        "secrets": array(
            _OBJECT, "Secrets that whatever runs as this account may use.", keys=["name"]
        ),
        "imagePullSecrets": array(
            reference(), "Secrets by which images are pulled for what runs as this account."
        ),
        "automountServiceAccountToken": boolean(
            "Whether what runs as this account is given a token of it."
        ),
    },
    columns=(
        Column(
            "Secrets",
            lambda account: str(len(account.get("secrets", []))),
            "The number of secrets of the account",
        ),
    ),
    asked={"token": TOKENREQUESTS},
)
