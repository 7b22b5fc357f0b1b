"""
Stores that show what another store has.

Stores that answer from memory.

Whatever a store persists to, it shows a :class:`~twisted_exec.storage.history.History`.  For
one that nobody else writes to, what is at hand is all there is; others say when it is.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred

from twisted_exec.api.resource import Resource
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import (
    Event,
    IStorage,
    IWatch,
    Listing,
    Object,
    is_exclusive,
)


class HistoryStorage(Service):
    """
    Reads and watches of a store with a history; how that comes about is the store's own.

    :ivar _history: what readers and watchers see.
    """

    _history: History

    def when_ready(self) -> Deferred[None]:
        """See :meth:`IStorage.when_ready`: at once."""
        return defer.succeed(None)

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        """See :meth:`IStorage.get`."""
        return defer.execute(self._history.get, resource, namespace, name)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        """See :meth:`IStorage.list`."""
        return defer.execute(self._history.list, resource, namespace, version)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        """See :meth:`IStorage.watch`."""
        return self._history.watch(resource, since, on_event, namespace, on_lost)

    def version(self) -> int:
        """See :meth:`IStorage.version`."""
        return self._history.version

    def current(self) -> Deferred[int]:
        """See :meth:`IStorage.current`: nobody else writes."""
        return defer.succeed(self._history.version)


class Through(Service):
    """
    What such a store leaves to the one below: versions are that one's, and so is whether it is well.

    :param below: started and stopped by whoever has made it.
    """

    def __init__(self, below: IStorage) -> None:
        self._storage = below

    @property
    def exclusive(self) -> bool:
        """See :attr:`IStorage.exclusive`."""
        return is_exclusive(self._storage)

    def when_ready(self) -> Deferred[None]:
        """See :meth:`IStorage.when_ready`."""
        return self._storage.when_ready()

    def version(self) -> int:
        """See :meth:`IStorage.version`."""
        return self._storage.version()

    def current(self) -> Deferred[int]:
        """See :meth:`IStorage.current`."""
        return self._storage.current()

    def probe(self) -> Deferred[object]:
        """See :meth:`IStorage.probe`."""
        return self._storage.probe()
