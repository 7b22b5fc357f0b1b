"""
Events go an hour after they were last written.

Kubernetes leaves that to etcd's leases; here each Event's time is noted when
the store tells of it, by this server's own clock, and looked at once a minute.
What an earlier process left has its time by what it tells of itself.

Whoever may write Events could fill the store with them, a poollet as well; so all of them
together have a bound, beyond which the oldest go before their time.

Bootstrap tokens go when their time is over.

They are good no more by then; this only keeps the list of them short, as the ``tokencleaner`` of
Kubernetes' controller manager does.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.encoded import json_of
from twisted_exec.api.kinds import EVENT_SECONDS, EVENTS, SECRETS
from twisted_exec.api.kinds.bootstraptokens import NAMESPACE, SECRET_TYPE, is_expired
from twisted_exec.api.kinds.events import written
from twisted_exec.api.kinds.secrets import values_of
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, Listing


class TokenExpiry(Service):
    """
    Deletes bootstrap tokens whose time is over.

    :param storage: started before this service is.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(self, storage: IStorage, clock: IReactorTime, now: Callable[[], float]) -> None:
        self._storage, self._now = storage, now
        self._loop = LoopingCall(self.look)
        self._loop.clock = clock

    def startService(self) -> None:
        """Look now, and every minute."""
        super().startService()
        self._loop.start(LOOK_SECONDS)

    def stopService(self) -> None:
        """Look no more."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()

    def look(self) -> Deferred[None]:
        """Delete those that are over.  Fires when that is done; never fails."""
        return Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    async def _look(self) -> None:
        for secret in (await self._storage.list(SECRETS.resource, NAMESPACE)).items:
            over = is_expired(values_of(secret), self._now())
            if secret.get("type") != SECRET_TYPE or not over:
                continue
            try:
                await self._storage.delete(SECRETS.resource, secret)
            except (Conflict, NotFound):
                continue  # it changed meanwhile: the next look sees how

    def _failed(self, failure: Failure) -> None:
        self._log.failure("looking after bootstrap tokens failed", failure)


LOOK_SECONDS = 60.0
MOST_BYTES = 16 << 20
"""Of all Events, as JSON: some 20 000 ordinary ones."""

_SOON_SECONDS = 1.0
_Key = tuple[str, str]
_Life = tuple[float, int]
"""Until when, and how many bytes."""


class EventExpiry(StoreFollower):
    """
    Deletes Events when their time is over.

    :param storage: started before this service is.
    :param now: seconds since the epoch.
    :param most_bytes: of all Events together.
    """

    _log = Logger()

    def __init__(
        self,
        storage: IStorage,
        clock: IReactorTime,
        now: Callable[[], float],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        super().__init__(storage)
        self._clock, self._now = clock, now
        self._most_bytes, self._bytes = most_bytes, 0
        # Ordered by time: what is written goes to the end.
        self._lives: dict[_Key, _Life] = {}
        self._soon: IDelayedCall | None = None
        self._loop = LoopingCall(self.look)
        self._loop.clock = clock

    def startService(self) -> None:
        """Take up what is there, and follow the store."""
        super().startService()
        self._loop.start(LOOK_SECONDS, now=False)

    def stopService(self) -> None:
        """Follow no longer."""
        super().stopService()
        self._loop.stop()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._lives.clear()
        self._bytes = 0

    def followed(self) -> tuple[Followed, ...]:
        """See :meth:`StoreFollower.followed`."""
        return (Followed(EVENTS.resource, self._changed, self._listed),)

    def _listed(self, listing: Listing) -> None:
        now = self._clock.seconds()
        left = {
            key_of(event): (
                now + EVENT_SECONDS - max(0.0, self._now() - written(event)),
                len(json_of(event)),
            )
            for event in listing.items
            if key_of(event) not in self._lives
        }
        self._lives = dict(sorted(left.items(), key=lambda item: item[1][0])) | self._lives
        self._bytes += sum(size for _, size in left.values())
        self._check_room()

    def _changed(self, event: Event) -> None:
        key = key_of(event.obj)
        self._forget(key)
        if event.type != DELETED:
            size = len(json_of(event.obj))
            self._lives[key] = self._clock.seconds() + EVENT_SECONDS, size
            self._bytes += size
            self._check_room()

    def _forget(self, key: _Key) -> None:
        _, size = self._lives.pop(key, (0.0, 0))
        self._bytes -= size

    def _check_room(self) -> None:
        if self._bytes > self._most_bytes and self._soon is None:
            self._soon = self._clock.callLater(_SOON_SECONDS, self._make_room)

    def _make_room(self) -> None:
        self._soon = None
        self.look()

    def look(self) -> Deferred[None]:
        """Delete what is over or too much.  Fires when that is done; never fails."""
        return Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    async def _look(self) -> None:
        for key, life in self._over():
            await self._delete(key, life)

    def _over(self) -> list[tuple[_Key, _Life]]:
        now, surplus = self._clock.seconds(), self._bytes - self._most_bytes
        over = []
        for key, life in self._lives.items():
            until, size = life
            if until > now and surplus <= 0:
                break
            surplus -= size
            over.append((key, life))
        return over

    async def _delete(self, key: _Key, life: _Life) -> None:
        try:
            event = await self._storage.get(EVENTS.resource, *key)
            if self._lives.get(key) == life:  # not written again
                await self._storage.delete(EVENTS.resource, event)
        except NotFound:
            self._forget(key)
        except APIError:
            return  # written meanwhile, or a store that cannot write: the next look is soon

    def _failed(self, failure: Failure) -> None:
        self._log.failure("looking after events failed", failure)
