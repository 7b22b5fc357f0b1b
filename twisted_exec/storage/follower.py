"""
Services that follow resources of a store while they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError
from twisted_exec.control.backoff import Backoff
from twisted_exec.storage.interfaces import ADDED, Event, IStorage, IWatch, Listing


@dataclass(frozen=True)
class Followed:
    """
    One resource that a service follows.

    :param changed: called for each change after the start, in order.
    :param listed: called once with the listed objects; ``None`` skips the list.
    :param namespace: empty for all.
    :param lost: called if the store has missed changes, before those that follow. Without it the
        differences come as changes.
    """

    resource: Resource
    changed: Callable[[Event], None]
    listed: Callable[[Listing], None] | None = None
    namespace: str = ""
    lost: Callable[[], None] | None = None


def listed_as_added(changed: Callable[[Event], None]) -> Callable[[Listing], None]:
    """Return a ``listed`` that reports existing objects to ``changed`` as ``ADDED``."""

    def listed(listing: Listing) -> None:
        for obj in listing.items:
            changed(Event(ADDED, obj, None, listing.version))

    return listed


class ServicePart(Protocol):
    """A queue, loop or recorder of a service."""

    @property
    def start(self) -> Callable[..., None]: ...

    def stop(self) -> Deferred[Any]: ...


class StoreFollower(Service):
    """
    Base of services that follow resources of a store.

    :param storage: started before this service.
    :param clock: for the pauses between lists that fail; by default the reactor.
    """

    _log = Logger()

    def __init__(self, storage: IStorage, clock: IReactorTime | None = None) -> None:
        self._storage, self._list_clock = storage, clock
        self._parts: list[tuple[Callable[[], None], Callable[[], Deferred[Any]]]] = []
        self._watches: dict[int, IWatch] = {}
        self._pauses: list[Deferred[None]] = []

    def followed(self) -> Iterable[Followed]:
        raise NotImplementedError

    def add_part(self, part: ServicePart, *arguments: Any) -> None:
        """
        Add a part that runs while this service does; it starts before the watches.

        :param arguments: of its start.
        """
        self._parts.append((partial(part.start, *arguments), part.stop))

    def startService(self) -> None:
        """
        Start the parts, watch the resources, then list those that want it.

        No change is lost between list and watch; an object may be reported twice.
        """
        super().startService()
        for start, _ in self._parts:
            start()
        followed = tuple(self.followed())
        for number, each in enumerate(followed):
            self._watch(number, each)
        for each in followed:
            if each.listed is not None:
                listing = Deferred.fromCoroutine(self._list(each, each.listed))
                listing.addErrback(self._cannot_list, each.resource)

    def stopService(self) -> Deferred[None]:
        """Stop the watches and the parts; fires when these have stopped."""
        super().stopService()
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            watch.stop()
        for pause in list(self._pauses):
            pause.cancel()
        stopping = DeferredList([stop() for _, stop in self._parts])
        return stopping.addCallback(lambda _: None)

    def _watch(self, number: int, followed: Followed) -> None:
        def lost() -> None:
            self._watch(number, followed)
            if followed.lost is not None:
                followed.lost()

        self._watches[number] = self._storage.watch(
            followed.resource,
            None,
            followed.changed,
            followed.namespace,
            None if followed.lost is None else lost,
        )

    async def _list(self, followed: Followed, listed: Callable[[Listing], None]) -> None:
        # Not a WorkQueue: all lists begin in the turn of the start, before later changes.
        backoff, reason = Backoff(), ""
        while True:
            try:
                # A stale list holds exactly the objects that watches have been told of: a fresh one could be
                # newer than the last event, and the next event would take the service back.
                listing = await self._storage.list(
                    followed.resource, followed.namespace, stale=True
                )
                break
            except Exception as problem:
                if not self.running:
                    return
                if str(problem) != reason:
                    reason = str(problem)
                    self._cannot_list(Failure(), followed.resource)
            await self._pause(backoff.pause())
        if self.running:
            listed(listing)

    def _pause(self, seconds: float) -> Deferred[None]:
        clock: Any = self._list_clock
        if clock is None:
            from twisted.internet import reactor as clock
        pause: Deferred[None] = deferLater(clock, seconds)
        self._pauses.append(pause)

        def over(result: Any) -> Any:
            self._pauses.remove(pause)
            return result

        return pause.addBoth(over)

    def _cannot_list(self, failure: Failure, resource: Resource) -> None:
        if not failure.check(CancelledError):
            log_failure(self._log, "cannot list {resource}", failure, resource=resource.qualified)


def log_failure(log: Logger, text: str, failure: Failure, **values: Any) -> None:
    """Log failed work with a store: one line for an error of the store, a traceback for a bug."""
    if failure.check(APIError):
        log.warn(text + ": {why}", why=failure.getErrorMessage(), **values)
    else:
        log.failure(text, failure, **values)
