"""
The controller of Spaces: processes each Space, and discovers physical spaces.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api import spaces
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.status import AlreadyExists, APIError, InternalError, NotFound
from twisted_exec.control.listeners import Listeners
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.kube.informers import Key, Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.recorder import Recorder
from twisted_exec.spacemanager.interfaces import GOING, IProviders, IProviderView, ISpaces, Physical
from twisted_exec.spacemanager.spaces import imported, secrets
from twisted_exec.spacemanager.spaces.imported_secrets import ImportedSecrets
from twisted_exec.spacemanager.spaces.imported_worker import ImportedWorker
from twisted_exec.spacemanager.spaces.index import SpaceIndex
from twisted_exec.spacemanager.spaces.naming import (
    discovered,
    name_for,
    physical_of,
    provider_of,
    type_of,
)
from twisted_exec.spacemanager.spaces.observation import ProbeResult
from twisted_exec.spacemanager.spaces.probe_schedule import ProbeSchedule
from twisted_exec.spacemanager.spaces.probes import Probe, prober
from twisted_exec.spacemanager.spaces.publishing import Publishing
from twisted_exec.spacemanager.spaces.queues import Discovered, SpaceQueues, Work
from twisted_exec.spacemanager.spaces.worker import (
    Record,
    SpaceContext,
    SpaceMemory,
    SpaceWorker,
    delete_ours,
    pauses,
)


@implementer(ISpaces)
class SpaceLoop(Service):
    """
    The controller of Spaces.

    :param record: records messages for users, by default as Events.
    :param probe: probes a kubeconfig, by default with real requests.
    :param now: seconds since the epoch.
    :param metrics: of the program's queues.
    """

    _log = Logger()

    def __init__(
        self,
        hub: IKubeClient,
        providers: IProviders,
        clock: IReactorTime,
        now: Callable[[], float] = time.time,
        *,
        host: str = "",
        record: Record | None = None,
        probe: Probe | None = None,
        rng: random.Random | None = None,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        self._hub, self._providers, self._clock = hub, providers, clock
        self._random = rng or random.Random()
        self._recorder: Recorder | None = None
        if record is None:
            self._recorder = Recorder(
                hub, clock, about=spaces.SPACES, component=spaces.MANAGER, host=host, now=now
            )
            record = self._recorder.record
        self._probe = probe or prober(clock)
        self._probes = ProbeSchedule(
            self._probe, clock, self._probed, self._random, metrics.of("space-probes")
        )
        self._spaces = Reflector(hub, spaces.SPACES, clock, on_change=self._space_changed)
        self._secrets = Reflector(
            hub,
            SECRETS.resource,
            clock,
            label_selector=secrets.SELECTOR,
            trim=imported.trim_secret,
            on_change=self._ours_changed,
        )
        self._imported_secrets = ImportedSecrets(hub, clock, self._secret_changed)
        self._publishing = Publishing(hub, clock, now, self._ours_changed, self._look_at_all)
        self._index = SpaceIndex(self._spaces.get)
        self._followers = Listeners("spaces")
        self._context = SpaceContext(
            hub,
            clock,
            now,
            lambda namespace, name: self._secrets.get(name, namespace),
            self._index.rival,
            self._probes,
            record,
        )
        self._queues = SpaceQueues(
            self._work, clock, self._has_provider, self._random, metrics.of("spaces"), self._refused
        )
        self._memory: dict[Key, SpaceMemory] = {}
        self._begun = False
        self._unfollow: Callable[[], None] = lambda: None
        self._beginning: Deferred[None] = succeed(None)

    # Queries.

    @property
    def synced(self) -> bool:
        return self._spaces.synced

    @property
    def problem(self) -> str:
        """Why the known Spaces may be outdated, or empty."""
        return self._spaces.problem or self._secrets.problem

    @property
    def waiting(self) -> int:
        """Number of items that are queued, in progress, or waiting for a retry."""
        return len(self._queues)

    def all(self) -> Sequence[Object]:
        """Return all Spaces as last observed; read-only."""
        return list(self._spaces)

    def of_provider(self, name: str) -> Sequence[Object]:
        return self._index.of_provider(name)

    def get(self, namespace: str, name: str) -> Object | None:
        return self._spaces.get(name, namespace)

    def follow(self, changed: Callable[[Object | None, Object | None], None]) -> Callable[[], None]:
        return self._followers.add(changed)

    # Start and stop.

    def startService(self) -> None:
        super().startService()
        self._unfollow = self._providers.follow(self._provider_changed)
        self._spaces.start()
        self._secrets.start()
        self._publishing.start()
        self._beginning = Deferred.fromCoroutine(self._begin())
        self._beginning.addErrback(lambda failure: failure.trap(CancelledError))
        self._beginning.addErrback(lambda failure: self._log.failure("beginning failed", failure))

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        self._unfollow()
        self._beginning.cancel()
        parts: list[Any] = [self._queues, self._probes, self._publishing, self._spaces]
        parts += [self._secrets, self._imported_secrets]
        parts += [self._recorder] if self._recorder else []
        return DeferredList([each.stop() for each in parts])

    async def _begin(self) -> None:
        """
        Start processing once everything has been read: an object that was not read yet seems to be
        gone.
        """
        for part in (self._spaces, self._secrets, self._providers):
            await part.when_synced()
        self._begun = True
        for space in self._spaces:
            self._add(key_of(space))
        for secret in self._secrets:
            self._orphan(secret)
        for view in self._providers.all():
            self._discover(view)

    # Changes.

    def _space_changed(self, before: Object | None, after: Object | None) -> None:
        self._index.changed(before, after)
        self._imported_secrets.space_changed(before, after)
        self._followers.tell(before, after)
        space = after or before
        assert space is not None
        key = key_of(space)
        if after is None:
            self._forget(key)
        if not self._begun:
            return
        if before is None or after is None or _desired(before) != _desired(after):
            self._add(key, provider_of(space), hurry=True)
        if after is None and (view := self._providers.get(provider_of(space))) is not None:
            self._add_physical(view, physical_of(space))

    def _secret_changed(self, key: Key) -> None:
        if self._begun:
            self._add(key)

    def _ours_changed(self, before: Object | None, after: Object | None) -> None:
        obj = after or before
        assert obj is not None
        if self._begun:
            self._orphan(obj)

    def _orphan(self, obj: Object) -> None:
        name = secrets.written_for(obj)
        if name:
            provider = (obj["metadata"].get("labels") or {}).get(spaces.PROVIDER_LABEL, "")
            self._add((obj["metadata"]["namespace"], name), str(provider))

    def _look_at_all(self) -> None:
        if self._begun:
            for space in self._spaces:
                self._add(key_of(space))

    def _provider_changed(self, name: str, physical: Physical | None) -> None:
        if not self._begun:
            return
        view = self._providers.get(name)
        if physical is not None and view is not None:
            for key in self._index.standing_for(name, physical):
                self._remembered(key).answer = None
                self._add(key, name)
            self._add_physical(view, physical)
            return
        self._queues.drop(name)
        for key in self._index.keys_of(name):
            if view is None:
                self._probes.again(key)  # some physical spaces stop with their provider
            self._add(key, name)
        if view is not None:
            self._discover(view)

    def _has_provider(self, name: str) -> bool:
        return self._providers.get(name) is not None

    def _probed(self, key: Key) -> None:
        self._add(key)

    def _discover(self, view: IProviderView) -> None:
        for physical in view.spaces():
            self._add_physical(view, physical)

    def _add_physical(self, view: IProviderView, physical: Physical) -> None:
        if self._is_new(view, physical):
            self._queues.add(view.name, Discovered(view.name, physical))

    def _is_new(self, view: IProviderView, physical: Physical) -> bool:
        info = view.spaces().get(physical)
        return (
            info is not None
            and info.state != GOING
            and view.passes(physical)
            and not self._index.standing_for(view.name, physical)
        )

    def _add(self, key: Key, provider: str = "", *, hurry: bool = False) -> None:
        space = self._spaces.get(key[1], key[0])
        name = provider if space is None else provider_of(space)
        self._queues.add(name, key, hurry=hurry)

    def _remembered(self, key: Key) -> SpaceMemory:
        return self._memory.setdefault(key, SpaceMemory(backoff=pauses(self._random)))

    def _forget(self, key: Key) -> None:
        self._memory.pop(key, None)
        self._probes.forget(key)
        self._queues.forget(key)

    # Work.

    async def _work(self, work: Work) -> None:
        if isinstance(work, Discovered):
            view = self._providers.get(work.provider)
            if view is not None and self._is_new(view, work.physical):
                await create_space(self._hub, view, work.physical)
            return
        space = self._spaces.get(work[1], work[0])
        if space is not None and type_of(space) != spaces.IMPORTED:
            again = await self._reconcile(work, space)
        else:
            again = await self._imported(work, space)
        if self._spaces.get(work[1], work[0]) is not None:
            self._queues.look_in(provider_of(space) if space else "", work, again)

    def _refused(self, work: Work, error: APIError, failures: int) -> None:
        """Tell of a bug; the status of a Space tells of what a server refuses."""
        if failures == 1 and isinstance(error, InternalError) and not isinstance(work, Discovered):
            space = self._spaces.get(work[1], work[0])
            if space is not None:
                self._context.record(space, "Warning", "ReconcileFailed", error.message)

    async def _reconcile(self, key: Key, space: Object) -> float | None:
        view = self._providers.get(provider_of(space))
        work = SpaceWorker(self._context, space, view, self._remembered(key))
        again = await work.run()
        if not space["metadata"].get("deletionTimestamp") and not _is_profile(view):
            await self._publish(work.space, work.probed)
        return again

    async def _imported(self, key: Key, space: Object | None) -> float | None:
        if space is None:
            await self._clear(key)
        record = self._secrets.get(imported.record_name(key[1]), key[0])
        if record is not None and not imported.is_record(record):
            record = None
        work = ImportedWorker(self._context, key, space, record, self._probe)
        again = await work.run()
        if work.space is not None and not work.space["metadata"].get("deletionTimestamp"):
            await self._publish(work.space, work.probed)
        return again

    async def _clear(self, key: Key) -> None:
        names = [spaces.secret_name(key[1], each) for each in spaces.VIEWPOINTS]
        left = [self._secrets.get(name, key[0]) for name in names]
        await delete_secrets(self._hub, key, [each for each in left if each is not None])
        profile = self._publishing.get(*key)
        if profile is not None:
            await self._publishing.drop(profile)

    async def _publish(self, space: Object, probed: ProbeResult | None) -> None:
        why = await self._publishing.keep(space, probed.version if probed else "")
        if why:
            self._context.record(space, "Warning", "NotPublished", why)


def _desired(space: Object) -> object:
    """
    Return the desired state of a Space.

    The status is not part of it, because it may have other writers, such as a former leader.
    """
    keys = ("annotations", "labels", "finalizers", "deletionTimestamp", "uid")
    return [space["metadata"].get(key) for key in keys], space.get("spec")


def _is_profile(view: IProviderView | None) -> bool:
    spec = view.desc.get("spec") if view is not None else None
    return bool(spec and spec.get("ProviderType") == spaces.CLUSTERPROFILE)


async def create_space(hub: IKubeClient, view: IProviderView, physical: Physical) -> None:
    """
    Create the Space of a discovered physical space, if that still exists.

    An existing Space is no failure.

    :raises APIError: retry later.
    """
    if view.provider is None or not await _check_existence(view, physical):
        return
    for is_free in (True, False):
        form = discovered(physical, view.name, name_for(physical, is_free))
        namespace, name = form["metadata"]["namespace"], form["metadata"]["name"]
        try:
            await hub.create(spaces.SPACES, form, namespace)
            return
        except AlreadyExists:
            if await _stands_for(hub, namespace, name, physical):
                return


async def _check_existence(view: IProviderView, physical: Physical) -> bool:
    """Return whether a physical space still exists; if not, let the provider's list be read again."""
    try:
        info = await view.provider.get(physical)
    except NotFound:
        view.look_again(physical)
        return False
    return bool(info.state != GOING)


async def _stands_for(hub: IKubeClient, namespace: str, name: str, physical: Physical) -> bool:
    try:
        existing = await hub.get(spaces.SPACES, name, namespace)
    except NotFound:
        return True  # deleted since; the watch triggers the next attempt
    return physical_of(existing) == physical


async def delete_secrets(hub: IKubeClient, key: Key, left: Iterable[Object]) -> None:
    """
    Delete the Secrets of deleted Spaces of a name.

    A hub with garbage collection does this by itself; other hubs do not.

    :param left: Secrets for a Space of that name; those of an existing Space stay.
    :raises APIError: retry later.
    """
    ours = [each for each in left if secrets.is_ours(each)]
    uid = await _uid(hub, key) if ours else None
    for each in ours:
        if secrets.owner_uid(each) != uid:
            await delete_ours(hub, each)


async def _uid(hub: IKubeClient, key: Key) -> str | None:
    try:
        existing = await hub.get(spaces.SPACES, key[1], key[0])
    except NotFound:
        return None
    return str(existing["metadata"]["uid"])
