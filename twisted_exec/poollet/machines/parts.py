"""
The disks and network interfaces of a Machine, in the form that a runtime takes.

Steps that must come first, such as claiming a Volume, are returned as patches.

Source: ironcore ``poollet/machinepoollet/controllers`` (``machine_controller_volume.go``,
``machine_controller_networkinterface.go``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from twisted_exec.api import quantity
from twisted_exec.api.conditions import MAX_MESSAGE
from twisted_exec.api.resource import Resource
from twisted_exec.iri.image_disk import image_disk
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.claims import PatchObject, claim, is_controlled
from twisted_exec.poollet.machines.references import (
    INTERFACE_NOT_READY,
    UNSUPPORTED,
    VOLUME_NOT_READY,
    Key,
    MissingReference,
    Object,
    ReferencedKinds,
    References,
    Unread,
)

_RAW_LABELS = ("rawVolumeLabels", "rawNICLabels", "rawNetworkLabels")
"""Attributes that only carry labels; their change alone detaches nothing."""


@dataclass
class Parts:
    """
    The parts to pass to the runtime.

    :ivar lacks: by condition reason, why parts are missing.
    :ivar soon: a read is under way, so the result is incomplete.
    :ivar secrets: by volume, the Secrets for its access and its encryption.
    """

    volumes: list[pb.Volume] = field(default_factory=list)
    interfaces: list[pb.NetworkInterface] = field(default_factory=list)
    lacks: dict[str, str] = field(default_factory=dict)
    soon: bool = False
    claims: list[PatchObject] = field(default_factory=list)
    secrets: dict[str, tuple[Key | None, Key | None]] = field(default_factory=dict)
    volume_referents: dict[str, str] = field(default_factory=dict)
    interface_referents: dict[str, str] = field(default_factory=dict)
    mapping: dict[str, Object] = field(default_factory=dict)

    def lack(self, lacking: MissingReference) -> None:
        """Add a missing reference to the message of its reason."""
        earlier = self.lacks.get(lacking.reason, "")
        if len(earlier) <= MAX_MESSAGE:
            self.lacks[lacking.reason] = (
                f"{earlier}; {lacking.message}" if earlier else lacking.message
            )


def gather(machine: Object, domain: ReferencedKinds, references: References) -> Parts:
    """Gather the Machine's available parts, without secret data."""
    parts, spec, dialect = Parts(), machine["spec"], domain.dialect
    image = spec.get(dialect.image_field) if dialect.image_field else ""
    if image:
        with _noting(parts, VOLUME_NOT_READY, dialect.image_field):
            parts.volumes.append(image_disk(image))
    for part in spec.get(dialect.disks_field) or ():
        with _noting(parts, VOLUME_NOT_READY, f'{dialect.disk_noun} "{part["name"]}"'):
            parts.volumes.append(_volume(machine, part, domain, references, parts))
    for part in spec.get("networkInterfaces") or ():
        with _noting(parts, INTERFACE_NOT_READY, f'network interface "{part["name"]}"'):
            interface = _subnet(part) if dialect.subnets else None
            parts.interfaces.append(
                interface or _interface(machine, part, domain, references, parts)
            )
    return parts


@contextlib.contextmanager
def _noting(parts: Parts, reason: str, label: str) -> Iterator[None]:
    try:
        yield
    except Unread as unread:
        parts.soon = parts.soon or unread.soon
        parts.lack(MissingReference(reason, f"{label}: {unread.problem}"))
    except MissingReference as lacking:
        parts.lack(MissingReference(lacking.reason, f"{label}: {lacking.message}"))
    except ValueError as problem:  # text or a number that protobuf cannot represent
        parts.lack(MissingReference(UNSUPPORTED, f"{label}: {problem}"))


def _subnet(part: Object) -> pb.NetworkInterface:
    subnet = part.get("subnetRef") or {}
    return pb.NetworkInterface(
        name=part["name"],
        ips=[str(ip) for ip in part.get("ips") or ()],
        attributes={
            "network-name": str(subnet.get("networkName") or ""),
            "subnet-name": str(subnet.get("name") or ""),
        },
    )


def _volume(
    machine: Object, part: Object, domain: ReferencedKinds, references: References, parts: Parts
) -> pb.Volume:
    if "localDisk" in part or "emptyDisk" in part:
        return _local(part)
    namespace, name = machine["metadata"].get("namespace", ""), referent(machine, part)
    if not name:
        raise MissingReference(UNSUPPORTED, "it is of a kind that this poollet does not know")
    parts.volume_referents[part["name"]] = name
    volume = references.find(domain.volumes, namespace, name)
    label = f"volume {namespace}/{name}"
    if volume is None:
        raise MissingReference(VOLUME_NOT_READY, f"{label} {_absent(part)}")
    _check_ours(machine, part, volume, label, VOLUME_NOT_READY)
    _claim(machine, volume, domain.volumes, label, VOLUME_NOT_READY, parts)
    status = volume.get("status") or {}
    if status.get("state") != "Available" or not status.get("access"):
        state = status.get("state") or "Pending"
        raise MissingReference(VOLUME_NOT_READY, f"{label} is {state}, and cannot be accessed yet")
    return _remote(part, volume, domain, parts)


def _local(part: Object) -> pb.Volume:
    disk = part.get("localDisk") or part.get("emptyDisk") or {}
    try:
        volume = pb.Volume(name=part["name"], device=part.get("device", ""))
        volume.local_disk.size_bytes = quantity.value(disk.get("sizeLimit", 0))
        if disk.get("image"):
            volume.local_disk.image.image = disk["image"]
    except ValueError as problem:  # a bad quantity, or text that protobuf cannot represent
        raise MissingReference(UNSUPPORTED, str(problem)) from None
    return volume


def _remote(part: Object, volume: Object, domain: ReferencedKinds, parts: Parts) -> pb.Volume:
    access, spec = volume["status"]["access"], volume.get("spec") or {}
    namespace = volume["metadata"].get("namespace", "")

    def key(reference: Object | None) -> Key | None:
        return (namespace, reference["name"]) if reference and reference.get("name") else None

    secret = key((spec.get("encryption") or {}).get("secretRef"))
    parts.secrets[part["name"]] = key(access.get("secretRef")), secret
    resources = (volume["status"].get("resources") or spec.get("resources")) or {}
    try:
        remote_volume = pb.Volume(name=part["name"], device=part.get("device", ""))
        connection = remote_volume.connection
        connection.driver, connection.handle = access.get("driver", ""), access.get("handle", "")
        connection.attributes.update(access.get("volumeAttributes") or {})
        connection.attributes["rawVolumeLabels"] = domain.labels(volume, "volume", domain.volume)
        connection.effective_storage_bytes = quantity.value(resources.get("storage", 0))
    except (ValueError, TypeError) as problem:
        raise MissingReference(VOLUME_NOT_READY, f"its access is not usable: {problem}") from None
    return remote_volume


def _interface(
    machine: Object, part: Object, domain: ReferencedKinds, references: References, parts: Parts
) -> pb.NetworkInterface:
    namespace, name = machine["metadata"].get("namespace", ""), referent(machine, part)
    parts.interface_referents[part["name"]] = name
    interface = references.find(domain.interfaces, namespace, name)
    label = f"networkinterface {namespace}/{name}"
    if interface is None:
        raise MissingReference(INTERFACE_NOT_READY, f"{label} {_absent(part)}")
    _check_ours(machine, part, interface, label, INTERFACE_NOT_READY)
    _claim(machine, interface, domain.interfaces, label, INTERFACE_NOT_READY, parts)
    spec = interface.get("spec") or {}
    network_name = (spec.get("networkRef") or {}).get("name", "")
    network = references.find(domain.networks, namespace, network_name)
    if network is None:
        raise MissingReference(
            INTERFACE_NOT_READY, f"network {namespace}/{network_name} does not exist"
        )
    ips = [
        _ip(interface, number, ip, domain, references)
        for number, ip in enumerate(spec.get("ips") or ())
    ]
    nic = pb.NetworkInterface(
        name=part["name"],
        network_id=str((network.get("spec") or {}).get("providerID") or ""),
        ips=ips,
        attributes=spec.get("attributes") or {},
    )
    nic.attributes["rawNICLabels"] = domain.labels(interface, "nic", domain.interface)
    nic.attributes["rawNetworkLabels"] = domain.labels(network, "network", domain.network)
    parts.mapping[part["name"]] = {"name": name, "uid": interface["metadata"]["uid"]}
    return nic


def _ip(
    interface: Object, number: int, ip: Object, domain: ReferencedKinds, references: References
) -> str:
    if ip.get("value"):
        return str(ip["value"])
    namespace = interface["metadata"].get("namespace", "")
    name = f"{interface['metadata']['name']}-{number}"
    prefix = references.find(domain.prefixes, namespace, name)
    label = f"prefix {namespace}/{name}"
    if prefix is None:
        raise MissingReference(INTERFACE_NOT_READY, f"{label} does not exist")
    if not is_controlled(prefix, interface):
        raise MissingReference(
            INTERFACE_NOT_READY, f"{label} does not belong to the network interface"
        )
    allocated = (prefix.get("spec") or {}).get("prefix")
    if (prefix.get("status") or {}).get("phase") != "Allocated" or not allocated:
        raise MissingReference(INTERFACE_NOT_READY, f"{label} is not allocated yet")
    return str(allocated).partition("/")[0]


def referent(machine: Object, part: Object) -> str:
    """Return the name of the part's Volume or NetworkInterface."""
    for field_name in ("volumeRef", "diskRef", "networkInterfaceRef"):
        if part.get(field_name):
            return str(part[field_name].get("name", ""))
    if "ephemeral" in part:
        return f"{machine['metadata']['name']}-{part['name']}"
    return ""


def _claim(
    machine: Object, obj: Object, resource: Resource, label: str, reason: str, parts: Parts
) -> None:
    first = claim(machine, obj, resource, label, reason)
    if first is not None:
        parts.claims.append(first)
        raise MissingReference(reason, f"{label} is being claimed")


def _absent(part: Object) -> str:
    if "ephemeral" in part:
        return "does not exist; a controller manager that makes ephemeral objects is to make it"
    return "does not exist"


def _check_ours(machine: Object, part: Object, obj: Object, label: str, reason: str) -> None:
    if "ephemeral" in part and not is_controlled(obj, machine):
        raise MissingReference(reason, f"{label} was not made for this machine")


def same_volume(desired: pb.Volume, has: pb.Volume) -> bool:
    """
    Return whether the runtime's volume can stay attached.

    A local disk stays: a different size in the spec must not destroy its data.
    """
    if desired.HasField("local_disk"):
        return has.HasField("local_disk") or not has.HasField("connection")
    mine, other = desired.connection, has.connection
    return (mine.driver, mine.handle, _plain(mine.attributes)) == (
        other.driver,
        other.handle,
        _plain(other.attributes),
    )


def same_interface(desired: pb.NetworkInterface, has: pb.NetworkInterface) -> bool:
    """Return whether the runtime's network interface can stay attached."""
    return (desired.network_id, list(desired.ips), _plain(desired.attributes)) == (
        has.network_id,
        list(has.ips),
        _plain(has.attributes),
    )


def _plain(attributes: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in attributes.items() if key not in _RAW_LABELS}
