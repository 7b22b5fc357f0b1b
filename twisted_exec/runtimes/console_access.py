"""
Access to the consoles and logs of a runtime's machines, for calls and for tokens.

A call checks whether the console can be opened, and returns a URL with a token.  The stream server
checks again when the token is used.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant, RequestCache
from twisted_exec.journal.interfaces import IJournal
from twisted_exec.journal.store import JournalStore
from twisted_exec.runtimes.supervisor import Supervisor
from twisted_exec.streaming.interfaces import IAttachment, Subject

from .machines import Record
from .supervised import SupervisedMachines


class ConsoleAccess:
    """
    The consoles and logs of one runtime.

    :param journals: those of deleted machines, too.
    :param cache: stores the tokens.
    :param exec_url: returns the URL of a console for a token; empty if there are no consoles.
    :param log_url: returns the URL of a log for a token.
    :param is_awaited: returns whether a session at a machine waits for its user; called with the
        user's name, and the machine's UID or its id here.
    """

    def __init__(
        self,
        machines: SupervisedMachines,
        journals: JournalStore,
        cache: RequestCache,
        *,
        exec_url: Callable[[str], str],
        log_url: Callable[[str], str],
        is_awaited: Callable[[str, str], bool],
    ) -> None:
        self._machines, self._journals, self._cache = machines, journals, cache
        self._exec_url, self._log_url = exec_url, log_url
        self._is_awaited = is_awaited

    def url_of_console(self, grant: Grant) -> str:
        """
        Return the URL of a console, for the user of the grant.

        :raises NotFound: as of :meth:`attach`.
        :raises Conflict: as of :meth:`attach`.
        """
        # A session that waits, for its user or for the machine, has its console already.
        if not self._is_awaited(grant.user, grant.machine_uid or grant.machine_id):
            record = self._machines.records.get(grant.machine_id)
            waiting = self._supervisor(record, grant.machine_uid).console
            if waiting is None or all(each.user != grant.user for each in waiting.viewers):
                self._console(record, grant.machine_uid)
        return self._exec_url(self._cache.insert(grant))

    def url_of_log(self, grant: Grant) -> str:
        """
        Return the URL of a log, for the user of the grant.

        :raises NotFound: as of :meth:`read_log`.
        """
        self.read_log(grant)  # refuses what cannot be read
        return self._log_url(self._cache.insert(grant))

    def attach(self, grant: Grant) -> tuple[Subject, IAttachment]:
        """
        Create a viewer for a token.

        :return: the names of the machine, and the viewer.
        :raises NotFound: the machine was deleted, or is another one of the same name.
        :raises Conflict: the machine is off, or cannot start.
        """
        record = self._machines.records.get(grant.machine_id)
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
        record = self._machines.records.get(grant.machine_id)
        return record.subject(), self._supervisor(record, grant.machine_uid).journal

    def _retained(self, uid: str) -> tuple[Subject, IJournal]:
        """Find the journal of a machine that may be deleted."""
        record = self._machines.records.of_uid(uid)
        if record is not None:
            return record.subject(), self._machines.supervisors[record.id].journal
        journal = self._journals.of_deleted(uid)
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
        return self._machines.supervisors[record.id]
