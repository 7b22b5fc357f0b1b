"""
The machines of a runtime, and their supervisors.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger, LogLevel

from twisted_exec.api.conditions import (
    CONSOLE_HEALTHY,
    CONSOLE_IN_USE,
    CONSOLE_LINE,
    CONSOLE_OUTPUT,
    CONSOLE_STORED,
    POWER_SWITCHED,
    ConditionValue,
    console_in_use,
)
from twisted_exec.api.display import listed
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.acts import INPUT_DENIED, TAKEOVER, TAKEOVER_DENIED, Act
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.journal.interfaces import IFollowedJournal, IWritableJournal
from twisted_exec.program.service import SUMMARY
from twisted_exec.runtimes.alerts.service import ConsoleAlerts
from twisted_exec.runtimes.config import RuntimeClass
from twisted_exec.runtimes.interfaces import MachineFacts
from twisted_exec.runtimes.last_lines import LastLines
from twisted_exec.runtimes.machine_records import MachineRecord, MachineRecords
from twisted_exec.runtimes.processes import Leader, ProcessTable
from twisted_exec.runtimes.recordings.beginning import RecordedMachine
from twisted_exec.runtimes.recordings.machine_recorder import MachineRecorder
from twisted_exec.runtimes.recordings.service import ConsoleRecordings
from twisted_exec.runtimes.settings import MachineSettings
from twisted_exec.runtimes.state import RuntimeState
from twisted_exec.runtimes.supervisor import Supervisor
from twisted_exec.streaming.interfaces import MACHINE_DELETED, POWERED_OFF, Ending, Role

_EVENTS_OF_ACTS = {  # messages are between users, and in the audit log alone
    TAKEOVER: ("Normal", "ConsoleTakenOver"),
    TAKEOVER_DENIED: ("Warning", "ConsoleTakeoverDenied"),
    INPUT_DENIED: ("Warning", "ConsoleInputDenied"),
}
_LEVELS = {"Warning": LogLevel.warn, "Normal": LogLevel.info}
_GATHERING_SECONDS = 2.0
"""How long reports of journals are gathered, to log one line for many machines."""
_MOST_NAMED = 10
_JOURNAL_FULL = "JournalFull"
NOT_SWITCHED = "the machine itself is left as it is, because its class does not switch the power"


class SupervisedMachines:
    """
    The machines of one runtime.

    :ivar deleting: the callers that wait for the end of a machine that is being deleted, by its id.
    """

    _log = Logger()

    def __init__(
        self,
        offered: Mapping[str, RuntimeClass],
        state: RuntimeState,
        reactor: Any,
        settings: MachineSettings,
        *,
        mark: str,
        limits: ConsoleLimits,
        now_nanoseconds: Callable[[], int],
        journal_opened: Callable[[Mapping[str, str], IFollowedJournal], None],
        acted: Callable[[Act], None],
        make_recordings: Callable[[str], ConsoleRecordings],
    ) -> None:
        self._offered, self.state, self._reactor = offered, state, reactor
        self._mark, self._limits, self._retention = mark, limits, settings.retention
        self._now_nanoseconds = now_nanoseconds
        self._journal_opened, self._report_act = journal_opened, acted
        self._last_lines = LastLines(settings.last_line_seconds, now_nanoseconds)
        self._storage, self._journals = state.storage, state.journals
        self.records = MachineRecords({})
        self.supervisors: dict[str, Supervisor] = {}
        self.deleting: dict[str, list[Deferred[None]]] = {}
        self.switches: Counter[str] = Counter()  # by users, by the ids of machines
        self._lines: dict[str, ConditionValue] = {}
        self.alerts: ConsoleAlerts | None = None
        self._stopping_alerts: Deferred[None] | None = None
        self.recordings: ConsoleRecordings | None = None
        self._make_recordings = make_recordings
        self._recorders: dict[str, MachineRecorder] = {}
        self._unlogged: dict[tuple[LogLevel, str], list[str]] = {}
        self._logging: IDelayedCall | None = None
        self._journals.failed = self._journal_failed
        self._journals.recovered = self._journal_recovered

    # The start of the runtime.

    async def prepare(self, table: ProcessTable) -> None:
        """End or adopt the machines of an earlier runtime."""
        self.alerts = ConsoleAlerts(
            os.path.join(self.state.path, "alerts.json"),
            self._reactor,
            self._now_nanoseconds,
            thread=self._journals.thread,
        )
        stored = self._storage.open(self._has_no_disks)
        retained = [each for each in stored if self._can_adopt(each)]
        self._journals.open()
        self.recordings = self._make_recordings(os.path.join(self.state.path, "recordings"))
        self.recordings.on_change(self._follow_recordings)
        self.recordings.start()
        leaders = await self.state.read_leaders()
        ids = {each.metadata.id for each in retained if each.spec.power == pb.POWER_ON}
        await self.state.end_leftovers(table, leaders, ids)
        for each in retained:
            record = self.records.add(each)
            adopted = self.state.adoptable(record.id, leaders) if record.id in ids else None
            self.supervise(record, adopted)

    def _has_no_disks(self, machine: pb.Machine) -> bool:
        machine_class = self._offered.get(getattr(machine.spec, "class"))
        return machine_class is not None and not machine_class.has_hardware

    def _can_adopt(self, machine: pb.Machine) -> bool:
        name = getattr(machine.spec, "class")
        machine_class = self._offered.get(name)
        if machine_class is None or not machine_class.can_adopt:
            self._log.error(
                "machine {id} of an earlier runtime is of class {name}, which is not offered; it stays on disk",
                id=machine.metadata.id,
                name=name,
            )
            return False
        return True

    # Recordings.

    def _follow_recordings(self, key: str) -> None:
        for id, recorder in self._recorders.items():
            if recorder.key != key:
                continue
            recorder.follow()
            console = self.supervisors[id].console if id in self.supervisors else None
            if console is not None:
                console.recordings_changed()

    def _record(self, record: MachineRecord) -> None:
        supervisor = self.supervisors[record.id]

        def size() -> tuple[int, int] | None:
            size = None if supervisor.console is None else supervisor.console.size
            return None if size is None else (size.columns, size.rows)

        if self.recordings is not None and record.journal_key == record.uid:
            facts = record.facts()
            names = {"namespace": record.namespace, "name": facts["machine"], "uid": record.uid}
            machine = RecordedMachine(record.uid, self._journals.journal(record.uid), names, size)
            self.recordings.add(machine)
            self._recorders[record.id].follow()

    # The life of a machine.

    def add(self, record: MachineRecord) -> None:
        """
        Add a new machine, and start it if it is to be on.

        :raises ServiceUnavailable: the machine cannot be written to disk, or the directory for its
            sockets cannot be created.
        """
        if not self._offered[record.class_name].has_hardware:
            # No such driver reads it; a secret that is not stored cannot leak.
            record.ignition_data = b""
        try:
            self.save(record)
            self.supervise(record)
        except ServiceUnavailable:
            self._storage.remove(record.id)
            self.records.remove(record.id)
            raise

    def save(self, record: MachineRecord) -> None:
        exists = self.records.find(pb.MachineFilter(id=record.id))  # not deleted meanwhile
        if exists and self._can_keep(record):
            self._storage.write(record)

    def _can_keep(self, record: MachineRecord) -> bool:
        return self._storage.keep and self._offered[record.class_name].can_adopt

    def supervise(self, record: MachineRecord, adopted: Sequence[Leader] | None = None) -> None:
        """
        Start a machine if it is to be on, or adopt it.

        :param adopted: the processes of a machine that runs already; ``None`` if it does not.
        """
        directory = self.state.make_sockets(record.id)
        runtime_class = self._offered[record.class_name]
        self._journals.revive(record.journal_key)
        journal = self._journals.journal(
            record.journal_key, runtime_class.retention or self._retention
        )
        recorder = self._recorders[record.id] = MachineRecorder(
            record.journal_key, journal, lambda: self.recordings, self._reactor.seconds
        )
        supervisor = Supervisor(
            runtime_class.driver,
            self._facts(record, directory, journal),
            self._reactor,
            lambda *change: self._state_changed(record, *change),
            limits=self._limits,
            journal=journal,
            adopted=adopted,
            acted=lambda act: self._acted(record, act),
            recorder=recorder,
            answers_queries=runtime_class.answers_queries,
        )
        self.supervisors[record.id] = supervisor
        self._journal_opened(record.facts(), journal)
        if self.alerts is not None:
            self.alerts.add(record.uid, supervisor.journal)
        self._record(record)
        if record.spec.power == pb.POWER_ON:
            supervisor.power_on()
        else:
            record.set_state(pb.MACHINE_STOPPED)

    def _facts(
        self, record: MachineRecord, directory: str, journal: IWritableJournal
    ) -> MachineFacts:
        supervisors = self.supervisors
        return MachineFacts(
            id=record.id,
            label=record.label,
            hostname=record.spec.guest_config.hostname,
            directory=directory,
            marker=(self._mark, f"{self.state.id}/{record.id}"),
            started=lambda leader: self.state.record_leader(record.id, leader),
            event=lambda *event: self._event(record, *event),
            changed=lambda *change: supervisors[record.id].noticed(*change),
            found_off=lambda message: supervisors[record.id].found_off(message),
            shutting_down=lambda: supervisors[record.id].shutting_down(),
            booted=lambda: supervisors[record.id].journal.booted("PoweredOn"),
            described=lambda condition: self._described(record, condition),
            is_on=lambda: record.id in supervisors and supervisors[record.id].is_on,
            switches=lambda: self.switches[record.id],
            namespace=record.namespace,
            name=record.name,
            uid=record.uid,
            storage=self._storage.directory(record.id),
            keep=self._can_keep(record),
            journal=journal,
            keeper=self.state.keeper,
            volumes=record.spec.volumes,
            network_interfaces=record.spec.network_interfaces,
            ignition_data=record.ignition_data,
        )

    def observed(self, record: MachineRecord) -> pb.Machine:
        """Return the machine with the conditions of its console."""
        machine = record.to_machine()
        supervisor = self.supervisors.get(record.id)
        console = None if supervisor is None else supervisor.console
        if record.id in self._lines:
            status, reason, message = self._lines[record.id]
            machine.status.machine_conditions.add(
                type=CONSOLE_LINE, status=status, reason=reason, message=message
            )
        if console is not None and console.viewers:
            writing = [each.session for each in console.viewers if each.role is Role.WRITER]
            status, reason, message = console_in_use(writing)
            machine.status.machine_conditions.add(
                type=CONSOLE_IN_USE, status=status, reason=reason, message=message
            )
        line = supervisor and self._last_lines.condition(record.id, supervisor.journal)
        if line:
            status, reason, message = line
            machine.status.machine_conditions.add(
                type=CONSOLE_OUTPUT, status=status, reason=reason, message=message
            )
        health = None if self.alerts is None else self.alerts.condition(record.uid)
        if health is not None:
            status, reason, message = health
            machine.status.machine_conditions.add(
                type=CONSOLE_HEALTHY, status=status, reason=reason, message=message
            )
        if supervisor is not None and not supervisor.switches_power:
            machine.status.machine_conditions.add(
                type=POWER_SWITCHED,
                status="False",
                reason="ConsoleOnly",
                message=f"spec.power opens and closes the console only: {NOT_SWITCHED}",
            )
        if supervisor is not None and supervisor.journal.failure:
            machine.status.machine_conditions.add(
                type=CONSOLE_STORED,
                status="False",
                reason=_JOURNAL_FULL,
                message=_not_on_disk(supervisor.journal.failure),
            )
        return machine

    def delete(self, record: MachineRecord) -> Deferred[None]:
        """:return: fires when the machine has ended and is deleted; the call may be repeated."""
        done: Deferred[None] = Deferred()
        waiting = self.deleting.setdefault(record.id, [])
        waiting.append(done)
        if len(waiting) == 1:
            self._delete(record)
        return done

    def _delete(self, record: MachineRecord) -> None:
        supervisor = self.supervisors[record.id]
        stopping = supervisor.power_off(
            Ending(MACHINE_DELETED, f'machine "{record.label}" was deleted')
        )
        # Readers of the log end now; later output of the dying processes is dropped.
        self._journals.deleted(record.journal_key, record.facts())
        if self.recordings is not None:
            self.recordings.remove(record.journal_key)
        record.set_state(pb.MACHINE_TERMINATING)

        def deleted(_: object) -> None:
            self._event(record, "Normal", "Deleted", f'machine "{record.label}" is deleted')
            self._forget(record)
            for waiter in self.deleting.pop(record.id):
                waiter.callback(None)

        stopping.addCallback(deleted)

    def _forget(self, record: MachineRecord) -> None:
        if self.alerts is not None:
            self.alerts.remove(record.uid)
        self.state.remove_sockets(record.id)
        self._storage.remove(record.id)
        self.records.remove(record.id)
        self.supervisors.pop(record.id, None)
        self._last_lines.forget(record.id)
        self._recorders.pop(record.id, None)
        self._lines.pop(record.id, None)
        del self.switches[record.id]

    @property
    def continuing(self) -> list[str]:
        """Labels of the machines that outlive the runtime."""
        return sorted(
            record.label
            for record in self.records
            if self._can_keep(record) and self.supervisors[record.id].run is not None
        )

    # The end of the runtime.

    def stop_reports(self) -> None:
        """
        Answer the poollets that wait for matches of alerts, or for statuses of recordings; repeated
        calls do nothing.
        """
        if self.alerts is not None and self._stopping_alerts is None:
            self._stopping_alerts = self.alerts.stop()
        if self.recordings is not None:
            self.recordings.statuses.stop()

    async def stop(self, ending: Ending) -> None:
        """Let go of the machines that outlive the runtime, and end the others."""
        self.stop_reports()
        if self._unlogged and self._logging is not None:
            self._logging.cancel()
            self._log_journals()
        continuing = self.continuing
        if continuing:
            self._log.info(
                "machines that continue without this runtime: {labels}",
                labels=", ".join(continuing[:10]),
            )
        await gatherResults([self._release(record, ending) for record in self.records])
        if self.recordings is not None:
            await self.recordings.stop()
        if self._stopping_alerts is not None:
            await self._stopping_alerts

    def _release(self, record: MachineRecord, ending: Ending) -> Deferred[None]:
        keep = self._can_keep(record)
        released = self.supervisors[record.id].release(ending, keep=keep)
        if keep:
            return released.addCallback(lambda _: self.records.remove(record.id))
        return released.addCallback(lambda _: self._forget(record))

    # Reports.

    def _state_changed(self, record: MachineRecord, state: int, reason: str, message: str) -> None:
        if record.id not in self.deleting:
            record.set_state(state, reason, message, self._now_nanoseconds())
        if state == pb.MACHINE_STOPPED:
            try:
                self.state.forget_leaders(record.id)
            except ServiceUnavailable as problem:
                # A stale record names ended processes, which the next start ignores.
                self._log.warn("{label}: {why}", label=record.label, why=problem.message)

    def _described(self, record: MachineRecord, condition: ConditionValue) -> None:
        if record.id in self.supervisors:
            self._lines[record.id] = condition

    def _journal_failed(self, key: str, reason: str) -> None:
        self._journal_event(key, "Warning", _JOURNAL_FULL, _not_on_disk(reason))

    def _journal_recovered(self, key: str, lost_bytes: int) -> None:
        message = f"console output is on disk again; {lost_bytes} bytes were lost"
        self._journal_event(key, "Normal", "JournalRecovered", message)

    def _journal_event(self, key: str, type: str, reason: str, message: str) -> None:
        record = self.records.of_journal(key)
        if record is None:
            return
        self.records.add_event(record, type, reason, message, self._now_nanoseconds())
        if not self._unlogged:
            self._logging = self._reactor.callLater(_GATHERING_SECONDS, self._log_journals)
        self._unlogged.setdefault((_LEVELS[type], message), []).append(record.label)

    def _log_journals(self) -> None:
        gathered, self._unlogged = self._unlogged, {}
        for (level, message), labels in gathered.items():
            self._log.emit(
                level,
                "{labels}: {what}",
                labels=listed(labels, _MOST_NAMED),
                what=message,
                **{SUMMARY: True},
            )

    def _acted(self, record: MachineRecord, act: Act) -> None:
        if act.kind in _EVENTS_OF_ACTS:
            type, reason = _EVENTS_OF_ACTS[act.kind]
            # Not a warning in the log: it is no problem of this program, and users cause it.
            self._event(record, type, reason, act.message, LogLevel.info)
        self._report_act(act)

    def _event(
        self,
        record: MachineRecord,
        type: str,
        reason: str,
        message: str,
        level: LogLevel | None = None,
    ) -> None:
        self._log.emit(level or _LEVELS[type], "{label}: {what}", label=record.label, what=message)
        self.records.add_event(record, type, reason, message, self._now_nanoseconds())


def powered_off(record: MachineRecord, *, is_switched: bool = True) -> Ending:
    """
    Return the status of the viewers of a machine that its user has powered off.

    :param is_switched: false if that only closes its console.
    """
    if not is_switched:
        return Ending(
            POWERED_OFF, f'the console of machine "{record.label}" was closed; {NOT_SWITCHED}'
        )
    return Ending(POWERED_OFF, f'machine "{record.label}" was powered off')


def _not_on_disk(why: str) -> str:
    return f"console output is in memory only, not on disk: {why}"
