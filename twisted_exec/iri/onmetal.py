"""
Revisions of onmetal-api, ironcore's predecessor, translated to and from the current messages.

onmetal-api's later ORI has the current names, but other field numbers in the machine's spec. It
cannot express much of the current revision, such as the guest's hostname, encryption of volumes,
and the states stopped and terminating. A *machine* has an image there, which becomes the disk
:data:`IMAGE_DISK`; other disks are empty or connected.

onmetal-api v0.1 has the ORI before volumes and network interfaces became part of a machine. They
are separate objects there, created first and then attached by id.

Numbers as in ``ori/apis/machine/v1alpha1/api.proto`` of onmetal-api v0.1.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from google.protobuf.message import Message

from twisted_exec.iri.image_disk import IMAGE_DISK, join_image, split_image
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.protos import onmetal01_pb2 as there
from twisted_exec.iri.protos import onmetal_pb2
from twisted_exec.iri.revision import Lose, Translators, make_revision

SERVICE = "machine.v1alpha1.MachineRuntime"

ONMETAL_STATES: Mapping[int, int] = {
    pb.MACHINE_STOPPED: onmetal_pb2.MACHINE_SUSPENDED,
    pb.MACHINE_TERMINATING: onmetal_pb2.MACHINE_TERMINATED,
}

_MILLIS = 1000
_MOST_CPUS = 1 << 32
_MOST_BYTES = (1 << 63) - 1
ID_ATTRIBUTE = "network-interface-id"
"""The attribute of a network interface that holds the id of the object there."""
UNCOUNTED = (1 << 31) - 1
"""The quantity of classes for which the other side states none."""
_METHODS = {
    "CreateVolumeAttachment": "AttachVolume",
    "DeleteVolumeAttachment": "DetachVolume",
    "CreateNetworkInterfaceAttachment": "AttachNetworkInterface",
    "DeleteNetworkInterfaceAttachment": "DetachNetworkInterface",
    "ListMachineClasses": "Status",
}
_NOTHING = ("ListVolumes", "ListNetworkInterfaces")


class Older:
    """Translates machines and volumes."""

    def __init__(self, there: Any, states: Mapping[int, int]) -> None:
        self._there, self._states = there, states

    def machine_out(self, machine: pb.Machine, lose: Lose) -> Any:
        result = self._there.Machine()
        if machine.HasField("metadata"):
            result.metadata.CopyFrom(machine.metadata)
        if machine.HasField("spec"):
            self._spec_out(machine.spec, result.spec, lose)
        if machine.HasField("status"):
            self._status_out(machine.status, result.status)
        return result

    def machine_in(self, machine: Any) -> pb.Machine:
        result = pb.Machine()
        if machine.HasField("metadata"):
            result.metadata.CopyFrom(machine.metadata)
        if machine.HasField("spec"):
            self._spec_in(machine.spec, result.spec)
        if machine.HasField("status"):
            self._status_in(machine.status, result.status)
        return result

    def _spec_out(self, spec: pb.MachineSpec, target: Any, lose: Lose) -> None:
        # A message without any value is present only with this; HasField tells the two apart.
        target.SetInParent()
        target.power = spec.power
        setattr(target, "class", getattr(spec, "class"))
        target.ignition_data = spec.ignition_data
        target.network_interfaces.extend(spec.network_interfaces)
        image, disks = split_image(spec.volumes, lose)
        if image:
            target.image.image = image
        target.volumes.extend([self.volume_out(disk, lose) for disk in disks])
        if spec.guest_config.hostname:
            lose("a guest hostname")

    def _spec_in(self, spec: Any, target: pb.MachineSpec) -> None:
        target.SetInParent()
        target.power = spec.power
        setattr(target, "class", getattr(spec, "class"))
        target.ignition_data = spec.ignition_data
        target.network_interfaces.extend(spec.network_interfaces)
        disks = [self.volume_in(disk) for disk in spec.volumes]
        target.volumes.extend(join_image(spec.image.image, disks))

    def _status_out(self, status: pb.MachineStatus, target: Any) -> None:
        target.SetInParent()
        target.observed_generation = status.observed_generation
        target.state = self._states.get(status.state, status.state)
        target.image_ref = status.image_ref
        target.volumes.extend(
            [connection for connection in status.volumes if connection.name != IMAGE_DISK]
        )
        target.network_interfaces.extend(status.network_interfaces)

    def _status_in(self, status: Any, target: pb.MachineStatus) -> None:
        target.SetInParent()
        target.observed_generation = status.observed_generation
        target.state = status.state
        target.image_ref = status.image_ref
        target.volumes.extend(status.volumes)
        target.network_interfaces.extend(status.network_interfaces)

    def volume_out(self, volume: pb.Volume, lose: Lose) -> Any:
        result = self._there.Volume(name=volume.name, device=volume.device)
        if volume.HasField("local_disk"):
            result.empty_disk.SetInParent()
            result.empty_disk.size_bytes = volume.local_disk.size_bytes
        if volume.HasField("connection"):
            self._connection_out(volume.connection, result.connection, lose)
        return result

    def volume_in(self, volume: Any) -> pb.Volume:
        result = pb.Volume(name=volume.name, device=volume.device)
        if volume.HasField("empty_disk"):
            result.local_disk.SetInParent()
            result.local_disk.size_bytes = volume.empty_disk.size_bytes
        if volume.HasField("connection"):
            result.connection.SetInParent()
            # The fields of this message have the same numbers in both.
            result.connection.MergeFromString(volume.connection.SerializeToString())
        return result

    def _connection_out(self, connection: pb.VolumeConnection, target: Any, lose: Lose) -> None:
        if connection.encryption_data:
            lose("how a volume is encrypted")
        copy_connection(connection, target)

    # Requests and answers.

    def listed_out(self, answer: pb.ListMachinesResponse, lose: Lose) -> Message:
        machines = [self.machine_out(machine, lose) for machine in answer.machines]
        response: Message = self._there.ListMachinesResponse(machines=machines)
        return response

    def listed_in(self, answer: Any, lose: Lose) -> Message:
        return pb.ListMachinesResponse(
            machines=[self.machine_in(machine) for machine in answer.machines]
        )

    def one_out(self, to: type[Message], message: Any, lose: Lose) -> Message:
        if not message.HasField("machine"):
            return to()
        return to(machine=self.machine_out(message.machine, lose))

    def one_in(self, to: type[Message], message: Any, lose: Lose) -> Message:
        if not message.HasField("machine"):
            return to()
        return to(machine=self.machine_in(message.machine))

    def disk_out(self, to: type[Message], request: Any, lose: Lose) -> Message:
        result: Any = to(machine_id=request.machine_id)
        if request.HasField("volume"):
            if request.volume.local_disk.image.image:
                lose(f"an image of the disk {request.volume.name!r} of a machine that exists")
            result.volume.CopyFrom(self.volume_out(request.volume, lose))
        return cast(Message, result)

    def disk_in(self, to: type[Message], request: Any, lose: Lose) -> Message:
        result: Any = to(machine_id=request.machine_id)
        if request.HasField("volume"):
            result.volume.CopyFrom(self.volume_in(request.volume))
        return cast(Message, result)

    def translators(self) -> Translators:
        there = self._there
        translators: dict[Any, Any] = {}
        translators[pb.ListMachinesResponse, there.ListMachinesResponse] = self.listed_out
        translators[there.ListMachinesResponse, pb.ListMachinesResponse] = self.listed_in
        for name, outward, inward in (
            ("CreateMachineRequest", self.one_out, self.one_in),
            ("CreateMachineResponse", self.one_out, self.one_in),
            ("AttachVolumeRequest", self.disk_out, self.disk_in),
        ):
            ours, theirs = getattr(pb, name), getattr(there, name, None)
            if theirs is not None:
                translators[ours, theirs] = _to(outward, theirs)
                translators[theirs, ours] = _to(inward, ours)
        return translators


def copy_connection(connection: Any, target: Any) -> None:
    target.SetInParent()
    target.driver, target.handle = connection.driver, connection.handle
    target.attributes.update(connection.attributes)
    target.secret_data.update(connection.secret_data)


def _to(translate: Any, to: type[Message]) -> Any:
    return lambda message, lose: translate(to, message, lose)


def class_out(machine_class: pb.MachineClass, to: type[Any], lose: Lose) -> list[Any]:
    """
    Translate a class to CPU in thousandths and bytes of memory.

    :return: one message of type ``to``; none if the class has other resources.
    """
    resources = dict(machine_class.capabilities.resources)
    cpu, memory = resources.pop("cpu", 0), resources.pop("memory", 0)
    if resources:
        lose(f"all resources of the class {machine_class.name!r}")
        return []
    result = to(name=machine_class.name)
    # The product must fit into an int64.
    result.capabilities.cpu_millis = min(cpu, _MOST_CPUS) * _MILLIS
    result.capabilities.memory_bytes = max(0, memory)
    return [result]


def class_in(machine_class: Any, target: pb.MachineClassStatus) -> None:
    """
    Translate a class; a fraction of a CPU is rounded up, as in ``Value()`` of a Kubernetes
    quantity.
    """
    target.machine_class.name = machine_class.name
    resources = target.machine_class.capabilities.resources
    resources["cpu"] = -(-machine_class.capabilities.cpu_millis // _MILLIS)
    resources["memory"] = min(machine_class.capabilities.memory_bytes, _MOST_BYTES)


def _status_out(answer: pb.StatusResponse, lose: Lose) -> Message:
    response = onmetal_pb2.StatusResponse()
    for item in answer.machine_class_status:
        for translated in class_out(item.machine_class, onmetal_pb2.MachineClass, lose):
            response.machine_class_status.add(quantity=item.quantity, machine_class=translated)
    return response


def _status_in(answer: Any, lose: Lose) -> Message:
    response = pb.StatusResponse()
    for item in answer.machine_class_status:
        class_in(item.machine_class, response.machine_class_status.add(quantity=item.quantity))
    return response


ONMETAL = make_revision(
    "onmetal",
    onmetal_pb2.DESCRIPTOR.services_by_name["MachineRuntime"],
    service=SERVICE,
    translators={
        **Older(onmetal_pb2, ONMETAL_STATES).translators(),
        (pb.StatusResponse, onmetal_pb2.StatusResponse): _status_out,
        (onmetal_pb2.StatusResponse, pb.StatusResponse): _status_in,
    },
)


class _Onmetal01(Older):
    def _spec_out(self, spec: pb.MachineSpec, target: Any, lose: Lose) -> None:
        target.SetInParent()
        target.power = spec.power
        setattr(target, "class", getattr(spec, "class"))
        if spec.ignition_data:
            target.ignition.data = spec.ignition_data
        image, disks = split_image(spec.volumes, lose)
        if image:
            target.image.image = image
        target.volumes.extend([self.volume_out(disk, lose) for disk in disks])
        target.network_interfaces.extend([_nic_out(nic, lose) for nic in spec.network_interfaces])
        if spec.guest_config.hostname:
            lose("a guest hostname")

    def _spec_in(self, spec: Any, target: pb.MachineSpec) -> None:
        target.SetInParent()
        target.power = spec.power
        setattr(target, "class", getattr(spec, "class"))
        target.ignition_data = spec.ignition.data
        disks = [self.volume_in(disk) for disk in spec.volumes]
        target.volumes.extend(join_image(spec.image.image, disks))
        target.network_interfaces.extend([_nic_in(nic) for nic in spec.network_interfaces])

    def volume_out(self, volume: pb.Volume, lose: Lose) -> Any:
        result = there.VolumeAttachment(name=volume.name, device=volume.device)
        if volume.HasField("local_disk"):
            result.empty_disk.SetInParent()
            # uint64 there (onmetal01.proto), int64 here; likewise the memory of classes.
            result.empty_disk.size_bytes = max(0, volume.local_disk.size_bytes)
        if volume.HasField("connection"):
            result.volume_id = volume.connection.handle
            if volume.connection != pb.VolumeConnection(handle=volume.connection.handle):
                lose(f"a connection of the volume {volume.name!r}: only the id of an object there")
        return result

    def volume_in(self, volume: Any) -> pb.Volume:
        result = pb.Volume(name=volume.name, device=volume.device)
        if volume.HasField("empty_disk"):
            result.local_disk.SetInParent()
            result.local_disk.size_bytes = min(volume.empty_disk.size_bytes, (1 << 63) - 1)
        if volume.volume_id:
            result.connection.handle = volume.volume_id
        return result

    def nic_out(self, request: Any, lose: Lose) -> Message:
        result = there.CreateNetworkInterfaceAttachmentRequest(machine_id=request.machine_id)
        if request.HasField("network_interface"):
            result.network_interface.CopyFrom(_nic_out(request.network_interface, lose))
        return result

    def nic_in(self, request: Any, lose: Lose) -> Message:
        result = pb.AttachNetworkInterfaceRequest(machine_id=request.machine_id)
        if request.HasField("network_interface"):
            result.network_interface.CopyFrom(_nic_in(request.network_interface))
        return result

    def translators(self) -> Translators:
        volume = there.CreateVolumeAttachmentRequest
        nic = there.CreateNetworkInterfaceAttachmentRequest
        return {
            **super().translators(),
            (pb.AttachVolumeRequest, volume): lambda message, lose: self.disk_out(
                volume, message, lose
            ),
            (volume, pb.AttachVolumeRequest): lambda message, lose: self.disk_in(
                pb.AttachVolumeRequest, message, lose
            ),
            (pb.AttachNetworkInterfaceRequest, nic): self.nic_out,
            (nic, pb.AttachNetworkInterfaceRequest): self.nic_in,
            (pb.StatusResponse, there.ListMachineClassesResponse): _classes_out,
            (there.ListMachineClassesResponse, pb.StatusResponse): _classes_in,
        }


def _nic_out(nic: pb.NetworkInterface, lose: Lose) -> there.NetworkInterfaceAttachment:
    nic_id = nic.attributes.get(ID_ATTRIBUTE, "")
    result = there.NetworkInterfaceAttachment(name=nic.name, network_interface_id=nic_id)
    if nic != _nic_in(result):
        lose(f"the network interface {nic.name!r}: only the id of an object there")
    return result


def _nic_in(nic: Any) -> pb.NetworkInterface:
    result = pb.NetworkInterface(name=nic.name)
    if nic.network_interface_id:
        result.attributes[ID_ATTRIBUTE] = nic.network_interface_id
    return result


def _classes_out(answer: pb.StatusResponse, lose: Lose) -> Message:
    response = there.ListMachineClassesResponse()
    for item in answer.machine_class_status:
        response.machine_classes.extend(class_out(item.machine_class, there.MachineClass, lose))
    return response


def _classes_in(answer: Any, lose: Lose) -> Message:
    response = pb.StatusResponse()
    for item in answer.machine_classes:
        class_in(item, response.machine_class_status.add(quantity=UNCOUNTED))
    return response


ONMETAL_01 = make_revision(
    "onmetal-0.1",
    there.DESCRIPTOR.services_by_name["MachineRuntime"],
    service=SERVICE,
    methods=_METHODS,
    nothing=_NOTHING,
    translators=_Onmetal01(there, ONMETAL_STATES).translators(),
)
