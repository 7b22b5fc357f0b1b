"""
One door to two stores: a server's own, and its host's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.meta import Resource
from twisted_exec.apiserver.aggregated.hosted import HOSTED
from twisted_exec.storage.interfaces import Event, IStorage, IWatch, Listing, Object
from twisted_exec.storage.through import Through


@implementer(IStorage)
class SplitStorage(Through):
    """
    Picks the store by the resource.

    Versions are those of the server's own store: it alone is shown to clients.  It alone says whether
    all is well, too: a host that is down is no reason to be taken out of service.

    :param own: started and stopped by whoever has made it.
    :param hosted: likewise.
    :param resources: those that are in ``hosted``.
    """

    def __init__(
        self, own: IStorage, hosted: IStorage, resources: Collection[Resource] = HOSTED
    ) -> None:
        super().__init__(own)
        self._hosted, self._resources = hosted, resources

    def _of(self, resource: Resource) -> IStorage:
        return self._hosted if resource in self._resources else self._storage

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
