"""
The runtime's machines as objects of the target cluster, and back: names and shapes, no I/O.

An object carries what the runtime interface told of its machine: labels and annotations each as
JSON in one annotation, because they are the caller's and may be longer than labels can be.  The
names are those of ironcore's own machinebroker (``broker/machinebroker/api/v1alpha1`` and
``server/machine_create.go``), so either of the two finds what the other made.

The id of a machine is the name of its object.  It is made of the UID of what the machine is for,
so asking twice, also of two brokers at once, makes one.
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
from twisted_exec.runtimes.machinebroker.target import Place

from .parts import read_parts, spec_of, told_of

ID_CHARACTERS = 63
IGNITION_KEY = "ignition.yaml"
"""Where a poollet looks for ignition when nobody says (ironcore's ``DefaultIgnitionKey``)."""

_NANOSECONDS = 10**9
_MOST_METADATA_BYTES = 192 << 10
"""An object has 256 KiB of annotations in all, and JSON needs some for itself."""

STATES: Mapping[str, int] = {
    "Pending": pb.MACHINE_PENDING,
    "Running": pb.MACHINE_RUNNING,
    # Not STOPPED: poollets of ironcore's own make never report a machine in a state added later.
    "Shutdown": pb.MACHINE_SUSPENDED,
    "Terminated": pb.MACHINE_TERMINATED,
    "Terminating": pb.MACHINE_TERMINATING,
}
"""The state of the runtime's machine for each state of its object."""

_POWERS: Mapping[int, str] = {pb.POWER_ON: "On", pb.POWER_OFF: "Off"}


def new_id(labels: Mapping[str, str], place: Place) -> str:
    """The id of a machine with these labels: 63 hexadecimal digits, the same for the same UID."""
    uid = owner_of(labels).uid
    if not uid:
        return secrets.token_hex(32)[:ID_CHARACTERS]
    told = json.dumps([place.source, uid]).encode()
    return hashlib.sha256(told).hexdigest()[:ID_CHARACTERS]


def to_object(wanted: pb.Machine, machine_id: str, place: Place) -> Object:
    """
    The object that stands for a machine.

    :raises APIError: it is too large, or has parts that the target has no kinds for.
    """
    dialect, labels = place.dialect, place.labels()
    uid = owner_of(wanted.metadata.labels).uid
    if uid and not names.label_value(uid):
        labels[dialect.uid_label] = uid  # people look for it; ironcore's broker selects by it
    annotations = {
        place.labels_annotation: encode_texts(wanted.metadata.labels),
        place.annotations_annotation: encode_texts(wanted.metadata.annotations),
    }
    parts = told_of(wanted.spec)
    if parts:
        annotations[place.parts_annotation] = parts
    elif not wanted.spec.ignition_data:
        labels[place.created_label] = "true"  # there is nothing else to it
    return {
        "apiVersion": dialect.workload.api_version,
        "kind": dialect.workload.kind,
        "metadata": {
            "name": machine_id,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": _spec(wanted, machine_id, place),
    }


def _spec(wanted: pb.Machine, machine_id: str, place: Place) -> Object:
    dialect, spec = place.dialect, wanted.spec
    made: Object = {
        dialect.class_reference: {"name": str(getattr(spec, "class"))},
        "power": power_of(spec.power),
    }
    if place.pool:
        made[dialect.pool_reference] = {"name": place.pool}
    elif place.selector:
        made[dialect.pool_selector] = dict(place.selector)
    if spec.ignition_data:
        made["ignitionRef"] = {"name": machine_id, "key": IGNITION_KEY}
    made |= spec_of(spec, machine_id, place)
    if spec.guest_config.hostname and dialect.guest_config:
        made["guestConfig"] = {"hostname": spec.guest_config.hostname}
    return made


def power_of(power: int) -> str:
    """
    :raises BadRequest: nobody defined it.
    """
    if power not in _POWERS:
        raise BadRequest(f"power {power} is neither on nor off")
    return _POWERS[power]


def encode_texts(texts: Mapping[str, str]) -> str:
    """
    Labels or annotations for one annotation.

    :raises BadRequest: they are too large to be kept.
    """
    told = json.dumps(dict(texts), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if len(told.encode()) > _MOST_METADATA_BYTES // 2:
        raise BadRequest(
            f"labels, and likewise annotations, have at most {_MOST_METADATA_BYTES // 2} bytes"
        )
    return told


@dataclass(frozen=True)
class Held:
    """
    One object as it was last seen, and the runtime's machine that it stands for.

    :param complete: all that belongs to it is there.
    """

    machine: pb.Machine
    uid: str
    """Of the object in the target."""
    spec: Object = field(repr=False)
    """Of the object in the target, not to be changed."""
    version: str = ""
    complete: bool = True
    deleting: bool = False

    @property
    def id(self) -> str:
        return str(self.machine.metadata.id)

    @cached_property
    def owner(self) -> Owner:
        """What it is for, in the source cluster."""
        return owner_of(self.machine.metadata.labels)

    @property
    def is_on(self) -> bool:
        """It is wanted on."""
        return bool(self.machine.spec.power == pb.POWER_ON)


def read(obj: Object, place: Place) -> Held:
    """
    What an object says.

    :raises ValueError: it is not as a broker makes them; the text says what.
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
        raise ValueError(f"it has another shape: {problem}") from None
    return Held(
        machine,
        str(metadata.get("uid", "")),
        spec,
        str(metadata.get("resourceVersion", "")),
        complete=place.created_label in (metadata.get("labels") or {}),
        deleting=deleting,
    )


def _metadata(metadata: Object, place: Place) -> meta_pb2.ObjectMetadata:
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
        told = json.loads(annotations.get(key) or "{}")
    except (ValueError, RecursionError):
        told = None
    # What ironcore's broker writes for none is null.
    told = {} if told is None and annotations.get(key) == "null" else told
    if not isinstance(told, dict) or not all(isinstance(each, str) for each in told.values()):
        raise ValueError(f"its annotation {key} cannot be read")
    return told


def _moment(told: str | None) -> int:
    """Nanoseconds since the epoch; 0 for none."""
    return int(seconds(told) * _NANOSECONDS) if told else 0


def _read_spec(spec: Object, annotation: str, place: Place) -> pb.MachineSpec:
    power = pb.POWER_OFF if spec.get("power") == "Off" else pb.POWER_ON
    made = pb.MachineSpec(power=power)
    setattr(made, "class", place.dialect.class_name({"spec": spec}))
    volumes, interfaces = read_parts(spec, annotation, place)
    made.volumes.extend(volumes)
    made.network_interfaces.extend(interfaces)
    hostname = (spec.get("guestConfig") or {}).get("hostname", "")
    if hostname:
        made.guest_config.hostname = hostname
    return made


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
