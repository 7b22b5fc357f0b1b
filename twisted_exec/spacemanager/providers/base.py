"""Bases of providers: hints of changed physical spaces, and calls as coroutines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.resource import Resource
from twisted_exec.control.listeners import Listeners
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spacemanager.interfaces import Physical, SpaceInfo, SpaceRequest

MAX_OBJECTS = 100_000
"""Limit per kind, five times the limit for physical spaces of a provider."""

Changed = Callable[[Physical | None], None]
Read = Callable[[Object | None, Object | None], Iterable[Physical]]
"""Returns the physical spaces that a changed object affects, given the object before and after."""


class Watchers:
    """
    The watchers of one provider.

    :param end: called after the last watcher; fires when the source has ended.
    """

    def __init__(
        self,
        of: str,
        begin: Callable[[], object] = lambda: None,
        end: Callable[[], Deferred[Any]] = lambda: succeed(None),
    ) -> None:
        self._followers = Listeners(of)
        self._begin, self._end = begin, end
        self._stopping = StoppingParts()

    def __len__(self) -> int:
        return len(self._followers)

    def tell(self, physical: Physical | None) -> None:
        self._followers.tell(physical)

    def add(self, changed: Changed) -> Callable[[], None]:
        leave = self._followers.add(changed)
        self._begin()

        def stop() -> None:
            were = len(self._followers)
            leave()
            if were and not len(self._followers):
                self._stopping.add(self._end())

        return stop

    def close(self) -> Deferred[Any]:
        """Remove all watchers; fires when the source has ended."""
        self._followers.clear()
        self._stopping.add(self._end())
        return self._stopping.over()


class ProviderWatches:
    """The watchers of one provider, each with :class:`Hints` of its own."""

    def __init__(
        self, client: IKubeClient, clock: IReactorTime, follow: Callable[[Hints], object]
    ) -> None:
        self._client, self._clock, self._follow = client, clock, follow
        self._there: set[Hints] = set()
        self._stopping = StoppingParts()

    def add(self, changed: Changed) -> Callable[[], None]:
        hints = Hints(self._client, self._clock, changed)
        self._there.add(hints)
        self._follow(hints)
        return lambda: self._leave(hints)

    def close(self) -> Deferred[Any]:
        """Remove all watchers."""
        for hints in list(self._there):
            self._leave(hints)
        return self._stopping.over()

    def _leave(self, hints: Hints) -> None:
        if hints in self._there:
            self._there.discard(hints)
            self._stopping.add(hints.end())


class Hints:
    """Watches of objects of several kinds."""

    def __init__(self, client: IKubeClient, clock: IReactorTime, changed: Changed) -> None:
        self._client, self._clock, self._changed = client, clock, changed
        self._reflectors: list[Reflector] = []
        self._ended = False

    def follow(
        self,
        resource: Resource,
        read: Read,
        trim: Callable[[Object], Object],
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        announce: bool = False,
    ) -> None:
        """
        :param announce: give the hint for all once the kind has been read.
        """

        def notify(before: Object | None, after: Object | None) -> None:
            for physical in list(read(before, after)):
                if reflector.synced and not self._ended:
                    self._changed(physical)

        reflector = Reflector(
            self._client,
            resource,
            self._clock,
            namespace=namespace,
            field_selector=field_selector,
            label_selector=label_selector,
            on_change=notify,
            trim=trim,
            max_objects=MAX_OBJECTS,
        )
        self._reflectors.append(reflector)
        if announce:
            reflector.when_synced().addCallback(lambda _: self._ended or self._changed(None))
        reflector.start()

    def end(self) -> Deferred[Any]:
        self._ended = True
        return DeferredList([reflector.stop() for reflector in self._reflectors])


def bare(obj: Object, *more: str) -> Object:
    """Reduce an object to some of its metadata, and the fields in ``more``."""
    metadata = obj["metadata"]
    keys = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "deletionTimestamp")
    reduced = {key: metadata[key] for key in keys if key in metadata}
    return {"metadata": reduced, **{key: obj[key] for key in more if key in obj}}


def unmanaged(obj: Object) -> Object:
    """Remove the largest unused parts of an object."""
    obj["metadata"].pop("managedFields", None)
    (obj["metadata"].get("annotations") or {}).pop(
        "kubectl.kubernetes.io/last-applied-configuration", None
    )
    return obj


class CoroutineProvider(ABC):
    """:class:`ISpaceProvider` on top of coroutines, without :meth:`watch` and :meth:`close`."""

    def create(self, physical: Physical, request: SpaceRequest) -> Deferred[None]:
        return Deferred.fromCoroutine(self._create(physical, request))

    def delete(self, physical: Physical, owner: str) -> Deferred[None]:
        return Deferred.fromCoroutine(self._delete(physical, owner))

    def list_spaces(self) -> Deferred[Sequence[SpaceInfo]]:
        return Deferred.fromCoroutine(self._list_spaces())

    def list_names(self) -> Deferred[Sequence[Physical]]:
        return Deferred.fromCoroutine(self._list_names())

    def get(self, physical: Physical) -> Deferred[SpaceInfo]:
        return Deferred.fromCoroutine(self._get(physical))

    @abstractmethod
    async def _create(self, physical: Physical, request: SpaceRequest) -> None: ...

    @abstractmethod
    async def _delete(self, physical: Physical, owner: str) -> None: ...

    @abstractmethod
    async def _list_spaces(self) -> Sequence[SpaceInfo]: ...

    async def _list_names(self) -> Sequence[Physical]:
        return [info.physical for info in await self._list_spaces()]

    @abstractmethod
    async def _get(self, physical: Physical) -> SpaceInfo: ...
