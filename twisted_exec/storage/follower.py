"""
Services that follow resources of a store while they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError
from twisted_exec.storage.interfaces import ADDED, Event, IStorage, IWatch, Listing


@dataclass(frozen=True)
class Followed:
    """
    One resource that a service follows.

    :param changed: called for each change after the start, in order.
    :param listed: called once with the objects that existed at the start; ``None`` skips the list.
    :param namespace: empty for all.
    """

    resource: Resource
    changed: Callable[[Event], None]
    listed: Callable[[Listing], None] | None = None
    namespace: str = ""


def listed_as_added(changed: Callable[[Event], None]) -> Callable[[Listing], None]:
    """Return a ``listed`` that reports each existing object to ``changed`` as ``ADDED``."""

    def listed(listing: Listing) -> None:
        for obj in listing.items:
            changed(Event(ADDED, obj, None, listing.version))

    return listed


class StoreFollower(Service):
    """
    Base of services that follow resources of a store.

    Subclasses implement :meth:`followed`.

    :param storage: started before this service is.
    """

    _log = Logger()

    def __init__(self, storage: IStorage) -> None:
        self._storage = storage
        self._watches: list[IWatch] = []

    def followed(self) -> Iterable[Followed]:
        """Return the resources to follow."""
        raise NotImplementedError

    def startService(self) -> None:
        """
        Watch all resources, then list those that want it.

        In this order no change is lost between list and watch; an object may be reported twice.
        """
        super().startService()
        followed = tuple(self.followed())
        self._watches = [
            self._storage.watch(each.resource, None, each.changed, each.namespace)
            for each in followed
        ]
        for each in followed:
            if each.listed is not None:
                listing = Deferred.fromCoroutine(self._list(each, each.listed))
                listing.addErrback(self._cannot_list, each.resource)

    def stopService(self) -> Deferred[None] | None:
        """Stop all watches.  Subclasses decide whether there is more to wait for."""
        super().stopService()
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.stop()
        return None

    async def _list(self, followed: Followed, listed: Callable[[Listing], None]) -> None:
        # A stale list holds exactly the objects that watches have been told of: a fresh one could be
        # newer than the last event, and the next event would take the service back.
        listing = await self._storage.list(followed.resource, followed.namespace, stale=True)
        if self.running:
            listed(listing)

    def _cannot_list(self, failure: Failure, resource: Resource) -> None:
        log_failure(self._log, "cannot list {resource}", failure, resource=resource.qualified)


def log_failure(log: Logger, text: str, failure: Failure, **values: Any) -> None:
    """
    Log that work with a store failed: one line for an error of the store, a traceback for a bug.

    :param text: what failed, as a format of the log.
    """
    if failure.check(APIError):
        log.warn(text + ": {why}", why=failure.getErrorMessage(), **values)
    else:
        log.failure(text, failure, **values)
