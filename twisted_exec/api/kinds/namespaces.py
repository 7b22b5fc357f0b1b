"""
Namespaces, services and leases.
"""

from __future__ import annotations

from twisted_exec.api import names
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.kinds.schemas import CONDITIONS, strings
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import (
    anything,
    integer,
    moment,
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
