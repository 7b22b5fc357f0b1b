"""
One door to two stores: a server's own, and its host's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.meta import Resource
from twisted_exec.apiserver.aggregated.hosted import HOSTED
from twisted_exec.storage.interfaces import Event, IStorage, IWatch, Listing, Object


@implementer(IStorage)
class SplitStorage(Service):
    """
    Picks the store by the resource.

    Versions are those of the server's own store: it alone is shown to clients.

    :param own: started and stopped by whoever has made it.
    :param hosted: likewise.
    :param resources: those that are in ``hosted``.
    """

    def __init__(
        self, own: IStorage, hosted: IStorage, resources: Collection[Resource] = HOSTED
    ) -> None:
        self._own, self._hosted, self._resources = own, hosted, resources

    @property
    def alone(self) -> bool:
        """As :attr:`IStorage.alone`: whether others do what this server does is seen in its own."""
        return bool(self._own.alone)

    def _of(self, resource: Resource) -> IStorage:
        return self._hosted if resource in self._resources else self._own

    def when_ready(self) -> Deferred[None]:
        """As :meth:`IStorage.when_ready`."""
        return self._own.when_ready()

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        """As :meth:`IStorage.get`."""
        return self._of(resource).get(resource, namespace, name, stale=stale)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        """As :meth:`IStorage.list`."""
        return self._of(resource).list(resource, namespace, version=version, stale=stale)

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.create`."""
        return self._of(resource).create(resource, obj)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.update`."""
        return self._of(resource).update(resource, obj)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.delete`."""
        return self._of(resource).delete(resource, obj)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        """As :meth:`IStorage.watch`."""
        return self._of(resource).watch(resource, since, on_event, namespace, on_lost)

    def version(self) -> int:
        """As :meth:`IStorage.version`."""
        return self._own.version()

    def current(self) -> Deferred[int]:
        """As :meth:`IStorage.current`."""
        return self._own.current()

    def probe(self) -> Deferred[object]:
        """As :meth:`IStorage.probe`: a host that is down is no reason to be taken out of service."""
        return self._own.probe()
