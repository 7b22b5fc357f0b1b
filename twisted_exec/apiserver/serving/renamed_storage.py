"""
One resource of a store under another name and with other names for its fields.

Kubernetes serves the same Events by two APIs.  Here one of them is stored, and
this shows it as the other, to read and to write; what else the store has is passed
on as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NoReturn

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.encoded import Encoded
from twisted_exec.api.kinds import Kind
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import AlreadyExists, NotFound
from twisted_exec.storage.base import Through
from twisted_exec.storage.interfaces import Event, IStorage, IWatch, Listing, Object

Rename = Callable[[Object], Object]

_KEPT_OBJECTS = 1024


@implementer(IStorage)
class RenamedStorage(Through):
    """
    A store as users of the other API see it.

    :param storage: started and stopped by someone else.
    :param kind: of the other API; its ``kept_as`` is what the store has.
    :param outward: makes an object of that kind from one that the store has.
    :param inward: the other way round.
    """

    def __init__(self, storage: IStorage, kind: Kind, outward: Rename, inward: Rename) -> None:
        assert kind.kept_as is not None
        super().__init__(storage)
        self._shown, self._kept = kind.resource, kind.kept_as
        self._outward, self._inward = outward, inward
        self._made: OrderedDict[int, tuple[Object, Object]] = OrderedDict()

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        """See :meth:`IStorage.get`."""
        if resource != self._shown:
            return self._storage.get(resource, namespace, name, stale=stale)
        return self._told(self._storage.get(self._kept, namespace, name, stale=stale), name)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        """See :meth:`IStorage.list`."""
        if resource != self._shown:
            return self._storage.list(resource, namespace, version=version, stale=stale)
        listing: Deferred[Listing] = self._storage.list(
            self._kept, namespace, version=version, stale=stale
        )
        return listing.addCallback(
            lambda found: Listing([self._out(obj) for obj in found.items], found.version)
        )

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """See :meth:`IStorage.create`."""
        return self._write(self._storage.create, resource, obj)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """See :meth:`IStorage.update`."""
        return self._write(self._storage.update, resource, obj)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """See :meth:`IStorage.delete`."""
        return self._write(self._storage.delete, resource, obj)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        """See :meth:`IStorage.watch`."""
        if resource != self._shown:
            return self._storage.watch(resource, since, on_event, namespace, on_lost)

        def tell(event: Event) -> None:
            previous = self._out(event.previous) if event.previous is not None else None
            on_event(Event(event.type, self._out(event.obj), previous, event.version))

        return self._storage.watch(self._kept, since, tell, namespace, on_lost)

    def _write(self, write: Any, resource: Resource, obj: Object) -> Deferred[Object]:
        if resource != self._shown:
            written: Deferred[Object] = write(resource, obj)
            return written
        return self._told(write(self._kept, self._inward(obj)), obj["metadata"]["name"])

    def _told(self, answer: Deferred[Object], name: str) -> Deferred[Object]:
        return answer.addCallbacks(self._out, self._refused, errbackArgs=(name,))

    def _out(self, obj: Object) -> Object:
        """The same one for all who get it, so that it is encoded once."""
        _, made = self._made.get(id(obj), (None, None))
        if made is None:
            made = Encoded(self._outward(obj))
            # With the object itself: its identity must not become another's.
            self._made[id(obj)] = obj, made
            if len(self._made) > _KEPT_OBJECTS:
                self._made.popitem(last=False)
        return made

    def _refused(self, failure: Failure, name: str) -> NoReturn:
        """By the name under which it was asked for."""
        for error in (NotFound, AlreadyExists):
            if failure.check(error):
                raise error(self._shown.plural, name, self._shown.group)
        failure.raiseException()
        raise AssertionError("a failure raises")
