"""
Base classes of stores that wrap another store.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import MethodNotAllowed
from twisted_exec.storage.interfaces import (
    Event,
    IStorage,
    IWatch,
    Listing,
    Object,
)


class DelegatingStorage(Service):
    """
    Base of stores that pass calls on to another store.

    :param storage: the wrapped store, started and stopped by the caller.
    """

    def __init__(self, storage: IStorage) -> None:
        self._storage = storage

    def _storage_of(self, resource: Resource) -> IStorage:
        return self._storage

    @property
    def exclusive(self) -> bool:
        return bool(self._storage.exclusive)

    @property
    def location(self) -> str:
        return str(self._storage.location)

    def when_ready(self) -> Deferred[None]:
        return self._storage.when_ready()

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        return self._storage_of(resource).get(resource, namespace, name, stale=stale)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        storage = self._storage_of(resource)
        return storage.list(resource, namespace, version=version, stale=stale)

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._storage_of(resource).create(resource, obj)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._storage_of(resource).update(resource, obj)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._storage_of(resource).delete(resource, obj)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        return self._storage_of(resource).watch(resource, since, on_event, namespace, on_lost)

    def version(self) -> int:
        return self._storage.version()

    def current(self) -> Deferred[int]:
        return self._storage.current()

    def probe(self) -> Deferred[object]:
        return self._storage.probe()


class ReadOnlyStorage(DelegatingStorage):
    """Base of delegating stores that refuse writes with 405."""

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._refuse(resource)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._refuse(resource)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._refuse(resource)

    def _refuse(self, resource: Resource) -> Deferred[Object]:
        return defer.fail(MethodNotAllowed(self._refusal(resource)))

    def _refusal(self, resource: Resource) -> str:
        return f"{resource.plural} are read-only here"
