"""
Dialects: the names in which the APIs of ironcore, onmetal-api and spheric differ.

Sources: ironcore's and onmetal-api's ``api/compute/v1alpha1``,
``poollet/machinepoollet/api/v1alpha1`` and ``api/common``; spheric's ``api/core/v1alpha1`` and
``spherelet/api/v1alpha1``.
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

    An empty field means that the dialect lacks the feature.
    """

    name: str
    """Name for command-line options."""
    summary: str
    """Short description for people who choose a dialect."""
    workload: Resource
    """The resource with consoles: machines."""
    pool: Resource
    """The resource that runs workloads, with one poollet each: machinepools."""
    workload_class: Resource
    """The resource for workload sizes: machineclasses."""
    pool_reference: str
    """Key in a workload's ``spec`` for ``{"name": POOL}``."""
    pool_selector: str
    """Key in a workload's ``spec`` for the labels of eligible pools."""
    class_reference: str
    """Key in a workload's ``spec`` for ``{"name": CLASS}``."""
    class_column: str
    """Heading of the class in tables."""
    id_field: str
    """Key in a workload's ``status`` for ``TYPE://ID``, the runtime's id."""
    classes_field: str
    """Key in a pool's ``status`` for its classes, ``[{"name": CLASS}]``; or empty."""
    endpoint_field: str
    """Key in a pool's ``status.daemonEndpoints`` for ``{"port": PORT}``."""
    exec_options: str
    """Kind of the query of ``exec``."""
    poollet: str
    """The dialect's own name for a poollet."""
    pool_identity_prefix: str
    """Prefix of a poollet's user name, before the pool's name."""
    pool_identity_group: str
    """Group of all poollets."""
    finalizer: str
    """Finalizer that keeps a workload until its poollet has removed the machine."""
    runtime_prefix: str
    """Domain and slash of the labels and annotations that a poollet sets in its runtime."""
    downward_prefix: str
    """Prefix of the label keys that a poollet passes down from the workload."""
    noun: str
    """Word for a workload in those labels and in messages."""
    pool_noun: str
    """Word for a pool in messages."""
    capacity_prefix: str
    """Prefix of the key of a pool's capacity for a class, before the class's name."""
    iri_revision: str
    """Wire revision of the runtime interface that the dialect's own programs speak."""
    iri_noun: str
    """Abbreviation of the runtime interface in annotations."""
    lease_namespace: str = ""
    """
    Namespace of the leases that the dialect's own poollets keep, named like their pool; or empty.
    """
    domain: str = ""
    """
    Suffix of the API groups for storage, networking and IPAM; empty if the dialect has none of
    them.
    """
    disk_noun: str = "volume"
    """Word for a disk in a workload's ``spec`` and ``status``."""
    image_field: str = ""
    """Key in a workload's ``spec`` for its boot image; empty if the disks name it."""
    local_disks: bool = False
    """Disks may be ``localDisk``, optionally created from an image."""
    routings: bool = False
    """Objects describe the routes to interfaces: :mod:`twisted_exec.api.kinds.routing`."""
    subnets: bool = False
    """Network interfaces name a subnet; otherwise they are objects of their own."""
    guest_config: bool = False
    """Workloads set a host name in the guest."""
    conditions: bool = False
    """Workloads have ``status.conditions``."""
    phases: bool = False
    """The status of disks and network interfaces reports how far they are bound, and as what."""
    label_names: bool = True
    """Names of classes and secrets are DNS labels; otherwise they are DNS subdomains."""
    discrete_classes: bool = False
    """
    Classes determine their workloads' resources (``Discrete``) or leave them to each workload.
    """
    generation_fields: tuple[str, ...] = ("observedGeneration",)
    """Keys in a workload's ``status`` for the generation that its runtime has observed."""
    states: tuple[str, ...] = ("Pending", "Running", "Shutdown", "Terminated")
    """Values of a workload's ``status.state``."""
    proxy_subresource: str = "proxy"
    """Access to a pool's poollet is authorised as ``create`` on this subresource of the pool."""
    default_port: int = 20250
    """Port of a poollet whose pool reports none."""

    def __str__(self) -> str:
        return self.name

    @property
    def group(self) -> str:
        """API group of the dialect."""
        return self.workload.group

    @property
    def version(self) -> str:
        """API version of the dialect."""
        return self.workload.version

    @property
    def pool_field(self) -> str:
        """Field selector key for the pool of a workload."""
        return f"spec.{self.pool_reference}.name"

    @property
    def proxy_role(self) -> str:
        """Name of the role with access to poollets."""
        return f"{self.pool_identity_group}:proxy"

    @property
    def disks_field(self) -> str:
        """Key in a workload's ``spec`` and ``status`` for its disks."""
        return f"{self.disk_noun}s"

    @property
    def uid_label(self) -> str:
        """Runtime label for the workload's UID."""
        return f"{self.runtime_prefix}{self.noun}-uid"

    @property
    def namespace_label(self) -> str:
        """Runtime label for the workload's namespace."""
        return f"{self.runtime_prefix}{self.noun}-namespace"

    @property
    def name_label(self) -> str:
        """Runtime label for the workload's name."""
        return f"{self.runtime_prefix}{self.noun}-name"

    @property
    def generation_annotation(self) -> str:
        """Runtime annotation for the workload's generation."""
        return f"{self.runtime_prefix}{self.noun}-generation"

    @property
    def runtime_generation_annotation(self) -> str:
        """Runtime annotation for the generation of the runtime's own object."""
        return f"{self.runtime_prefix}{self.iri_noun}{self.noun}-generation"

    def pool_name(self, workload: Mapping[str, Any]) -> str:
        """Return the pool that a workload is bound to, or empty."""
        return _referent(workload, self.pool_reference)

    def class_name(self, workload: Mapping[str, Any]) -> str:
        """Return the class of a workload, or empty."""
        return _referent(workload, self.class_reference)

    def pool_identity(self, pool: str) -> str:
        """Return the user name of the poollet of ``pool``, also the CN of its certificates."""
        return self.pool_identity_prefix + pool

    def pool_of(self, user: str) -> str | None:
        """Return the pool whose poollet ``user`` is, or ``None``."""
        if user.startswith(self.pool_identity_prefix):
            return user[len(self.pool_identity_prefix) :] or None
        return None

    def poollet_path(self, namespace: str, name: str, subresource: str = "exec") -> str:
        """Return the percent-encoded path of a machine's subresource at a poollet."""
        return (
            f"/apis/{self.group}/namespaces/{quote(namespace, safe='')}"
            f"/{self.workload.plural}/{quote(name, safe='')}/{subresource}"
        )


def _referent(workload: Mapping[str, Any], key: str) -> str:
    return str((workload.get("spec", {}).get(key) or {}).get("name", ""))


def _machine_dialect(name: str, summary: str, group: str, labels: str, **more: Any) -> Dialect:
    poollet = f"machinepoollet.{labels}"
    return Dialect(
        name=name,
        summary=summary,
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
        runtime_prefix=f"{poollet}/",
        downward_prefix=f"downward-api.{poollet}/",
        noun="machine",
        pool_noun="machine pool",
        capacity_prefix="class/machine.",
        **more,
    )


IRONCORE = _machine_dialect(
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

ONMETAL = _machine_dialect(
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
    # Releases up to v0.1 only have the second key.
    generation_fields=("observedGeneration", "machinePoolObservedGeneration"),
)

SPHERIC = Dialect(
    name="spheric",
    summary="spheric: instances and fleets in core.spheric.cloud",
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

SPHERIC_MACHINES = _machine_dialect(
    "spheric-machines",
    "spheric as its document says: machines and machine pools in core.spheric.cloud",
    "core.spheric.cloud",
    "spheric.cloud",
    iri_revision="onmetal",
    iri_noun="iri",
    image_field="image",
)

DEFAULT = IRONCORE
"""The dialect of programs without an option for it."""

DIALECTS: tuple[Dialect, ...] = (IRONCORE, ONMETAL, SPHERIC, SPHERIC_MACHINES)
"""All dialects, the default first."""
NAMES = ", ".join(dialect.name for dialect in DIALECTS)
"""The names for option help."""


def by_name(name: str) -> Dialect:
    """
    Return the dialect of an option's value.

    :raises ValueError: there is no such dialect.
    """
    for dialect in DIALECTS:
        if dialect.name == name:
            return dialect
    raise ValueError(f"there is no dialect {name!r}: choose one of {NAMES}")


def one_per_group(names: Iterable[str]) -> tuple[Dialect, ...]:
    """
    Return the dialects of a repeatable option, in order, or the default.

    :raises ValueError: a name is unknown or repeated.
    """
    dialects: list[Dialect] = []
    for name in names:
        dialect = by_name(name)
        if dialect in dialects:
            raise ValueError(f"dialect {name!r} is given twice")
        dialects.append(dialect)
    return tuple(dialects) or (DEFAULT,)


def missing_class(name: str, existing: Iterable[str] | None) -> str:
    """Return the message about a class that does not exist."""
    message = f'class "{name}" does not exist'
    if existing is None:
        return message
    names = sorted(existing)
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return f"{message}; there are: {', '.join(names[:_MOST_NAMED]) or 'none'}{more}"


def pool_labels(dialect: Dialect, machine: Mapping[str, Any]) -> str:
    """Return some of the labels that the machine selects pools by."""
    selector = machine.get("spec", {}).get(dialect.pool_selector) or {}
    return " ".join(f"{key}={value}" for key, value in sorted(selector.items())[:_MOST_NAMED])


_MOST_NAMED = 10


@dataclass(frozen=True)
class Owner:
    """The object that a runtime's machine belongs to; all empty without labels."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    resource: str = ""
    """Qualified resource, such as ``machines.compute.ironcore.dev``."""


def owner_of(labels: Mapping[str, str]) -> Owner:
    """Return the owner of a machine, by the labels of a poollet of any dialect."""
    for dialect in DIALECTS:
        if any(key in labels for key in (dialect.uid_label, dialect.name_label)):
            return Owner(
                labels.get(dialect.uid_label, ""),
                labels.get(dialect.namespace_label, ""),
                labels.get(dialect.name_label, ""),
                dialect.workload.qualified,
            )
    return Owner()
