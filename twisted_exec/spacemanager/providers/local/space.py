"""
One local space: its process and its credentials.

Its kubeconfig has a token that is valid for a year, because our API server ends the sessions of an
expired token.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.spaces import VIEWPOINTS
from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.loop import PokedLoop
from twisted_exec.program.tasks import as_deferred
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Access,
    Physical,
    SpaceInfo,
)
from twisted_exec.spacemanager.providers.local.ports import NoFreePort, free_port
from twisted_exec.spacemanager.providers.local.processes import ProcessRun
from twisted_exec.spacemanager.providers.local.records import SpaceRecord, Store

STATE, ACCESS, LOG = "state", "access.json", "log"
KUBECONFIG = "admin.kubeconfig"
"""Entry of a standalone state directory that exists while the program is ready."""

START_SECONDS = 60.0
STEADY_SECONDS = 10.0
"""After a run of this length, the back-off begins anew."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 60.0
ENROL_PAUSE_SECONDS = 1.0
RENEW_SECONDS = 30 * 86400
"""Remaining validity at which a kubeconfig is replaced."""


@dataclass(frozen=True)
class SpaceEnvironment:
    """
    Resources for local spaces.

    :param enrol: creates a kubeconfig, given the path of the administrator's.
    :param end_sessions: ends all sessions of a space, given the same path.
    :param now: seconds since the epoch.
    """

    reactor: Any
    now: Callable[[], float]
    argv: Callable[[str, int], Sequence[str]]
    environment: Mapping[str, str]
    enrol: Callable[[str], Deferred[Access]]
    end_sessions: Callable[[str], Deferred[None]]
    slots: DeferredSemaphore = field(default_factory=lambda: DeferredSemaphore(2))
    ports: range | None = None


class LocalSpace:
    """
    One space with a record.

    It keeps the process of the space running, and obtains its kubeconfig.
    """

    _log = Logger()

    def __init__(
        self,
        record: SpaceRecord,
        store: Store,
        environment: SpaceEnvironment,
        changed: Callable[[Physical], None],
    ) -> None:
        self.record = record
        self._store, self._environment, self._changed = store, environment, changed
        self._state, self._reason = BUILDING, ""
        self._message = "it is being started" if record.made else ""
        self._ready = False
        self._run: ProcessRun | None = None
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self._working: Deferred[None] | None = None
        self._enrolling = PokedLoop(
            self._enrol_at_last,
            environment.reactor,
            refused=self._not_enrolled,
            backoff=lambda: Backoff(ENROL_PAUSE_SECONDS, ENROL_PAUSE_SECONDS),
        )
        self._generation = uuid.uuid4().hex[:8]

    # Reporting.

    def info(self, *, whole: bool = True) -> SpaceInfo:
        """Return the current state."""
        record = self.record
        access = self._access() if whole else None
        state, reason, message = self._status()
        return SpaceInfo(
            record.physical,
            state,
            reason,
            message,
            record.owner,
            record.uid,
            f"{self._generation}-{state}-{reason}",
            dict.fromkeys(VIEWPOINTS, access) if access is not None else {},
        )

    def _status(self) -> tuple[str, str, str]:
        if self.is_lost and self._state != GOING:
            what = "what it kept is gone; it can only be made anew, and empty"
            return BROKEN, "Lost", f"{self._file()}: {what}"
        if self._ready and self._state == USABLE and not os.path.exists(self._file(ACCESS)):
            self._check_access()
            return BUILDING, "NoKubeconfig", self._message or "a kubeconfig is being made for it"
        return self._state, self._reason, self._message

    @property
    def is_lost(self) -> bool:
        return self.record.made and self._store.is_ours() and not self._store.has_home(self.record)

    @property
    def pid(self) -> int | None:
        return self._run.pid if self._run is not None else None

    def _file(self, *parts: str) -> str:
        return self._store.home(self.record, *parts)

    def _access(self) -> Access | None:
        try:
            with open(self._file(ACCESS), "rb") as file:
                document = json.load(file)
            return Access(document["kubeconfig"].encode(), document["expires"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _tell(self, state: str, reason: str = "", message: str = "") -> None:
        if (state, reason, message) != (self._state, self._reason, self._message):
            self._state, self._reason, self._message = state, reason, message
            self._changed(self.record.physical)

    # Lifecycle.

    def start(self) -> None:
        if self.record.going:
            self._state = GOING
            self._work(self._go())
        else:
            self._work(self._keep())

    def _work(self, work: Coroutine[Any, Any, None]) -> None:
        self._working = Deferred.fromCoroutine(work)
        self._working.addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("local space {name}", failure, name=self.record.name)

    @as_deferred
    async def become(self, record: SpaceRecord) -> None:
        """Switch to a new record."""
        if record.going:
            self._tell(GOING)
        self.record = record
        working, self._working = self._working, None
        if working is not None:
            working.cancel()
            await working
        self.start()

    @as_deferred
    async def stop(self) -> None:
        """Stop the process; fires when nothing runs any more."""
        self._give_up_access()
        working, self._working = self._working, None
        if working is not None:
            working.cancel()
        await self._end_run()
        if working is not None:
            await working

    async def _end_run(self) -> None:
        if self._run is not None:
            await self._run.stop()
        self._ready = False

    # Running.

    async def _keep(self) -> None:
        # Not a PokedLoop: one round is a whole run of the process.
        while True:
            began, reason = self._environment.reactor.seconds(), "Restarting"
            try:
                if self.is_lost:
                    raise ServiceUnavailable(self._status()[2])
                why = await self._run_once()
            except NoFreePort as error:
                reason, why = "NoPort", error.message
            except (APIError, OSError) as error:
                why = error.message if isinstance(error, APIError) else str(error.strerror)
            finally:
                self._give_up_access()
            if self._environment.reactor.seconds() - began > STEADY_SECONDS:
                self._backoff.reset()
            pause = self._backoff.pause()
            ended = f"its process ended: {why}; it is started again"
            self._tell(BUILDING, reason, why if reason == "NoPort" else ended)
            self._log.warn("local space {name}: {why}", name=self.record.name, why=why)
            await deferLater(self._environment.reactor, pause)

    async def _run_once(self) -> str:
        """Run the process until it ends.  :return: the reason."""
        await self._environment.slots.acquire()
        try:
            run = await self._started()
            fine = await run.until(self._is_ready, START_SECONDS)
        finally:
            self._environment.slots.release()
        if fine:
            await self._served()
            return await run.ended()
        if not run.how:
            await run.stop()
            return f"it was not ready within {START_SECONDS:g} seconds, see {self._file(LOG)}"
        return run.how

    async def _started(self) -> ProcessRun:
        if not self.record.made:
            # The port is not published yet, and may be in use by now.
            used = [record.port for record in self._store.records().values()]
            self._write(replace(self.record, port=free_port(used, self._environment.ports)))
        await self._end_run()
        self._store.make_home(self.record)
        self._store.remove_file(self._file(STATE, KUBECONFIG))
        self._store.step()
        run = self._run = ProcessRun(self._file(LOG), self._environment.reactor)
        argv = self._environment.argv(self._file(STATE), self.record.port)
        run.start(argv, self._environment.environment)
        return run

    def _is_ready(self) -> bool:
        return os.path.exists(self._file(STATE, KUBECONFIG))

    async def _served(self) -> None:
        self._ready = True
        self._enrolling.start(None)
        if not os.path.exists(self._file(ACCESS)):
            await self._enrol()
        if not self.record.made:
            self._write(replace(self.record, made=True))
        self._tell(USABLE)
        self.maintain()

    def _write(self, record: SpaceRecord) -> None:
        self._store.write(record)
        self.record = record

    def maintain(self) -> None:
        if self._run is not None and self._ready:
            self._run.trim()
            if self.is_lost:
                self._run.stop()
                self._changed(self.record.physical)
        if self._needs_access():
            self._check_access()

    def _needs_access(self) -> bool:
        access = self._access()
        return access is None or (access.expires or 0) < self._environment.now() + RENEW_SECONDS

    # Kubeconfig.

    def rotate(self) -> Deferred[None]:
        if not self._ready:
            why = (
                f"local space {self.record.name} does not run just now; try again when it is usable"
            )
            return Deferred.fromCoroutine(_raise(ServiceUnavailable(why)))
        return Deferred.fromCoroutine(self._enrol())

    async def _enrol(self) -> None:
        access = await self._environment.enrol(self._file(STATE, KUBECONFIG))
        document = {"kubeconfig": access.kubeconfig.decode(), "expires": access.expires}
        self._store.write_file(self._file(ACCESS), json.dumps(document).encode())
        self._generation = uuid.uuid4().hex[:8]
        self._changed(self.record.physical)

    def _check_access(self) -> None:
        if self._state == USABLE:
            self._enrolling.poke()

    async def _enrol_at_last(self) -> None:
        if self._needs_access():
            await self._enrol()
        self._message = ""

    def _not_enrolled(self, error: APIError, failures: int) -> None:
        self._log.warn("local space {name}: {why}", name=self.record.name, why=error.message)
        self._message = f"no kubeconfig could be made: {error.message}"

    def _give_up_access(self) -> None:
        self._ready = False
        self._enrolling.stop()

    # Deleting.

    async def _go(self) -> None:
        # Not a PokedLoop: it ends with the space.
        self._give_up_access()
        await self._end_sessions()
        while True:
            try:
                await self._end_run()
                self._store.remove_home(self.record)
                self._store.remove(self.record)
                break
            except APIError as error:
                self._tell(GOING, "Waiting", error.message)
                await deferLater(self._environment.reactor, self._backoff.pause())
        self._changed(self.record.physical)

    async def _end_sessions(self) -> None:
        # After a stop alone, clients wait for the next start.
        if self._run is not None and self._is_ready():
            try:
                await self._environment.end_sessions(self._file(STATE, KUBECONFIG))
            except APIError as error:
                self._log.warn(
                    "local space {name}: {why}", name=self.record.name, why=error.message
                )


async def _raise(error: APIError) -> None:
    raise error
