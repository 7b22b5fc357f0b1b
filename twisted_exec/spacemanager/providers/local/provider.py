"""
Local spaces: each is an API server, a poollet and a runtime in a process of its own, on this host.

The processes are children of the manager and end with it. Their state stays on disk, for the next
manager. A space that was usable once keeps its port.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import MANAGER
from twisted_exec.api.status import (
    AlreadyExists,
    BadRequest,
    Conflict,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.runs import Failures, StoppingParts
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
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
from twisted_exec.spacemanager.providers.local import processes
from twisted_exec.spacemanager.providers.local.records import (
    SpaceRecord,
    Store,
    checked,
    new_record,
)
from twisted_exec.spacemanager.providers.local.space import LocalSpace, SpaceEnvironment

TOKEN_SECONDS = 365 * 86400
_END_SECONDS = 5.0
_CONTEXT = "space"

CHECK_SECONDS = 0.5
"""Interval for checking whether another process has changed the records."""

MAX_SPACES = 100
"""Limit per provider: users who may create Spaces must not fill the manager's host."""

CHECKS_PER_MAINTENANCE = 40
"""Number of checks of the records from one maintenance of the spaces to the next."""


def enroll(path: str, provider: str, reactor: Any, now: Callable[[], float]) -> Deferred[Access]:
    """Create the account of a provider in a space, and a new token of it."""
    return Deferred.fromCoroutine(_enroll(path, provider, reactor, now))


async def _enroll(path: str, provider: str, reactor: Any, now: Callable[[], float]) -> Access:
    admin, ca = _load(path)
    client = KubeClient(admin, reactor, agent=MANAGER)
    try:
        name = account_name(provider)
        await ensure_account(client, name, _as_is)
        token = await request_token(client, name, _as_is, now, TOKEN_SECONDS)
    finally:
        await client.close()
    config = ClientConfig(admin.server, ca=Material(data=ca), token=token.secret)
    return Access(written(config, _CONTEXT), token.expires)


def end_sessions(path: str, reactor: Any) -> Deferred[None]:
    """End the sessions of a space whose pool will not come back, by deleting the pool."""
    return Deferred.fromCoroutine(_end_sessions(path, reactor))


async def _end_sessions(path: str, reactor: Any) -> None:
    admin, _ = _load(path)
    client = KubeClient(admin, reactor, agent=MANAGER, timeout_seconds=_END_SECONDS)
    try:
        for pool in (await client.list(IRONCORE.pool))["items"]:
            await client.delete(IRONCORE.pool, pool["metadata"]["name"])
    finally:
        await client.close()


def _load(path: str) -> tuple[ClientConfig, bytes]:
    try:
        admin = load(path)
        return admin, admin.ca.read()
    except KubeConfigError as error:
        raise ServiceUnavailable(str(error)) from None


def _as_is(resource: Resource) -> Resource:
    return resource


@implementer(ISpaceProvider, IHostLocal, IRotatesCredentials)
class LocalProvider:
    """See :class:`ISpaceProvider`."""

    default_parent = ""
    _log = Logger()

    def __init__(self, store: Store, environment: SpaceEnvironment) -> None:
        self._store, self._environment = store, environment
        self._spaces: dict[str, LocalSpace] = {}
        self._watchers = Watchers("local spaces")
        self._checking = PokedLoop(self._check, environment.reactor, CHECK_SECONDS)
        self._unrecorded_deletions: set[str] = set()
        """UIDs of deleted spaces whose records could not be updated."""
        self._checks = 0
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
        self._leaving.add(self._checking.stop())
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
        self._checking.start(CHECK_SECONDS)
        records = self._records()
        self._adjust_spaces(records)
        return records

    def _records(self) -> dict[str, SpaceRecord]:
        records = self._store.records()
        self._unrecorded_deletions.intersection_update(record.uid for record in records.values())
        return {
            name: replace(record, going=True)
            if record.uid in self._unrecorded_deletions
            else record
            for name, record in records.items()
        }

    def _adjust_spaces(self, records: dict[str, SpaceRecord]) -> None:
        for name in [name for name in self._spaces if name not in records]:
            self._leaving.add(self._spaces.pop(name).stop())
        for name, record in records.items():
            space = self._spaces.get(name)
            if record.damaged:
                continue
            if space is None:
                space = LocalSpace(record, self._store, self._environment, self._notify)
                self._spaces[name] = space
                space.start()
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

    def _notify(self, physical: Physical | None) -> None:
        self._watchers.tell(physical)

    async def _check(self) -> None:
        self._checks += 1
        try:
            stamp = self._store.stamp()
            if stamp != self._stamp:
                self._stamp = stamp
                self._adjust_spaces(self._records())
                self._notify(None)
        except ServiceUnavailable:
            return  # calls report the problem
        if self._checks % CHECKS_PER_MAINTENANCE == 0:
            failures = Failures()
            for space in self._spaces.values():
                with failures.noted():
                    space.maintain()
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
        self._notify(physical)

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
            self._mark_deleted(record)
            self._known()
            self._notify(physical)

    def _mark_deleted(self, record: SpaceRecord) -> None:
        """
        Mark a space as deleted. On a full disk the mark stays in memory, and the deletion proceeds,
        because it frees space.
        """
        try:
            self._store.write(replace(record, going=True))
        except ServiceUnavailable:
            if not self._store.is_ours():
                raise
            self._unrecorded_deletions.add(record.uid)


def space_environment(
    spec: ProviderSpec,
    context: ProviderContext,
    client_ca: str = "",
    ports: range | None = None,
) -> SpaceEnvironment:
    """Return the environment of a provider's spaces."""
    return SpaceEnvironment(
        context.reactor,
        context.now,
        partial(processes.argv, client_ca=client_ca),
        processes.environment(),
        lambda path: enroll(path, spec.name, context.reactor, context.now),
        lambda path: end_sessions(path, context.reactor),
        ports=ports,
    )


def make(
    spec: ProviderSpec,
    context: ProviderContext,
    client_ca: str = "",
    ports: range | None = None,
) -> ISpaceProvider:
    """Create the provider of a SpaceProviderDesc of type ``local``."""
    store = Store(os.path.join(context.directory, "local", spec.name))
    provider: ISpaceProvider = LocalProvider(
        store, space_environment(spec, context, client_ca, ports)
    )
    return provider
