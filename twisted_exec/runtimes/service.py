"""
The machine runtime: machines of several classes on this host.

It connects the records (:mod:`.machines`) with the supervisors of the machines
(:mod:`.supervisor`).  By default machines end with the runtime.  After a crash the next runtime
first ends the processes of the last one, and the poollet creates the machines again.  With
``--keep-machines``, machines of drivers with ``IAdoptsMachines`` outlive the runtime: the next one
reads them from disk (:mod:`.storage`) and adopts them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred, succeed
from twisted.logger import Logger, LogLevel
from zope.interface import implementer

import twisted_exec
from twisted_exec.api.conditions import CONSOLE_IN_USE, console_in_use
from twisted_exec.api.status import (
    BadRequest,
    Conflict,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.console.acts import INPUT_DENIED, TAKEOVER, TAKEOVER_DENIED, Act, ignore
from twisted_exec.console.shared_console import DEFAULT_LIMITS, Limits, SharedConsole
from twisted_exec.iri.interfaces import IConsoleAlerts, IMachineLogs, IMachineRuntime
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import LOG, Grant, RequestCache
from twisted_exec.journal.interfaces import IJournal
from twisted_exec.journal.retention import DEFAULT_LIMITS as DEFAULT_LIMITS_OF_JOURNALS
from twisted_exec.journal.retention import DEFAULT_RETENTION, Retention, StoreLimits
from twisted_exec.journal.store import JournalStore
from twisted_exec.runtimes.alerts.service import CONSOLE_HEALTHY, ConsoleAlerts
from twisted_exec.runtimes.supervisor import Supervisor
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POWERED_OFF,
    SHUTTING_DOWN,
    Ending,
    IAttachment,
    Role,
    Subject,
)

from .hardware import Hardware
from .interfaces import IAdoptsMachines, IHardware, IMachineDriver, MachineFacts
from .machines import Inherited, Machines, Record
from .processes import Leader, ProcessTable
from .state import RuntimeState

NAME = "twisted-exec"
MARK = "TWISTED_EXEC_MACHINE"
"""Environment variable that marks every process of a machine."""

_EVENTS_OF_ACTS = {
    TAKEOVER: ("Normal", "ConsoleTakenOver"),
    TAKEOVER_DENIED: ("Warning", "ConsoleTakeoverDenied"),
    INPUT_DENIED: ("Warning", "ConsoleInputDenied"),
}

_MAX_METADATA_BYTES = 256 << 10
_MAX_IGNITION_BYTES = 2 << 20

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class RuntimeClass:
    """
    One machine class of this host.

    :param resources: capabilities: ``memory`` in bytes, ``cpu`` in whole units, others in units of
        their own.
    :param quantity: maximal number of machines.
    :param spare: number of machines beyond ``quantity`` that can be created as well.  A machine
        with a wrong name has no line, and must not keep out the machine that the line is for.
    :param retention: how long output is retained; by default that of the runtime.
    """

    name: str
    driver: IMachineDriver
    resources: Mapping[str, int] = field(default_factory=dict)
    quantity: int = 100
    spare: int = 0
    retention: Retention | None = None


def _as_deferred(method: Callable[_P, Deferred[_Answer]]) -> Callable[_P, Deferred[_Answer]]:
    """Turn exceptions of a method into failures of its Deferred, for callers in this process."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Deferred[_Answer]:
        return maybeDeferred(method, *args, **kwargs)

    return call


@implementer(IMachineRuntime, IMachineLogs, IConsoleAlerts)
class MachineRuntime(Service):
    """
    Runs machines on this host.

    :param classes: configured classes; at the start those are offered whose drivers miss nothing.
    :param table: the table of the drivers, with marks under :data:`MARK`.
    :param state_directory: private; created if missing, and locked.
    :param cache: stores the tokens of ``exec`` and ``log``.
    :param exec_url: returns the URL of a console for a token; empty if there are no consoles.
    :param log_url: returns the URL of a log for a token.
    :param keep_machines: let machines outlive the runtime if their driver supports it.
    :param journal_opened: called with the facts of each machine (:meth:`Record.facts`) and its
        journal, when the machine is created or adopted.
    :param retention: how long the output of classes without limits of their own is retained.
    :param journal_limits: limits of all journals.
    :param acted: called with the acts of users at consoles, for audit.
    :param is_awaited: returns whether a session at a machine waits for its user; called with the
        user's name, and the machine's UID or its id here.
    :ivar journals: the output of the machines' consoles, on disk.
    """

    _log = Logger()

    def __init__(
        self,
        classes: Sequence[RuntimeClass],
        table: ProcessTable,
        reactor: Any,
        *,
        state_directory: str,
        cache: RequestCache,
        exec_url: Callable[[str], str],
        log_url: Callable[[str], str] = lambda token: "",
        keep_machines: bool = False,
        journal_opened: Callable[[Mapping[str, str], IJournal], None] = lambda facts, journal: None,
        retention: Retention = DEFAULT_RETENTION,
        journal_limits: StoreLimits = DEFAULT_LIMITS_OF_JOURNALS,
        limits: Limits = DEFAULT_LIMITS,
        now_nanoseconds: Callable[[], int] = time.time_ns,
        acted: Callable[[Act], None] = ignore,
        is_awaited: Callable[[str, str], bool] = lambda user, uid: False,
    ) -> None:
        self._report_act = acted
        self._is_awaited = is_awaited
        self.classes = list(classes)
        self._table = table
        self._reactor = reactor
        self._cache = cache
        self._exec_url, self._log_url = exec_url, log_url
        self._journal_opened = journal_opened
        self._limits = limits
        self._now_nanoseconds = now_nanoseconds
        self._offered: dict[str, RuntimeClass] = {}
        self._machines = Machines({})
        self._supervisors: dict[str, Supervisor] = {}
        self._hardware = Hardware(self._offered, self._supervisors, self._save)
        self._deleting: dict[str, list[Deferred[None]]] = {}
        self._retention = retention
        self.journals = JournalStore(
            os.path.join(state_directory, "consoles"),
            reactor,
            limits=journal_limits,
            now=now_nanoseconds,
        )
        self.journals.failed = self._journal_failed
        self.journals.recovered = self._journal_recovered
        self._state = RuntimeState(
            state_directory, reactor, keep=keep_machines, journals=self.journals
        )
        self._storage = self._state.storage
        self._alerts: ConsoleAlerts | None = None

    @property
    def directory(self) -> str:
        """Private directory with a short path, for sockets; empty before :meth:`prepare`."""
        return self._state.directory

    @property
    def offered(self) -> tuple[str, ...]:
        """Names of the offered classes; none before :meth:`prepare`."""
        return tuple(self._offered)

    # Start and stop.

    async def prepare(self, inherited: Sequence[Inherited] | None = None) -> None:
        """
        Check the classes, and end or adopt the machines of an earlier runtime; call this first.

        :param inherited: the machines of a runtime that this one continues.
        :raises ValueError: one of them is of a class that is not offered.
        :raises StateInUse: another runtime uses the state directory.
        :raises RetainedMachinesError: there are machines of a runtime with ``keep_machines``, and
            this one is without.
        :raises FormatError: a later release wrote the journals.
        :raises TLSConfigError: a directory is not private or cannot be created.
        """
        self._state.open()
        self._make_alerts()
        self._offer()
        retained = self._retained_machines() if inherited is None else self._continued(inherited)
        self.journals.open()
        leaders = await self._state.read_leaders()
        machines = [each.machine for each in retained]
        ids = {each.metadata.id for each in machines if each.spec.power == pb.POWER_ON}
        await self._state.end_leftovers(self._table, leaders, ids)
        for each in retained:
            record = self._machines.add(each.machine)
            adopted = self._state.adoptable(record.id, leaders) if record.id in ids else None
            self._supervise(record, adopted, each.unsent)

    def _make_alerts(self) -> None:
        path = os.path.join(self._state.path, "alerts.json")
        self._alerts = ConsoleAlerts(path, self._reactor, self._now_nanoseconds)

    def _retained_machines(self) -> Sequence[Inherited]:
        stored = self._storage.open(has_no_disks=self._has_no_disks)
        return [Inherited(each) for each in stored if self._can_adopt(each)]

    def _has_no_disks(self, machine: pb.Machine) -> bool:
        machine_class = self._offered.get(getattr(machine.spec, "class"))
        return machine_class is not None and not IHardware.providedBy(machine_class.driver)

    def _continued(self, inherited: Sequence[Inherited]) -> Sequence[Inherited]:
        for each in inherited:
            name = getattr(each.machine.spec, "class")
            if name not in self._offered:
                raise ValueError(
                    f"there is a machine of class {name!r}, which this runtime does not offer: "
                    "configure the class, or delete its machines first"
                )
        self._storage.open([each.machine.metadata.id for each in inherited])
        return inherited

    def _can_adopt(self, machine: pb.Machine) -> bool:
        name = getattr(machine.spec, "class")
        machine_class = self._offered.get(name)
        if machine_class is None or not IAdoptsMachines.providedBy(machine_class.driver):
            self._log.error(
                "machine {id} of an earlier runtime is of class {name}, which is not offered; it stays on disk",
                id=machine.metadata.id,
                name=name,
            )
            return False
        return True

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
        self._machines.quantities = {
            each.name: each.quantity + each.spare for each in self._offered.values()
        }

    def stopService(self) -> Deferred[None]:
        """End every session with the reason, and every machine that cannot outlive the runtime."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._alerts is not None:
            self._alerts.stop()
        ending = Ending(SHUTTING_DOWN, "the machine runtime is shutting down")
        continuing = [
            record
            for record in self._machines
            if self._can_keep(record) and self._supervisors[record.id].run is not None
        ]
        if continuing:
            self._log.info(
                "machines that continue without this runtime: {labels}",
                labels=", ".join(sorted(record.label for record in continuing)[:10]),
            )
        await gatherResults([self._stop_or_release(record, ending) for record in self._machines])
        await self._state.close()

    def _stop_or_release(self, record: Record, ending: Ending) -> Deferred[None]:
        supervisor = self._supervisors[record.id]
        if supervisor.is_suspended:
            return succeed(None)  # another process has the machine
        if not self._can_keep(record):
            return supervisor.power_off(ending).addCallback(lambda _: self._forget(record))
        return supervisor.release(ending).addCallback(lambda _: self._machines.remove(record.id))

    def _can_keep(self, record: Record) -> bool:
        driver = self._offered[record.class_name].driver
        return self._storage.keep and IAdoptsMachines.providedBy(driver)

    # Called by the stream server.

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        """
        Create a viewer for a token.

        :return: the names of the machine, and the viewer.
        :raises NotFound: the machine was deleted, or is another one of the same name.
        :raises Conflict: the machine is off, or cannot start.
        """
        record = self._machines.get(grant.machine_id)
        console = self._console(record, grant.machine_uid)
        return record.subject(), console.viewer()

    def read_log(self, grant: Grant) -> tuple[Subject, IJournal]:
        """
        Find the journal for a token of a log.

        :return: the names of the machine, and its journal.
        :raises NotFound: the machine was deleted, or is another one of the same name; without a
            machine's id: nothing is retained of the machine with that UID.
        """
        if not grant.machine_id:
            return self._retained(grant.machine_uid)
        record = self._machines.get(grant.machine_id)
        return record.subject(), self._supervisor(record, grant.machine_uid).journal

    def _retained(self, uid: str) -> tuple[Subject, IJournal]:
        """Find the journal of a machine that may be deleted."""
        record = self._machines.of_uid(uid)
        if record is not None:
            return record.subject(), self._supervisors[record.id].journal
        journal = self.journals.of_deleted(uid)
        if journal is None:
            message = f"the runtime retains no output of a machine with the UID {uid!r}"
            raise NotFound("machines", uid, message=message)
        return Subject(session="", machine=uid, uid=uid), journal

    def _console(self, record: Record, machine_uid: str) -> SharedConsole:
        supervisor = self._supervisor(record, machine_uid)
        if supervisor.is_off or supervisor.console is None:
            raise Conflict(f'machine "{record.label}" is powered off')
        if supervisor.start_problem:
            # The next attempt may be half a minute away, and a user would see nothing until then.
            raise Conflict(f'machine "{record.label}" cannot start: {supervisor.start_problem}')
        return supervisor.console

    def _supervisor(self, record: Record, machine_uid: str) -> Supervisor:
        if machine_uid and record.uid and machine_uid != record.uid:
            raise NotFound("machines", record.id)
        if record.state == pb.MACHINE_TERMINATING:
            raise NotFound(
                "machines", record.id, message=f'machine "{record.label}" is being deleted'
            )
        return self._supervisors[record.id]

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
            )
            for each in self._offered.values()
        ]
        return succeed(pb.StatusResponse(machine_class_status=classes))

    def list_events(self, request: pb.ListEventsRequest) -> Deferred[pb.ListEventsResponse]:
        events = self._machines.find_events(request.filter)
        return succeed(pb.ListEventsResponse(events=events))

    def list_machines(self, request: pb.ListMachinesRequest) -> Deferred[pb.ListMachinesResponse]:
        machines = [self._observed(record) for record in self._machines.find(request.filter)]
        return succeed(pb.ListMachinesResponse(machines=machines))

    def _observed(self, record: Record) -> pb.Machine:
        """Return the machine with the conditions of its console: its writers, and alerts."""
        machine = record.to_machine()
        supervisor = self._supervisors.get(record.id)
        console = None if supervisor is None else supervisor.console
        if console is not None and console.viewers:
            writing = [each.session for each in console.viewers if each.role is Role.WRITER]
            status, reason, message = console_in_use(writing)
            machine.status.machine_conditions.add(
                type=CONSOLE_IN_USE, status=status, reason=reason, message=message
            )
        health = None if self._alerts is None else self._alerts.condition(record.uid)
        if health is not None:
            status, reason, message = health
            machine.status.machine_conditions.add(
                type=CONSOLE_HEALTHY, status=status, reason=reason, message=message
            )
        return machine

    @_as_deferred
    def create_machine(
        self, request: pb.CreateMachineRequest
    ) -> Deferred[pb.CreateMachineResponse]:
        machine = request.machine
        _check(machine)
        self._hardware.check(machine)
        record, is_new = self._machines.create(machine, self._now_nanoseconds())
        if is_new:
            self._add(record)
        return succeed(pb.CreateMachineResponse(machine=record.to_machine()))

    @_as_deferred
    def delete_machine(
        self, request: pb.DeleteMachineRequest
    ) -> Deferred[pb.DeleteMachineResponse]:
        record = self._machines.get(request.machine_id)
        done: Deferred[None] = Deferred()
        waiting = self._deleting.setdefault(record.id, [])
        waiting.append(done)
        if len(waiting) == 1:
            self._delete(record)
        return done.addCallback(lambda _: pb.DeleteMachineResponse())

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
            self._save(record)
        supervisor = self._supervisors[record.id]
        if request.power == pb.POWER_ON:
            supervisor.power_on()
        else:
            ending = Ending(POWERED_OFF, f'machine "{record.label}" was powered off')
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
        # A session that waits, for its user or for the machine, has its console already.
        if not self._is_awaited(user, machine_uid or grant.machine_id):
            record = self._machines.get(grant.machine_id)
            waiting = self._supervisor(record, machine_uid).console
            if waiting is None or all(each.user != user for each in waiting.viewers):
                self._console(record, machine_uid)
        return succeed(pb.ExecResponse(url=self._exec_url(self._cache.insert(grant))))

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
        self.read_log(grant)  # refuses what cannot be read
        return succeed(console_pb2.LogResponse(url=self._log_url(self._cache.insert(grant))))

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
        if self._alerts is None:
            raise ServiceUnavailable("the machine runtime is starting")
        return self._alerts

    # One machine.

    def open_journals(self) -> list[tuple[Mapping[str, str], IJournal]]:
        """Return the facts of each machine and its journal, as ``journal_opened`` got them."""
        return [(record.facts(), self._supervisors[record.id].journal) for record in self._machines]

    def _changeable(self, request: Any) -> Record:
        """
        Return the record that a request changes.

        :raises NotFound: there is no machine with this id.
        :raises Conflict: the machine is being deleted.
        """
        record = self._machines.get(request.machine_id)
        if record.id in self._deleting:
            raise Conflict(f'machine "{record.label}" is being deleted')
        return record

    def _add(self, record: Record) -> None:
        """:raises ServiceUnavailable: the machine cannot be written to disk."""
        if not IHardware.providedBy(self._offered[record.class_name].driver):
            # No such driver reads it; a secret that is not stored cannot leak.
            record.ignition_data = b""
        try:
            self._save(record)
            self._supervise(record)
        except ServiceUnavailable:
            self._storage.remove(record.id)
            self._machines.remove(record.id)
            raise

    def _save(self, record: Record) -> None:
        """
        Write a machine that can outlive the runtime to disk.

        :raises ServiceUnavailable: the disk is full.
        """
        exists = self._machines.find(pb.MachineFilter(id=record.id))  # not deleted meanwhile
        if exists and self._can_keep(record):
            self._storage.write(record)

    def _supervise(
        self, record: Record, adopted: Sequence[Leader] | None = None, unsent: bytes = b""
    ) -> None:
        directory = self._state.make_sockets(record.id)
        runtime_class = self._offered[record.class_name]
        self.journals.revive(record.journal_key)
        journal = self.journals.journal(
            record.journal_key, runtime_class.retention or self._retention
        )
        facts = MachineFacts(
            id=record.id,
            label=record.label,
            hostname=record.spec.guest_config.hostname,
            directory=directory,
            marker=(MARK, f"{self._state.id}/{record.id}"),
            started=lambda leader: self._state.record_leaders(record.id, [leader]),
            event=lambda *event: self._event(record, *event),
            changed=lambda *change: self._supervisors[record.id].noticed(*change),
            booted=lambda: self._supervisors[record.id].journal.booted("PoweredOn"),
            is_on=lambda: record.id in self._supervisors and self._supervisors[record.id].is_on,
            namespace=record.namespace,
            name=record.name,
            uid=record.uid,
            storage=self._storage.directory(record.id),
            keep=self._can_keep(record),
            journal=journal,
            keeper=self._state.keeper,
            volumes=record.spec.volumes,
            network_interfaces=record.spec.network_interfaces,
            ignition_data=record.ignition_data,
        )
        supervisor = Supervisor(
            runtime_class.driver,
            facts,
            self._reactor,
            lambda *change: self._state_changed(record, *change),
            limits=self._limits,
            journal=journal,
            adopted=adopted,
            unsent=unsent,
            acted=lambda act: self._acted(record, act),
        )
        self._supervisors[record.id] = supervisor
        self._journal_opened(record.facts(), journal)
        if self._alerts is not None:
            self._alerts.add(record.uid, supervisor.journal)
        if record.spec.power == pb.POWER_ON:
            supervisor.power_on()
        else:
            record.set_state(pb.MACHINE_STOPPED)

    def _delete(self, record: Record) -> None:
        self._cache.forget_machine(record.id)
        supervisor = self._supervisors[record.id]
        stopping = supervisor.power_off(
            Ending(MACHINE_DELETED, f'machine "{record.label}" was deleted')
        )
        # Readers of the log end now; later output of the dying processes is dropped.
        self.journals.deleted(record.journal_key, record.facts())
        record.set_state(pb.MACHINE_TERMINATING)

        def deleted(_: object) -> None:
            self._event(record, "Normal", "Deleted", f'machine "{record.label}" is deleted')
            self._forget(record)
            for waiter in self._deleting.pop(record.id):
                waiter.callback(None)

        stopping.addCallback(deleted)

    def _forget(self, record: Record) -> None:
        if self._alerts is not None:
            self._alerts.remove(record.uid)
        self._state.remove_sockets(record.id)
        self._storage.remove(record.id)
        self._machines.remove(record.id)
        self._supervisors.pop(record.id, None)

    def _state_changed(self, record: Record, state: int, reason: str, message: str) -> None:
        if record.id not in self._deleting:
            record.set_state(state, reason, message, self._now_nanoseconds())
        if state == pb.MACHINE_STOPPED:
            try:
                self._state.record_leaders(record.id, [])
            except ServiceUnavailable as problem:
                # A stale record names ended processes, which the next start ignores.
                self._log.warn("{label}: {why}", label=record.label, why=problem.message)

    def _journal_failed(self, key: str, reason: str) -> None:
        record = self._machines.of_journal(key)
        if record is not None:
            message = f"console output is in memory only, not on disk: {reason}"
            self._event(record, "Warning", "JournalFull", message)

    def _journal_recovered(self, key: str, lost_bytes: int) -> None:
        record = self._machines.of_journal(key)
        if record is not None:
            message = f"console output is on disk again; {lost_bytes} bytes were lost"
            self._event(record, "Normal", "JournalRecovered", message)

    def _acted(self, record: Record, act: Act) -> None:
        type, reason = _EVENTS_OF_ACTS[act.kind]
        self._event(record, type, reason, act.message)
        self._report_act(act)

    def _event(self, record: Record, type: str, reason: str, message: str) -> None:
        level = LogLevel.warn if type == "Warning" else LogLevel.info
        self._log.emit(level, "{label}: {message}", label=record.label, message=message)
        self._machines.add_event(record, type, reason, message, self._now_nanoseconds())


def _check(machine: pb.Machine) -> None:
    """:raises BadRequest: metadata or ignition data are too large."""
    _check_size(machine.metadata.annotations)
    _check_size(machine.metadata.labels)
    if len(machine.spec.ignition_data) > _MAX_IGNITION_BYTES:
        raise BadRequest(f"ignition data has at most {_MAX_IGNITION_BYTES} bytes")


def _check_size(texts: Mapping[str, str]) -> None:
    if sum(len(key) + len(value) for key, value in texts.items()) > _MAX_METADATA_BYTES:
        raise BadRequest(f"labels and annotations have at most {_MAX_METADATA_BYTES} characters")
