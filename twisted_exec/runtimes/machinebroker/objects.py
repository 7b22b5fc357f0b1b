"""
Conversion between machines of the runtime interface and objects of the target cluster, sans I/O.

Labels and annotations have the names of ironcore's own machinebroker
(``broker/machinebroker/api/v1alpha1`` and ``server/machine_create.go``), except
:attr:`.BrokerPlace.parts_annotation`.

The name of the object is the machine's id. It is a hash of the UID of the source's Machine, if the
request has one, so repeated requests create one object.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from twisted_exec.api import names
from twisted_exec.api.dialects import Dialect, Owner, owner_of
from twisted_exec.api.status import BadRequest
from twisted_exec.api.times import seconds
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.protos import meta_pb2
from twisted_exec.kube.interfaces import Object
from twisted_exec.runtimes.machinebroker.parts import parts_annotation, read_parts, spec_of
from twisted_exec.runtimes.machinebroker.place import BrokerPlace

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
        """True if it is to be on, or its target says that it runs still."""
        is_running = self.machine.status.state == pb.MACHINE_RUNNING
        return bool(self.machine.spec.power == pb.POWER_ON or is_running)


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
