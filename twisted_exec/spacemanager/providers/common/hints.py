"""
Hints that something of a provider may have changed, out of objects that are followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, succeed

from twisted_exec.api.resource import Resource
from twisted_exec.kube.informers.listeners import Followers
from twisted_exec.kube.informers.reflector import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.program.tasks import Stopping
from twisted_exec.spacemanager.interfaces import Physical

MAX_OBJECTS = 100_000
"""Of one kind, of a provider's server: five times the physical spaces that are taken of one."""

Changed = Callable[[Physical | None], None]
Read = Callable[[Object | None, Object | None], Iterable[Physical]]
"""From an object before and after: whatever may have changed with it."""


class Watchers:
    """
    Who watches one provider.

    What hints come from goes on for as long as there is anybody.

    :param of: the provider, for the log.
    :param begin: called when somebody has come, though it may have begun already.
    :param end: called when nobody is left; fires when nothing of it is under way any more.
    """

    def __init__(
        self,
        of: str,
        begin: Callable[[], object] = lambda: None,
        end: Callable[[], Deferred[Any]] = lambda: succeed(None),
    ) -> None:
        self._followers = Followers(of)
        self._begin, self._end = begin, end
        self._stopping = Stopping()

    def __len__(self) -> int:
        return len(self._followers)

    def tell(self, physical: Physical | None) -> None:
        """Something may have changed."""
        self._followers.tell(physical)

    def add(self, changed: Changed) -> Callable[[], None]:
        """See :meth:`ISpaceProvider.watch`."""
        leave = self._followers.add(changed)
        self._begin()

        def stop() -> None:
            were = len(self._followers)
            leave()
            if were and not len(self._followers):
                self._stopping.add(self._end())

        return stop

    def close(self) -> Deferred[Any]:
        """Tell nobody any more; fires when nothing is under way, of those either who have left before."""
        self._followers.clear()
        self._stopping.add(self._end())
        return self._stopping.over()


class Watches:
    """
    Who watches one provider, where each has :class:`Hints` of their own.

    :param follow: says what the hints come from.
    """

    def __init__(self, client: IKubeClient, clock: Any, follow: Callable[[Hints], object]) -> None:
        self._client, self._clock, self._follow = client, clock, follow
        self._there: set[Hints] = set()
        self._stopping = Stopping()

    def add(self, changed: Changed) -> Callable[[], None]:
        """See :meth:`ISpaceProvider.watch`."""
        hints = Hints(self._client, self._clock, changed)
        self._there.add(hints)
        self._follow(hints)
        return lambda: self._leave(hints)

    def close(self) -> Deferred[Any]:
        """As :meth:`Watchers.close`."""
        for hints in list(self._there):
            self._leave(hints)
        return self._stopping.over()

    def _leave(self, hints: Hints) -> None:
        if hints in self._there:
            self._there.discard(hints)
            self._stopping.add(hints.end())


class Hints:
    """
    Objects of several kinds, followed for as long as somebody wants to be told.

    What is there at the beginning is no news: once it is known, one hint is given about all of it.

    :param changed: told of each.
    """

    def __init__(self, client: IKubeClient, clock: Any, changed: Changed) -> None:
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
        Follow what a selector chooses of a kind.

        :param announce: give that one hint when it is all known.
        """

        def told(before: Object | None, after: Object | None) -> None:
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
            on_change=told,
            trim=trim,
            max_objects=MAX_OBJECTS,
        )
        self._reflectors.append(reflector)
        if announce:
            reflector.when_synced().addCallback(lambda _: self._ended or self._changed(None))
        reflector.start()

    def end(self) -> Deferred[Any]:
        """No more of them; fires when nothing is under way any more."""
        self._ended = True
        return DeferredList([reflector.stop() for reflector in self._reflectors])


def bare(obj: Object, *more: str) -> Object:
    """What tells that an object has changed, and nothing that it holds but what is asked for."""
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "deletionTimestamp")
    kept_here = {key: metadata[key] for key in kept if key in metadata}
    return {"metadata": kept_here, **{key: obj[key] for key in more if key in obj}}


def unmanaged(obj: Object) -> Object:
    """An object without the longest part that nobody reads."""
    obj["metadata"].pop("managedFields", None)
    (obj["metadata"].get("annotations") or {}).pop(
        "kubectl.kubernetes.io/last-applied-configuration", None
    )
    return obj
