"""
Namespaces, services and leases; ServiceAccounts and requests for their tokens.

Sources: ``k8s.io/api/core/v1``, ``k8s.io/api/coordination/v1`` and
``k8s.io/api/authentication/v1``; ``pkg/apis/authentication/validation`` of Kubernetes.
"""

from __future__ import annotations

from twisted_exec.api import fields, names
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.reviews import AUTHENTICATION
from twisted_exec.api.kinds.validation import CONDITIONS, strings
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import (
    anything,
    array,
    boolean,
    integer,
    moment,
    reference,
    string,
    struct,
)

NAMESPACE_FINALIZER = "kubernetes"
"""Item of ``spec.finalizers`` that keeps a namespace until its content is gone."""


def _prepare_namespace(namespace: Object) -> None:
    if isinstance(namespace.setdefault("spec", {}), dict):
        namespace["spec"].setdefault("finalizers", [NAMESPACE_FINALIZER])
    labels = namespace["metadata"].setdefault("labels", {})
    if isinstance(labels, dict):
        # Selectors can choose namespaces by name.
        labels["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")


def _keep_finalizers(new: Object, old: Object) -> None:
    """Only namespace deletion removes these finalizers, after the content is gone."""
    new["spec"] = dict(old.get("spec", {}))


def _held_by(namespace: Object) -> list[str]:
    own = namespace.get("spec", {}).get("finalizers", [])
    return [*namespace["metadata"].get("finalizers", []), *own]


def _phase(namespace: Object) -> str:
    return str(namespace.get("status", {}).get("phase", "Active"))


NAMESPACES = Kind(
    resource=Resource("", "v1", "namespaces", "Namespace", namespaced=False),
    singular="namespace",
    short_names=("ns",),
    description="Namespace provides a scope for names.",
    schema={
        "spec": struct(
            {"finalizers": strings("finalizers must be empty before the namespace is removed.")},
            description="spec is the desired state of the namespace.",
        ),
        "status": struct(
            {"phase": string("phase is Active or Terminating."), "conditions": CONDITIONS},
            description="status is the observed state of the namespace.",
        ),
    },
    columns=(Column("Status", _phase, "The status of the namespace"),),
    has_status=True,
    name_rule=names.dns_label,
    fields={"status.phase": lambda namespace: _phase(dict(namespace))},
    initial_status={"phase": "Active"},
    server_fields=("spec",),
    terminating_status={"phase": "Terminating"},
    held_by=_held_by,
    prepare=_prepare_namespace,
    carry_over=_keep_finalizers,
)

LEASES = Kind(
    resource=Resource("coordination.k8s.io", "v1", "leases", "Lease"),
    singular="lease",
    description="Lease defines a lease concept.",
    schema={
        "spec": struct(
            {
                "holderIdentity": string("holderIdentity is the identity of the current holder."),
                "leaseDurationSeconds": integer(
                    "leaseDurationSeconds is how long the lease is valid after renewTime.",
                    minimum=1,
                    maximum=2**31 - 1,
                ),
                "acquireTime": moment("acquireTime is when the current holder acquired the lease."),
                "renewTime": moment("renewTime is the last time the holder renewed the lease."),
                "leaseTransitions": integer(
                    "leaseTransitions is the number of changes of the holder.", minimum=0
                ),
                "preferredHolder": string(
                    "preferredHolder is the identity that the holder should yield to."
                ),
                "strategy": string("strategy is the strategy for choosing the holder."),
            },
            description="spec describes the holder of the lease.",
        )
    },
    columns=(
        Column("Holder", lambda lease: lease.get("spec", {}).get("holderIdentity") or "<none>"),
    ),
)

SERVICES = Kind(
    resource=Resource("", "v1", "services", "Service"),
    singular="service",
    short_names=("svc",),
    # kubectl cluster-info lists services before it prints the server's address.
    description="Service is not supported: there are no services, and none can be created.",
    schema={"spec": anything("spec is not used."), "status": anything("status is not used.")},
    read_only=True,
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
