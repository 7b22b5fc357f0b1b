"""Access to the consoles and logs of one runtime, for the user of a grant."""

from __future__ import annotations

from twisted_exec.api.display import BANNER, banner_lines
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import (
    Conflict,
    NotFound,
)
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant, RequestCache, StreamLinks
from twisted_exec.journal.interfaces import IReadableJournal
from twisted_exec.journal.store import JournalStore
from twisted_exec.runtimes.machine_records import MachineRecord
from twisted_exec.runtimes.supervised_machines import SupervisedMachines
from twisted_exec.runtimes.supervisor import Supervisor
from twisted_exec.streaming.interfaces import IAttachment
from twisted_exec.streaming.subject import Subject


class RuntimeConsoles:
    """The consoles and logs of one runtime; logs also of deleted machines."""

    def __init__(
        self,
        machines: SupervisedMachines,
        journals: JournalStore,
        cache: RequestCache,
        links: StreamLinks,
    ) -> None:
        self._machines, self._journals, self._cache = machines, journals, cache
        self._links = links

    def url_of_console(self, grant: Grant) -> str:
        """Return the URL of a console, for the user of the grant."""
        # A session that waits, for its user or for the machine, has its console already.
        if not self._links.is_awaited(grant.user, grant.machine_uid or grant.machine_id):
            record = self._machines.records.get(grant.machine_id)
            waiting = self._supervisor(record, grant.machine_uid).console
            if waiting is None or all(each.user != grant.user for each in waiting.viewers):
                self._console(record, grant.machine_uid)
        return self._links.exec_url(self._cache.insert(grant))

    def url_of_log(self, grant: Grant) -> str:
        """Return the URL of a log, for the user of the grant."""
        self.read_log(grant)  # refuses what cannot be read
        return self._links.log_url(self._cache.insert(grant))

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        record = self._machines.records.get(grant.machine_id)
        console = self._console(record, grant.machine_uid)
        # The poollet may be another program, so its texts are checked here, too.
        banner = banner_lines(record.metadata.annotations.get(BANNER, ""))
        return record.subject(), console.viewer(banner)

    def read_log(self, grant: Grant) -> tuple[Subject, IReadableJournal]:
        if not grant.machine_id:
            return self._retained(grant.machine_uid)
        record = self._machines.records.get(grant.machine_id)
        return record.subject(), self._supervisor(record, grant.machine_uid).journal

    def _retained(self, uid: str) -> tuple[Subject, IReadableJournal]:
        record = self._machines.records.of_uid(uid)
        if record is not None:
            return record.subject(), self._machines.supervisors[record.id].journal
        journal = self._journals.of_deleted(uid)
        if journal is None:
            message = f"the runtime retains no output of a machine with the UID {uid!r}"
            raise NotFound("machines", uid, message=message)
        return Subject(session="", machine=uid, uid=uid), journal

    def _console(self, record: MachineRecord, machine_uid: str) -> SharedConsole:
        supervisor = self._supervisor(record, machine_uid)
        if supervisor.is_off or supervisor.console is None:
            off = Conflict(f'machine "{record.label}" is powered off')
            raise because(Obstacle.POWERED_OFF, off)
        if supervisor.start_problem:
            # The next attempt may be half a minute away, and a user would see nothing until then.
            message = f'machine "{record.label}" cannot start: {supervisor.start_problem}'
            raise because(Obstacle.CANNOT_START, Conflict(message))
        return supervisor.console

    def _supervisor(self, record: MachineRecord, machine_uid: str) -> Supervisor:
        if machine_uid and record.uid and machine_uid != record.uid:
            raise NotFound("machines", record.id)
        if record.state == pb.MACHINE_TERMINATING:
            message = f'machine "{record.label}" is being deleted'
            refusal = NotFound("machines", record.id, message=message)
            raise because(Obstacle.BEING_DELETED, refusal)
        return self._machines.supervisors[record.id]
