"""
Dialects: what differs between the systems whose machines have this kind of console.

ironcore, onmetal-api and spheric are one design under three sets of names.
One record carries every name that differs; all code asks the record, none
asks which dialect it is.  Names as ironcore's ``api/compute/v1alpha1`` and
``poollet/machinepoollet`` have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from twisted_exec.api.meta import Resource


@dataclass(frozen=True)
class Dialect:
    """The names of one dialect."""

    name: str
    workload: Resource
    """What has a console: machines."""
    pool: Resource
    """What runs workloads, one poollet each: machinepools."""
    workload_class: Resource
    """What sizes of workload there are: machineclasses."""
    pool_reference: str
    """The key in a workload's ``spec`` that holds ``{"name": POOL}``."""
    class_reference: str
    """The key in a workload's ``spec`` that holds ``{"name": CLASS}``."""
    endpoint_field: str
    """The key in a pool's ``status.daemonEndpoints`` that holds ``{"port": PORT}``."""
    pool_identity_prefix: str
    """A poollet's user name is this followed by its pool's name."""
    pool_identity_group: str
    """The group of every poollet."""
    finalizer: str
    """Keeps a workload until its poollet has removed what runs it."""
    runtime_prefix: str
    """Domain and slash of the labels and annotations that a poollet gives its runtime."""
    noun: str
    """What a workload is called inside those labels."""
    capacity_prefix: str
    """A pool's capacity for a class is keyed by this followed by the class's name."""
    lease_namespace: str
    """Where poollets of the dialect's own make keep a lease, named as their pool."""
    proxy_subresource: str = "proxy"
    """Reaching a pool's poollet is authorised as ``create`` on this subresource of the pool."""
    default_port: int = 20250
    """Where a poollet listens whose pool reports no port."""

    @property
    def group(self) -> str:
        """The API group that workloads, pools and classes share."""
        return self.workload.group

    @property
    def version(self) -> str:
        """The API version that workloads, pools and classes share."""
        return self.workload.version

    @property
    def pool_field(self) -> str:
        """The field selector's key that names the pool of a workload."""
        return f"spec.{self.pool_reference}.name"

    @property
    def uid_label(self) -> str:
        """The runtime's label that holds the workload's UID."""
        return f"{self.runtime_prefix}{self.noun}-uid"

    @property
    def namespace_label(self) -> str:
        """The runtime's label that holds the workload's namespace."""
        return f"{self.runtime_prefix}{self.noun}-namespace"

    @property
    def name_label(self) -> str:
        """The runtime's label that holds the workload's name."""
        return f"{self.runtime_prefix}{self.noun}-name"

    @property
    def generation_annotation(self) -> str:
        """The runtime's annotation that holds the workload's generation."""
        return f"{self.runtime_prefix}{self.noun}-generation"

    @property
    def runtime_generation_annotation(self) -> str:
        """The runtime's annotation that holds the generation of the runtime's own object."""
        return f"{self.runtime_prefix}iri{self.noun}-generation"

    def pool_identity(self, pool: str) -> str:
        """The user name of the poollet of ``pool``; also the CN of its certificates."""
        return self.pool_identity_prefix + pool

    def pool_of(self, user: str) -> str | None:
        """The pool whose poollet ``user`` is, or ``None``."""
        if user.startswith(self.pool_identity_prefix):
            return user[len(self.pool_identity_prefix) :] or None
        return None

    def poollet_path(self, namespace: str, name: str, subresource: str = "exec") -> str:
        """
        Where a poollet serves the console; it has no version segment.  Percent-encoded.

        :param subresource: ``exec``, or ``log`` at poollets of our own make.
        """
        return (
            f"/apis/{self.group}/namespaces/{quote(namespace, safe='')}"
            f"/{self.workload.plural}/{quote(name, safe='')}/{subresource}"
        )


_IRONCORE_GROUP = "compute.ironcore.dev"

IRONCORE = Dialect(
    name="ironcore",
    workload=Resource(_IRONCORE_GROUP, "v1alpha1", "machines", "Machine"),
    pool=Resource(_IRONCORE_GROUP, "v1alpha1", "machinepools", "MachinePool", namespaced=False),
    workload_class=Resource(
        _IRONCORE_GROUP, "v1alpha1", "machineclasses", "MachineClass", namespaced=False
    ),
    pool_reference="machinePoolRef",
    class_reference="machineClassRef",
    endpoint_field="machinepoolletEndpoint",
    pool_identity_prefix=f"{_IRONCORE_GROUP}:system:machinepool:",
    pool_identity_group=f"{_IRONCORE_GROUP}:system:machinepools",
    finalizer="machinepoollet.ironcore.dev/machine",
    runtime_prefix="machinepoollet.ironcore.dev/",
    noun="machine",
    capacity_prefix="class/machine.",
    lease_namespace="ironcore-machinepool-lease",
)
