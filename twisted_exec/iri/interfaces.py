"""
Interfaces of machine runtimes, with protobuf messages (``iri.protos``).
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import Interface

from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb


class IMachineRuntime(Interface):
    """Runs machines. Deferreds fail with :class:`~twisted_exec.api.status.APIError`."""

    def version(request: pb.VersionRequest) -> Deferred[pb.VersionResponse]:
        """Name and semantic version of the runtime."""

    def list_events(request: pb.ListEventsRequest) -> Deferred[pb.ListEventsResponse]:
        """Events of machines since the requested time."""

    def list_machines(request: pb.ListMachinesRequest) -> Deferred[pb.ListMachinesResponse]:
        """All machines, or those the filter matches; an unknown id gives an empty list."""

    def create_machine(request: pb.CreateMachineRequest) -> Deferred[pb.CreateMachineResponse]:
        """Create a machine; fires when it is accepted."""

    def delete_machine(request: pb.DeleteMachineRequest) -> Deferred[pb.DeleteMachineResponse]:
        """Delete a machine with its sessions and its storage; fires when it is deleted."""

    def update_machine_annotations(
        request: pb.UpdateMachineAnnotationsRequest,
    ) -> Deferred[pb.UpdateMachineAnnotationsResponse]:
        """Replace all annotations."""

    def update_machine_power(
        request: pb.UpdateMachinePowerRequest,
    ) -> Deferred[pb.UpdateMachinePowerResponse]:
        """Power on or off; fires when the change has started."""

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
        """The machine classes of the runtime."""

    def exec(
        request: pb.ExecRequest, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[pb.ExecResponse]:
        """
        Return a URL that opens the machine's console once, within a short time.

        :param user: the only user who may use the token, unless empty.
        :param machine_uid: UID of the API object, which must match the runtime's machine, unless
            empty.
        :param session: the session's id in audit records of every hop.
        """


class IMachineLogs(Interface):
    """
    Logs of consoles.

    A runtime may provide it besides :class:`IMachineRuntime`; a client's methods fail with
    ``NotImplementedByBackend`` if the runtime does not.
    """

    def log(
        request: console_pb2.LogRequest, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[console_pb2.LogResponse]:
        """
        Return a URL that reads the log of the machine's console once, within a short time.

        The machine may be powered off.

        :param user: this and the other parameters as of :meth:`IMachineRuntime.exec`.
        """


class IConsoleAlerts(Interface):
    """Patterns that are searched in the output of machines; optional as :class:`IMachineLogs`."""

    def set_alerts(
        request: console_pb2.SetAlertsRequest,
    ) -> Deferred[console_pb2.SetAlertsResponse]:
        """
        Replace the patterns of one owner.

        Fails with ``BadRequest`` if the request is not valid or too large, and with
        ``TooManyRequests`` if there are too many owners.
        """

    def list_matches(
        request: console_pb2.ListMatchesRequest,
    ) -> Deferred[console_pb2.ListMatchesResponse]:
        """
        Return matches of the owner's patterns, or wait for the first one as long as the request
        says.

        A later call of the same owner ends the wait of the earlier one.
        """


class IConsoleRecordings(Interface):
    """Recordings of consoles; optional as :class:`IMachineLogs`."""

    def set_recordings(
        request: console_pb2.SetRecordingsRequest,
    ) -> Deferred[console_pb2.SetRecordingsResponse]:
        """
        Begin, change and end recordings of one owner; :meth:`list_recordings` reports the result.

        Fails with ``BadRequest`` if a recording or the owner's name is not valid, and with
        ``TooManyRequests`` if there are too many owners.
        """

    def list_recordings(
        request: console_pb2.ListRecordingsRequest,
    ) -> Deferred[console_pb2.ListRecordingsResponse]:
        """
        Return the recordings whose state the owner has not acknowledged, or wait for the first one
        as long as the request says.

        A later call of the same owner ends the wait of the earlier one.
        """

    def recording(
        request: console_pb2.RecordingRequest,
        *,
        user: str = "",
        machine_uid: str = "",
        session: str = "",
    ) -> Deferred[console_pb2.RecordingResponse]:
        """
        Return a URL that reads the content of a recording once, within a short time.

        Fails with ``NotFound`` if the runtime does not have the recording.

        :param user: this and the other parameters as of :meth:`IMachineRuntime.exec`.
        """
