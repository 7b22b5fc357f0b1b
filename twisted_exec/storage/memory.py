"""A store in memory only, such as for tests."""

from __future__ import annotations

from functools import partial

from twisted.internet import defer
from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.storage import history, write_checks
from twisted_exec.storage.history import History
from twisted_exec.storage.history_storage import HistoryStorage
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    Event,
    IStorage,
    Object,
)
from twisted_exec.storage.quota import NO_LIMITS, QuotaLimits


@implementer(IStorage)
class MemoryStorage(HistoryStorage):
    """
    Objects in memory only.

    :param remembered: number of changes kept for watches and older lists.
    :param remembered_bytes: limit of the size of these changes together.
    """

    exclusive = True

    def __init__(
        self,
        remembered: int = history.REMEMBERED_CHANGES,
        remembered_bytes: int = history.REMEMBERED_BYTES,
        limits: QuotaLimits = NO_LIMITS,
    ) -> None:
        super().__init__(limits)
        self.history = History(remembered, remembered_bytes)

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        create = partial(defer.execute, self._create, resource, obj)
        return self.within_quota(resource, obj, ADDED, create)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        update = partial(defer.execute, self._replace, resource, obj, MODIFIED)
        return self.within_quota(resource, obj, MODIFIED, update)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return defer.execute(self._replace, resource, obj, DELETED)

    def probe(self) -> Deferred[object]:
        return defer.succeed(None)

    def lose(self, *objects: tuple[Resource, str, str]) -> None:
        """
        Delete objects, and forget all changes, to test watchers.

        :param objects: resource, namespace and name of each object to delete.
        """
        self.history.start_over(
            self.history.without(
                (history.table_of(resource), (where, name)) for resource, where, name in objects
            ),
            self.history.version + 1,
        )

    def _create(self, resource: Resource, obj: Object) -> Object:
        write_checks.check_absent(resource, obj, self.history.find(resource, obj))
        event = write_checks.created(obj, self.history.version + 1)
        self.history.apply(history.table_of(resource), event)
        return event.obj

    def _replace(self, resource: Resource, obj: Object, change: str) -> Object:
        stored = self.history.find(resource, obj)
        metadata = stored["metadata"] if stored is not None else {}
        write_checks.check_current(
            resource, obj, metadata.get("uid"), metadata.get("resourceVersion", "")
        )
        version = self.history.version + 1
        # The event of a deletion carries the stored object, not the caller's copy.
        after = stored if change == DELETED and stored is not None else obj
        event = Event(change, write_checks.versioned(after, version), stored, version)
        self.history.apply(history.table_of(resource), event)
        return event.obj
