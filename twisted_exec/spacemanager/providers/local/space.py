"""
One local space: its process is kept running, and its kubeconfig is had from it once it does.

Whatever is done here may end between any two steps, and is begun again by whoever reads the record next.
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
from twisted_exec.kube.informers.reflector import Backoff
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Access,
    Physical,
    SpaceInfo,
)
from twisted_exec.spacemanager.providers.local.process import Run, free_port
from twisted_exec.spacemanager.providers.local.records import Record, Store

STATE, ACCESS, LOG = "state", "access.json", "log"
KUBECONFIG = "admin.kubeconfig"
"""Of a standalone's state directory: it is there while the program is ready."""

START_SECONDS = 60.0
STEADY_SECONDS = 10.0
"""Who ran for so long is started again at once, as if it had never ended."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 60.0
ENROL_PAUSE_SECONDS = 1.0
RENEW_SECONDS = 30 * 86400
"""How long before the end of a kubeconfig another is had."""


@dataclass(frozen=True)
class SpaceEnvironment:
    """
    What local spaces are made with.

    :param words: the command line of one, given its state directory and its port.
    :param enrol: has a kubeconfig made, given the path of the administrator's.
    :param slots: who holds one is starting: imports take all of a core.
    :param now: seconds since the epoch.
    """

    reactor: Any
    now: Callable[[], float]
    words: Callable[[str, int], Sequence[str]]
    environment: Mapping[str, str]
    enrol: Callable[[str], Deferred[Access]]
    slots: DeferredSemaphore = field(default_factory=lambda: DeferredSemaphore(2))


class LocalSpace:
    """
    One space, of which there is a record.

    :param changed: called when something that :meth:`info` tells is another.
    """

    _log = Logger()

    def __init__(
        self,
        record: Record,
        store: Store,
        means: SpaceEnvironment,
        changed: Callable[[Physical], None],
    ) -> None:
        self.record = record
        self._store, self._means, self._changed = store, means, changed
        self._state, self._reason = BUILDING, ""
        self._message = "it is being started" if record.made else ""
        self._ready = False
        self._run: Run | None = None
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self._working: Deferred[None] | None = None
        self._enrolling: Deferred[None] | None = None
        self._generation = uuid.uuid4().hex[:8]

    # What there is to be said.

    def info(self, *, whole: bool = True) -> SpaceInfo:
        """:param whole: with its access."""
        record = self.record
        access = self._access() if whole else None
        state, reason, message = self._told()
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

    def _told(self) -> tuple[str, str, str]:
        if self.is_lost and self._state != GOING:
            what = "what it kept is gone; it can only be made anew, and empty"
            return BROKEN, "Lost", f"{self._file()}: {what}"
        if self._ready and self._state == USABLE and not os.path.exists(self._file(ACCESS)):
            self._see_to_access()
            return BUILDING, "NoKubeconfig", self._message or "a kubeconfig is being made for it"
        return self._state, self._reason, self._message

    @property
    def is_lost(self) -> bool:
        """There was something that it kept, and is no more, though all others are there."""
        return self.record.made and self._store.is_ours() and not self._store.has_home(self.record)

    @property
    def pid(self) -> int | None:
        """Of its process, if it has one."""
        return self._run.pid if self._run is not None else None

    def _file(self, *parts: str) -> str:
        return self._store.home(self.record, *parts)

    def _access(self) -> Access | None:
        try:
            with open(self._file(ACCESS), "rb") as file:
                told = json.load(file)
            return Access(told["kubeconfig"].encode(), told["expires"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _tell(self, state: str, reason: str = "", message: str = "") -> None:
        if (state, reason, message) != (self._state, self._reason, self._message):
            self._state, self._reason, self._message = state, reason, message
            self._changed(self.record.physical)

    # Its work.

    def start(self) -> None:
        """Keep it running, or see it gone, as its record says."""
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

    def become(self, record: Record) -> Deferred[None]:
        """Its record is another now; fires when it is worked on as that says."""
        return Deferred.fromCoroutine(self._become(record))

    async def _become(self, record: Record) -> None:
        if record.going:
            self._tell(GOING)
        self.record = record
        working, self._working = self._working, None
        if working is not None:
            working.cancel()
            await working
        self.start()

    def stop(self) -> Deferred[None]:
        """End its process; fires when nothing of it runs here.  What it keeps stays."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
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
        while True:
            began = self._means.reactor.seconds()
            try:
                if self.is_lost:
                    raise ServiceUnavailable(self._told()[2])
                why = await self._run_once()
            except (APIError, OSError) as error:
                why = error.message if isinstance(error, APIError) else str(error.strerror)
            finally:
                self._give_up_access()
            if self._means.reactor.seconds() - began > STEADY_SECONDS:
                self._backoff.reset()
            pause = self._backoff.pause()
            self._tell(BUILDING, "Restarting", f"its process ended: {why}; it is started again")
            self._log.warn("local space {name}: {why}", name=self.record.name, why=why)
            await deferLater(self._means.reactor, pause)

    async def _run_once(self) -> str:
        """Run it until it ends; :return: why it did."""
        await self._means.slots.acquire()
        try:
            run = await self._started()
            fine = await run.until(self._is_ready, START_SECONDS)
        finally:
            self._means.slots.release()
        if fine:
            await self._served()
            return await run.ended()
        if not run.how:
            await run.stop()
            return f"it was not ready within {START_SECONDS:g} seconds, see {self._file(LOG)}"
        return run.how

    async def _started(self) -> Run:
        if not self.record.made:
            # Nobody knows its port yet, and somebody may have taken it since.
            taken = [record.port for record in self._store.records().values()]
            self._write(replace(self.record, port=free_port(taken)))
        await self._end_run()
        self._store.make_home(self.record)
        self._store.remove_file(self._file(STATE, KUBECONFIG))
        self._store.step()
        run = self._run = Run(self._file(LOG), self._means.reactor)
        argv = self._means.words(self._file(STATE), self.record.port)
        run.start(argv, self._means.environment)
        return run

    def _is_ready(self) -> bool:
        return os.path.exists(self._file(STATE, KUBECONFIG))

    async def _served(self) -> None:
        self._ready = True
        if not os.path.exists(self._file(ACCESS)):
            await self._enrol()
        if not self.record.made:
            self._write(replace(self.record, made=True))
        self._tell(USABLE)
        self.look()

    def _write(self, record: Record) -> None:
        self._store.write(record)
        self.record = record

    def look(self) -> None:
        """What has to be done from time to time."""
        if self._run is not None and self._ready:
            self._run.trim()
            if self.is_lost:
                self._run.stop()
                self._changed(self.record.physical)
        access = self._access()
        if access is None or (access.expires or 0) < self._means.now() + RENEW_SECONDS:
            self._see_to_access()

    # Its kubeconfig.

    def rotate(self) -> Deferred[None]:
        """Have another kubeconfig made."""
        if not self._ready:
            why = (
                f"local space {self.record.name} does not run just now; try again when it is usable"
            )
            return Deferred.fromCoroutine(_raise(ServiceUnavailable(why)))
        return Deferred.fromCoroutine(self._enrol())

    async def _enrol(self) -> None:
        access = await self._means.enrol(self._file(STATE, KUBECONFIG))
        told = {"kubeconfig": access.kubeconfig.decode(), "expires": access.expires}
        self._store.write_file(self._file(ACCESS), json.dumps(told).encode())
        self._generation = uuid.uuid4().hex[:8]
        self._changed(self.record.physical)

    def _see_to_access(self) -> None:
        """Have one made behind the scenes, however often that takes."""
        if self._enrolling is None and self._ready and self._state == USABLE:
            self._enrolling = Deferred.fromCoroutine(self._enrol_at_last())
            self._enrolling.addErrback(self._failed)

    async def _enrol_at_last(self) -> None:
        while True:
            try:
                await self._enrol()
                break
            except APIError as error:
                self._log.warn(
                    "local space {name}: {why}", name=self.record.name, why=error.message
                )
                self._message = f"no kubeconfig could be made: {error.message}"
                await deferLater(self._means.reactor, ENROL_PAUSE_SECONDS)
        self._message, self._enrolling = "", None

    def _give_up_access(self) -> None:
        self._ready = False
        enrolling, self._enrolling = self._enrolling, None
        if enrolling is not None:
            enrolling.cancel()

    # Going.

    async def _go(self) -> None:
        self._give_up_access()
        while True:
            try:
                await self._end_run()
                self._store.remove_home(self.record)
                self._store.remove(self.record)
                break
            except APIError as error:
                self._tell(GOING, "Waiting", error.message)
                await deferLater(self._means.reactor, self._backoff.pause())
        self._changed(self.record.physical)


async def _raise(error: APIError) -> None:
    raise error
