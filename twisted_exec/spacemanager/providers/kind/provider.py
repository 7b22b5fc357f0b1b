"""
Provider ``kind``: clusters that the ``kind`` program creates.

An independent run of kind creates a cluster
(:class:`~twisted_exec.spacemanager.providers.kind.cli.KindCli`), so ``create`` ends when that
run has started. A label of the nodes names the owner; a record does so until the label is readable
(:class:`~twisted_exec.spacemanager.providers.kind.records.Records`).

The internal viewpoint is only offered if the provider's Secret says that the hub is in the nodes'
own network.
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
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.program.process_groups import kill_group
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
from twisted_exec.spacemanager.providers.base import Changed, CoroutineProvider
from twisted_exec.spacemanager.providers.cluster import mark
from twisted_exec.spacemanager.providers.credentials import clean
from twisted_exec.spacemanager.providers.kind.cli import CompletedRun, KindCli
from twisted_exec.spacemanager.providers.kind.names import (
    POLL_SECONDS,
    NamePoller,
    check_name,
    listed_names,
)
from twisted_exec.spacemanager.providers.kind.records import (
    CODE,
    CONFIG,
    CREATING,
    DELETING,
    KUBECONFIG,
    LOG,
    MADE,
    ClusterCreation,
    ClusterRecord,
    Records,
)
from twisted_exec.spacemanager.providers.kind.server import ClusterIdentity, ClusterServer
from twisted_exec.spacemanager.providers.kind.settings import (
    KindSettings,
    config_of,
    image_of,
    kind_settings,
)
from twisted_exec.spacemanager.providers.kind.state import (
    ABSENT,
    COMPLETE,
    FAILED,
    GROWING,
    LEAVING,
    OTHERS,
    ClusterState,
    state_of,
)

LOOK_SECONDS = 30.0
DELETE_SECONDS = 300.0
_STATES = {GROWING: BUILDING, FAILED: BROKEN, LEAVING: GOING}
_TRIES = 5
MAX_CLUSTERS, MAX_MAKING = 50, 4
"""Limits for clusters that were created here, and for concurrent creations."""


@dataclass(frozen=True)
class _Check:
    access: Mapping[str, Access]
    stamp: str
    server: ClusterServer | None = None
    identity: ClusterIdentity | None = None
    problem: str = ""


@dataclass(frozen=True)
class _Cluster:
    name: str
    record: ClusterRecord | None
    listed: bool
    state: ClusterState


@implementer(ISpaceProvider, IHostLocal)
class KindProvider(CoroutineProvider):
    """
    See :class:`ISpaceProvider`. There is one parameter, ``image``.

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
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._settings, self._cli, self._records = settings, cli, records
        self._reactor, self._now = reactor, now
        self._checks: dict[str, _Check] = {}
        self._closing = StoppingParts()
        self._poll = NamePoller(reactor, self._listed_names, self._unsettled, poll_seconds)

    def watch(self, changed: Changed) -> Callable[[], None]:
        return self._poll.add(changed)

    def close(self) -> Deferred[None]:
        """See :meth:`ISpaceProvider.close`. Creations under way continue."""
        ending = [self._poll.close(), self._cli.close()]
        for name in list(self._checks):
            self._learned(name, None)
        return DeferredList([*ending, self._closing.over()]).addCallback(lambda _done: None)

    # Observing.

    async def _list_spaces(self) -> Sequence[SpaceInfo]:
        names = set(self._records.names())
        before = {name: self._read(name) for name in names}
        listed = set(await self._listed_names())
        for name in [name for name in self._checks if name not in listed]:
            self._learned(name, None)
        infos = []
        for name in sorted(listed | names):
            attempt, record = before.get(name) or self._read(name)
            cluster = self._judged(name, attempt, record, name in listed)
            if cluster.state.which != ABSENT:
                infos.append(self._info(cluster))
        return infos

    async def _get(self, physical: Physical) -> SpaceInfo:
        check_name(physical)
        cluster = await self._find(physical.name)
        if cluster.state.which == ABSENT:
            raise NotFound("clusters", physical.name)
        return self._info(await self._probed(cluster))

    async def _find(self, name: str) -> _Cluster:
        for _ in range(_TRIES):
            before = self._read(name)
            listed = name in await self._listed_names()
            if self._read(name) == before:
                break
        if not listed:
            self._learned(name, None)
        return self._judged(name, *before, listed)

    def _read(self, name: str) -> tuple[ClusterCreation, ClusterRecord | None]:
        return self._records.attempt(name), self._records.read(name)

    def _judged(
        self, name: str, attempt: ClusterCreation, record: ClusterRecord | None, listed: bool
    ) -> _Cluster:
        state = state_of(record, attempt, listed, self._now())
        if state.forget:
            self._forget(name, record)
            return _Cluster(name, None, listed, state)
        if state.late and record is not None and record.group:
            kill_group(record.group)
        return _Cluster(name, record, listed, state)

    def _forget(self, name: str, record: ClusterRecord | None) -> None:
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

    # The API server.

    async def _probed(self, cluster: _Cluster) -> _Cluster:
        """Check the API server of a cluster; its owner label takes precedence over the record."""
        if not cluster.listed or cluster.state.which not in (COMPLETE, OTHERS, FAILED):
            return cluster
        name = cluster.name
        check = self._checks.get(name)
        if check is not None:
            check = await self._ask(check)
        if check is None or check.problem:
            check = await self._ask(await self._fetched(name))
        self._learned(name, check)
        who, record = check.identity, cluster.record
        if who is None or record is None:
            return cluster
        if who.owner != record.owner:
            self._forget(name, record)
            return _Cluster(name, None, True, ClusterState(OTHERS))
        if cluster.state.which == COMPLETE and record.uid != who.uid:
            cluster = replace(cluster, record=self._complete(name, record, who.uid))
        return cluster

    def _learned(self, name: str, check: _Check | None) -> None:
        before = self._checks.pop(name, None)
        if check is not None:
            self._checks[name] = check
        server = before.server if before is not None else None
        if server is not None and (check is None or check.server is not server):
            self._closing.add(server.close())

    def _complete(self, name: str, before: ClusterRecord, uid: str) -> ClusterRecord:
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

    async def _fetched(self, name: str) -> _Check:
        ways = {EXTERNAL: ()} | ({IN_CLUSTER: ("--internal",)} if self._settings.internal else {})
        access: dict[str, Access] = {}
        stamp = hashlib.sha256()
        for viewpoint, option in ways.items():
            words = ("get", "kubeconfig", f"--name={name}", *option)
            ran = await self._cli.run(*words, seconds=LOOK_SECONDS)
            if ran.code:
                return _Check({}, "none", problem=f"there is no kubeconfig of it yet: {ran.errors}")
            source = f"what kind {' '.join(words)} printed"
            try:
                access[viewpoint] = clean(ran.out, source, f"kind-{name}")
            except KubeConfigError as problem:
                raise BadGateway(f"{problem}; see which program is called kind") from None
            stamp.update(access[viewpoint].kubeconfig)
        config = load_inline(access[EXTERNAL].kubeconfig, f'cluster "{name}"')
        return _Check(access, stamp.hexdigest()[:16], ClusterServer(config, self._reactor))

    async def _ask(self, check: _Check) -> _Check:
        if check.server is None:
            return check
        try:
            await check.server.ready()
            who = check.identity or await check.server.identity()
        except APIError as problem:
            return replace(check, problem=f"its API server is not ready: {problem.message}")
        return replace(check, identity=who, problem="")

    def _info(self, cluster: _Cluster) -> SpaceInfo:
        physical, record, current = Physical(cluster.name), cluster.record, cluster.state
        check = self._checks.get(cluster.name)
        who = check.identity if check is not None else None
        uid = who.uid if who is not None else record.uid if record is not None else ""
        owner = record.owner if record is not None else who.owner if who is not None else None
        if current.which in _STATES:
            state = _STATES[current.which]
            version = f"{current.reason or state}"
            return SpaceInfo(physical, state, current.reason, current.message, owner, uid, version)
        if check is None:
            # A completed creation of ours is usable as far as kind knows; for other clusters that is unknown.
            state = USABLE if current.which == COMPLETE else BUILDING
            return SpaceInfo(physical, state, owner=owner, uid=uid)
        if check.problem:
            reason, version = "NotReady", f"{check.stamp}-not"
            return SpaceInfo(physical, BUILDING, reason, check.problem, owner, uid, version)
        return SpaceInfo(
            physical, USABLE, owner=owner, uid=uid, version=check.stamp, access=check.access
        )

    def _unsettled(self) -> list[Physical]:
        return [Physical(name) for name, check in self._checks.items() if check.problem]

    # Changing.

    async def _create(self, physical: Physical, request: SpaceRequest) -> None:
        check_name(physical, new=True)
        mark(request.owner)
        name = physical.name
        image = image_of(self._settings, name, request.parameters)
        cluster = await self._probed(await self._find(name))
        if cluster.state.which == OTHERS:
            self._adopt(cluster, request.owner)
            return
        record = cluster.record
        if record is not None and record.owner != request.owner:
            raise AlreadyExists("clusters", name)
        if cluster.state.which == LEAVING:
            raise ServiceUnavailable(
                f'cluster "{name}" is being deleted; it can be made when it is gone'
            )
        if cluster.state.which in (ABSENT, FAILED):
            self._check_room(name)
            await self._begin(cluster, request.owner, image)

    def _check_room(self, name: str) -> None:
        others = [each for each in self._records.names() if each != name]
        making = [each for each in others if self._records.attempt(each).busy]
        if len(others) >= MAX_CLUSTERS:
            what = f"there are {len(others)} already; delete one"
        elif len(making) >= MAX_MAKING:
            what = f"{len(making)} others are being made; it is begun when one of them is done"
        else:
            return
        raise ServiceUnavailable(f'cluster "{name}" cannot be made yet: {what}')

    def _adopt(self, cluster: _Cluster, owner: str) -> None:
        """Adopt an unrecorded cluster with our label."""
        check = self._checks.get(cluster.name)
        who = check.identity if check is not None else None
        if who is None or who.owner != owner:
            raise AlreadyExists("clusters", cluster.name)
        lock = self._locked(cluster.name)
        try:
            self._records.write(cluster.name, ClusterRecord(owner, MADE, self._now(), uid=who.uid))
        finally:
            os.close(lock)

    async def _begin(self, cluster: _Cluster, owner: str, image: str) -> None:
        name = cluster.name
        lock = self._records.lock(name)
        if lock is None:
            raise ServiceUnavailable(f'cluster "{name}" is being worked on; it is tried again')
        try:
            if self._records.read(name) != cluster.record:
                raise ServiceUnavailable(
                    f'cluster "{name}" was changed meanwhile; it is tried again'
                )
            if cluster.state.which == FAILED:
                await self._removed(name)
            self._started(name, owner, image, lock)
        finally:
            os.close(lock)

    def _started(self, name: str, owner: str, image: str, lock: int) -> None:
        self._learned(name, None)
        self._records.clear(name)
        self._records.put(name, CONFIG, config_of(self._settings, owner))
        record = ClusterRecord(owner, CREATING, self._now())
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
        cluster = await self._probed(await self._find(name))
        if cluster.state.which == ABSENT:
            return
        whose = self._owner(cluster)
        if whose is None:
            raise ServiceUnavailable(
                f'the owner of cluster "{name}" is unknown: there is no record of it, and its API server does not answer;'
                " it is deleted when that answers, if it belongs to this Space"
            )
        if whose != owner or not owner:
            raise Conflict(
                f'cluster "{name}" does not bear the mark of this Space, so it is not deleted; delete it by kind if'
                " it is to go"
            )
        lock = await self._broken_off(cluster)
        try:
            record = cluster.record or ClusterRecord(owner, DELETING, self._now())
            self._records.write(name, replace(record, state=DELETING))
            await self._removed(name)
            self._learned(name, None)
            self._records.forget(name)
        finally:
            os.close(lock)

    def _owner(self, cluster: _Cluster) -> str | None:
        if cluster.record is not None:
            return cluster.record.owner
        check = self._checks.get(cluster.name)
        return check.identity.owner if check is not None and check.identity is not None else None

    async def _broken_off(self, cluster: _Cluster) -> int:
        """:return: the lock."""
        name, record = cluster.name, cluster.record
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
        raise ServiceUnavailable(f'cluster "{name}" is being worked on; it is tried again')

    def _locked(self, name: str) -> int:
        lock = self._records.lock(name)
        if lock is None:
            raise ServiceUnavailable(f'cluster "{name}" is being worked on; it is tried again')
        return lock

    async def _removed(self, name: str) -> None:
        # A kubeconfig file of its own each time: a killed run leaves kind's lock next to the file.
        file = self._records.path(name, f"{KUBECONFIG}-{os.urandom(4).hex()}")
        words = ("delete", "cluster", f"--name={name}", f"--kubeconfig={file}")
        ran = await self._cli.run(*words, seconds=DELETE_SECONDS)
        if ran.code:
            raise _refused(f'delete cluster "{name}"', ran)


def _refused(what: str, ran: CompletedRun) -> APIError:
    detail = ran.errors or f"exit code {ran.code}"
    return ServiceUnavailable(
        f"kind cannot {what}: {detail}; see that docker, podman or nerdctl answers where the manager runs"
    )


def make(spec: ProviderSpec, around: ProviderContext) -> ISpaceProvider:
    """See :data:`~twisted_exec.spacemanager.interfaces.MakeProvider`."""
    settings = kind_settings(spec)
    records = Records(os.path.join(around.directory, KIND, spec.name))
    return KindProvider(settings, KindCli(around.reactor), records, around.reactor, around.now)
