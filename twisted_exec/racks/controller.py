"""
The controller: it compares Servers, BMCs and Machines with the list, and writes the differences.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from twisted_exec.api.selectors import parse_labels
from twisted_exec.api.status import AlreadyExists, APIError, NotFound, ServiceUnavailable
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.runs import Failures
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.program.config_file import MAX_FILE_BYTES, ConfigError
from twisted_exec.program.server_list import Server, format_csv, read_servers
from twisted_exec.racks.metal import BMCS, SERVERS, trim_bmc, trim_server
from twisted_exec.racks.metrics import LISTED, MISSING, WAITING
from twisted_exec.racks.plan import missing, plan
from twisted_exec.racks.settings import Settings

LOOK_SECONDS = 30.0
_WAIT_SECONDS = 1.0
"""Until the next look while a copy is not current."""
_MOST_LOGGED = 20


class ListFile:
    """
    A list in a file, which is replaced as a whole.

    All methods use the disk: call them in a thread.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> Sequence[Server]:
        """
        Return the rows.

        :raises ConfigError: the file cannot be used, or has rows that cannot: nobody knows what they stood for.
        """
        if not os.path.exists(self.path):
            return ()
        with open(self.path, "rb") as file:
            if file.read(len(_EMPTY) + 1) == _EMPTY:
                return ()
        servers = read_servers(self.path)
        for _, problem in servers.refused:
            raise ConfigError(problem)
        return servers.servers

    def write(self, rows: Sequence[Server]) -> None:
        """
        Replace the file.

        :raises ConfigError: the runtime would not read so large a file.
        :raises OSError: the disk refuses it.
        """
        content = format_csv(rows)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigError(
                f"{self.path} would be larger than {MAX_FILE_BYTES >> 20} MiB; divide the Servers with "
                "--server-selector"
            )
        temporary = f"{self.path}.new"
        with open(temporary, "wb") as file:
            os.fchmod(
                file.fileno(), 0o644
            )  # the runtime may have another user; a list has no secrets
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)


_EMPTY = format_csv(())


class RackController(Service):
    """
    Keeps the list and the Machines.

    A Server is gone if a complete and current copy has lacked it for some time, the copy has others, and the API server
    then answers that there is none of its name, or that the selector does not select it any more.

    :param metal: client of the cluster with the Servers.
    :param machines: client of the API server with the Machines.
    """

    _log = Logger()

    def __init__(
        self,
        settings: Settings,
        metal: IKubeClient,
        machines: IKubeClient,
        reactor: Any,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        self._settings, self._target = settings, settings.target
        self._metal, self._client, self._reactor = metal, machines, reactor
        self._selector = parse_labels(settings.selector)
        self._file = ListFile(settings.list_path)
        self._loop = PokedLoop(
            self._look, reactor, LOOK_SECONDS, refused=self._refused, metrics=metrics.of("racks")
        )

        def changed(before: Object | None, after: Object | None) -> None:
            self._loop.poke()

        self._servers = Reflector(
            metal,
            SERVERS,
            reactor,
            label_selector=settings.selector,
            trim=trim_server,
            on_change=changed,
        )
        self._bmcs = Reflector(metal, BMCS, reactor, trim=trim_bmc, on_change=changed)
        workload = self._target.dialect.workload
        self._machines = Reflector(
            machines,
            workload,
            reactor,
            namespace=self._target.namespace,
            trim=_trim_machine,
            on_change=changed,
        )
        self._rows: Sequence[Server] | None = None  # of the file; None before it is read
        self._since: dict[str, float] = {}  # when a missing Server was first missed
        self._waiting: Mapping[str, str] = {}
        self._was_empty = False
        self.problem = "the list is not written yet"
        """Why the last run failed; empty if it did not."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers of Servers, by state."""
        listed = 0 if self._rows is None else len(self._rows)
        return {LISTED: listed, WAITING: len(self._waiting), MISSING: len(self._since)}

    def startService(self) -> None:
        """Begin to list and watch."""
        super().startService()
        for part in (self._servers, self._bmcs, self._machines, self._loop):
            part.start()

    def stopService(self) -> Deferred[Any]:
        """Fires when no request is under way."""
        super().stopService()
        parts = (self._loop, self._servers, self._bmcs, self._machines)
        return DeferredList([part.stop() for part in parts])

    async def _look(self) -> float | None:
        for copy in (self._servers, self._bmcs, self._machines):
            if copy.problem or not copy.synced:  # it retries by itself, and logs why
                why = copy.problem or "they are not read yet"
                self.problem = f"{copy.resource.qualified}: {why}"
                return _WAIT_SECONDS
        if self._rows is None:
            try:
                self._rows = await self._in_thread(self._file.read)
            except (ConfigError, OSError) as problem:
                raise ServiceUnavailable(
                    f"{problem}; mend the file, or remove it to have it written anew"
                ) from None
        gone = await self._gone(self._rows)
        wanted = plan(self._servers, self._bmcs.get, self._machines, self._rows, gone, self._target)
        self._tell(wanted.waiting)
        if list(wanted.rows) != list(self._rows):
            await self._write(wanted.rows)
        failures = Failures()
        for machine in wanted.delete:
            with failures.noted():
                await self._delete(machine)
        for machine in wanted.create:
            with failures.noted():
                await self._create(machine)
        failures.raise_first()
        if self.problem:
            self._log.info("{path} is current", path=self._file.path)
        self.problem = ""
        return min(LOOK_SECONDS, self._settings.confirm_seconds) if self._since else None

    async def _gone(self, rows: Sequence[Server]) -> set[str]:
        now = self._reactor.seconds()
        lacking = missing(self._servers, self._machines, rows, self._target)
        self._since = {name: self._since.get(name, now) for name in lacking}
        is_empty = bool(lacking) and not len(self._servers)
        if is_empty and not self._was_empty:
            self._log.warn(
                "the cluster shows no Servers at all: {count} rows and Machines stay as they are",
                count=len(lacking),
            )
        self._was_empty = is_empty
        gone = set()
        for name, since in sorted(self._since.items()):
            is_due = now - since >= self._settings.confirm_seconds
            if is_due and not is_empty and await self._is_gone(name):
                gone.add(name)
        return gone

    async def _is_gone(self, name: str) -> bool:
        try:
            server = await self._metal.get(SERVERS, name)
        except NotFound as answer:
            # Without a name the kind is missing, not the object.
            return bool(answer.details.get("name") == name)
        return not self._selector.matches(server["metadata"].get("labels", {}))

    async def _write(self, rows: Sequence[Server]) -> None:
        try:
            await self._in_thread(lambda: self._file.write(rows))
        except ConfigError as problem:
            raise ServiceUnavailable(str(problem)) from None
        except OSError as problem:
            raise ServiceUnavailable(
                f"cannot write {self._file.path}: {problem.strerror}"
            ) from None
        self._log.info(
            "{path} is written; servers: {count}, before: {before}",
            path=self._file.path,
            count=len(rows),
            before=len(self._rows or ()),
        )
        self._rows = rows

    async def _create(self, machine: Object) -> None:
        metadata = machine["metadata"]
        try:
            await self._client.create(self._target.dialect.workload, machine, metadata["namespace"])
        except AlreadyExists:
            return  # the copy will have it in a moment
        self._log.info("created Machine {name}", name=metadata["name"])

    async def _delete(self, machine: Object) -> None:
        metadata = machine["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        try:
            await self._client.delete(
                self._target.dialect.workload,
                metadata["name"],
                self._target.namespace,
                uid=metadata["uid"],
            )
        except NotFound:
            return
        self._log.info("deleted Machine {name}: its Server is gone", name=metadata["name"])

    def _in_thread(self, work: Any) -> Deferred[Any]:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), work)

    def _tell(self, waiting: Mapping[str, str]) -> None:
        new = [(name, why) for name, why in waiting.items() if self._waiting.get(name) != why]
        for name, why in new[:_MOST_LOGGED]:
            self._log.warn("Server {name} waits: {why}", name=name, why=why)
        if len(new) > _MOST_LOGGED:
            self._log.warn("{more} more Servers wait", more=len(new) - _MOST_LOGGED)
        self._waiting = waiting

    def _refused(self, error: APIError, failures: int) -> None:
        if error.message != self.problem:
            self._log.warn("{why}; trying again", why=error.message)
        self.problem = error.message


def _trim_machine(machine: Object) -> Object:
    keys = ("name", "namespace", "uid", "resourceVersion", "labels", "deletionTimestamp")
    metadata = {key: machine["metadata"][key] for key in keys if key in machine["metadata"]}
    return {"metadata": metadata, "spec": machine.get("spec", {})}
