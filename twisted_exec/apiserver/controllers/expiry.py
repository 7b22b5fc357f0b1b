"""
Delete Events one hour after their last write.

Kubernetes uses etcd leases for this.  Here the server notes the arrival of each Event by its own
clock and checks once a minute.  Events of an earlier process expire by their own timestamps.

Poollets may write Events and could fill the store, so all Events together have a size limit;
beyond it the oldest are deleted early.

Delete expired bootstrap tokens.

Expired tokens are already refused; deleting them keeps the list short, as the ``tokencleaner`` of
Kubernetes' controller manager does.  It happens an hour later, by the monotonic clock: tokens look
expired while the time of day is wrong, and what was deleted does not come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
from twisted_exec.storage.follower import Followed, StoreFollower, log_failure
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, Listing


class TokenExpiry(Service):
    """
    Deletes expired bootstrap tokens.

    :param storage: started before this service is.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(self, storage: IStorage, clock: IReactorTime, now: Callable[[], float]) -> None:
        self._storage, self._clock, self._now = storage, clock, now
        self._expired_since: dict[str, float] = {}
        self._loop = LoopingCall(self.look)
        self._loop.clock = clock

    def startService(self) -> None:
        """Check now, and every minute."""
        super().startService()
        self._loop.start(LOOK_SECONDS)

    def stopService(self) -> None:
        """Stop checking."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()

    def look(self) -> Deferred[None]:
        """Delete tokens that expired an hour ago.  Fires when that is done; never fails."""
        return Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    async def _look(self) -> None:
        seconds, since = self._clock.seconds(), self._expired_since
        listed = (await self._storage.list(SECRETS.resource, NAMESPACE)).items
        expired = [secret for secret in listed if self._is_expired(secret)]
        uids = [secret["metadata"]["uid"] for secret in expired]
        self._expired_since = {uid: since.get(uid, seconds) for uid in uids}
        for secret in expired:
            if seconds - self._expired_since[secret["metadata"]["uid"]] < EXPIRED_SECONDS:
                continue
            try:
                await self._storage.delete(SECRETS.resource, secret)
            except (Conflict, NotFound):
                continue  # changed meanwhile: the next run sees the new state

    def _is_expired(self, secret: Mapping[str, Any]) -> bool:
        return secret.get("type") == SECRET_TYPE and is_expired(values_of(secret), self._now())

    def _failed(self, failure: Failure) -> None:
        log_failure(self._log, "cannot delete expired bootstrap tokens", failure)


LOOK_SECONDS = 60.0
EXPIRED_SECONDS = 3600.0
"""Time for which an expired token is kept."""
MOST_BYTES = 16 << 20
"""Total of all Events as JSON: about 20 000 ordinary ones."""

_SOON_SECONDS = 1.0
_Key = tuple[str, str]
_Life = tuple[float, int]
"""Expiry (by the reactor's clock) and size in bytes."""


class EventExpiry(StoreFollower):
    """
    Deletes expired Events.

    :param storage: started before this service is.
    :param now: seconds since the epoch.
    :param most_bytes: limit for all Events together.
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
        # Sorted by expiry: each write moves its Event to the end.
        self._lives: dict[_Key, _Life] = {}
        self._soon: IDelayedCall | None = None
        self._loop = LoopingCall(self.look)
        self._loop.clock = clock

    def startService(self) -> None:
        """List Events and follow them."""
        super().startService()
        self._loop.start(LOOK_SECONDS, now=False)

    def stopService(self) -> None:
        """Stop following the store."""
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
        """Delete expired and surplus Events.  Fires when that is done; never fails."""
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
            if self._lives.get(key) == life:  # not written again meanwhile
                await self._storage.delete(EVENTS.resource, event)
        except NotFound:
            self._forget(key)
        except APIError:
            return  # written meanwhile, or the store is read-only: the next run follows soon

    def _failed(self, failure: Failure) -> None:
        log_failure(self._log, "cannot delete expired events", failure)
