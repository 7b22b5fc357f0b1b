"""Objects in memory: the base of stores that read from there, and a store for tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.encoded import json_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Forbidden
from twisted_exec.storage import history
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MEMORY,
    MODIFIED,
    Event,
    IStorage,
    IWatch,
    Listing,
    Object,
)
from twisted_exec.storage.quota import NO_LIMITS, Quota, QuotaLimits

Result = TypeVar("Result")


class HistoryStorage(Service):
    """
    Base of stores that keep a :class:`~twisted_exec.storage.history.History` and read from it.

    The subclass has ``create``, ``update``, ``delete`` and ``probe``. It sets :attr:`history`, and
    begins creations and updates with :meth:`within_quota`.

    :ivar history: the objects and changes that readers and watchers see.
    """

    location = MEMORY
    history: History

    def __init__(self, limits: QuotaLimits = NO_LIMITS) -> None:
        self._quota = Quota(limits)

    @property
    def exclusive(self) -> bool:
        """See :attr:`IStorage.exclusive`; if it is true, the history is always current."""
        return True

    def within_quota(
        self, resource: Resource, obj: Object, change: str, write: Callable[[], Deferred[Object]]
    ) -> Deferred[Object]:
        """
        Begin a creation or an update if the quotas allow it.

        :return: what ``write`` returns, or fails with :class:`~twisted_exec.api.status.Forbidden`.
        """
        if not self._quota.is_limited:
            return write()
        stored = self.history.find(resource, obj)
        is_new = change == ADDED
        growth = len(json_of(obj)) - (0 if stored is None else len(json_of(stored)))
        # Without an object to update, or with one where one is created, the write fails anyhow.
        if growth <= 0 or is_new != (stored is None):
            return write()
        try:
            end = self._quota.begin(self.history.usage, resource, obj, growth, is_new=is_new)
        except Forbidden as refusal:
            return defer.fail(refusal)

        def ended(outcome: Any) -> Any:
            end()
            return outcome

        return write().addBoth(ended)

    def when_ready(self) -> Deferred[None]:
        return defer.succeed(None)

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        return self._read(
            lambda: self.history.get(resource, namespace, name), at_once=stale or self.exclusive
        )

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        is_here = version is not None and version <= self.history.version
        return self._read(
            lambda: self.history.list(resource, namespace, version),
            at_once=stale or is_here or self.exclusive,
        )

    def _read(self, read: Callable[[], Result], *, at_once: bool) -> Deferred[Result]:
        if at_once:
            return defer.execute(read)
        return self.current().addCallback(lambda _: read())

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        return self.history.watch(resource, since, on_event, namespace, on_lost)

    def version(self) -> int:
        return self.history.version

    def current(self) -> Deferred[int]:
        """See :meth:`IStorage.current`: the history of an exclusive store is current."""
        return defer.succeed(self.history.version)


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
        history.check_absent(resource, obj, self.history.find(resource, obj))
        event = history.created(obj, self.history.version + 1)
        self.history.apply(history.table_of(resource), event)
        return event.obj

    def _replace(self, resource: Resource, obj: Object, change: str) -> Object:
        stored = self.history.find(resource, obj)
        metadata = stored["metadata"] if stored is not None else {}
        history.check_current(
            resource, obj, metadata.get("uid"), metadata.get("resourceVersion", "")
        )
        version = self.history.version + 1
        # The event of a deletion carries the stored object, not the caller's copy.
        after = stored if change == DELETED and stored is not None else obj
        event = Event(change, history.versioned(after, version), stored, version)
        self.history.apply(history.table_of(resource), event)
        return event.obj
