"""
onmetal-api v0.1, the ORI before volumes and network interfaces became part of a machine.

They are separate objects there, created first and then attached by id.  This project's runtimes do
not have such objects, so they list none and cannot create any.  Besides the limits of onmetal's
later revision (:mod:`.older`), it does not support:

* connections of volumes, except the id of such an object (the handle of a connection without a
  driver);
* network interfaces, except by id (:data:`ID_ATTRIBUTE`);
* the number of machines of a class: :data:`UNCOUNTED`.

Numbers as in ``ori/apis/machine/v1alpha1/api.proto`` of onmetal-api v0.1.1.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.protos import onmetal01_pb2 as there
from twisted_exec.iri.revisions.older import (
    ONMETAL_STATES,
    SERVICE,
    Older,
    class_in,
    class_out,
    join_image,
    split_image,
)
from twisted_exec.iri.revisions.revision import Lose, Translators, make_revision

ID_ATTRIBUTE = "network-interface-id"
"""The attribute of a network interface that holds the id of the object there."""

UNCOUNTED = (1 << 31) - 1
"""The quantity of classes without one."""

_METHODS = {
    "CreateVolumeAttachment": "AttachVolume",
    "DeleteVolumeAttachment": "DetachVolume",
    "CreateNetworkInterfaceAttachment": "AttachNetworkInterface",
    "DeleteNetworkInterfaceAttachment": "DetachNetworkInterface",
    "ListMachineClasses": "Status",
}
_NOTHING = ("ListVolumes", "ListNetworkInterfaces")


class _Onmetal01(Older):
    """Machines as of v0.1."""

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
        """Translate a request about a network interface of a machine."""
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
