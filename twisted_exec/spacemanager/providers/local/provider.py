"""
Local spaces: each is an API server, a poollet and a runtime in a process of its own, on this host.

The processes are children of the manager and end with it. Their state stays on disk, for the next
manager. A space that was usable once keeps its port.

The kubeconfig of a space has a token that is valid for a year, because our API server ends the
sessions of an expired token.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import MANAGER, VIEWPOINTS
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadRequest,
    Conflict,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.control.backoff import Backoff
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.runs import Failures, StoppingParts
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.program.tasks import as_deferred
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Access,
    IHostLocal,
    IRotatesCredentials,
    ISpaceProvider,
    Physical,
    ProviderContext,
    ProviderSpec,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.base import Changed, Watchers
from twisted_exec.spacemanager.providers.credentials import (
    account_name,
    ensure_account,
    request_token,
)
from twisted_exec.spacemanager.providers.local.processes import (
    NoFreePort,
    ProcessRun,
    SpaceRecord,
    Store,
    argv,
    checked,
    environment,
    free_port,
    new_record,
)

TOKEN_SECONDS = 365 * 86400
_CONTEXT = "space"


def enrolled(path: str, provider: str, reactor: Any, now: Callable[[], float]) -> Deferred[Access]:
    """Create the account and a new token."""
    return Deferred.fromCoroutine(_enrolled(path, provider, reactor, now))


async def _enrolled(path: str, provider: str, reactor: Any, now: Callable[[], float]) -> Access:
    try:
        admin = load(path)
        ca = admin.ca.read()
    except KubeConfigError as error:
        raise ServiceUnavailable(str(error)) from None
    client = KubeClient(admin, reactor, agent=MANAGER)
    try:
        name = account_name(provider)
        await ensure_account(client, name, _as_is)
        token = await request_token(client, name, _as_is, now, TOKEN_SECONDS)
    finally:
        await client.close()
    config = ClientConfig(admin.server, ca=Material(data=ca), token=token.secret)
    return Access(written(config, _CONTEXT), token.expires)


def _as_is(resource: Resource) -> Resource:
    return resource


LOOK_SECONDS = 0.5
"""Interval for checking whether another process has changed the records."""
MAX_SPACES = 100
"""Limit per provider: users who may create Spaces must not fill the manager's host."""
TEND_EVERY = 40
"""Number of checks between maintenance of the spaces."""


@implementer(ISpaceProvider, IHostLocal, IRotatesCredentials)
class LocalProvider:
    """See :class:`ISpaceProvider`."""

    default_parent = ""
    _log = Logger()

    def __init__(self, store: Store, means: SpaceEnvironment) -> None:
        self._store, self._means = store, means
        self._spaces: dict[str, LocalSpace] = {}
        self._watchers = Watchers("local spaces")
        self._looking = PokedLoop(self._look, means.reactor, LOOK_SECONDS)
        self._going: set[str] = set()  # UIDs of deleted spaces whose records could not be updated
        self._looks = 0
        self._stamp = 0
        self._closed = False
        self._leaving = StoppingParts()

    # Calls: everything is local, so the answers are immediate.

    def create(self, physical: Physical, request: SpaceRequest) -> Deferred[None]:
        """See :meth:`ISpaceProvider.create`; there are no parameters."""
        return maybeDeferred(lambda: self._create(physical, request))

    def delete(self, physical: Physical, owner: str) -> Deferred[None]:
        return maybeDeferred(lambda: self._delete(physical, owner))

    def list_spaces(self) -> Deferred[Sequence[SpaceInfo]]:
        return maybeDeferred(
            lambda: [self._info(each, whole=False) for each in self._known().values()]
        )

    def list_names(self) -> Deferred[Sequence[Physical]]:
        return maybeDeferred(lambda: [record.physical for record in self._known().values()])

    def get(self, physical: Physical) -> Deferred[SpaceInfo]:
        return maybeDeferred(lambda: self._info(self._find(physical)))

    def rotate(self, physical: Physical) -> Deferred[None]:
        """
        See :meth:`IRotatesCredentials.rotate`.

        Old tokens stay valid until they expire, so existing sessions continue.
        """
        return maybeDeferred(lambda: self._space(physical).rotate())

    def watch(self, changed: Changed) -> Callable[[], None]:
        return self._watchers.add(changed)

    def close(self) -> Deferred[None]:
        """See :meth:`ISpaceProvider.close`: the processes end, their state stays."""
        self._closed = True
        self._leaving.add(self._watchers.close())
        self._leaving.add(self._looking.stop())
        for space in self._spaces.values():
            self._leaving.add(space.stop())
        self._spaces.clear()
        return self._leaving.over().addCallback(lambda _: self._store.close())

    def spaces(self) -> Sequence[LocalSpace]:
        return list(self._spaces.values())

    # Observing.

    def _known(self) -> dict[str, SpaceRecord]:
        if self._closed:
            raise ServiceUnavailable("local spaces: this provider instance was closed; retry")
        self._store.open()
        self._looking.start(LOOK_SECONDS)
        records = self._records()
        self._see_to(records)
        return records

    def _records(self) -> dict[str, SpaceRecord]:
        records = self._store.records()
        self._going.intersection_update(record.uid for record in records.values())
        return {
            name: replace(record, going=True) if record.uid in self._going else record
            for name, record in records.items()
        }

    def _see_to(self, records: dict[str, SpaceRecord]) -> None:
        for name in [name for name in self._spaces if name not in records]:
            self._leaving.add(self._spaces.pop(name).stop())
        for name, record in records.items():
            space = self._spaces.get(name)
            if record.damaged:
                continue
            if space is None:
                space_ = LocalSpace(record, self._store, self._means, self._tell)
                self._spaces[name] = space_
                space_.start()
            elif (space.record.uid, space.record.going) != (record.uid, record.going):
                self._leaving.add(space.become(record))

    def _find(self, physical: Physical) -> SpaceRecord:
        name = checked(physical)
        record = self._known().get(name)
        if record is None:
            raise NotFound("spaces", name, message=f"there is no local space {name}")
        return record

    def _space(self, physical: Physical) -> LocalSpace:
        record = self._find(physical)
        if record.damaged:
            raise ServiceUnavailable(record.damaged)
        return self._spaces[record.name]

    def _info(self, record: SpaceRecord, *, whole: bool = True) -> SpaceInfo:
        if record.damaged:
            return SpaceInfo(record.physical, BROKEN, "Damaged", record.damaged, None)
        return self._spaces[record.name].info(whole=whole)

    def _tell(self, physical: Physical | None) -> None:
        self._watchers.tell(physical)

    async def _look(self) -> None:
        self._looks += 1
        try:
            stamp = self._store.stamp()
            if stamp != self._stamp:
                self._stamp = stamp
                self._see_to(self._records())
                self._tell(None)
        except ServiceUnavailable:
            return  # calls report the problem
        if self._looks % TEND_EVERY == 0:
            failures = Failures()
            for space in self._spaces.values():
                with failures.noted():
                    space.look()
            failures.raise_first()

    # Changing.

    def _create(self, physical: Physical, request: SpaceRequest) -> None:
        name = checked(physical)
        if request.parameters:
            parameter = ascii(min(request.parameters)[:80])
            raise BadRequest(
                f"local space {name}: there is no parameter {parameter}; delete the Space, and make it without"
            )
        if not request.owner:
            raise BadRequest(f"local space {name}: the owner must be the UID of a Space")
        records = self._known()
        record = records.get(name)
        if record is None:
            if len(records) >= MAX_SPACES:
                raise ServiceUnavailable(
                    f"local space {name}: there are {len(records)} already, and each is a process of this host;"
                    " delete one"
                )
            self._store.write(new_record(name, request.owner))
        elif record.owner != request.owner or record.damaged:
            raise AlreadyExists("local space", name)
        elif record.going:
            raise Conflict(f"local space {name} is being deleted; create it again when it is gone")
        elif self._spaces[name].is_lost:
            self._store.write(replace(new_record(name, request.owner), port=record.port))
        else:
            return
        self._known()
        self._tell(physical)

    def _delete(self, physical: Physical, owner: str) -> None:
        name = checked(physical)
        record = self._known().get(name)
        if record is None:
            return
        if record.damaged:
            raise ServiceUnavailable(record.damaged)  # the owner is unknown
        if not owner or record.owner != owner:
            raise Conflict(
                f"local space {name} was not made for this Space, and is not deleted;"
                " delete it through the Space that it was made for"
            )
        if not record.going:
            self._mark_going(record)
            self._known()
            self._tell(physical)

    def _mark_going(self, record: SpaceRecord) -> None:
        """
        Mark a space as deleted. On a full disk the mark stays in memory, and the deletion proceeds,
        because it frees space.
        """
        try:
            self._store.write(replace(record, going=True))
        except ServiceUnavailable:
            if not self._store.is_ours():
                raise
            self._going.add(record.uid)


def space_environment(
    spec: ProviderSpec,
    around: ProviderContext,
    client_ca: str = "",
    ports: range | None = None,
) -> SpaceEnvironment:
    """Return the environment of a provider's spaces."""
    return SpaceEnvironment(
        around.reactor,
        around.now,
        partial(argv, client_ca=client_ca),
        environment(),
        lambda path: enrolled(path, spec.name, around.reactor, around.now),
        ports=ports,
    )


def make(
    spec: ProviderSpec,
    around: ProviderContext,
    client_ca: str = "",
    ports: range | None = None,
) -> ISpaceProvider:
    """Create the provider of a SpaceProviderDesc of type ``local``."""
    store = Store(os.path.join(around.directory, "local", spec.name))
    environment = space_environment(spec, around, client_ca, ports)
    provider: ISpaceProvider = LocalProvider(store, environment)
    return provider


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
    :param now: seconds since the epoch.
    """

    reactor: Any
    now: Callable[[], float]
    argv: Callable[[str, int], Sequence[str]]
    environment: Mapping[str, str]
    enrol: Callable[[str], Deferred[Access]]
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
            self._see_to_access()
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
        self.look()

    def _write(self, record: SpaceRecord) -> None:
        self._store.write(record)
        self.record = record

    def look(self) -> None:
        if self._run is not None and self._ready:
            self._run.trim()
            if self.is_lost:
                self._run.stop()
                self._changed(self.record.physical)
        if self._needs_access():
            self._see_to_access()

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

    def _see_to_access(self) -> None:
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


async def _raise(error: APIError) -> None:
    raise error
