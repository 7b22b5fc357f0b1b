"""
Local spaces: each an API server, a poollet and a runtime of ours in a process of its own, on this host.

Nothing else is needed, so this is what everything can be tried with.  A space has its own process, port,
authorities and store; when one ends, the others serve on, and it is started again.  The processes are the
manager's children and end with it, however it ends; what they keep is on disk, and whoever is the next
manager on it starts them again, at the same ports.

There is one adaptor at a time for what is kept (:mod:`.local_records`); another is told who has it.

The kubeconfig of a local space: a token of an account of ours within it, by its administrator's leave.

The token is good for a year.  Our API server ends a session when the token ends that it was opened with, so one
that is soon over would end sessions that somebody has on behalf of the manager's clients, such as a broker.
It is taken back by deleting the account.
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
from twisted_exec.program.tasks import Stopping
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
    asked_token,
    made_account,
)
from twisted_exec.spacemanager.providers.common.hints import Changed, Watchers
from twisted_exec.spacemanager.providers.local.process import environment, words
from twisted_exec.spacemanager.providers.local.records import Record, Store, checked, new_record
from twisted_exec.spacemanager.providers.local.space import LocalSpace, SpaceEnvironment

TOKEN_SECONDS = 365 * 86400
_CONTEXT = "space"


def enrolled(path: str, provider: str, reactor: Any, now: Callable[[], float]) -> Deferred[Access]:
    """
    Have the account, and a new token of it.

    :param path: of the administrator's kubeconfig.
    :return: fires with the access; fails with an APIError when there is none to be had.
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
        await made_account(client, name, _as_is)
        token = await asked_token(client, name, _as_is, now, TOKEN_SECONDS)
    finally:
        await client.close()
    config = ClientConfig(admin.server, ca=Material(data=ca), token=token.secret)
    return Access(written(config, _CONTEXT), token.expires)


def _as_is(resource: Resource) -> Resource:
    return resource


LOOK_SECONDS = 0.5
"""How often it is looked whether somebody else has changed what there is: one look at a directory."""
MAX_SPACES = 100
"""Of one provider: whoever may make Spaces is not to fill the manager's host."""
TEND_EVERY = 40
"""Every so many looks, each space is seen to."""


@implementer(ISpaceProvider, IHostLocal, IRotatesCredentials)
class LocalProvider:
    """
    :param store: nobody else's; opened by the first call.
    """

    default_parent = ""
    _log = Logger()

    def __init__(self, store: Store, means: SpaceEnvironment) -> None:
        self._store, self._means = store, means
        self._spaces: dict[str, LocalSpace] = {}
        self._watchers = Watchers("local spaces")
        self._looking = LoopingCall(self._look)
        self._looking.clock = means.reactor
        self._going: set[str] = set()  # UIDs of those whose record cannot say so
        self._looks = 0
        self._stamp = 0
        self._closed = False
        self._leaving = Stopping()

    # The door: all is on this very host, and answered at once.

    def create(self, physical: Physical, wanted: SpaceRequest) -> Deferred[None]:
        """See :meth:`ISpaceProvider.create`; there are no parameters."""
        return maybeDeferred(lambda: self._create(physical, wanted))

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

        A token that was given before is good until its own end: whoever has a session by it keeps it.
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
        """Those that are seen to here."""
        return list(self._spaces.values())

    # What is there.

    def _known(self) -> dict[str, Record]:
        """All records, each with somebody who sees to it."""
        if self._closed:
            raise ServiceUnavailable("local spaces: this adaptor was closed; ask the next one")
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
                made = LocalSpace(record, self._store, self._means, self._tell)
                self._spaces[name] = made
                made.start()
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
        """What others have changed, and what is to be done from time to time."""
        self._looks += 1
        try:
            stamp = self._store.stamp()
            if stamp != self._stamp:
                self._stamp = stamp
                self._see_to(self._records())
                self._tell(None)
        except ServiceUnavailable:
            return  # whoever asks is told
        if self._looks % TEND_EVERY == 0:
            for space in self._spaces.values():
                space.look()

    # What is wanted.

    def _create(self, physical: Physical, wanted: SpaceRequest) -> None:
        name = checked(physical)
        if wanted.parameters:
            told = ascii(min(wanted.parameters)[:80])
            raise BadRequest(
                f"local space {name}: there is no parameter {told}; delete the Space, and make it without"
            )
        if not wanted.owner:
            raise BadRequest(f"local space {name}: the owner must be the UID of a Space")
        records = self._known()
        record = records.get(name)
        if record is None:
            if len(records) >= MAX_SPACES:
                raise ServiceUnavailable(
                    f"local space {name}: there are {len(records)} already, and each is a process of this host;"
                    " delete one"
                )
            self._store.write(new_record(name, wanted.owner))
        elif record.owner != wanted.owner or record.damaged:
            raise AlreadyExists("local space", name)
        elif record.going:
            raise Conflict(f"local space {name} is being deleted; create it again when it is gone")
        elif self._spaces[name].is_lost:
            self._store.write(replace(new_record(name, wanted.owner), port=record.port))
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
            raise ServiceUnavailable(record.damaged)  # nobody knows whose it is
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
        Where the disk is full nothing can be written, and this is what frees it: then it goes all the same.  If we
        die meanwhile, whoever asked asks again.
        """
        try:
            self._store.write(replace(record, going=True))
        except ServiceUnavailable:
            if not self._store.is_ours():
                raise
            self._going.add(record.uid)


def means(spec: ProviderSpec, around: ProviderContext, client_ca: str = "") -> SpaceEnvironment:
    """What the spaces of a provider are made with; see :func:`make`."""
    return SpaceEnvironment(
        around.reactor,
        around.now,
        partial(words, client_ca=client_ca),
        environment(),
        lambda path: enrolled(path, spec.name, around.reactor, around.now),
    )


def make(spec: ProviderSpec, around: ProviderContext, client_ca: str = "") -> ISpaceProvider:
    """
    The adaptor of a SpaceProviderDesc of type ``local``; it needs no Secret.

    :param client_ca: path of a CA whose certificates are users in the spaces, besides each one's own; empty
        for none.
    """
    store = Store(os.path.join(around.directory, "local", spec.name))
    provider: ISpaceProvider = LocalProvider(store, means(spec, around, client_ca))
    return provider
