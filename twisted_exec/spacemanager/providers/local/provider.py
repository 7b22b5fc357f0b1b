"""
Local spaces: each is an API server, a poollet and a runtime in a process of its own, on this host.

There are no other requirements, so this provider serves to try everything.  A space has its own
process, port, authorities and store; when one crashes it is restarted, and the others are
unaffected.  The processes are children of the manager and end with it, however it ends.  Their
state is on disk, and the next manager restarts them on the same ports.

Only one instance uses the state at a time (:mod:`.records`); others report who does.

The kubeconfig of a space has a token of our account in it, created with the administrator's
credentials.  It is valid for a year: our API server ends a session when its token expires, so
short-lived tokens would end sessions that run through the manager's clients, such as a broker.  It
is revoked by deleting the account.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import MANAGER
from twisted_exec.api.status import (
    AlreadyExists,
    BadRequest,
    Conflict,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.program.tasks import StoppingParts
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
from twisted_exec.spacemanager.providers.common.accounts import (
    account_name,
    ensure_account,
    request_token,
)
from twisted_exec.spacemanager.providers.common.hints import Changed, Watchers
from twisted_exec.spacemanager.providers.local.process import argv, environment
from twisted_exec.spacemanager.providers.local.records import Record, Store, checked, new_record
from twisted_exec.spacemanager.providers.local.space import LocalSpace, SpaceEnvironment

TOKEN_SECONDS = 365 * 86400
_CONTEXT = "space"


def enrolled(path: str, provider: str, reactor: Any, now: Callable[[], float]) -> Deferred[Access]:
    """
    Create the account and a new token.

    :param path: path of the administrator's kubeconfig.
    :return: fires with the access; fails with an APIError.
    """
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
"""Interval for checking whether another process has changed the records, which costs one stat."""
MAX_SPACES = 100
"""Limit per provider: users who may create Spaces must not fill the manager's host."""
TEND_EVERY = 40
"""Number of checks between maintenance of the spaces."""


@implementer(ISpaceProvider, IHostLocal, IRotatesCredentials)
class LocalProvider:
    """
    See :class:`ISpaceProvider`.

    :param store: the provider's exclusive store; the first call opens it.
    """

    default_parent = ""
    _log = Logger()

    def __init__(self, store: Store, means: SpaceEnvironment) -> None:
        self._store, self._means = store, means
        self._spaces: dict[str, LocalSpace] = {}
        self._watchers = Watchers("local spaces")
        self._looking = LoopingCall(self._look)
        self._looking.clock = means.reactor
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
        """See :meth:`ISpaceProvider.delete`."""
        return maybeDeferred(lambda: self._delete(physical, owner))

    def list_spaces(self) -> Deferred[Sequence[SpaceInfo]]:
        """See :meth:`ISpaceProvider.list_spaces`."""
        return maybeDeferred(
            lambda: [self._info(each, whole=False) for each in self._known().values()]
        )

    def list_names(self) -> Deferred[Sequence[Physical]]:
        """See :meth:`ISpaceProvider.list_names`."""
        return maybeDeferred(lambda: [record.physical for record in self._known().values()])

    def get(self, physical: Physical) -> Deferred[SpaceInfo]:
        """See :meth:`ISpaceProvider.get`."""
        return maybeDeferred(lambda: self._info(self._find(physical)))

    def rotate(self, physical: Physical) -> Deferred[None]:
        """
        See :meth:`IRotatesCredentials.rotate`.

        Old tokens stay valid until they expire, so existing sessions continue.
        """
        return maybeDeferred(lambda: self._space(physical).rotate())

    def watch(self, changed: Changed) -> Callable[[], None]:
        """See :meth:`ISpaceProvider.watch`."""
        return self._watchers.add(changed)

    def close(self) -> Deferred[None]:
        """See :meth:`ISpaceProvider.close`: the processes end, what they keep stays."""
        self._closed = True
        self._leaving.add(self._watchers.close())
        if self._looking.running:
            self._looking.stop()
        for space in self._spaces.values():
            self._leaving.add(space.stop())
        self._spaces.clear()
        return self._leaving.over().addCallback(lambda _: self._store.close())

    def spaces(self) -> Sequence[LocalSpace]:
        """Return the running spaces."""
        return list(self._spaces.values())

    # Observing.

    def _known(self) -> dict[str, Record]:
        """Return all records, and start a LocalSpace for each."""
        if self._closed:
            raise ServiceUnavailable("local spaces: this provider instance was closed; retry")
        self._store.open()
        if not self._looking.running:
            looking = self._looking.start(LOOK_SECONDS, now=False)
            looking.addErrback(lambda failure: self._log.failure("local spaces", failure))
        records = self._records()
        self._see_to(records)
        return records

    def _records(self) -> dict[str, Record]:
        records = self._store.records()
        self._going.intersection_update(record.uid for record in records.values())
        return {
            name: replace(record, going=True) if record.uid in self._going else record
            for name, record in records.items()
        }

    def _see_to(self, records: dict[str, Record]) -> None:
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

    def _find(self, physical: Physical) -> Record:
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

    def _info(self, record: Record, *, whole: bool = True) -> SpaceInfo:
        if record.damaged:
            return SpaceInfo(record.physical, BROKEN, "Damaged", record.damaged, None)
        return self._spaces[record.name].info(whole=whole)

    def _tell(self, physical: Physical | None) -> None:
        self._watchers.tell(physical)

    def _look(self) -> None:
        """Detect changes by other processes, and run periodic maintenance."""
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
            for space in self._spaces.values():
                space.look()

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

    def _mark_going(self, record: Record) -> None:
        """
        Mark a space as deleted.  On a full disk nothing can be written, and the deletion is what
        frees it, so it proceeds without a record.  If we die meanwhile, the caller retries.
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
    """Return the environment of a provider's spaces; see :func:`make`."""
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
    """
    Create the provider of a SpaceProviderDesc of type ``local``; it needs no Secret.

    :param client_ca: path of a further client CA for the spaces; empty for none.
    :param ports: ports for the API servers of new spaces; ``None`` for the default range.
    """
    store = Store(os.path.join(around.directory, "local", spec.name))
    environment = space_environment(spec, around, client_ca, ports)
    provider: ISpaceProvider = LocalProvider(store, environment)
    return provider
