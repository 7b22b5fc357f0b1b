"""
The disks, network interfaces and secret data of a Machine, in the form that a runtime takes.

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
from twisted_exec.api.kinds.secrets import OPAQUE, value_of
from twisted_exec.api.resource import Resource
from twisted_exec.iri.image_disk import image_disk
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.machines.config import (
    IGNITION_NOT_READY,
    INTERFACE_NOT_READY,
    UNSUPPORTED,
    VOLUME_NOT_READY,
    Key,
    MissingReference,
    Object,
    PatchObject,
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


_FIELDS = {"volumes": "claimRef", "networkinterfaces": "machineRef"}
"""Field of the spec that holds the claim."""


def is_controlled(obj: Object, owner: Object) -> bool:
    """Return whether ``owner`` is the controller of ``obj`` (``ownerReferences``)."""
    return any(
        reference.get("controller") and reference.get("uid") == owner["metadata"]["uid"]
        for reference in obj["metadata"].get("ownerReferences") or ()
    )


def claim(
    machine: Object, obj: Object, resource: Resource, label: str, reason: str
) -> PatchObject | None:
    """
    Return the patch that claims ``obj`` for the Machine, unless it is claimed already.

    A poollet writes name and UID of its Machine into the object before the Machine uses it, and
    removes them afterwards.

    :raises MissingReference: another Machine has claimed it, or it cannot be claimed.
    """
    field_name = _FIELDS[resource.plural]
    metadata, spec = machine["metadata"], obj.get("spec") or {}
    claim_ref = spec.get(field_name)
    if claim_ref:
        if claim_ref.get("uid") == metadata["uid"]:
            return None
        raise MissingReference(
            reason, f"{label} is claimed by another machine, {claim_ref.get('name', '')!r}"
        )
    if spec.get("unclaimable") or obj["metadata"].get("deletionTimestamp"):
        raise MissingReference(reason, f"{label} cannot be claimed")
    ours = {"name": metadata["name"], "uid": metadata["uid"]}
    return _patch(resource, obj, {field_name: ours, **_unnamed(resource)})


def _unnamed(resource: Resource) -> Object:
    return {"providerID": ""} if resource.plural == "networkinterfaces" else {}


def release(
    machine: Object, names: Mapping[str, str], resource: Resource, references: References
) -> list[PatchObject]:
    """
    Return patches that release the Machine's claims.

    :raises Unread: the objects are still being read.
    """
    namespace, uid = machine["metadata"].get("namespace", ""), machine["metadata"]["uid"]
    field_name = _FIELDS[resource.plural]
    patches = []
    for name in names.values():
        try:
            obj = references.find(resource, namespace, name)
        except Unread as unread:
            if unread.soon:
                raise
            continue  # without permission to read them there are no claims
        if obj is not None and ((obj.get("spec") or {}).get(field_name) or {}).get("uid") == uid:
            patches.append(_patch(resource, obj, {field_name: None, **_unnamed(resource)}))
    return patches


def provided(
    machine: Object,
    mapping: Mapping[str, Object],
    observed: pb.Machine,
    domain: ReferencedKinds,
    references: References,
) -> list[PatchObject]:
    """
    Return patches that write the runtime's handles into NetworkInterfaces.

    :raises Unread: a NetworkInterface cannot be looked up now.
    """
    handles = {interface.name: interface.handle for interface in observed.status.network_interfaces}
    namespace = machine["metadata"].get("namespace", "")
    patches = []
    for part, claimed in mapping.items():
        obj = references.find(domain.interfaces, namespace, claimed["name"])
        handle = handles.get(part, "")
        if obj is not None and ((obj.get("spec") or {}).get("providerID") or "") != handle:
            patches.append(_patch(domain.interfaces, obj, {"providerID": handle}))
    return patches


def _patch(resource: Resource, obj: Object, spec: Object) -> PatchObject:
    metadata = obj["metadata"]
    version = {"resourceVersion": metadata.get("resourceVersion", "")}
    return PatchObject(
        resource,
        metadata.get("namespace", ""),
        metadata["name"],
        {"metadata": version, "spec": spec},
    )


IGNITION_KEY = "ignition.yaml"
"""Default key of an ignition in its Secret."""
MAX_IGNITION_BYTES = 1 << 20
"""The size limit of a whole Secret."""


def ignition_key(machine: Object) -> Key | None:
    """Return the Secret of the Machine's ignition, if the Machine names one."""
    name = (machine["spec"].get("ignitionRef") or {}).get("name")
    return (machine["metadata"].get("namespace", ""), name) if name else None


def ignition(machine: Object, domain: ReferencedKinds, references: References) -> bytes:
    """
    Return the Machine's ignition (first-boot configuration); empty if it names none.

    :raises MissingReference: the Secret is missing or not usable.
    """
    reference, key = (machine["spec"].get("ignitionRef") or {}), ignition_key(machine)
    if key is None:
        return b""
    entry = reference.get("key") or IGNITION_KEY
    secret = _read(key, references, IGNITION_NOT_READY, domain.ignition_type)
    content = _value(key, secret, entry, IGNITION_NOT_READY)
    if len(content) > MAX_IGNITION_BYTES:
        message = f"{_secret(key)} holds {len(content)} bytes; {MAX_IGNITION_BYTES} are possible"
        raise MissingReference(IGNITION_NOT_READY, message)
    return content


def with_secrets(
    volume: pb.Volume, access: Key | None, encryption: Key | None, references: References
) -> pb.Volume:
    """
    Return ``volume`` with its credentials, which messages do not quote.

    :raises MissingReference: a Secret is missing or unusable.
    """
    completed = pb.Volume()
    completed.CopyFrom(volume)
    for key, data in (
        (access, completed.connection.secret_data),
        (encryption, completed.connection.encryption_data),
    ):
        if key is not None:
            secret = _read(key, references, VOLUME_NOT_READY)
            for name in secret.get("data") or ():
                data[name] = _value(key, secret, name, VOLUME_NOT_READY)
    return completed


def _read(key: Key, references: References, reason: str, type: str = "") -> Object:
    secret = references.secrets.get(key, "was not read")
    if isinstance(secret, str):
        raise MissingReference(reason, f"{_secret(key)} {secret}")
    if type and secret.get("type") != type:
        message = f"{_secret(key)} is of type {secret.get('type') or OPAQUE}, not {type}"
        raise MissingReference(reason, message)
    return secret


def _value(key: Key, secret: Object, entry: str, reason: str) -> bytes:
    content = value_of(secret, entry)
    if content is None:
        raise MissingReference(reason, f"{_secret(key)} has no key {entry!r} that can be read")
    return content


def _secret(key: Key) -> str:
    return f"secret {key[0]}/{key[1]}"
