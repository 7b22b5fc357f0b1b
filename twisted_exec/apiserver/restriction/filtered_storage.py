"""
A store with only the objects that a user may see.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Expired
from twisted_exec.auth.interfaces import IVisibility
from twisted_exec.storage.delegating import ReadOnlyStorage
from twisted_exec.storage.follower import log_failure
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage, IWatch, Listing
from twisted_exec.storage.interfaces import Object as StoredObject
from twisted_exec.storage.write_checks import versioned


@implementer(IStorage)
class FilteredStorage(ReadOnlyStorage):
    """
    A store filtered by a visibility: the objects of one resource that a user may see, read-only.

    An object may become visible although it has not changed; watches then send ``ADDED``, and
    ``DELETED`` when it is visible no longer.
    """

    def __init__(self, store: IStorage, visibility: IVisibility) -> None:
        super().__init__(store)
        self._visibility = visibility

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[StoredObject]:
        """Fails with the visibility's refusal for an invisible object."""
        reading = super().get(resource, namespace, name, stale=stale)
        return reading.addCallback(self._confirm_visible)

    def _confirm_visible(self, obj: StoredObject) -> StoredObject:
        if not self._visibility.sees(obj):
            raise self._visibility.refusal(obj)
        return obj

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        return Deferred.fromCoroutine(self._list(resource, namespace, version, stale))

    async def _list(
        self, resource: Resource, namespace: str, version: int | None, stale: bool
    ) -> Listing:
        everything = await super().list(resource, namespace, version=version, stale=stale)
        visible = [obj for obj in everything.items if self._visibility.sees(obj)]
        return Listing(visible, everything.version)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        since = self._storage.version() if since is None else since
        if since < self._visibility.since():
            raise Expired(f"too old resource version: {since} ({self._visibility.since()})")
        watch = _Watch(self._storage, self._visibility, resource, namespace, on_event, on_lost)
        watch.start(since)
        return watch


@implementer(IWatch)
class _Watch:
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
        self._in_client: dict[Key, StoredObject] | None = None
        self._ends: list[Callable[[], None]] = []

    def start(self, since: int) -> None:
        lost = self._lost if self._on_lost is not None else None
        # Not by StoreFollower: this is the watch of a store for its caller, from the caller's version.
        watch = self._storage.watch(self._resource, since, self._changed, self._namespace, lost)
        self._ends = [watch.stop, self._visibility.follow(self._compare)]
        self._compare()

    def stop(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            end()

    def _lost(self) -> None:
        self.stop()
        if self._on_lost is not None:
            self._on_lost()

    def _changed(self, event: Event) -> None:
        key, in_client = key_of(event.obj), self._in_client
        sees = event.type != DELETED and self._visibility.sees(event.obj)
        if in_client is None:
            # A change from before the first listing.  The client knew the previous object if that is
            # visible now: the same names have been visible ever since (see FilteredStorage.watch).
            previous = event.previous
            if previous is None or not self._visibility.sees(previous):
                if sees:
                    self._on_event(Event(ADDED, event.obj, None, event.version))
            elif sees or event.type == DELETED:
                self._on_event(event)
            else:
                self._gone(previous, event.version)
            return
        before = in_client.pop(key, None)
        if sees:
            in_client[key] = event.obj
            self._on_event(event if before else Event(ADDED, event.obj, None, event.version))
        elif before is not None:
            self._gone(before, event.version)

    def _gone(self, obj: StoredObject, version: int) -> None:
        # The last state that the client could see: it may not see what the object is now.
        self._on_event(Event(DELETED, versioned(obj, version), obj, version))

    def _compare(self) -> None:
        # The local copy, as a quorum read could be ahead of the events of this watch.
        listing = self._storage.list(self._resource, self._namespace, stale=True)
        listing.addCallback(self._listed)
        listing.addErrback(partial(log_failure, self._log, "cannot list what has become visible"))

    def _listed(self, listing: Listing) -> None:
        if not self._ends:
            return
        visible = {key_of(obj): obj for obj in listing.items if self._visibility.sees(obj)}
        previous, self._in_client = self._in_client, visible
        if previous is None:
            return
        for key, obj in visible.items():
            if key not in previous:
                self._on_event(Event(ADDED, obj, None, listing.version))
        for key, obj in previous.items():
            if key not in visible:
                self._gone(obj, listing.version)
