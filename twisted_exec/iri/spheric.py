"""
spheric's ``runtime.v1alpha1.RuntimeService``: instances, their types, disks and subnets.

It has the limits of onmetal's revision (:mod:`twisted_exec.iri.onmetal`), and its ``Status`` has
only names and numbers of types.

In the current revision a network interface has its subnet as attributes with the names
:data:`SUBNET_ATTRIBUTES` and :data:`CIDRS_ATTRIBUTE`, and the network's UID as the id of the
network. Numbers as in ``iri-api/apis/runtime/v1alpha1/api.proto``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from twisted_exec.api.status import BadRequest
from twisted_exec.iri.image_disk import IMAGE_DISK, join_image, split_image
from twisted_exec.iri.onmetal import copy_connection
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.protos import spheric_pb2 as there
from twisted_exec.iri.revision import Lose, Translators, make_revision, renamed

SUBNET_ATTRIBUTES: Mapping[str, str] = {
    "network-name": "network_name",
    "subnet-name": "subnet_name",
    "subnet-uid": "subnet_uid",
}
"""Attributes of a network interface, and the fields of its subnet's metadata."""

CIDRS_ATTRIBUTE = "subnet-cidrs"
"""The attribute with the subnet's prefixes, separated by commas."""

_STATES: Mapping[int, int] = {
    pb.MACHINE_STOPPED: there.INSTANCE_SUSPENDED,
    pb.MACHINE_TERMINATING: there.INSTANCE_TERMINATED,
}

_METHODS = {
    "ListInstances": "ListMachines",
    "CreateInstance": "CreateMachine",
    "DeleteInstance": "DeleteMachine",
    "UpdateInstanceAnnotations": "UpdateMachineAnnotations",
    "UpdateInstancePower": "UpdateMachinePower",
    "AttachDisk": "AttachVolume",
    "DetachDisk": "DetachVolume",
}

RENAMED: Mapping[str, str] = {
    "VersionRequest": "VersionRequest",
    "VersionResponse": "VersionResponse",
    "ListInstancesRequest": "ListMachinesRequest",
    "DeleteInstanceRequest": "DeleteMachineRequest",
    "DeleteInstanceResponse": "DeleteMachineResponse",
    "UpdateInstanceAnnotationsRequest": "UpdateMachineAnnotationsRequest",
    "UpdateInstanceAnnotationsResponse": "UpdateMachineAnnotationsResponse",
    "UpdateInstancePowerRequest": "UpdateMachinePowerRequest",
    "UpdateInstancePowerResponse": "UpdateMachinePowerResponse",
    "AttachDiskResponse": "AttachVolumeResponse",
    "DetachDiskRequest": "DetachVolumeRequest",
    "DetachDiskResponse": "DetachVolumeResponse",
    "AttachNetworkInterfaceResponse": "AttachNetworkInterfaceResponse",
    "DetachNetworkInterfaceRequest": "DetachNetworkInterfaceRequest",
    "DetachNetworkInterfaceResponse": "DetachNetworkInterfaceResponse",
    "StatusRequest": "StatusRequest",
    "ExecRequest": "ExecRequest",
    "ExecResponse": "ExecResponse",
}
"""Messages with the same encoding in both revisions."""


def _instance_out(machine: pb.Machine, lose: Lose) -> there.Instance:
    result = there.Instance()
    if machine.HasField("metadata"):
        result.metadata.CopyFrom(machine.metadata)
    if machine.HasField("spec"):
        _spec_out(machine.spec, result.spec, lose)
    if machine.HasField("status"):
        _status_out(machine.status, result.status)
    return result


def _instance_in(instance: there.Instance) -> pb.Machine:
    result = pb.Machine()
    if instance.HasField("metadata"):
        result.metadata.CopyFrom(instance.metadata)
    if instance.HasField("spec"):
        _spec_in(instance.spec, result.spec)
    if instance.HasField("status"):
        _status_in(instance.status, result.status)
    return result


def _spec_out(spec: pb.MachineSpec, target: Any, lose: Lose) -> None:
    target.SetInParent()
    target.power = spec.power
    target.type = getattr(spec, "class")
    target.ignition_data = spec.ignition_data
    image, disks = split_image(spec.volumes, lose)
    if image:
        target.image.image = image
    target.disks.extend([_disk_out(disk, lose) for disk in disks])
    target.network_interfaces.extend([_nic_out(nic, lose) for nic in spec.network_interfaces])
    if spec.guest_config.hostname:
        lose("a guest hostname")


def _spec_in(spec: Any, target: pb.MachineSpec) -> None:
    target.SetInParent()
    target.power = spec.power
    setattr(target, "class", spec.type)
    target.ignition_data = spec.ignition_data
    target.volumes.extend(join_image(spec.image.image, [_disk_in(disk) for disk in spec.disks]))
    target.network_interfaces.extend([_nic_in(nic) for nic in spec.network_interfaces])


def _status_out(status: pb.MachineStatus, target: Any) -> None:
    target.SetInParent()
    target.observed_generation = status.observed_generation
    target.state = _STATES.get(status.state, status.state)
    target.image_ref = status.image_ref
    for disk in status.volumes:
        if disk.name != IMAGE_DISK:
            target.disks.add(name=disk.name, state=disk.state)
    for nic in status.network_interfaces:
        target.network_interfaces.add(name=nic.name, handle=nic.handle, state=nic.state)


def _status_in(status: Any, target: pb.MachineStatus) -> None:
    target.SetInParent()
    target.observed_generation = status.observed_generation
    target.state = status.state
    target.image_ref = status.image_ref
    for disk in status.disks:
        target.volumes.add(name=disk.name, state=disk.state)
    for nic in status.network_interfaces:
        target.network_interfaces.add(name=nic.name, handle=nic.handle, state=nic.state)


def _disk_out(volume: pb.Volume, lose: Lose) -> there.Disk:
    result = there.Disk(name=volume.name, device=volume.device)
    if volume.HasField("local_disk"):
        result.empty_disk.SetInParent()
        result.empty_disk.size_bytes = volume.local_disk.size_bytes
    if volume.HasField("connection"):
        if volume.connection.encryption_data:
            lose("how a volume is encrypted")
        copy_connection(volume.connection, result.connection)
    return result


def _disk_in(disk: there.Disk) -> pb.Volume:
    result = pb.Volume(name=disk.name, device=disk.device)
    if disk.HasField("empty_disk"):
        result.local_disk.SetInParent()
        result.local_disk.size_bytes = disk.empty_disk.size_bytes
    if disk.HasField("connection"):
        copy_connection(disk.connection, result.connection)
    return result


def _nic_out(nic: pb.NetworkInterface, lose: Lose) -> there.NetworkInterface:
    result = there.NetworkInterface(name=nic.name, ips=nic.ips)
    result.subnet_metadata.network_uid = nic.network_id
    for attribute, value in nic.attributes.items():
        if attribute in SUBNET_ATTRIBUTES:
            setattr(result.subnet_metadata, SUBNET_ATTRIBUTES[attribute], value)
        elif attribute == CIDRS_ATTRIBUTE:
            result.subnet_cidrs.extend(value.split(","))
        else:
            lose(f"the attribute {attribute!r} of the network interface {nic.name!r}")
    return result


def _nic_in(nic: there.NetworkInterface) -> pb.NetworkInterface:
    subnet = nic.subnet_metadata
    result = pb.NetworkInterface(name=nic.name, ips=nic.ips, network_id=subnet.network_uid)
    for attribute, field in SUBNET_ATTRIBUTES.items():
        value = getattr(subnet, field)
        if value:
            result.attributes[attribute] = value
    if nic.subnet_cidrs:
        if any("," in cidr for cidr in nic.subnet_cidrs):
            raise BadRequest(f"a prefix of the network interface {nic.name!r} has a comma")
        result.attributes[CIDRS_ATTRIBUTE] = ",".join(nic.subnet_cidrs)
    return result


# Requests and answers.


def _listed_out(answer: pb.ListMachinesResponse, lose: Lose) -> Message:
    return there.ListInstancesResponse(
        instances=[_instance_out(machine, lose) for machine in answer.machines]
    )


def _listed_in(answer: there.ListInstancesResponse, lose: Lose) -> Message:
    return pb.ListMachinesResponse(
        machines=[_instance_in(instance) for instance in answer.instances]
    )


def _one_out(to: type[Message]) -> Any:

    def translate(message: Any, lose: Lose) -> Message:
        if not message.HasField("machine"):
            return to()
        return to(instance=_instance_out(message.machine, lose))

    return translate


def _one_in(to: type[Message]) -> Any:
    def translate(message: Any, lose: Lose) -> Message:
        if not message.HasField("instance"):
            return to()
        return to(machine=_instance_in(message.instance))

    return translate


def _attach_disk_out(request: pb.AttachVolumeRequest, lose: Lose) -> Message:
    result = there.AttachDiskRequest(instance_id=request.machine_id)
    if request.HasField("volume"):
        if request.volume.local_disk.image.image:
            lose(f"an image of the disk {request.volume.name!r} of a machine that exists")
        result.disk.CopyFrom(_disk_out(request.volume, lose))
    return result


def _attach_disk_in(request: there.AttachDiskRequest, lose: Lose) -> Message:
    result = pb.AttachVolumeRequest(machine_id=request.instance_id)
    if request.HasField("disk"):
        result.volume.CopyFrom(_disk_in(request.disk))
    return result


def _attach_nic_out(request: pb.AttachNetworkInterfaceRequest, lose: Lose) -> Message:
    result = there.AttachNetworkInterfaceRequest(instance_id=request.machine_id)
    if request.HasField("network_interface"):
        result.network_interface.CopyFrom(_nic_out(request.network_interface, lose))
    return result


def _attach_nic_in(request: there.AttachNetworkInterfaceRequest, lose: Lose) -> Message:
    result = pb.AttachNetworkInterfaceRequest(machine_id=request.instance_id)
    if request.HasField("network_interface"):
        result.network_interface.CopyFrom(_nic_in(request.network_interface))
    return result


def _quantities_out(answer: pb.StatusResponse, lose: Lose) -> Message:
    response = there.StatusResponse()
    for resources in (response.capacity, response.allocatable):
        resources.SetInParent()
        for item in answer.machine_class_status:
            resources.instance_quantities[item.machine_class.name] = item.quantity
    return response


def _quantities_in(answer: there.StatusResponse, lose: Lose) -> Message:
    response = pb.StatusResponse()
    for name, quantity in sorted(answer.capacity.instance_quantities.items()):
        response.machine_class_status.add(quantity=quantity).machine_class.name = name
    return response


def _translators() -> Translators:
    translators: dict[tuple[type[Message], type[Message]], Any] = {
        (pb.ListMachinesResponse, there.ListInstancesResponse): _listed_out,
        (there.ListInstancesResponse, pb.ListMachinesResponse): _listed_in,
        (pb.AttachVolumeRequest, there.AttachDiskRequest): _attach_disk_out,
        (there.AttachDiskRequest, pb.AttachVolumeRequest): _attach_disk_in,
        (pb.AttachNetworkInterfaceRequest, there.AttachNetworkInterfaceRequest): _attach_nic_out,
        (there.AttachNetworkInterfaceRequest, pb.AttachNetworkInterfaceRequest): _attach_nic_in,
        (pb.StatusResponse, there.StatusResponse): _quantities_out,
        (there.StatusResponse, pb.StatusResponse): _quantities_in,
    }
    for kind in ("Request", "Response"):
        ours, theirs = getattr(pb, f"CreateMachine{kind}"), getattr(there, f"CreateInstance{kind}")
        translators[ours, theirs], translators[theirs, ours] = _one_out(theirs), _one_in(ours)
    for name, inside in RENAMED.items():
        ours, theirs = getattr(pb, inside), getattr(there, name)
        translators[ours, theirs], translators[theirs, ours] = renamed(theirs), renamed(ours)
    return translators


SPHERIC = make_revision(
    "spheric",
    there.DESCRIPTOR.services_by_name["RuntimeService"],
    methods=_METHODS,
    translators=_translators(),
)
