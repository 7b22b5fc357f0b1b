"""
Conversion between machines of the runtime interface and objects of the target cluster, sans I/O.

Labels and annotations have the names of ironcore's own machinebroker
(``broker/machinebroker/api/v1alpha1`` and ``server/machine_create.go``), except
:attr:`BrokerPlace.parts_annotation`.

The name of the object is the machine's id. It is a hash of the UID of the source's Machine, if the
request has one, so repeated requests create one object.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from google.protobuf import json_format

from twisted_exec.api import names, quantity
from twisted_exec.api.dialects import Dialect, Owner, owner_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    BadRequest,
    Conflict,
    Forbidden,
    NotImplementedByBackend,
)
from twisted_exec.api.times import seconds
from twisted_exec.iri.image_disk import IMAGE_DISK, image_disk
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.protos import meta_pb2
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ImpersonatedUser

ID_CHARACTERS = 63
IGNITION_KEY = "ignition.yaml"
"""Default key of ignition data in a Secret (ironcore's ``DefaultIgnitionKey``)."""

_NANOSECONDS = 10**9
_MAX_METADATA_BYTES = 192 << 10
"""Kubernetes permits 256 KiB of annotations per object; JSON needs some of them."""

STATES: Mapping[str, int] = {
    "Pending": pb.MACHINE_PENDING,
    "Running": pb.MACHINE_RUNNING,
    # Not STOPPED: poollets of ironcore's own make never report a machine in a state added later.
    "Shutdown": pb.MACHINE_SUSPENDED,
    "Terminated": pb.MACHINE_TERMINATED,
    "Terminating": pb.MACHINE_TERMINATING,
}
"""State of a machine by the state of its object."""

_POWERS: Mapping[int, str] = {pb.POWER_ON: "On", pb.POWER_OFF: "Off"}


def new_id(labels: Mapping[str, str], place: BrokerPlace) -> str:
    """Return an id of 63 hexadecimal digits, the same for the same UID in the labels."""
    uid = owner_of(labels).uid
    if not uid:
        return secrets.token_hex(32)[:ID_CHARACTERS]
    text = json.dumps([place.source, uid]).encode()
    return hashlib.sha256(text).hexdigest()[:ID_CHARACTERS]


def to_object(machine: pb.Machine, machine_id: str, place: BrokerPlace) -> Object:
    """Build the object for a machine."""
    dialect, labels = place.dialect, place.labels()
    uid = owner_of(machine.metadata.labels).uid
    if uid and not names.label_value(uid):
        labels[dialect.uid_label] = (
            uid  # for operators, and for ironcore's broker, which selects by it
        )
    annotations = {
        place.labels_annotation: encode_texts(machine.metadata.labels),
        place.annotations_annotation: encode_texts(machine.metadata.annotations),
    }
    parts = parts_annotation(machine.spec)
    if parts:
        annotations[place.parts_annotation] = parts
    elif not machine.spec.ignition_data:
        labels[place.created_label] = "true"  # complete: no other objects belong to it
    return {
        "apiVersion": dialect.workload.api_version,
        "kind": dialect.workload.kind,
        "metadata": {
            "name": machine_id,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": _spec(machine, machine_id, place),
    }


def _spec(machine: pb.Machine, machine_id: str, place: BrokerPlace) -> Object:
    dialect, spec = place.dialect, machine.spec
    document: Object = {
        dialect.class_reference: {"name": str(getattr(spec, "class"))},
        "power": power_of(spec.power),
    }
    if place.pool:
        document[dialect.pool_reference] = {"name": place.pool}
    elif place.selector:
        document[dialect.pool_selector] = dict(place.selector)
    if spec.ignition_data:
        document["ignitionRef"] = {"name": machine_id, "key": IGNITION_KEY}
    document |= spec_of(spec, machine_id, place)
    if spec.guest_config.hostname and dialect.guest_config:
        document["guestConfig"] = {"hostname": spec.guest_config.hostname}
    return document


def power_of(power: int) -> str:
    """
    Return the value of ``power`` of an object.

    :raises BadRequest: the power is neither on nor off.
    """
    if power not in _POWERS:
        raise BadRequest(f"power {power} is neither on nor off")
    return _POWERS[power]


def encode_texts(texts: Mapping[str, str]) -> str:
    """
    Encode labels or annotations for one annotation.

    :raises BadRequest: the texts are too large.
    """
    text = json.dumps(dict(texts), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if len(text.encode()) > _MAX_METADATA_BYTES // 2:
        raise BadRequest(
            f"labels, and likewise annotations, have at most {_MAX_METADATA_BYTES // 2} bytes"
        )
    return text


@dataclass(frozen=True)
class CachedMachine:
    """
    The last known state of one object, and the machine that it stands for.

    :param spec: ``spec`` of the object; do not change it.
    :param complete: all objects that belong to it were created.
    """

    machine: pb.Machine
    uid: str
    spec: Object = field(repr=False)
    version: str = ""
    complete: bool = True
    deleting: bool = False

    @property
    def id(self) -> str:
        return str(self.machine.metadata.id)

    @cached_property
    def owner(self) -> Owner:
        """The Machine in the source cluster."""
        return owner_of(self.machine.metadata.labels)

    @property
    def is_on(self) -> bool:
        return bool(self.machine.spec.power == pb.POWER_ON)


def read(obj: Object, place: BrokerPlace) -> CachedMachine:
    """
    Convert an object of the target.

    :raises ValueError: the object does not have the form of a broker's machine.
    """
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    deleting = bool(metadata.get("deletionTimestamp"))
    annotations = metadata.get("annotations") or {}
    try:
        machine = pb.Machine(
            metadata=_metadata(metadata, place),
            spec=_read_spec(spec, annotations.get(place.parts_annotation) or "", place),
            status=_read_status(status, deleting, place.dialect),
        )
    except (TypeError, AttributeError, KeyError) as problem:
        raise ValueError(f"it does not have the form of a machine: {problem}") from None
    return CachedMachine(
        machine,
        str(metadata.get("uid", "")),
        spec,
        str(metadata.get("resourceVersion", "")),
        complete=place.created_label in (metadata.get("labels") or {}),
        deleting=deleting,
    )


def _metadata(metadata: Object, place: BrokerPlace) -> meta_pb2.ObjectMetadata:
    annotations = metadata.get("annotations") or {}
    return meta_pb2.ObjectMetadata(
        id=metadata["name"],
        labels=_texts(annotations, place.labels_annotation),
        annotations=_texts(annotations, place.annotations_annotation),
        generation=metadata.get("generation") or 0,
        created_at=_moment(metadata.get("creationTimestamp")),
        deleted_at=_moment(metadata.get("deletionTimestamp")),
    )


def _texts(annotations: Mapping[str, str], key: str) -> dict[str, str]:
    try:
        texts = json.loads(annotations.get(key) or "{}")
    except (ValueError, RecursionError):
        texts = None
    # ironcore's broker writes null for none.
    texts = {} if texts is None and annotations.get(key) == "null" else texts
    if not isinstance(texts, dict) or not all(isinstance(each, str) for each in texts.values()):
        raise ValueError(f"its annotation {key} cannot be read")
    return texts


def _moment(text: str | None) -> int:
    return int(seconds(text) * _NANOSECONDS) if text else 0


def _read_spec(spec: Object, annotation: str, place: BrokerPlace) -> pb.MachineSpec:
    power = pb.POWER_OFF if spec.get("power") == "Off" else pb.POWER_ON
    result = pb.MachineSpec(power=power)
    setattr(result, "class", place.dialect.class_name({"spec": spec}))
    volumes, interfaces = read_parts(spec, annotation, place)
    result.volumes.extend(volumes)
    result.network_interfaces.extend(interfaces)
    hostname = (spec.get("guestConfig") or {}).get("hostname", "")
    if hostname:
        result.guest_config.hostname = hostname
    return result


def _read_status(status: Object, deleting: bool, dialect: Dialect) -> pb.MachineStatus:
    state = STATES.get(status.get("state") or "Pending", pb.MACHINE_PENDING)
    attached = pb.VOLUME_ATTACHED
    return pb.MachineStatus(
        observed_generation=max(status.get(name) or 0 for name in dialect.generation_fields),
        state=pb.MACHINE_TERMINATING if deleting else state,  # type: ignore[arg-type]
        volumes=[
            pb.VolumeStatus(
                name=each["name"],
                handle=each.get("handle") or "",
                state=attached if each.get("state") == "Attached" else pb.VOLUME_PENDING,
            )
            for each in status.get("volumes") or status.get("disks") or ()
        ],
        network_interfaces=[
            pb.NetworkInterfaceStatus(
                name=each["name"],
                handle=each.get("handle") or "",
                state=pb.NETWORK_INTERFACE_ATTACHED
                if each.get("state") == "Attached"
                else pb.NETWORK_INTERFACE_PENDING,
            )
            for each in status.get("networkInterfaces") or ()
        ],
        machine_conditions=[_condition(each) for each in status.get("conditions") or ()],
    )


def _condition(condition: Object) -> pb.MachineCondition:
    return pb.MachineCondition(
        type=condition["type"],
        status=condition.get("status") or "Unknown",
        reason=condition.get("reason") or "",
        message=condition.get("message") or "",
        last_transition_time=_moment(condition.get("lastTransitionTime")),
    )


INTERFACES = "networkInterfaces"
"""The field of ``spec`` with the network interfaces."""

Part = pb.Volume | pb.NetworkInterface

_SUBNET = "network-name", "subnet-name"
"""Attributes of an interface that names a subnet, see :mod:`twisted_exec.iri`."""


def part_name(machine_id: str, kind: str, name: str) -> str:
    """Return the name of a part's object: 63 hexadecimal digits."""
    key = json.dumps([machine_id, kind, name]).encode()
    return hashlib.sha256(key).hexdigest()[:63]


def network_name(network_id: str) -> str:
    """Return the name of the Network with a provider's id."""
    return f"net-{hashlib.sha256(network_id.encode()).hexdigest()[:40]}"


def spec_of(spec: pb.MachineSpec, machine_id: str, place: BrokerPlace) -> Object:
    """
    Build the part of ``spec`` with volumes and interfaces.

    :raises APIError: the target does not support one of them.
    """
    dialect = place.dialect
    fields: Object = {}
    images = [each for each in spec.volumes if _is_image(each, place)]
    if images:
        fields[dialect.image_field] = images[0].local_disk.image.image
    disks = [disk_of(volume, machine_id, place) for volume in spec.volumes if volume not in images]
    if disks:
        fields[dialect.disks_field] = disks
    interfaces = [
        interface_of(interface, machine_id, place) for interface in spec.network_interfaces
    ]
    if interfaces:
        fields[INTERFACES] = interfaces
    return fields


def _is_image(volume: pb.Volume, place: BrokerPlace) -> bool:
    return bool(place.dialect.image_field) and volume.name == IMAGE_DISK


def disk_of(volume: pb.Volume, machine_id: str, place: BrokerPlace) -> Object:
    """
    Convert a volume to a disk of the target's machines.

    :raises NotImplementedByBackend: the target does not support such disks.
    """
    dialect = place.dialect
    fields: Object = {"name": volume.name}
    if volume.device:
        fields["device"] = volume.device
    if volume.HasField("connection"):
        _need_kinds(f'volume "{volume.name}" is a connected volume', place)
        return {**fields, "volumeRef": {"name": part_name(machine_id, "volume", volume.name)}}
    disk: Object = {}
    if volume.local_disk.size_bytes:
        disk["sizeLimit"] = str(volume.local_disk.size_bytes)
    if volume.local_disk.image.image:
        if not dialect.local_disks:
            raise NotImplementedByBackend(
                f'volume "{volume.name}": disks of the target cluster do not have images'
            )
        disk["image"] = volume.local_disk.image.image
    return {**fields, "localDisk" if dialect.local_disks else "emptyDisk": disk}


def interface_of(interface: pb.NetworkInterface, machine_id: str, place: BrokerPlace) -> Object:
    """
    Convert a network interface to one of the target's machines.

    :raises NotImplementedByBackend: the target does not support such interfaces.
    """
    fields: Object = {"name": interface.name}
    if place.dialect.subnets:
        network, subnet = (interface.attributes.get(key, "") for key in _SUBNET)
        if not network or not subnet:
            raise NotImplementedByBackend(
                f'network interface "{interface.name}" has no subnet, which the target requires'
            )
        fields["subnetRef"] = {"networkName": network, "name": subnet}
        return {**fields, "ips": list(interface.ips)} if interface.ips else fields
    _need_kinds(f'network interface "{interface.name}" needs an object of its own', place)
    name = part_name(machine_id, "interface", interface.name)
    return {**fields, "networkInterfaceRef": {"name": name}}


def _need_kinds(problem: str, place: BrokerPlace) -> None:
    if not place.dialect.domain:
        raise NotImplementedByBackend(f"{problem}; the target cluster has no kinds for that")


def parts_annotation(spec: pb.MachineSpec) -> str:
    """Encode the parts for an annotation, without secrets; empty if none needs it."""
    return merge_parts("", *spec.volumes, *spec.network_interfaces)


def merge_parts(annotation: str, *parts: Part) -> str:
    """Update the annotation with new descriptions of some parts."""
    merged = _parsed(annotation)
    for part in parts:
        if isinstance(part, pb.NetworkInterface):
            others: Any = [each for each in merged.network_interfaces if each.name != part.name]
            del merged.network_interfaces[:]
            merged.network_interfaces.extend([*others, part])
        elif part.HasField("connection"):
            others = [each for each in merged.volumes if each.name != part.name]
            del merged.volumes[:]
            merged.volumes.extend([*others, part])
            merged.volumes[-1].connection.secret_data.clear()
            merged.volumes[-1].connection.encryption_data.clear()
    return json_format.MessageToJson(merged, indent=None) if merged.ByteSize() else ""


def _parsed(annotation: str) -> pb.MachineSpec:
    stored = pb.MachineSpec()
    if annotation:
        try:
            json_format.Parse(annotation, stored)
        except json_format.ParseError:
            raise ValueError("its annotation with volumes and interfaces cannot be read") from None
    return stored


def read_parts(
    spec: Object, annotation: str, place: BrokerPlace
) -> tuple[list[pb.Volume], list[pb.NetworkInterface]]:
    """
    Convert the parts of a machine in the target.

    :raises ValueError: the annotation is damaged, or the size of a disk is not valid.
    """
    stored = _parsed(annotation)
    return list(_volumes(spec, stored, place)), list(_interfaces(spec, stored, place))


def _volumes(spec: Object, stored: pb.MachineSpec, place: BrokerPlace) -> Iterator[pb.Volume]:
    dialect, by_name = place.dialect, {each.name: each for each in stored.volumes}
    image = spec.get(dialect.image_field) if dialect.image_field else ""
    if image:
        yield image_disk(image)
    for disk in spec.get(dialect.disks_field) or ():
        name, device = disk["name"], disk.get("device") or ""
        source = disk.get("localDisk", disk.get("emptyDisk"))
        if source is None:
            result = by_name.get(name) or pb.Volume(name=name)
            result.device = device
            yield result
            continue
        result = pb.Volume(name=name, device=device)
        result.local_disk.size_bytes = quantity.value((source or {}).get("sizeLimit") or 0)
        if (source or {}).get("image"):
            result.local_disk.image.image = source["image"]
        yield result


def _interfaces(
    spec: Object, stored: pb.MachineSpec, place: BrokerPlace
) -> Iterator[pb.NetworkInterface]:
    by_name = {each.name: each for each in stored.network_interfaces}
    for part in spec.get(INTERFACES) or ():
        yield by_name.get(part["name"]) or pb.NetworkInterface(name=part["name"])


def with_part(parts: list[Object], part: Object) -> list[Object]:
    """
    Return the parts of a ``spec`` with one more, unless it is among them.

    :raises Conflict: there is another part with its name.
    """
    for each in parts:
        if each["name"] == part["name"]:
            if {**each, "device": ""} != {**part, "device": ""}:
                raise Conflict(f'the machine has another part "{each["name"]}" already')
            return parts
    return [*parts, part]


MAX_USER = 512

_SYSTEM = "system:"
_CLUSTER = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


def cluster_name(text: str) -> str:
    """
    Return the name of a cluster.

    :raises ValueError: the text cannot be a prefix of users' names.
    """
    if not _CLUSTER.fullmatch(text) or text == "system":
        raise ValueError(
            f"{text!r} is not a valid name of a cluster: lower case letters, digits, - and . only, at most "
            "63, and not system"
        )
    return text


@dataclass(frozen=True)
class BrokerIdentity:
    """
    The identities for consoles in the target.

    Unless ``own``, consoles are opened by impersonation: ``jane`` of the source cluster ``site-a``
    is ``site-a:jane`` in the target, with the rights of that user. Groups are not passed on: those
    of one cluster mean nothing in another. Users whose names begin with ``system:`` are refused.
    """

    source: str = ""
    own: bool = False

    def acting_as(self, user: str) -> ImpersonatedUser:
        """
        Return the impersonation for a user of the source cluster.

        :raises Forbidden: the user cannot be impersonated.
        """
        if self.own:
            return ImpersonatedUser()
        if not user:
            raise Forbidden(
                "the poollet does not pass the user's name on, which this broker needs for "
                "impersonation (with --own-identity it uses its own identity)"
            )
        if user.startswith(_SYSTEM):
            raise Forbidden(
                f"user {user!r} is a component of its cluster and cannot open consoles in another "
                "cluster; use an ordinary user"
            )
        name = f"{self.source}:{user}"
        if len(user) > MAX_USER or not name.isprintable() or name != name.strip():
            raise Forbidden(
                "your user name cannot be passed to another cluster: it is too long or not printable"
            )
        return ImpersonatedUser(user=name)


@dataclass(frozen=True)
class BrokerPlace:
    """
    The namespace and the pools of a broker's machines, and their labels and annotations.

    :param pool: pool of all machines; empty for the target's scheduler.
    """

    dialect: Dialect
    namespace: str
    source: str = ""
    pool: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        return "machinebroker." + self.dialect.runtime_prefix.partition(".")[2]

    @property
    def labels_annotation(self) -> str:
        return f"{self.prefix}labels"

    @property
    def annotations_annotation(self) -> str:
        return f"{self.prefix}annotations"

    @property
    def parts_annotation(self) -> str:
        """
        Annotation with descriptions of volumes and network interfaces; unknown to ironcore's
        broker.
        """
        return f"{self.prefix}parts"

    @property
    def manager_label(self) -> str:
        """Label of the objects that brokers create, but not of their Leases."""
        return f"{self.prefix}manager"

    @property
    def created_label(self) -> str:
        """Label of a machine whose other objects all exist."""
        return f"{self.prefix}created"

    @property
    def manager(self) -> str:
        return f"{self.manager_label}=machinebroker"

    @property
    def machines(self) -> Resource:
        return self.dialect.workload

    def labels(self) -> dict[str, str]:
        return {self.manager_label: "machinebroker"}
