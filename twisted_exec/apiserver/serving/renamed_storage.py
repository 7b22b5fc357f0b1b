"""Serve one stored resource under another API, with translated fields."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NoReturn

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.encoded import Encoded, json_of
from twisted_exec.api.kinds import Kind
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import AlreadyExists, NotFound
from twisted_exec.storage.delegating import DelegatingStorage
from twisted_exec.storage.interfaces import Event, IStorage, IWatch, Listing, Object
from twisted_exec.storage.ordered import Converted

Rename = Callable[[Object], Object]

_KEPT_OBJECTS = 1024
_KEPT_BYTES = 64 << 10
"""Larger objects are converted each time."""


@implementer(IStorage)
class RenamedStorage(DelegatingStorage):
    """
    A store with one resource translated.

    :param kind: the kind to serve; its ``kept_as`` is the stored resource.
    :param outward: convert a stored object to ``kind``.
    :param inward: the reverse.
    """

    def __init__(self, storage: IStorage, kind: Kind, outward: Rename, inward: Rename) -> None:
        assert kind.kept_as is not None
        super().__init__(storage)
        self._served, self._stored = kind.resource, kind.kept_as
        self._outward, self._inward = outward, inward
        self._made: OrderedDict[int, tuple[Object, Object]] = OrderedDict()

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        if resource != self._served:
            return super().get(resource, namespace, name, stale=stale)
        return self._translated(self._storage.get(self._stored, namespace, name, stale=stale), name)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        if resource != self._served:
            return super().list(resource, namespace, version=version, stale=stale)
        listing: Deferred[Listing] = self._storage.list(
            self._stored, namespace, version=version, stale=stale
        )
        return listing.addCallback(
            lambda stored: Listing(Converted(stored.items, self._out), stored.version)
        )

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._write(self._storage.create, resource, obj)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._write(self._storage.update, resource, obj)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._write(self._storage.delete, resource, obj)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        if resource != self._served:
            return super().watch(resource, since, on_event, namespace, on_lost)

        def tell(event: Event) -> None:
            previous = self._out(event.previous) if event.previous is not None else None
            on_event(Event(event.type, self._out(event.obj), previous, event.version))

        # Not by StoreFollower: this is the watch of a store for its caller.
        return self._storage.watch(self._stored, since, tell, namespace, on_lost)

    def _write(self, write: Any, resource: Resource, obj: Object) -> Deferred[Object]:
        if resource != self._served:
            written: Deferred[Object] = write(resource, obj)
            return written
        return self._translated(write(self._stored, self._inward(obj)), obj["metadata"]["name"])

    def _translated(self, answer: Deferred[Object], name: str) -> Deferred[Object]:
        return answer.addCallbacks(self._out, self._refused, errbackArgs=(name,))

    def _out(self, obj: Object) -> Object:
        _, converted = self._made.get(id(obj), (None, None))
        if converted is None:
            converted = Encoded(self._outward(obj))
            if len(json_of(obj)) > _KEPT_BYTES:
                return converted
            # Keep the stored object too: after its release another object could get its id().
            self._made[id(obj)] = obj, converted
            if len(self._made) > _KEPT_OBJECTS:
                self._made.popitem(last=False)
        return converted

    def _refused(self, failure: Failure, name: str) -> NoReturn:
        for error in (NotFound, AlreadyExists):
            if failure.check(error):
                raise error(self._served.plural, name, self._served.group)
        failure.raiseException()
        raise AssertionError("a failure raises")
