"""
Events go an hour after they were last written.

Kubernetes leaves that to etcd's leases; here each Event's time is noted when
the store tells of it, by this server's own clock, and looked at once a minute.
What an earlier process left has its time by what it tells of itself.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.kinds import EVENT_SECONDS, EVENTS, Object
from twisted_exec.api.kinds.events import written
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, IWatch

LOOK_SECONDS = 60.0


class EventExpiry(Service):
    """
    Deletes Events when their time is over.

    :param storage: started before this service is.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(self, storage: IStorage, clock: IReactorTime, now: Callable[[], float]) -> None:
        self._storage, self._clock, self._now = storage, clock, now
        # Ordered by time: what is written goes to the end.
        self._until: dict[tuple[str, str], float] = {}
        self._watch: IWatch | None = None
        self._loop = LoopingCall(self.look)
        self._loop.clock = clock

    def startService(self) -> None:
        """Take up what is there, and follow the store."""
        super().startService()
        since = self._storage.version()
        self._watch = self._storage.watch(EVENTS.resource, since, self._changed)
        Deferred.fromCoroutine(self._begin()).addErrback(self._failed)
        self._loop.start(LOOK_SECONDS, now=False)

    def stopService(self) -> None:
        """Follow no longer."""
        super().stopService()
        if self._watch is not None:
            self._watch.stop()
        self._loop.stop()
        self._until.clear()

    async def _begin(self) -> None:
        found = {
            key_of(event): event for event in (await self._storage.list(EVENTS.resource)).items
        }
        now = self._clock.seconds()
        left = {
            key: now + EVENT_SECONDS - max(0.0, self._now() - written(event))
            for key, event in found.items()
            if key not in self._until
        }
        self._until = dict(sorted(left.items(), key=lambda item: item[1])) | self._until

    def _changed(self, event: Event) -> None:
        key = key_of(event.obj)
        self._until.pop(key, None)
        if event.type != DELETED:
            self._until[key] = self._clock.seconds() + EVENT_SECONDS

    def look(self) -> Deferred[None]:
        """Delete what is over.  Fires when that is done; never fails."""
        return Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    async def _look(self) -> None:
        now = self._clock.seconds()
        over = []
        for key, until in self._until.items():
            if until > now:
                break
            over.append(key)
        for namespace, name in over:
            await self._delete(namespace, name)

    async def _delete(self, namespace: str, name: str) -> None:
        try:
            event: Object = await self._storage.get(EVENTS.resource, namespace, name)
            if self._until.get((namespace, name), 0.0) <= self._clock.seconds():
                await self._storage.delete(EVENTS.resource, event)
        except NotFound:
            self._until.pop((namespace, name), None)
        except APIError:
            return  # written meanwhile, or a store that cannot write: the next look is soon

    def _failed(self, failure: Failure) -> None:
        self._log.failure("looking after events failed", failure)
