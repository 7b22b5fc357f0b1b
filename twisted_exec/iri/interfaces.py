"""
Doors of the machine runtime interface.

The vocabulary is the protobuf messages of ``machine.v1alpha1`` (``iri.protos``):
a runtime in the same process and one behind gRPC are used alike.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import Interface

from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb


class IMachineRuntime(Interface):
    """
    Runs machines.

    Every Deferred fails with :class:`~twisted_exec.api.status.APIError`
    (``NotFound`` for an unknown machine id, ``TooManyRequests`` when full ...);
    the gRPC adapters translate to and from status codes.
    """

    def version(request: pb.VersionRequest) -> Deferred[pb.VersionResponse]:
        """Name and semantic version of the runtime."""

    def list_events(request: pb.ListEventsRequest) -> Deferred[pb.ListEventsResponse]:
        """What happened to machines since the requested time."""

    def list_machines(request: pb.ListMachinesRequest) -> Deferred[pb.ListMachinesResponse]:
        """All machines, or those the filter matches; an unknown id gives an empty list."""

    def create_machine(request: pb.CreateMachineRequest) -> Deferred[pb.CreateMachineResponse]:
        """Make a machine; fires when it is accepted, with id, annotations and status."""

    def delete_machine(request: pb.DeleteMachineRequest) -> Deferred[pb.DeleteMachineResponse]:
        """End it, its sessions and its storage; fires when it is gone."""

    def update_machine_annotations(
        request: pb.UpdateMachineAnnotationsRequest,
    ) -> Deferred[pb.UpdateMachineAnnotationsResponse]:
        """Replace all annotations."""

    def update_machine_power(
        request: pb.UpdateMachinePowerRequest,
    ) -> Deferred[pb.UpdateMachinePowerResponse]:
        """Power on or off; fires when the change is under way."""

    def attach_volume(request: pb.AttachVolumeRequest) -> Deferred[pb.AttachVolumeResponse]: ...

    def detach_volume(request: pb.DetachVolumeRequest) -> Deferred[pb.DetachVolumeResponse]: ...

    def update_volume(request: pb.UpdateVolumeRequest) -> Deferred[pb.UpdateVolumeResponse]: ...

    def attach_network_interface(
        request: pb.AttachNetworkInterfaceRequest,
    ) -> Deferred[pb.AttachNetworkInterfaceResponse]: ...

    def detach_network_interface(
        request: pb.DetachNetworkInterfaceRequest,
    ) -> Deferred[pb.DetachNetworkInterfaceResponse]: ...

    def status(request: pb.StatusRequest) -> Deferred[pb.StatusResponse]:
        """The classes that the runtime offers, and how many machines of each."""

    def exec(
        request: pb.ExecRequest, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[pb.ExecResponse]:
        """
        A URL under which the machine's console can be opened once, soon.

        :param user: for whom; the token is good for nobody else.
        :param machine_uid: of the API object, which must be the runtime's machine.
        :param session: the id under which every hop audits.
        """


class IMachineLogs(Interface):
    """
    Keeps what consoles printed.  A runtime may provide it besides :class:`IMachineRuntime`.
    """

    def log(
        request: console_pb2.LogRequest, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[console_pb2.LogResponse]:
        """
        A URL under which the log of the machine's console can be read once, soon.

        It fails as the methods of :class:`IMachineRuntime`.  The machine need not be on.

        :param user: as of :meth:`IMachineRuntime.exec`, and so are the others.
        """
