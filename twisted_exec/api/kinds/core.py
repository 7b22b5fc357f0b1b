"""
Namespaces; leases, which poollets use as heartbeats; and services, of which there are none.

Source: ``k8s.io/api/core/v1`` and ``k8s.io/api/coordination/v1``.
"""

from __future__ import annotations

from twisted_exec.api import names
from twisted_exec.api.kinds.common.schemas import CONDITIONS, strings
from twisted_exec.api.kinds.kind import Column, Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import anything, integer, moment, string, struct

NAMESPACE_FINALIZER = "kubernetes"
"""In ``spec.finalizers``: the namespace stays until its content is gone."""


def _prepare_namespace(namespace: Object) -> None:
    if isinstance(namespace.setdefault("spec", {}), dict):
        namespace["spec"].setdefault("finalizers", [NAMESPACE_FINALIZER])
    labels = namespace["metadata"].setdefault("labels", {})
    if isinstance(labels, dict):
        # Always its own name, so that selectors can choose namespaces by name.
        labels["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")


def _keep_finalizers(new: Object, old: Object) -> None:
    """Only the end of its content ends a namespace."""
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
            {"finalizers": strings("Who must be done with its content before it goes.")},
            description="What the namespace shall be.",
        ),
        "status": struct(
            {"phase": string("Active, or Terminating."), "conditions": CONDITIONS},
            description="What the namespace is.",
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
                "holderIdentity": string("Who holds it."),
                "leaseDurationSeconds": integer(
                    "How long it holds after it was renewed.", minimum=1, maximum=2**31 - 1
                ),
                "acquireTime": moment("When its holder got it."),
                "renewTime": moment("When its holder renewed it last."),
                "leaseTransitions": integer("How often it went to another.", minimum=0),
                "preferredHolder": string("To whom its holder should leave it."),
                "strategy": string("How its holder is chosen."),
            },
            description="Who holds the lease.",
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
    # kubectl cluster-info tells the server's address only after it has listed these.
    description="Service: there are none here, and none can be made.",
    schema={"spec": anything("What it shall be."), "status": anything("What it is.")},
    read_only=True,
)
