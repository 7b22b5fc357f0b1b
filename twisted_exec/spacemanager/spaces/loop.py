"""
The controller of Spaces: processes each Space, and discovers physical spaces.

Spaces of one provider share a queue, and so do imported Spaces of one namespace, so that a dead
provider or server does not delay the others.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList, succeed
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api import spaces
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.status import AlreadyExists, APIError, InternalError, NotFound
from twisted_exec.control.listeners import Listeners
from twisted_exec.control.metrics import UNREAD, QueueMetrics, WorkQueueMetrics
from twisted_exec.control.queue import WorkQueue
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.informers import Key, Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.recorder import Recorder
from twisted_exec.spacemanager.interfaces import (
    GOING,
    IProviders,
    IProviderView,
    ISpaces,
    Physical,
)
from twisted_exec.spacemanager.spaces import imported, secrets
from twisted_exec.spacemanager.spaces.imported import ImportedSecrets, ImportedWorker
from twisted_exec.spacemanager.spaces.naming import (
    discovered,
    misplaced,
    name_for,
    physical_of,
    provider_of,
    type_of,
    was_found,
)
from twisted_exec.spacemanager.spaces.observation import ProbeResult
from twisted_exec.spacemanager.spaces.probes import Probe, ProbeSchedule, prober
from twisted_exec.spacemanager.spaces.publishing import Publishing
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
        clock: Any,
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
            trim=imported.trimmed,
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
            again = await self._of_provider(work, space)
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

    async def _of_provider(self, key: Key, space: Object) -> float | None:
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


RESYNC_SECONDS = 600.0
"""Interval for checking a Space without events, randomised."""


@dataclass(frozen=True)
class Discovered:
    """A physical space that may need a Space."""

    provider: str
    physical: Physical


Work = Key | Discovered
"""A Space by namespace and name, or a discovered physical space."""


class SpaceQueues:
    """Work queues of Spaces and discovered physical spaces."""

    def __init__(
        self,
        work: Callable[[Work], Awaitable[None]],
        clock: Any,
        is_there: Callable[[str], bool],
        rng: random.Random,
        metrics: QueueMetrics | None = None,
        refused: Callable[[Work, APIError, int], None] = lambda *_: None,
    ) -> None:
        self._work, self._clock, self._is_there, self._random = work, clock, is_there, rng
        self._metrics, self._refused = metrics, refused
        self._queues: dict[str, WorkQueue[Work]] = {}
        self._delayed: dict[Key, str] = {}
        """The queues in which Spaces wait for their next look."""
        self._stopping = StoppingParts()
        self._stopped = False

    def __len__(self) -> int:
        return sum(queue.unsettled for queue in self._queues.values())

    def add(self, provider: str, work: Work, *, hurry: bool = False) -> None:
        """
        Queue an item.

        :param hurry: skip the back-off after failures.
        """
        if self._stopped:
            return
        queue = self._queues[self._open(provider, "" if isinstance(work, Discovered) else work[0])]
        if hurry:
            queue.hurry(work)
        else:
            queue.add(work)

    def look_in(self, provider: str, key: Key, seconds: float | None) -> None:
        """Queue a Space after a delay; ``None`` is the regular interval."""
        if self._stopped:
            return
        spread = RESYNC_SECONDS * self._random.uniform(0.8, 1.2)
        name = self._open(provider, key[0])
        if self._delayed.get(key, name) != name:
            self.forget(key)
        self._delayed[key] = name
        self._queues[name].add_after(key, spread if seconds is None else min(seconds, spread))

    def forget(self, key: Key) -> None:
        queue = self._queues.get(self._delayed.pop(key, ""))
        if queue is not None:
            queue.forget(key)

    def drop(self, provider: str) -> None:
        if provider in self._queues and not self._is_there(provider):
            self._stopping.add(self._queues.pop(provider).stop())

    def stop(self) -> Deferred[Any]:
        """Stop all queues; fires when no work is under way."""
        self._stopped = True
        ending = [queue.stop() for queue in self._queues.values()]
        return DeferredList([*ending, self._stopping.over()])

    def _open(self, provider: str, namespace: str) -> str:
        """Return the name of the queue for a Space, which exists then."""
        name = provider if provider and self._is_there(provider) else f"/{namespace}"
        if name not in self._queues:
            self._tidy()
            self._queues[name] = WorkQueue(
                self._work, self._clock, self._refused, metrics=self._metrics
            )
        return name

    def _tidy(self) -> None:
        """Remove idle queues of namespaces: deleted namespaces would accumulate."""
        for name, queue in list(self._queues.items()):
            if name.startswith("/") and not len(queue):
                del self._queues[name]


_K = TypeVar("_K", bound=Hashable)


class SpaceIndex:
    """Spaces by provider and by physical space."""

    def __init__(self, get: Callable[[str, str], Object | None]) -> None:
        self._get = get
        self._providers: dict[str, dict[Key, None]] = {}
        self._physical: dict[tuple[str, Physical], dict[Key, None]] = {}

    def changed(self, before: Object | None, after: Object | None) -> None:
        if before is not None:
            self._drop(before)
        if after is not None:
            self._put(after)

    def of_provider(self, name: str) -> Sequence[Object]:
        """Return the Spaces of one provider, or imported ones if ``name`` is empty."""
        spaces_ = (self._get(key[1], key[0]) for key in self._providers.get(name, ()))
        return [each for each in spaces_ if each is not None]

    def keys_of(self, provider: str) -> Sequence[Key]:
        return list(self._providers.get(provider, ()))

    def standing_for(self, provider: str, physical: Physical) -> Sequence[Key]:
        """Return the keys of the Spaces that a physical space has."""
        return list(self._physical.get((provider, physical), ()))

    def rival(self, space: Object) -> str:
        """
        Return the name of another Space with precedence for the same physical space, or empty.

        A managed Space has precedence over unmanaged ones once its physical space was found.
        """
        metadata, provider = space["metadata"], provider_of(space)
        others = self._physical.get((provider, physical_of(space)), {})
        if len(others) < 2:
            return ""
        mine = (metadata.get("creationTimestamp", ""), metadata["name"])
        for namespace, name in others:
            other = self._get(name, namespace)
            if other is None or name == metadata["name"]:
                continue
            if _goes_before(other, space, mine):
                return name
        return ""

    def _put(self, space: Object) -> None:
        key, provider = key_of(space), provider_of(space)
        self._providers.setdefault(provider, {})[key] = None
        if provider and not misplaced(space):
            self._physical.setdefault((provider, physical_of(space)), {})[key] = None

    def _drop(self, space: Object) -> None:
        key, provider = key_of(space), provider_of(space)
        _discard(self._providers, provider, key)
        if provider:
            _discard(self._physical, (provider, physical_of(space)), key)


def _goes_before(other: Object, space: Object, mine: tuple[str, str]) -> bool:
    metadata = other["metadata"]
    if metadata.get("deletionTimestamp"):
        return False
    if type_of(space) == spaces.MANAGED:
        return False
    if type_of(other) == spaces.MANAGED:
        return was_found(other)
    return (metadata.get("creationTimestamp", ""), metadata["name"]) < mine


def _discard(index: dict[_K, dict[Key, None]], key: _K, of: Key) -> None:
    each = index.get(key)
    if each is not None and of in each:
        del each[of]
        if not each:
            del index[key]


async def create_space(hub: IKubeClient, view: IProviderView, physical: Physical) -> None:
    """
    Create the Space of a discovered physical space, if that still exists.

    An existing Space is no failure.

    :raises APIError: retry later.
    """
    if view.provider is None or not await _is_there(view, physical):
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


async def _is_there(view: IProviderView, physical: Physical) -> bool:
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
