"""
Leases.
"""

from __future__ import annotations

from twisted_exec.api.kinds.kind import Column, Kind
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import integer, moment, string, struct

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
