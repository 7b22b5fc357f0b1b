"""
A store as someone sees it who sees only some of its objects, and not always the same.

Lists and watches leave out what is not seen.  What begins to be seen though it has not changed,
as a Secret when a machine that names it is placed, is told to watches as added, and what is seen
no longer as deleted: whoever follows knows at any time what a list would show.  Who did not
follow when that happened is told to list again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import Interface, implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Expired, MethodNotAllowed
from twisted_exec.storage.base import Through
from twisted_exec.storage.history import Key, key_of, versioned
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    Event,
    IStorage,
    IWatch,
    Listing,
    Object,
)


class IVisibility(Interface):
    """What someone sees of one kind."""

    def sees(obj: Object) -> bool:
        """Whether an object is seen now."""

    def since() -> int:
        """The store's version since which the same has been seen, but for what is new itself."""

    def follow(changed: Callable[[], None]) -> Callable[[], None]:
        """
        Be told when something else may be seen than before.

        :return: call it to be told no longer.
        """


@implementer(IStorage)
class FilteredStorage(Through):
    """
    One kind of a store through a visibility; to look at only.

    :param store: a running one, which goes on without this.
    """

    def __init__(self, store: IStorage, visibility: IVisibility) -> None:
        super().__init__(store)
        self._visibility = visibility

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        """See :meth:`IStorage.get`; who may ask for one object is not decided here."""
        return self._storage.get(resource, namespace, name, stale=stale)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        """See :meth:`IStorage.list`."""
        return Deferred.fromCoroutine(self._list(resource, namespace, version, stale))

    async def _list(
        self, resource: Resource, namespace: str, version: int | None, stale: bool
    ) -> Listing:
        found = await self._storage.list(resource, namespace, version=version, stale=stale)
        return Listing([obj for obj in found.items if self._visibility.sees(obj)], found.version)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        """See :meth:`IStorage.watch`."""
        since = self._storage.version() if since is None else since
        if since < self._visibility.since():
            raise Expired(f"too old resource version: {since} ({self._visibility.since()})")
        watch = _Watch(self._storage, self._visibility, resource, namespace, on_event, on_lost)
        watch.start(since)
        return watch

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """Nothing is written here."""
        return _refused(resource)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """Nothing is written here."""
        return _refused(resource)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """Nothing is written here."""
        return _refused(resource)


def _refused(resource: Resource) -> Deferred[Object]:
    return defer.fail(MethodNotAllowed(f"{resource.plural} are only looked at here"))


@implementer(IWatch)
class _Watch:
    """One watch, and what its client knows."""

    _log = Logger()

    def __init__(
        self,
        store: IStorage,
        visibility: IVisibility,
        resource: Resource,
        namespace: str,
        on_event: Callable[[Event], None],
        on_lost: Callable[[], None] | None,
    ) -> None:
        self._storage, self._visibility, self._on_event = store, visibility, on_event
        self._on_lost = on_lost
        self._resource, self._namespace = resource, namespace
        self._known: dict[Key, Object] | None = None
        self._ends: list[Callable[[], None]] = []

    def start(self, since: int) -> None:
        """
        Begin.

        :raises Expired: as :meth:`IStorage.watch`.
        """
        lost = self._lost if self._on_lost is not None else None
        watch = self._storage.watch(self._resource, since, self._changed, self._namespace, lost)
        self._ends = [watch.stop, self._visibility.follow(self._look_again)]
        self._look_again()

    def stop(self) -> None:
        """As :meth:`IWatch.stop`."""
        ends, self._ends = self._ends, []
        for end in ends:
            end()

    def _lost(self) -> None:
        self.stop()
        if self._on_lost is not None:
            self._on_lost()

    def _changed(self, event: Event) -> None:
        """The store tells a change: passed on as it looks to who did not see all before."""
        key, known = key_of(event.obj), self._known
        sees = event.type != DELETED and self._visibility.sees(event.obj)
        if known is None:
            # Of what happened before the watch began nobody knows what was seen then.
            previous = event.previous
            if previous is None or not self._visibility.sees(previous):
                if sees:
                    self._on_event(Event(ADDED, event.obj, None, event.version))
            elif sees or event.type == DELETED:
                self._on_event(event)
            else:
                self._gone(previous, event.version)
            return
        before = known.pop(key, None)
        if sees:
            known[key] = event.obj
            self._on_event(event if before else Event(ADDED, event.obj, None, event.version))
        elif before is not None:
            self._gone(before, event.version)

    def _gone(self, obj: Object, version: int) -> None:
        # What it has become since is not told.
        self._on_event(Event(DELETED, versioned(obj, version), obj, version))

    def _look_again(self) -> None:
        # What is at hand is what the watch has told of, neither more nor less.
        listing = self._storage.list(self._resource, self._namespace, stale=True)
        listing.addCallback(self._listed)
        listing.addErrback(partial(self._log.failure, "cannot look again at what is seen"))

    def _listed(self, listing: Listing) -> None:
        if not self._ends:
            return
        seen = {key_of(obj): obj for obj in listing.items if self._visibility.sees(obj)}
        known, self._known = self._known, seen
        if known is None:
            return
        for key, obj in seen.items():
            if key not in known:
                self._on_event(Event(ADDED, obj, None, listing.version))
        for key, obj in known.items():
            if key not in seen:
                self._gone(obj, listing.version)
