"""
The machine runtime: machines of several classes on this host.

It joins the records (:mod:`.machines`) to what keeps each machine as it is wanted
(:mod:`.keeper`).  Machines live as long as the runtime.  A runtime that was killed leaves processes
behind; the next one ends them before it does anything else, and the poollet asks for the machines again.
Where machines are to be kept it is otherwise, for drivers that can: they go on, whatever
becomes of the runtime, and the next one adopts them (:mod:`.storage` says what they are).
"""

from __future__ import annotations

import contextlib
import os
import shutil
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
from twisted_exec.api.status import (
    BadRequest,
    Conflict,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.console.journal import Journal
from twisted_exec.console.session import DEFAULT_LIMITS, Limits, Session
from twisted_exec.iri.interfaces import IMachineLogs, IMachineRuntime
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import LOG, Grant, RequestCache
from twisted_exec.runtimes.storage import ID, identity, lock
from twisted_exec.runtimes.supervisor import Keeper
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POWERED_OFF,
    SHUTTING_DOWN,
    Ending,
    IAttachment,
    Subject,
)
from twisted_exec.tls.unix import private_directory, runtime_directory

from .hardware import Hardware
from .interfaces import IHardware, IKeeping, IMachineDriver, MachineFacts
from .machines import Machines, Record
from .processes import Leader, ProcessFamily, ProcessTable, RunRecords, read_process
from .storage import MachineStorage

NAME = "twisted-exec"
MARK = "TWISTED_EXEC_MACHINE"
"""The variable in the environment of every process of a machine."""

_MAX_METADATA_BYTES = 256 << 10
_MAX_IGNITION_BYTES = 2 << 20

_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class RuntimeClass:
    """
    One machine class that this host offers.

    :param resources: capabilities as the interface tells them: ``memory`` in
        bytes, ``cpu`` in whole units, others in theirs.
    :param quantity: how many machines of the class may exist.
    """

    name: str
    driver: IMachineDriver
    resources: Mapping[str, int] = field(default_factory=dict)
    quantity: int = 100


def _answered(method: Callable[_P, Deferred[_Answer]]) -> Callable[_P, Deferred[_Answer]]:
    """What the method raises is what its Deferred fails with, for callers in this process too."""

    @wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Deferred[_Answer]:
        return maybeDeferred(method, *args, **kwargs)

    return call


@implementer(IMachineRuntime, IMachineLogs)
class MachineRuntime(Service):
    """
    Runs machines on this host.

    :param classes: those that can be offered; which are is found out at the start.
    :param table: the drivers' own; marks are under :data:`MARK`.
    :param state_directory: private, made when it is missing; whoever starts
        the runtime sees to it that only one uses it.
    :param cache: where Exec puts its tokens.
    :param exec_url: the URL for a token; an empty one when there is no console.
    :param log_url: likewise, of the console's log.
    :param keep_machines: whether machines whose driver can do it outlive the runtime.
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
        limits: Limits = DEFAULT_LIMITS,
        now_nanoseconds: Callable[[], int] = time.time_ns,
    ) -> None:
        self.classes = list(classes)
        self.directory = ""
        """Private, with a short path: for sockets.  Empty before the start."""
        self._table = table
        self._reactor = reactor
        self._state_directory = state_directory
        self._cache = cache
        self._exec_url, self._log_url = exec_url, log_url
        self._limits = limits
        self._now_nanoseconds = now_nanoseconds
        self._offered: dict[str, RuntimeClass] = {}
        self._machines = Machines({})
        self._keepers: dict[str, Keeper] = {}
        self._hardware = Hardware(self._offered, self._keepers, self._note)
        self._deleting: dict[str, list[Deferred[None]]] = {}
        self._records: RunRecords | None = None
        self._storage = MachineStorage(
            os.path.join(state_directory, "machines"), keep=keep_machines
        )
        self._id = ""
        self._lock: int | None = None

    @property
    def offered(self) -> tuple[str, ...]:
        """Names of the classes that can be offered; none before :meth:`prepare`."""
        return tuple(self._offered)

    # Life.

    async def prepare(self) -> None:
        """
        Find out what can be offered, and end what an earlier runtime left; before anything else.

        :raises StateInUse: another runtime has the state directory.
        :raises RetainedMachinesError: machines are to be kept, and this runtime keeps none.
        :raises TLSConfigError: a directory cannot be used.
        """
        private_directory(self._state_directory)
        self._lock = lock(os.path.join(self._state_directory, "runtime.lock"))
        self.directory = runtime_directory(self._state_directory)
        self._id = identity(os.path.join(self._state_directory, "runtime-id"))
        self._records = RunRecords(os.path.join(self._state_directory, "runs"))
        self._offer()
        kept = [machine for machine in self._storage.open() if self._is_kept(machine)]
        leaders = self._records.open()
        await self._end_leftovers(leaders, {machine.metadata.id for machine in kept})
        for machine in kept:
            record = self._machines.add(machine)
            alive = [one for one in leaders.get(record.id, ()) if _is_alive(one)]
            self._keep(record, alive)

    def _is_kept(self, machine: pb.Machine) -> bool:
        name = getattr(machine.spec, "class")
        found = self._offered.get(name)
        if found is None or not IKeeping.providedBy(found.driver):
            self._log.error(
                "kept machine {id} is of class {name}, which is not offered: it waits on the disk",
                id=machine.metadata.id,
                name=name,
            )
            return False
        return True

    async def _end_leftovers(self, leaders: Mapping[str, list[Leader]], kept: set[str]) -> None:
        assert self._records is not None
        prefix = f"{self._id}/"
        ended = [one for id, found in leaders.items() if id not in kept for one in found]

        def belongs(mark: str) -> bool:
            return mark.startswith(prefix) and mark.removeprefix(prefix) not in kept

        left = await ProcessFamily(self._table, belongs, ended).end()
        if ended:
            self._log.info("ended {count} machines that an earlier runtime left", count=len(ended))
        for process in left:
            self._log.error("process {pid} of an earlier runtime cannot be ended", pid=process.pid)
        self._records.clear(kept)
        for name in os.listdir(self.directory):
            if ID.fullmatch(name) and name not in kept:
                shutil.rmtree(os.path.join(self.directory, name), ignore_errors=True)

    def _offer(self) -> None:
        for one in self.classes:
            missing = one.driver.missing()
            if missing:
                self._log.warn(
                    "machine class {name} is not offered: {missing}", name=one.name, missing=missing
                )
            else:
                self._offered[one.name] = one
        self._machines.quantities = {one.name: one.quantity for one in self._offered.values()}

    def stopService(self) -> Deferred[None]:
        """End every session, saying why, and every machine that is not kept."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        ending = Ending(SHUTTING_DOWN, "the machine runtime is shutting down")
        await gatherResults([self._part_with(record, ending) for record in self._machines])
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.rmdir(self.directory)  # another's socket may still be in it
            os.close(self._lock)
            self._lock = None

    def _part_with(self, record: Record, ending: Ending) -> Deferred[None]:
        keeper = self._keepers[record.id]
        if not self._can_keep(record):
            return keeper.power_off(ending).addCallback(lambda _: self._forget(record))
        return keeper.release(ending).addCallback(lambda _: self._machines.remove(record.id))

    def _can_keep(self, record: Record) -> bool:
        driver = self._offered[record.class_name].driver
        return self._storage.keep and IKeeping.providedBy(driver)

    # What the stream server asks.

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        """
        What a token leads to: the machine's names, and one more viewer of its session.

        :raises NotFound: the machine is gone, or another one.
        :raises Conflict: it is off.
        """
        record = self._machines.get(grant.machine_id)
        session = self._session(record, grant.machine_uid)
        return record.subject(), session.viewer()

    def read_log(self, grant: Grant) -> tuple[Subject, Journal]:
        """
        What a token for a log leads to: the machine's names, and what it printed.

        :raises NotFound: the machine is gone, or another one.
        """
        record = self._machines.get(grant.machine_id)
        return record.subject(), self._keeper(record, grant.machine_uid).journal

    def _session(self, record: Record, machine_uid: str) -> Session:
        session = self._keeper(record, machine_uid).session
        if session is None:
            raise Conflict(f'machine "{record.label}" is powered off')
        return session

    def _keeper(self, record: Record, machine_uid: str) -> Keeper:
        if machine_uid and record.uid and machine_uid != record.uid:
            raise NotFound("machines", record.id)
        if record.state == pb.MACHINE_TERMINATING:
            raise NotFound(
                "machines", record.id, message=f'machine "{record.label}" is being deleted'
            )
        return self._keepers[record.id]

    # IMachineRuntime.

    def version(self, request: pb.VersionRequest) -> Deferred[pb.VersionResponse]:
        return succeed(
            pb.VersionResponse(runtime_name=NAME, runtime_version=twisted_exec.__version__)
        )

    def status(self, request: pb.StatusRequest) -> Deferred[pb.StatusResponse]:
        found = [
            pb.MachineClassStatus(
                machine_class=pb.MachineClass(
                    name=one.name,
                    capabilities=pb.MachineClassCapabilities(resources=dict(one.resources)),
                ),
                quantity=one.quantity,
            )
            for one in self._offered.values()
        ]
        return succeed(pb.StatusResponse(machine_class_status=found))

    def list_events(self, request: pb.ListEventsRequest) -> Deferred[pb.ListEventsResponse]:
        found = self._machines.find_events(request.filter)
        return succeed(pb.ListEventsResponse(events=found))

    def list_machines(self, request: pb.ListMachinesRequest) -> Deferred[pb.ListMachinesResponse]:
        found = [record.to_machine() for record in self._machines.find(request.filter)]
        return succeed(pb.ListMachinesResponse(machines=found))

    @_answered
    def create_machine(
        self, request: pb.CreateMachineRequest
    ) -> Deferred[pb.CreateMachineResponse]:
        wanted = request.machine
        _check(wanted)
        self._hardware.check(wanted)
        record, is_new = self._machines.create(wanted, self._now_nanoseconds())
        if is_new:
            self._add(record)
        return succeed(pb.CreateMachineResponse(machine=record.to_machine()))

    @_answered
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

    @_answered
    def update_machine_annotations(
        self, request: pb.UpdateMachineAnnotationsRequest
    ) -> Deferred[pb.UpdateMachineAnnotationsResponse]:
        record = self._machines.get(request.machine_id)
        _check_size(request.annotations)
        record.metadata.annotations.clear()
        record.metadata.annotations.update(request.annotations)
        self._note(record)
        return succeed(pb.UpdateMachineAnnotationsResponse())

    @_answered
    def update_machine_power(
        self, request: pb.UpdateMachinePowerRequest
    ) -> Deferred[pb.UpdateMachinePowerResponse]:
        record = self._changeable(request)
        if self._machines.set_power(record, request.power):
            self._note(record)
        keeper = self._keepers[record.id]
        if request.power == pb.POWER_ON:
            keeper.power_on()
        else:
            ending = Ending(POWERED_OFF, f'machine "{record.label}" was powered off')
            keeper.power_off(ending, gently=True)
        return succeed(pb.UpdateMachinePowerResponse())

    @_answered
    def attach_volume(self, request: pb.AttachVolumeRequest) -> Deferred[pb.AttachVolumeResponse]:
        done = self._hardware.attach_volume(self._changeable(request), request.volume)
        return done.addCallback(lambda _: pb.AttachVolumeResponse())

    @_answered
    def detach_volume(self, request: pb.DetachVolumeRequest) -> Deferred[pb.DetachVolumeResponse]:
        done = self._hardware.detach_volume(self._changeable(request), request.name)
        return done.addCallback(lambda _: pb.DetachVolumeResponse())

    @_answered
    def update_volume(self, request: pb.UpdateVolumeRequest) -> Deferred[pb.UpdateVolumeResponse]:
        done = self._hardware.update_volume(self._changeable(request), request.volume)
        return done.addCallback(lambda _: pb.UpdateVolumeResponse())

    @_answered
    def attach_network_interface(
        self, request: pb.AttachNetworkInterfaceRequest
    ) -> Deferred[pb.AttachNetworkInterfaceResponse]:
        self._hardware.attach_interface(self._changeable(request), request.network_interface)
        return succeed(pb.AttachNetworkInterfaceResponse())

    @_answered
    def detach_network_interface(
        self, request: pb.DetachNetworkInterfaceRequest
    ) -> Deferred[pb.DetachNetworkInterfaceResponse]:
        self._hardware.detach_interface(self._changeable(request), request.name)
        return succeed(pb.DetachNetworkInterfaceResponse())

    @_answered
    def exec(
        self, request: pb.ExecRequest, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[pb.ExecResponse]:
        grant = Grant(request.machine_id, machine_uid, user, session)
        self._session(self._machines.get(grant.machine_id), machine_uid)
        return succeed(pb.ExecResponse(url=self._exec_url(self._cache.insert(grant))))

    @_answered
    def log(
        self,
        request: console_pb2.LogRequest,
        *,
        user: str = "",
        machine_uid: str = "",
        session: str = "",
    ) -> Deferred[console_pb2.LogResponse]:
        grant = Grant(request.machine_id, machine_uid, user, session, LOG)
        self._keeper(self._machines.get(grant.machine_id), machine_uid)
        return succeed(console_pb2.LogResponse(url=self._log_url(self._cache.insert(grant))))

    # One machine.

    def _changeable(self, request: Any) -> Record:
        """
        :raises NotFound: nobody has this id.
        :raises Conflict: the machine is being deleted.
        """
        record = self._machines.get(request.machine_id)
        if record.id in self._deleting:
            raise Conflict(f'machine "{record.label}" is being deleted')
        return record

    def _add(self, record: Record) -> None:
        """:raises ServiceUnavailable: there is no place for it."""
        if not IHardware.providedBy(self._offered[record.class_name].driver):
            # Nobody reads it, and a secret that is not kept is not lost.
            record.ignition_data = b""
        try:
            self._note(record)
            self._keep(record)
        except ServiceUnavailable:
            self._storage.remove(record.id)
            self._machines.remove(record.id)
            raise

    def _note(self, record: Record) -> None:
        """:raises ServiceUnavailable: the machine is to be kept, and there is no room."""
        is_ours = self._machines.find(pb.MachineFilter(id=record.id))  # not deleted meanwhile
        if is_ours and self._can_keep(record):
            self._storage.write(record)

    def _keep(self, record: Record, adopted: Sequence[Leader] = ()) -> None:
        directory = os.path.join(self.directory, record.id)
        try:
            with contextlib.suppress(FileExistsError):  # of a machine that is kept
                os.mkdir(directory, mode=0o700)
        except OSError as error:
            raise ServiceUnavailable(
                f"there is no place for the machine's sockets: {error.strerror}"
            ) from None
        facts = MachineFacts(
            id=record.id,
            label=record.label,
            hostname=record.spec.guest_config.hostname,
            directory=directory,
            marker=(MARK, f"{self._id}/{record.id}"),
            started=lambda leader: self._record(record.id, [leader]),
            event=lambda *told: self._event(record, *told),
            changed=lambda *told: self._keepers[record.id].noticed(*told),
            namespace=record.namespace,
            name=record.name,
            uid=record.uid,
            storage=self._storage.directory(record.id),
            keep=self._can_keep(record),
            volumes=record.spec.volumes,
            network_interfaces=record.spec.network_interfaces,
            ignition_data=record.ignition_data,
        )
        driver = self._offered[record.class_name].driver
        keeper = Keeper(
            driver,
            facts,
            self._reactor,
            lambda *told: self._state_changed(record, *told),
            limits=self._limits,
            now_nanoseconds=self._now_nanoseconds,
            adopted=adopted,
        )
        self._keepers[record.id] = keeper
        if record.spec.power == pb.POWER_ON:
            keeper.power_on()
        else:
            record.set_state(pb.MACHINE_STOPPED)

    def _delete(self, record: Record) -> None:
        self._cache.forget_machine(record.id)
        keeper = self._keepers[record.id]
        stopping = keeper.power_off(
            Ending(MACHINE_DELETED, f'machine "{record.label}" was deleted')
        )
        # The line is let go of: what its processes still say reaches nobody.
        keeper.journal.close()
        record.set_state(pb.MACHINE_TERMINATING)

        def deleted(_: object) -> None:
            self._event(record, "Normal", "Deleted", f"machine {record.label} is deleted")
            self._forget(record)
            for waiter in self._deleting.pop(record.id):
                waiter.callback(None)

        stopping.addCallback(deleted)

    def _forget(self, record: Record) -> None:
        shutil.rmtree(os.path.join(self.directory, record.id), ignore_errors=True)
        self._storage.remove(record.id)
        self._machines.remove(record.id)
        self._keepers.pop(record.id, None)

    def _state_changed(self, record: Record, state: int, reason: str, message: str) -> None:
        if record.id not in self._deleting:
            record.set_state(state, reason, message, self._now_nanoseconds())
        if state == pb.MACHINE_STOPPED:
            try:
                self._record(record.id, [])
            except ServiceUnavailable as problem:
                # It names processes that are no more, which a later start finds out.
                self._log.warn("{label}: {why}", label=record.label, why=problem.message)

    def _record(self, machine_id: str, leaders: Sequence[Leader]) -> None:
        if self._records is None:
            return
        try:
            self._records.write(machine_id, leaders)
        except OSError as error:
            raise ServiceUnavailable(
                f"the runtime's state directory cannot be written: {error.strerror}"
            ) from None

    def _event(self, record: Record, type: str, reason: str, message: str) -> None:
        level = LogLevel.warn if type == "Warning" else LogLevel.info
        self._log.emit(level, "{label}: {message}", label=record.label, message=message)
        self._machines.add_event(record, type, reason, message, self._now_nanoseconds())


def _check(wanted: pb.Machine) -> None:
    """:raises BadRequest: the machine is too large to be kept."""
    _check_size(wanted.metadata.annotations)
    _check_size(wanted.metadata.labels)
    if len(wanted.spec.ignition_data) > _MAX_IGNITION_BYTES:
        raise BadRequest(f"ignition data has at most {_MAX_IGNITION_BYTES} bytes")


def _check_size(texts: Mapping[str, str]) -> None:
    if sum(len(key) + len(value) for key, value in texts.items()) > _MAX_METADATA_BYTES:
        raise BadRequest(f"labels and annotations have at most {_MAX_METADATA_BYTES} characters")


def _is_alive(leader: Leader) -> bool:
    found = read_process(leader.pid)
    return found is not None and found.start == leader.start
