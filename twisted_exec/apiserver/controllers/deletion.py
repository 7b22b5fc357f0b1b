"""
Shared parts of controllers that delete expired objects once a minute.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.storage.follower import Followed, StoreFollower, log_failure
from twisted_exec.storage.history import Key
from twisted_exec.storage.interfaces import IStorage

LOOK_SECONDS = 60.0
EXPIRED_SECONDS = 3600.0
"""Time for which an expired object is kept."""

K = TypeVar("K", bound=Hashable)


class ExpiryController(StoreFollower):
    """
    Base of services that follow a store, and look for expired objects once a minute.

    Subclasses implement :meth:`_look`.

    :cvar trouble: for the log, such as "cannot delete expired events".
    :cvar looks_at_start: whether the first look is at the start.
    """

    trouble: ClassVar[str]
    looks_at_start: ClassVar[bool] = False

    def __init__(self, storage: IStorage, clock: IReactorTime) -> None:
        super().__init__(storage)
        self._clock = clock
        self._loop = LoopingCall(self.look)
        self._loop.clock = clock

    def followed(self) -> Iterable[Followed]:
        """See :meth:`StoreFollower.followed`; by default nothing."""
        return ()

    def startService(self) -> None:
        """List and follow the objects."""
        super().startService()
        self._loop.start(LOOK_SECONDS, now=self.looks_at_start)

    def stopService(self) -> None:
        """Stop following the store."""
        super().stopService()
        self._loop.stop()

    def look(self) -> Deferred[None]:
        """Delete expired objects.  Fires when that is done; never fails."""
        return Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    async def _look(self) -> None:
        raise NotImplementedError

    def _failed(self, failure: Failure) -> None:
        log_failure(self._log, self.trouble, failure)


class Expired(Generic[K]):
    """
    Objects that look expired.

    They are due an hour later, by the monotonic clock: everything looks expired while the time of
    day is wrong, and a deleted object does not come back.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._since: dict[K, float] = {}

    def due(self, expired: Iterable[K]) -> list[K]:
        """
        Return the objects that have looked expired for an hour.

        :param expired: all that look expired now.
        """
        now = self._clock.seconds()
        self._since = {key: self._since.get(key, now) for key in expired}
        return [key for key, since in self._since.items() if now - since >= EXPIRED_SECONDS]

    def clear(self) -> None:
        """Forget all objects."""
        self._since.clear()


async def delete_all(storage: IStorage, resource: Resource, keys: Iterable[Key]) -> None:
    """Delete objects; one that changes meanwhile is left to the next run."""
    for key in keys:
        try:
            obj = await storage.get(resource, *key)
            await storage.delete(resource, obj)
        except (Conflict, NotFound):
            continue
