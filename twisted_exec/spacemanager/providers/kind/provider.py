"""
Clusters of kind, by its own program.

``kind get clusters`` is what tells which there are, and is asked for anything; kubeconfigs, which cost three times
as much, are fetched when one is looked at, and kept while the cluster answers to them.  Clusters are half built for
minutes, and are listed meanwhile, so what is usable is asked of its API server.

A cluster is made by a run of kind that is nobody's (:mod:`.kind_cli`), so ``create`` is over when that has begun.
Whose a cluster is says a label of its nodes, and before it can be read a record here (:mod:`.kind_records`).  A record
is written before anything is made: between the two nothing is there, and somebody else's cluster that would come under
the name meanwhile makes our run fail, and is theirs.  A run that was broken off, by a power failure, leaves the
record with a cluster that says nothing; that one is taken for ours, as the name was free when we began.

From outside a cluster is reached where its nodes' ports are published, which is on the host of the nodes unless its
configuration says more (``networking.apiServerAddress``).  The other viewpoint, ``kind get kubeconfig --internal``, is
a name in the nodes' own network.  It is given where the provider's Secret says that the cluster of the Spaces is in
that network, and otherwise there is none: it would lead nowhere, or elsewhere.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.task import deferLater
from zope.interface import implementer

from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER, KIND
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadGateway,
    Conflict,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.program.tasks import Stopping
from twisted_exec.spacemanager.interfaces import (
    BROKEN,
    BUILDING,
    GOING,
    USABLE,
    Access,
    IHostLocal,
    ISpaceProvider,
    Physical,
    ProviderContext,
    ProviderSpec,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.providers.common.calls import CoroutineProvider
from twisted_exec.spacemanager.providers.common.hints import Changed
from twisted_exec.spacemanager.providers.common.kubeconfigs import clean
from twisted_exec.spacemanager.providers.common.objects import mark
from twisted_exec.spacemanager.providers.kind.cli import CompletedRun, KindCli, kill_group
from twisted_exec.spacemanager.providers.kind.config import (
    KindSettings,
    check_name,
    config_of,
    image_of,
    kind_settings,
    listed_names,
)
from twisted_exec.spacemanager.providers.kind.identity import Identity, Server
from twisted_exec.spacemanager.providers.kind.polling import NamePoller
from twisted_exec.spacemanager.providers.kind.records import (
    CODE,
    CONFIG,
    CREATING,
    DELETING,
    KUBECONFIG,
    LOG,
    MADE,
    Attempt,
    Record,
    Records,
)
from twisted_exec.spacemanager.providers.kind.state import (
    ABSENT,
    COMPLETE,
    FAILED,
    GROWING,
    LEAVING,
    OTHERS,
    ClusterState,
    standing,
)

LOOK_SECONDS = 30.0
DELETE_SECONDS = 300.0
_STATES = {GROWING: BUILDING, FAILED: BROKEN, LEAVING: GOING}
_TRIES = 5
MAX_CLUSTERS, MAX_MAKING = 50, 4
"""How many there may be that were made here, and how many of them in the making: each takes a core meanwhile."""


@dataclass(frozen=True)
class _Known:
    """
    What was found out of a cluster, when it was looked at last.

    :param access: good for as long as its API server answers to it.
    :param stamp: of all that; changes with it.
    :param server: it, reached from here; there when the access is.
    :param problem: why it could not be used then, or empty.
    """

    access: Mapping[str, Access]
    stamp: str
    server: Server | None = None
    identity: Identity | None = None
    problem: str = ""


@dataclass(frozen=True)
class _Found:
    """One cluster: what is recorded of it, whether kind lists it, and what comes of that."""

    name: str
    record: Record | None
    listed: bool
    standing: ClusterState


@implementer(ISpaceProvider, IHostLocal)
class KindProvider(CoroutineProvider):
    """
    The parameter of what is made is ``image``.  Lists tell of each as it was when it was looked at last.

    :param reactor: provides ``IReactorTime``, ``IReactorTCP`` and ``IReactorProcess``.
    :param now: seconds since the epoch.
    """

    default_parent = ""

    def __init__(
        self,
        settings: KindSettings,
        cli: KindCli,
        records: Records,
        reactor: Any,
        now: Callable[[], float],
    ) -> None:
        self._settings, self._cli, self._records = settings, cli, records
        self._reactor, self._now = reactor, now
        self._known: dict[str, _Known] = {}
        self._closing = Stopping()
        self._poll = NamePoller(reactor, self._listed_names, self._unsettled)

    def watch(self, changed: Changed) -> Callable[[], None]:
        """See :meth:`ISpaceProvider.watch`: kind tells nobody, so it is asked every few seconds."""
        return self._poll.add(changed)

    def close(self) -> Deferred[None]:
        """See :meth:`ISpaceProvider.close`: what is being made goes on."""
        ending = [self._poll.close(), self._cli.close()]
        for name in list(self._known):
            self._learned(name, None)
        return DeferredList([*ending, self._closing.over()]).addCallback(lambda _done: None)

    # What is there.

    async def _list_spaces(self) -> Sequence[SpaceInfo]:
        names = set(self._records.names())
        before = {name: self._read(name) for name in names}
        listed = set(await self._listed_names())
        for name in [name for name in self._known if name not in listed]:
            self._learned(name, None)
        infos = []
        for name in sorted(listed | names):
            attempt, record = before.get(name) or self._read(name)
            found = self._judged(name, attempt, record, name in listed)
            if found.standing.which != ABSENT:
                infos.append(self._info(found))
        return infos

    async def _get(self, physical: Physical) -> SpaceInfo:
        check_name(physical)
        found = await self._found(physical.name)
        if found.standing.which == ABSENT:
            raise NotFound("clusters", physical.name)
        return self._info(await self._probed(found))

    async def _found(self, name: str) -> _Found:
        """One, as it is recorded and listed at one time."""
        for _ in range(_TRIES):
            before = self._read(name)
            listed = name in await self._listed_names()
            if self._read(name) == before:
                break
        if not listed:
            self._learned(name, None)
        return self._judged(name, *before, listed)

    def _read(self, name: str) -> tuple[Attempt, Record | None]:
        return self._records.attempt(name), self._records.read(name)

    def _judged(self, name: str, attempt: Attempt, record: Record | None, listed: bool) -> _Found:
        stands = standing(record, attempt, listed, self._now())
        if stands.forget:
            self._forget(name, record)
            return _Found(name, None, listed, stands)
        if stands.late and record is not None and record.group:
            kill_group(record.group)
        return _Found(name, record, listed, stands)

    def _forget(self, name: str, record: Record | None) -> None:
        """A record is let go, unless somebody has written another meanwhile."""
        if name not in self._records.names():
            return
        lock = self._records.lock(name)
        if lock is None:
            return
        try:
            if self._records.read(name) == record:
                self._records.forget(name)
        finally:
            os.close(lock)

    async def _listed_names(self) -> list[str]:
        ran = await self._cli.run("get", "clusters", seconds=LOOK_SECONDS)
        if ran.code:
            raise _refused("list clusters", ran)
        return listed_names(ran.out)

    # Its API server.

    async def _probed(self, found: _Found) -> _Found:
        """
        One that may have an API server, as that says; whose it is by its nodes goes before what is recorded.
        """
        if not found.listed or found.standing.which not in (COMPLETE, OTHERS, FAILED):
            return found
        name = found.name
        known = self._known.get(name)
        if known is not None:
            known = await self._asked(known)
        if known is None or known.problem:
            known = await self._asked(await self._fetched(name))
        self._learned(name, known)
        who, record = known.identity, found.record
        if who is None or record is None:
            return found
        if who.owner != record.owner:
            self._forget(name, record)
            return _Found(name, None, True, ClusterState(OTHERS))
        if found.standing.which == COMPLETE and record.uid != who.uid:
            found = replace(found, record=self._kept(name, record, who.uid))
        return found

    def _learned(self, name: str, known: _Known | None) -> None:
        """What is known of a cluster is this now; connections to one that is not meant any more are closed."""
        before = self._known.pop(name, None)
        if known is not None:
            self._known[name] = known
        server = before.server if before is not None else None
        if server is not None and (known is None or known.server is not server):
            self._closing.add(server.close())

    def _kept(self, name: str, before: Record, uid: str) -> Record:
        """The record of one that was found whole. :return: what it is now."""
        lock = self._records.lock(name)
        if lock is None:
            return before
        try:
            if self._records.read(name) != before:
                return before
            after = replace(before, state=MADE, uid=uid)
            self._records.write(name, after)
            return after
        finally:
            os.close(lock)

    async def _fetched(self, name: str) -> _Known:
        """Its kubeconfigs, if there are any yet."""
        ways = {EXTERNAL: ()} | ({IN_CLUSTER: ("--internal",)} if self._settings.internal else {})
        access: dict[str, Access] = {}
        stamp = hashlib.sha256()
        for viewpoint, option in ways.items():
            words = ("get", "kubeconfig", f"--name={name}", *option)
            ran = await self._cli.run(*words, seconds=LOOK_SECONDS)
            if ran.code:
                return _Known({}, "none", problem=f"there is no kubeconfig of it yet: {ran.told}")
            source = f"what kind {' '.join(words)} printed"
            try:
                access[viewpoint] = clean(ran.out, source, f"kind-{name}")
            except KubeConfigError as problem:
                raise BadGateway(f"{problem}; see which program is called kind") from None
            stamp.update(access[viewpoint].kubeconfig)
        config = load_inline(access[EXTERNAL].kubeconfig, f'cluster "{name}"')
        return _Known(access, stamp.hexdigest()[:16], Server(config, self._reactor))

    async def _asked(self, known: _Known) -> _Known:
        """The same, as its API server says by now."""
        if known.server is None:
            return known
        try:
            await known.server.ready()
            who = known.identity or await known.server.identity()
        except APIError as problem:
            return replace(known, problem=f"its API server is not ready: {problem.message}")
        return replace(known, identity=who, problem="")

    def _info(self, found: _Found) -> SpaceInfo:
        physical, record, stands = Physical(found.name), found.record, found.standing
        known = self._known.get(found.name)
        who = known.identity if known is not None else None
        uid = who.uid if who is not None else record.uid if record is not None else ""
        owner = record.owner if record is not None else who.owner if who is not None else None
        if stands.which in _STATES:
            state = _STATES[stands.which]
            version = f"{stands.reason or state}"
            return SpaceInfo(physical, state, stands.reason, stands.message, owner, uid, version)
        if known is None:
            # What was made here whole is usable as far as kind can tell; of others' it cannot.
            state = USABLE if stands.which == COMPLETE else BUILDING
            return SpaceInfo(physical, state, owner=owner, uid=uid)
        if known.problem:
            reason, version = "NotReady", f"{known.stamp}-not"
            return SpaceInfo(physical, BUILDING, reason, known.problem, owner, uid, version)
        return SpaceInfo(
            physical, USABLE, owner=owner, uid=uid, version=known.stamp, access=known.access
        )

    def _unsettled(self) -> list[Physical]:
        """What is worth a look although its name is listed as before."""
        return [Physical(name) for name, known in self._known.items() if known.problem]

    # What is done.

    async def _create(self, physical: Physical, wanted: SpaceRequest) -> None:
        check_name(physical, new=True)
        mark(wanted.owner)
        name = physical.name
        image = image_of(self._settings, name, wanted.parameters)
        found = await self._probed(await self._found(name))
        if found.standing.which == OTHERS:
            self._adopt(found, wanted.owner)
            return
        record = found.record
        if record is not None and record.owner != wanted.owner:
            raise AlreadyExists("clusters", name)
        if found.standing.which == LEAVING:
            raise Conflict(f'cluster "{name}" is being deleted; it can be made when it is gone')
        if found.standing.which in (ABSENT, FAILED):
            self._check_room(name)
            await self._begin(found, wanted.owner, image)

    def _check_room(self, name: str) -> None:
        """Whoever may make Spaces is not to fill the manager's host."""
        others = [each for each in self._records.names() if each != name]
        making = [each for each in others if self._records.attempt(each).busy]
        if len(others) >= MAX_CLUSTERS:
            what = f"there are {len(others)} already; delete one"
        elif len(making) >= MAX_MAKING:
            what = f"{len(making)} others are being made; it is begun when one of them is done"
        else:
            return
        raise ServiceUnavailable(f'cluster "{name}" cannot be made yet: {what}')

    def _adopt(self, found: _Found, owner: str) -> None:
        """One that bears our mark and is not recorded: the directory is another's, or was lost."""
        known = self._known.get(found.name)
        who = known.identity if known is not None else None
        if who is None or who.owner != owner:
            raise AlreadyExists("clusters", found.name)
        lock = self._locked(found.name)
        try:
            self._records.write(found.name, Record(owner, MADE, self._now(), uid=who.uid))
        finally:
            os.close(lock)

    async def _begin(self, found: _Found, owner: str, image: str) -> None:
        name = found.name
        lock = self._records.lock(name)
        if lock is None:
            raise Conflict(f'cluster "{name}" is being worked on; it is tried again')
        try:
            if self._records.read(name) != found.record:
                raise Conflict(f'cluster "{name}" was changed meanwhile; it is tried again')
            if found.standing.which == FAILED:
                await self._removed(name)
            self._started(name, owner, image, lock)
        finally:
            os.close(lock)

    def _started(self, name: str, owner: str, image: str, lock: int) -> None:
        """From here to the end nothing is awaited: it is recorded, and begun."""
        self._learned(name, None)
        self._records.clear(name)
        self._records.put(name, CONFIG, config_of(self._settings, owner))
        record = Record(owner, CREATING, self._now())
        self._records.write(name, record)
        words = [
            "create",
            "cluster",
            f"--name={name}",
            f"--config={self._records.path(name, CONFIG)}",
            f"--kubeconfig={self._records.path(name, KUBECONFIG)}",
            *([f"--image={image}"] if image else []),
        ]
        code, log = self._records.path(name, CODE), self._records.path(name, LOG)
        try:
            group = self._cli.make(words, code, log, lock, lambda: self._poll.tell(Physical(name)))
        except APIError:
            self._records.forget(name)
            raise
        self._records.write(name, replace(record, group=group))

    async def _delete(self, physical: Physical, owner: str) -> None:
        check_name(physical)
        name = physical.name
        found = await self._probed(await self._found(name))
        if found.standing.which == ABSENT:
            return
        whose = self._owner(found)
        if whose is None:
            raise ServiceUnavailable(
                f'whose cluster "{name}" is cannot be told: there is no record of it, and its API server does not answer;'
                " it is deleted when that answers, if it is ours"
            )
        if whose != owner or not owner:
            raise Conflict(
                f'cluster "{name}" does not bear the mark of this Space, so it is not deleted; delete it by kind if'
                " it is to go"
            )
        lock = await self._broken_off(found)
        try:
            record = found.record or Record(owner, DELETING, self._now())
            self._records.write(name, replace(record, state=DELETING))
            await self._removed(name)
            self._learned(name, None)
            self._records.forget(name)
        finally:
            os.close(lock)

    def _owner(self, found: _Found) -> str | None:
        """``None`` when that cannot be told now."""
        if found.record is not None:
            return found.record.owner
        known = self._known.get(found.name)
        return known.identity.owner if known is not None and known.identity is not None else None

    async def _broken_off(self, found: _Found) -> int:
        """Whoever makes it is ended. :return: the lock."""
        name, record = found.name, found.record
        for _ in range(50):
            lock = self._records.lock(name)
            if lock is not None:
                if self._records.read(name) in (record, None):
                    return lock
                os.close(lock)
                break
            if record is not None and record.state == CREATING and record.group:
                kill_group(record.group)
            await deferLater(self._reactor, 0.02)
        raise Conflict(f'cluster "{name}" is being worked on; it is tried again')

    def _locked(self, name: str) -> int:
        lock = self._records.lock(name)
        if lock is None:
            raise Conflict(f'cluster "{name}" is being worked on; it is tried again')
        return lock

    async def _removed(self, name: str) -> None:
        # A kubeconfig of its own each time: where a run was killed, kind's lock beside the file stays.
        file = self._records.path(name, f"{KUBECONFIG}-{os.urandom(4).hex()}")
        words = ("delete", "cluster", f"--name={name}", f"--kubeconfig={file}")
        ran = await self._cli.run(*words, seconds=DELETE_SECONDS)
        if ran.code:
            raise _refused(f'delete cluster "{name}"', ran)


def _refused(what: str, ran: CompletedRun) -> APIError:
    told = ran.told or f"exit code {ran.code}"
    return ServiceUnavailable(
        f"kind cannot {what}: {told}; see that docker, podman or nerdctl answers where the manager runs"
    )


def make(spec: ProviderSpec, around: ProviderContext) -> ISpaceProvider:
    """See :data:`~twisted_exec.spacemanager.interfaces.MakeProvider`."""
    settings = kind_settings(spec)
    records = Records(os.path.join(around.directory, KIND, spec.name))
    return KindProvider(settings, KindCli(around.reactor), records, around.reactor, around.now)
