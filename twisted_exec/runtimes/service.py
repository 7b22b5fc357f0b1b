"""
The machine runtime: machines of several classes on this host.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

import twisted_exec
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import (
    BadRequest,
    Conflict,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.console.acts import Act, ignore
from twisted_exec.console.shared_console_limits import DEFAULT_LIMITS, ConsoleLimits
from twisted_exec.iri.interfaces import (
    IConsoleAlerts,
    IConsoleRecordings,
    IMachineLogs,
    IMachineRuntime,
)
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import LOG, RECORDING, Grant, RequestCache, StreamLinks
from twisted_exec.journal.interfaces import IFollowedJournal, IReadableJournal
from twisted_exec.journal.store import JournalStore
from twisted_exec.recording.signer_files import SignerFiles
from twisted_exec.recording.stores.uploads import UploadMetrics, Uploads
from twisted_exec.runtimes.alerts.service import ConsoleAlerts
from twisted_exec.runtimes.config import RuntimeClass
from twisted_exec.runtimes.console_access import RuntimeConsoles
from twisted_exec.runtimes.hardware import Hardware
from twisted_exec.runtimes.interfaces import IKeepsState
from twisted_exec.runtimes.machine_records import MachineRecord
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.recordings.service import (
    ConsoleRecordings,
)
from twisted_exec.runtimes.settings import MachineSettings
from twisted_exec.runtimes.state import RuntimeState
from twisted_exec.runtimes.supervised_machines import SupervisedMachines, powered_off
from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending, IAttachment
from twisted_exec.streaming.sessions.guard import STOPPING
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.private_directories import private_directory

NAME = "twisted-exec"
MARK = "TWISTED_EXEC_MACHINE"
"""Environment variable that marks the processes of machines."""

_MAX_METADATA_BYTES = 256 << 10
_MAX_IGNITION_BYTES = 2 << 20

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")


def _as_deferred(method: Callable[_P, Deferred[_Answer]]) -> Callable[_P, Deferred[_Answer]]:

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Deferred[_Answer]:
        return maybeDeferred(method, *args, **kwargs)

    return call


@implementer(IMachineRuntime, IMachineLogs, IConsoleAlerts, IConsoleRecordings)
class MachineRuntime(Service):
    """
    Runs machines on this host.

    :param journal_opened: called with the facts and the journal of each new or retained machine.
    """

    _log = Logger()

    def __init__(
        self,
        classes: Sequence[RuntimeClass],
        table: ProcessTable,
        reactor: Any,
        settings: MachineSettings,
        *,
        state_directory: str,
        cache: RequestCache,
        links: StreamLinks,
        journal_opened: Callable[
            [Mapping[str, str], IFollowedJournal], None
        ] = lambda facts, journal: None,
        limits: ConsoleLimits = DEFAULT_LIMITS,
        now_nanoseconds: Callable[[], int] = time.time_ns,
        acted: Callable[[Act], None] = ignore,
    ) -> None:
        self._links = links
        self.upload_metrics = metrics = UploadMetrics()
        recording = settings.recording
        make_store = recording.make_store

        def make_uploads() -> Uploads | None:
            return make_store and Uploads(make_store(reactor), reactor, metrics)

        self.classes = list(classes)
        self._table, self._cache = table, cache
        self._now_nanoseconds = now_nanoseconds
        self._offered: dict[str, RuntimeClass] = {}
        self.journals = JournalStore(
            os.path.join(state_directory, "consoles"),
            reactor,
            limits=settings.journal_limits,
            now=now_nanoseconds,
        )
        self._state = RuntimeState(
            state_directory, reactor, keep=settings.keep_machines, journals=self.journals
        )
        self.machines = SupervisedMachines(
            self._offered,
            self._state,
            reactor,
            settings,
            mark=MARK,
            limits=limits,
            now_nanoseconds=now_nanoseconds,
            journal_opened=journal_opened,
            acted=acted,
            make_recordings=lambda path: ConsoleRecordings(
                path,
                self.journals,
                reactor,
                SignerFiles(
                    recording.certificate,
                    recording.key,
                    lambda why: self._log.warn("{why}", why=why),
                ),
                now_nanoseconds,
                limit_bytes=recording.limit_bytes,
                make_uploads=make_uploads,
            ),
        )
        self._machines, self._supervisors = self.machines.records, self.machines.supervisors
        self._deleting, self._save = self.machines.deleting, self.machines.save
        self._hardware = Hardware(self._offered, self._supervisors, self._save)
        self._consoles = RuntimeConsoles(
            self.machines,
            self.journals,
            cache,
            links,
        )

    @property
    def directory(self) -> str:
        """Private directory with a short path, for sockets; empty before :meth:`prepare`."""
        return self._state.directory

    @property
    def offered(self) -> tuple[str, ...]:
        """Names of the offered classes; none before :meth:`prepare`."""
        return tuple(self._offered)

    # Start and stop.

    async def prepare(self) -> None:
        """
        Check the classes, and end or adopt the machines of an earlier runtime; call this first.

        :raises FormerRelease: only release 0.1.0 has used the state directory.
        :raises StateInUse: another runtime uses the state directory.
        :raises StateNotLockable: the file system of the state directory refuses locks.
        :raises RetainedMachinesError: there are machines with disks, and this runtime is without
            ``keep_machines``.
        :raises FormatError: a later release wrote the journals.
        :raises DirectoryError: the state directory cannot be used.
        """
        self._state.open()
        self._offer()
        await self.machines.prepare(self._table)

    def _offer(self) -> None:
        for each in self.classes:
            missing = each.driver.missing()
            if missing:
                self._log.warn(
                    "machine class {name} is not offered: {missing}",
                    name=each.name,
                    missing=missing,
                )
            else:
                self._offered[each.name] = each
                self._give_directory(each.driver)
        self._machines.quantities = {
            each.name: each.quantity + each.spare for each in self._offered.values()
        }

    def _give_directory(self, driver: Any) -> None:
        path = os.path.join(self._state.path, "drivers", driver.name)
        if IKeepsState.providedBy(driver):
            driver.use_directory(private_directory(path))

    def stopService(self) -> Deferred[None]:
        """End the sessions, and the machines that do not outlive the runtime."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self.machines.stop(Ending(SHUTTING_DOWN, STOPPING))
        await self._state.close()

    # Called by the stream server.

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        """
        Create a viewer for a token.

        :raises NotFound: the machine does not exist, or is being deleted.
        :raises Conflict: the machine is off, or cannot start.
        """
        return self._consoles.attach(grant)

    def read_log(self, grant: Grant) -> tuple[Subject, IReadableJournal]:
        """
        Find the journal for a token of a log.

        :raises NotFound: there is no such machine or journal, or the machine is being deleted.
        """
        return self._consoles.read_log(grant)

    # IMachineRuntime.

    def version(self, request: pb.VersionRequest) -> Deferred[pb.VersionResponse]:
        return succeed(
            pb.VersionResponse(runtime_name=NAME, runtime_version=twisted_exec.__version__)
        )

    def status(self, request: pb.StatusRequest) -> Deferred[pb.StatusResponse]:
        classes = [
            pb.MachineClassStatus(
                machine_class=pb.MachineClass(
                    name=each.name,
                    capabilities=pb.MachineClassCapabilities(resources=dict(each.resources)),
                ),
                quantity=each.quantity,
                only_by_name=each.only_by_name,
            )
            for each in self._offered.values()
        ]
        return succeed(pb.StatusResponse(machine_class_status=classes))

    def list_events(self, request: pb.ListEventsRequest) -> Deferred[pb.ListEventsResponse]:
        events = self._machines.find_events(request.filter)
        return succeed(pb.ListEventsResponse(events=events))

    def list_machines(self, request: pb.ListMachinesRequest) -> Deferred[pb.ListMachinesResponse]:
        machines = [
            self.machines.observed(record) for record in self._machines.find(request.filter)
        ]
        return succeed(pb.ListMachinesResponse(machines=machines))

    @_as_deferred
    def create_machine(
        self, request: pb.CreateMachineRequest
    ) -> Deferred[pb.CreateMachineResponse]:
        machine = request.machine
        _check(machine)
        self._hardware.check(machine)
        record, is_new = self._machines.create(machine, self._now_nanoseconds())
        if is_new:
            self.machines.add(record)
        return succeed(pb.CreateMachineResponse(machine=record.to_machine()))

    @_as_deferred
    def delete_machine(
        self, request: pb.DeleteMachineRequest
    ) -> Deferred[pb.DeleteMachineResponse]:
        record = self._machines.get(request.machine_id)
        if record.id not in self._deleting:
            self._cache.forget_machine(record.id)
        return self.machines.delete(record).addCallback(lambda _: pb.DeleteMachineResponse())

    @_as_deferred
    def update_machine_annotations(
        self, request: pb.UpdateMachineAnnotationsRequest
    ) -> Deferred[pb.UpdateMachineAnnotationsResponse]:
        record = self._machines.get(request.machine_id)
        _check_size(request.annotations)
        record.metadata.annotations.clear()
        record.metadata.annotations.update(request.annotations)
        self._save(record)
        return succeed(pb.UpdateMachineAnnotationsResponse())

    @_as_deferred
    def update_machine_power(
        self, request: pb.UpdateMachinePowerRequest
    ) -> Deferred[pb.UpdateMachinePowerResponse]:
        record = self._changeable(request)
        if self._machines.set_power(record, request.power):
            self.machines.switches[record.id] += 1
            self._save(record)
        supervisor = self._supervisors[record.id]
        if request.power == pb.POWER_ON:
            supervisor.power_on()
        else:
            ending = powered_off(record, is_switched=supervisor.switches_power)
            supervisor.power_off(ending, gently=True)
        return succeed(pb.UpdateMachinePowerResponse())

    @_as_deferred
    def attach_volume(self, request: pb.AttachVolumeRequest) -> Deferred[pb.AttachVolumeResponse]:
        done = self._hardware.attach_volume(self._changeable(request), request.volume)
        return done.addCallback(lambda _: pb.AttachVolumeResponse())

    @_as_deferred
    def detach_volume(self, request: pb.DetachVolumeRequest) -> Deferred[pb.DetachVolumeResponse]:
        done = self._hardware.detach_volume(self._changeable(request), request.name)
        return done.addCallback(lambda _: pb.DetachVolumeResponse())

    @_as_deferred
    def update_volume(self, request: pb.UpdateVolumeRequest) -> Deferred[pb.UpdateVolumeResponse]:
        done = self._hardware.update_volume(self._changeable(request), request.volume)
        return done.addCallback(lambda _: pb.UpdateVolumeResponse())

    @_as_deferred
    def attach_network_interface(
        self, request: pb.AttachNetworkInterfaceRequest
    ) -> Deferred[pb.AttachNetworkInterfaceResponse]:
        self._hardware.attach_interface(self._changeable(request), request.network_interface)
        return succeed(pb.AttachNetworkInterfaceResponse())

    @_as_deferred
    def detach_network_interface(
        self, request: pb.DetachNetworkInterfaceRequest
    ) -> Deferred[pb.DetachNetworkInterfaceResponse]:
        self._hardware.detach_interface(self._changeable(request), request.name)
        return succeed(pb.DetachNetworkInterfaceResponse())

    @_as_deferred
    def exec(
        self, request: pb.ExecRequest, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[pb.ExecResponse]:
        grant = Grant(request.machine_id, machine_uid, user, session)
        return succeed(pb.ExecResponse(url=self._consoles.url_of_console(grant)))

    @_as_deferred
    def log(
        self,
        request: console_pb2.LogRequest,
        *,
        user: str = "",
        machine_uid: str = "",
        session: str = "",
    ) -> Deferred[console_pb2.LogResponse]:
        grant = Grant(request.machine_id, machine_uid, user, session, LOG)
        return succeed(console_pb2.LogResponse(url=self._consoles.url_of_log(grant)))

    # IConsoleAlerts.

    @_as_deferred
    def set_alerts(
        self, request: console_pb2.SetAlertsRequest
    ) -> Deferred[console_pb2.SetAlertsResponse]:
        return self._prepared_alerts().set_alerts(request)

    @_as_deferred
    def list_matches(
        self, request: console_pb2.ListMatchesRequest
    ) -> Deferred[console_pb2.ListMatchesResponse]:
        return self._prepared_alerts().list_matches(request)

    def _prepared_alerts(self) -> ConsoleAlerts:
        if self.machines.alerts is None:
            starting = ServiceUnavailable("the machine runtime is starting")
            raise because(Obstacle.RUNTIME_FAILED, starting)
        return self.machines.alerts

    # IConsoleRecordings.

    @_as_deferred
    def set_recordings(
        self, request: console_pb2.SetRecordingsRequest
    ) -> Deferred[console_pb2.SetRecordingsResponse]:
        return self.recordings.set_recordings(request)

    @_as_deferred
    def list_recordings(
        self, request: console_pb2.ListRecordingsRequest
    ) -> Deferred[console_pb2.ListRecordingsResponse]:
        return self.recordings.list_recordings(request)

    @_as_deferred
    def recording(
        self,
        request: console_pb2.RecordingRequest,
        *,
        user: str = "",
        machine_uid: str = "",
        session: str = "",
    ) -> Deferred[console_pb2.RecordingResponse]:
        facts = self.recordings.facts(request.uid)
        if machine_uid and machine_uid != facts.key:
            raise NotFound("consolerecordings", request.uid)
        grant = Grant(request.uid, machine_uid, user, session, RECORDING)
        url = self._links.recording_url(self._cache.insert(grant))
        return succeed(console_pb2.RecordingResponse(url=url))

    @property
    def recordings(self) -> ConsoleRecordings:
        """:raises ServiceUnavailable: the runtime is starting."""
        if self.machines.recordings is None:
            starting = ServiceUnavailable("the machine runtime is starting")
            raise because(Obstacle.RUNTIME_FAILED, starting)
        return self.machines.recordings

    # Machines.

    def _changeable(self, request: Any) -> MachineRecord:
        record = self._machines.get(request.machine_id)
        if record.id in self._deleting:
            raise Conflict(f'machine "{record.label}" is being deleted')
        return record


def _check(machine: pb.Machine) -> None:
    _check_size(machine.metadata.annotations)
    _check_size(machine.metadata.labels)
    if len(machine.spec.ignition_data) > _MAX_IGNITION_BYTES:
        raise BadRequest(f"ignition data has at most {_MAX_IGNITION_BYTES} bytes")


def _check_size(texts: Mapping[str, str]) -> None:
    if sum(len(key) + len(value) for key, value in texts.items()) > _MAX_METADATA_BYTES:
        raise BadRequest(f"labels and annotations have at most {_MAX_METADATA_BYTES} characters")
