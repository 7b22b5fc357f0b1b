"""
Dialects: what differs between the systems whose machines have this kind of console.

ironcore, onmetal-api and spheric are one design under several sets of names.
One record carries every name that differs; all code asks the record, none
asks which dialect it is.  Sources: ironcore's and onmetal-api's
``api/compute/v1alpha1``, ``poollet/machinepoollet/api/v1alpha1`` and
``api/common``; spheric's ``api/core/v1alpha1`` and ``spherelet/api/v1alpha1``.

:data:`SPHERIC_MACHINES` is spheric as its document of machine exec describes it, while
its programs have renamed machines to instances.  What the document does not say is as in
ironcore, under spheric's domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from twisted_exec.api.resource import Resource


@dataclass(frozen=True)
class Dialect:
    """
    The names of one dialect.

    A field that is empty stands for something that the dialect has not.
    """

    name: str
    """What options call it."""
    told: str
    """What it is, for whoever must choose, in a few words."""
    workload: Resource
    """What has a console: machines."""
    pool: Resource
    """What runs workloads, one poollet each: machinepools."""
    workload_class: Resource
    """What sizes of workload there are: machineclasses."""
    pool_reference: str
    """The key in a workload's ``spec`` that holds ``{"name": POOL}``."""
    pool_selector: str
    """The key in a workload's ``spec`` that holds labels of pools that may run it."""
    class_reference: str
    """The key in a workload's ``spec`` that holds ``{"name": CLASS}``."""
    class_column: str
    """The heading under which tables show that class."""
    id_field: str
    """The key in a workload's ``status`` that holds ``TYPE://ID``, as its runtime knows it."""
    classes_field: str
    """The key in a pool's ``status`` that holds its classes, ``[{"name": CLASS}]``; or empty."""
    endpoint_field: str
    """The key in a pool's ``status.daemonEndpoints`` that holds ``{"port": PORT}``."""
    exec_options: str
    """The kind of the query of ``exec``."""
    poollet: str
    """The dialect's own name for a poollet."""
    pool_identity_prefix: str
    """A poollet's user name is this followed by its pool's name."""
    pool_identity_group: str
    """The group of every poollet."""
    finalizer: str
    """Keeps a workload until its poollet has removed what runs it."""
    class_finalizer: str
    """Keeps a class while workloads are of it."""
    field_owner: str
    """Who poollets say they are when they apply."""
    runtime_prefix: str
    """Domain and slash of the labels and annotations that a poollet gives its runtime."""
    downward_prefix: str
    """What precedes the keys of labels that a poollet passes down from the workload."""
    noun: str
    """What a workload is called inside those labels, and in messages."""
    pool_noun: str
    """What a pool is called in messages."""
    capacity_prefix: str
    """A pool's capacity for a class is keyed by this followed by the class's name."""
    iri_revision: str
    """Which wire revision of the runtime interface the dialect's own programs speak."""
    iri_noun: str
    """How the dialect abbreviates the runtime interface, in annotations."""
    lease_namespace: str = ""
    """Where poollets of the dialect's own make keep a lease, named as their pool; or empty."""
    domain: str = ""
    """Ends the groups of storage, networking and IP addresses; empty when it has none of them."""
    disk_noun: str = "volume"
    """What a disk of a workload is called in its ``spec`` and ``status``."""
    image_field: str = ""
    """The key in a workload's ``spec`` that holds the image it boots; empty: its disks say."""
    local_disks: bool = False
    """Disks may be ``localDisk``, which can begin as an image."""
    routings: bool = False
    """What is routed to interfaces is told by objects: :mod:`twisted_exec.api.kinds.network.routing`."""
    subnets: bool = False
    """Network interfaces name a subnet; otherwise they are objects of their own."""
    guest_config: bool = False
    """Workloads tell their guest a host name."""
    conditions: bool = False
    """Workloads have ``status.conditions``."""
    phases: bool = False
    """The status of disks and network interfaces tells how far they are bound, and as what."""
    label_names: bool = True
    """Names of classes and secrets are DNS labels; otherwise they are DNS subdomains."""
    discrete_classes: bool = False
    """Classes say whether their capabilities are the workload's (``Discrete``) or its own choice."""
    generation_fields: tuple[str, ...] = ("observedGeneration",)
    """The keys in a workload's ``status`` that hold the generation that its runtime has seen."""
    states: tuple[str, ...] = ("Pending", "Running", "Shutdown", "Terminated")
    """What a workload's ``status.state`` may be."""
    proxy_subresource: str = "proxy"
    """Reaching a pool's poollet is authorised as ``create`` on this subresource of the pool."""
    default_port: int = 20250
    """Where a poollet listens whose pool reports no port."""

    def __str__(self) -> str:
        """What options call it."""
        return self.name

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
    def proxy_role(self) -> str:
        """The name of the role that may reach poollets."""
        return f"{self.pool_identity_group}:proxy"

    @property
    def disks_field(self) -> str:
        """The key in a workload's ``spec`` and ``status`` that holds its disks."""
        return f"{self.disk_noun}s"

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
        return f"{self.runtime_prefix}{self.iri_noun}{self.noun}-generation"

    def pool_name(self, workload: Mapping[str, Any]) -> str:
        """The pool that a workload is bound to, or empty."""
        return _referent(workload, self.pool_reference)

    def class_name(self, workload: Mapping[str, Any]) -> str:
        """The class that a workload is of, or empty."""
        return _referent(workload, self.class_reference)

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


def _referent(workload: Mapping[str, Any], key: str) -> str:
    return str((workload.get("spec", {}).get(key) or {}).get("name", ""))


def _of_machines(name: str, told: str, group: str, labels: str, **more: Any) -> Dialect:
    """
    A dialect of machines and machine pools.

    :param labels: the domain of its labels, finalizers and field owners.
    """
    poollet = f"machinepoollet.{labels}"
    return Dialect(
        name=name,
        told=told,
        workload=Resource(group, "v1alpha1", "machines", "Machine"),
        pool=Resource(group, "v1alpha1", "machinepools", "MachinePool", namespaced=False),
        workload_class=Resource(
            group, "v1alpha1", "machineclasses", "MachineClass", namespaced=False
        ),
        pool_reference="machinePoolRef",
        pool_selector="machinePoolSelector",
        class_reference="machineClassRef",
        class_column="MachineClassRef",
        id_field="machineID",
        classes_field="availableMachineClasses",
        endpoint_field="machinepoolletEndpoint",
        exec_options="MachineExecOptions",
        poollet="machinepoollet",
        pool_identity_prefix=f"{group}:system:machinepool:",
        pool_identity_group=f"{group}:system:machinepools",
        finalizer=f"{poollet}/machine",
        class_finalizer=f"{group}/machineclass",
        field_owner=f"{poollet}/field-owner",
        runtime_prefix=f"{poollet}/",
        downward_prefix=f"downward-api.{poollet}/",
        noun="machine",
        pool_noun="machine pool",
        capacity_prefix="class/machine.",
        **more,
    )


IRONCORE = _of_machines(
    "ironcore",
    "ironcore: machines in compute.ironcore.dev",
    "compute.ironcore.dev",
    "ironcore.dev",
    iri_revision="ironcore",
    iri_noun="iri",
    lease_namespace="ironcore-machinepool-lease",
    domain="ironcore.dev",
    local_disks=True,
    guest_config=True,
    conditions=True,
    label_names=False,
    states=("Pending", "Running", "Shutdown", "Terminated", "Terminating"),
)

ONMETAL = _of_machines(
    "onmetal",
    "onmetal-api: machines in compute.api.onmetal.de",
    "compute.api.onmetal.de",
    "api.onmetal.de",
    iri_revision="onmetal",
    iri_noun="ori",
    domain="api.onmetal.de",
    image_field="image",
    phases=True,
    routings=True,
    # Releases up to v0.1 have the second one alone.
    generation_fields=("observedGeneration", "machinePoolObservedGeneration"),
)

SPHERIC = Dialect(
    name="spheric",
    told="spheric: instances and fleets in core.spheric.cloud",
    workload=Resource("core.spheric.cloud", "v1alpha1", "instances", "Instance"),
    pool=Resource("core.spheric.cloud", "v1alpha1", "fleets", "Fleet", namespaced=False),
    workload_class=Resource(
        "core.spheric.cloud", "v1alpha1", "instancetypes", "InstanceType", namespaced=False
    ),
    pool_reference="fleetRef",
    pool_selector="fleetSelector",
    class_reference="instanceTypeRef",
    class_column="InstanceClassRef",
    id_field="instanceID",
    classes_field="",
    endpoint_field="sphereletEndpoint",
    exec_options="InstanceExecOptions",
    poollet="spherelet",
    pool_identity_prefix="core.spheric.cloud:system:fleet:",
    pool_identity_group="core.spheric.cloud:system:fleets",
    finalizer="spherelet.spheric.cloud/instance",
    class_finalizer="core.spheric.cloud/instancetype",
    field_owner="spherelet.spheric.cloud/field-owner",
    runtime_prefix="spherelet.spheric.cloud/",
    downward_prefix="downward-api.spherelet.spheric.cloud/",
    noun="instance",
    pool_noun="fleet",
    capacity_prefix="instance-type/",
    iri_revision="spheric",
    iri_noun="iri",
    disk_noun="disk",
    image_field="image",
    subnets=True,
    discrete_classes=True,
)

SPHERIC_MACHINES = _of_machines(
    "spheric-machines",
    "spheric as its document says: machines and machine pools in core.spheric.cloud",
    "core.spheric.cloud",
    "spheric.cloud",
    iri_revision="onmetal",
    iri_noun="iri",
    image_field="image",
)

DEFAULT = IRONCORE
"""Of programs that are not told any."""

DIALECTS: tuple[Dialect, ...] = (IRONCORE, ONMETAL, SPHERIC, SPHERIC_MACHINES)
"""All that there are, the default first."""
NAMES = ", ".join(dialect.name for dialect in DIALECTS)
"""What options may say, for their help."""


def by_name(name: str) -> Dialect:
    """
    The dialect that options call so.

    :raises ValueError: there is none; its text lists what there is.
    """
    for dialect in DIALECTS:
        if dialect.name == name:
            return dialect
    raise ValueError(f"there is no dialect {name!r}: choose one of {NAMES}")


def one_per_group(names: Iterable[str]) -> tuple[Dialect, ...]:
    """
    The dialects that an option was given for, in order; the default when it was not.

    :raises ValueError: one is unknown, or is named twice.
    """
    found: list[Dialect] = []
    for name in names:
        dialect = by_name(name)
        if dialect in found:
            raise ValueError(f"dialect {name!r} is given twice")
        found.append(dialect)
    return tuple(found) or (DEFAULT,)


@dataclass(frozen=True)
class Owner:
    """The object that a runtime's machine stands for; all empty when nobody told."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    resource: str = ""
    """What kind of object it is, such as ``machines.compute.ironcore.dev``."""


def owner_of(labels: Mapping[str, str]) -> Owner:
    """
    Whose machine it is, by the labels that a poollet of any dialect gave it.

    A runtime has no dialect of its own: it keeps apart what it is asked for by UID.
    """
    for dialect in DIALECTS:
        if any(key in labels for key in (dialect.uid_label, dialect.name_label)):
            return Owner(
                labels.get(dialect.uid_label, ""),
                labels.get(dialect.namespace_label, ""),
                labels.get(dialect.name_label, ""),
                dialect.workload.qualified,
            )
    return Owner()
