"""
onmetal-api v0.1, the ORI before volumes and network interfaces became part of a machine.

They are objects of their own there, made first and then attached by their id.  Machines of ours have
none of them, so that is what a runtime of ours says of them: there are none, and none can be
made.  What it cannot tell, besides what onmetal's later revision cannot (:mod:`.revisions_older`):

* a connection of a volume, but the id of such an object (the handle of a connection without a
  driver);
* a network interface, but by its id (:data:`ID_ATTRIBUTE`);
* how many machines of a class there may be: :data:`UNCOUNTED`.

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
"""The quantity of a class that tells none."""

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

    def _spec_out(self, spec: pb.MachineSpec, made: Any, lose: Lose) -> None:
        made.SetInParent()
        made.power = spec.power
        setattr(made, "class", getattr(spec, "class"))
        if spec.ignition_data:
            made.ignition.data = spec.ignition_data
        image, disks = split_image(spec.volumes, lose)
        if image:
            made.image.image = image
        made.volumes.extend([self.volume_out(disk, lose) for disk in disks])
        made.network_interfaces.extend([_nic_out(nic, lose) for nic in spec.network_interfaces])
        if spec.guest_config.hostname:
            lose("a guest hostname")

    def _spec_in(self, spec: Any, made: pb.MachineSpec) -> None:
        made.SetInParent()
        made.power = spec.power
        setattr(made, "class", getattr(spec, "class"))
        made.ignition_data = spec.ignition.data
        disks = [self.volume_in(disk) for disk in spec.volumes]
        made.volumes.extend(join_image(spec.image.image, disks))
        made.network_interfaces.extend([_nic_in(nic) for nic in spec.network_interfaces])

    def volume_out(self, volume: pb.Volume, lose: Lose) -> Any:
        made = there.VolumeAttachment(name=volume.name, device=volume.device)
        if volume.HasField("local_disk"):
            made.empty_disk.SetInParent()
            made.empty_disk.size_bytes = max(0, volume.local_disk.size_bytes)
        if volume.HasField("connection"):
            made.volume_id = volume.connection.handle
            if volume.connection != pb.VolumeConnection(handle=volume.connection.handle):
                lose(f"a connection of the volume {volume.name!r}: only the id of an object there")
        return made

    def volume_in(self, volume: Any) -> pb.Volume:
        made = pb.Volume(name=volume.name, device=volume.device)
        if volume.HasField("empty_disk"):
            made.local_disk.SetInParent()
            made.local_disk.size_bytes = min(volume.empty_disk.size_bytes, (1 << 63) - 1)
        if volume.volume_id:
            made.connection.handle = volume.volume_id
        return made

    def nic_out(self, request: Any, lose: Lose) -> Message:
        """A request about a network interface of a machine."""
        made = there.CreateNetworkInterfaceAttachmentRequest(machine_id=request.machine_id)
        if request.HasField("network_interface"):
            made.network_interface.CopyFrom(_nic_out(request.network_interface, lose))
        return made

    def nic_in(self, request: Any, lose: Lose) -> Message:
        made = pb.AttachNetworkInterfaceRequest(machine_id=request.machine_id)
        if request.HasField("network_interface"):
            made.network_interface.CopyFrom(_nic_in(request.network_interface))
        return made

    def translators(self) -> Translators:
        volume = there.CreateVolumeAttachmentRequest
        nic = there.CreateNetworkInterfaceAttachmentRequest
        return {
            **super().translators(),
            (pb.AttachVolumeRequest, volume): lambda one, lose: self.disk_out(volume, one, lose),
            (volume, pb.AttachVolumeRequest): lambda one, lose: self.disk_in(
                pb.AttachVolumeRequest, one, lose
            ),
            (pb.AttachNetworkInterfaceRequest, nic): self.nic_out,
            (nic, pb.AttachNetworkInterfaceRequest): self.nic_in,
            (pb.StatusResponse, there.ListMachineClassesResponse): _classes_out,
            (there.ListMachineClassesResponse, pb.StatusResponse): _classes_in,
        }


def _nic_out(nic: pb.NetworkInterface, lose: Lose) -> there.NetworkInterfaceAttachment:
    known = nic.attributes.get(ID_ATTRIBUTE, "")
    made = there.NetworkInterfaceAttachment(name=nic.name, network_interface_id=known)
    if nic != _nic_in(made):
        lose(f"the network interface {nic.name!r}: only the id of an object there")
    return made


def _nic_in(nic: Any) -> pb.NetworkInterface:
    made = pb.NetworkInterface(name=nic.name)
    if nic.network_interface_id:
        made.attributes[ID_ATTRIBUTE] = nic.network_interface_id
    return made


def _classes_out(answer: pb.StatusResponse, lose: Lose) -> Message:
    made = there.ListMachineClassesResponse()
    for one in answer.machine_class_status:
        made.machine_classes.extend(class_out(one.machine_class, there.MachineClass, lose))
    return made


def _classes_in(answer: Any, lose: Lose) -> Message:
    made = pb.StatusResponse()
    for one in answer.machine_classes:
        class_in(one, made.machine_class_status.add(quantity=UNCOUNTED))
    return made


ONMETAL_01 = make_revision(
    "onmetal-0.1",
    there.DESCRIPTOR.services_by_name["MachineRuntime"],
    service=SERVICE,
    methods=_METHODS,
    nothing=_NOTHING,
    translators=_Onmetal01(there, ONMETAL_STATES).translators(),
)
