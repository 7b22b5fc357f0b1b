"""Services that delete expired objects."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.encoded import json_of
from twisted_exec.api.kinds import EVENT_SECONDS, EVENTS, SECRETS
from twisted_exec.api.kinds.bootstrap_tokens import NAMESPACE, SECRET_TYPE, is_expired
from twisted_exec.api.kinds.events import written
from twisted_exec.api.kinds.secrets import values_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.runs import Failures
from twisted_exec.program.tasks import settled
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, Listing

DAY_SECONDS = 86_400
LOOK_SECONDS = 60.0
SOON_SECONDS = 1.0
"""From a cause for an early look to this look."""
EXPIRED_SECONDS = 3600.0
"""Time for which an expired object is kept."""

K = TypeVar("K", bound=Hashable)

MOST_BYTES = 16 << 20
"""Limit of the size of all Events together, as JSON."""

_Key = tuple[str, str]
_Life = tuple[float, int]
"""Expiry (by the reactor's clock) and size in bytes."""


class ExpiryController(StoreFollower):
    """
    Base of services that follow a store, and look for expired objects from time to time.

    Subclasses implement :meth:`_look`.

    :cvar controller: its name, for metrics.
    :cvar trouble: for the log, such as "cannot delete expired events".
    """

    controller: ClassVar[str]
    trouble: ClassVar[str]
    looks_at_start: ClassVar[bool] = False

    def __init__(
        self, storage: IStorage, clock: IReactorTime, metrics: WorkQueueMetrics = UNREAD
    ) -> None:
        super().__init__(storage, clock)
        self._clock = clock
        self._loop = PokedLoop(
            self._look,
            clock,
            LOOK_SECONDS,
            soon_seconds=SOON_SECONDS,
            refused=self._refused,
            metrics=metrics.of(self.controller),
        )
        self.add_part(self._loop, 0.0 if self.looks_at_start else LOOK_SECONDS)

    def followed(self) -> Iterable[Followed]:
        return ()

    async def _look(self) -> None:
        raise NotImplementedError

    def _refused(self, error: APIError, failures: int) -> None:
        if failures == 1:
            self._log.warn("{trouble}: {why}", trouble=self.trouble, why=error.message)


class ExpiryCandidates(Generic[K]):
    """
    Objects that look expired.

    They are due only some time later, by the monotonic clock: everything looks expired while the
    time of day is wrong.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._since: dict[K, float] = {}

    def due(self, expired: Iterable[K]) -> list[K]:
        """Return the objects that have looked expired for long enough."""
        now = self._clock.seconds()
        self._since = {key: self._since.get(key, now) for key in expired}
        return [key for key, since in self._since.items() if now - since >= EXPIRED_SECONDS]

    def clear(self) -> None:
        self._since.clear()


async def delete_all(storage: IStorage, resource: Resource, keys: Iterable[Key]) -> None:
    """
    Delete objects; one that changes meanwhile is left to the next run.

    :raises APIError: the first failure, after all others were tried.
    """
    failures = Failures()
    for key in keys:
        with failures.noted(), suppress(Conflict, NotFound):
            obj = await settled(storage.get(resource, *key))
            await settled(storage.delete(resource, obj))
    failures.raise_first()


def plan(lives: Mapping[_Key, _Life], now: float, surplus_bytes: int) -> list[tuple[_Key, _Life]]:
    """
    Return the Events to delete: those that have expired, and the oldest beyond the limit.

    :param lives: sorted by expiry.
    :param surplus_bytes: what all Events have too much.
    """
    over = []
    for key, life in lives.items():
        until, size = life
        if until > now and surplus_bytes <= 0:
            break
        surplus_bytes -= size
        over.append((key, life))
    return over


class TokenExpiry(ExpiryController):
    """
    Deletes expired bootstrap tokens, which are already refused.

    :param now: seconds since the epoch.
    """

    _log = Logger()
    controller = "token-expiry"
    trouble = "cannot delete expired bootstrap tokens"
    looks_at_start = True

    def __init__(
        self,
        storage: IStorage,
        clock: IReactorTime,
        now: Callable[[], float],
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock, metrics)
        self._now = now
        self._expired = ExpiryCandidates[str](clock)

    async def _look(self) -> None:
        secrets = (await self._storage.list(SECRETS.resource, NAMESPACE)).items
        expired = {each["metadata"]["uid"]: each for each in secrets if self._is_expired(each)}
        failures = Failures()
        for uid in self._expired.due(expired):
            # If it changed meanwhile, the next run sees the new state.
            with failures.noted(), suppress(Conflict, NotFound):
                await settled(self._storage.delete(SECRETS.resource, expired[uid]))
        failures.raise_first()

    def _is_expired(self, secret: Mapping[str, Any]) -> bool:
        return secret.get("type") == SECRET_TYPE and is_expired(values_of(secret), self._now())


class EventExpiry(ExpiryController):
    """
    Deletes Events about an hour after their last write.

    All Events together have a size limit, beyond which the oldest are deleted early.

    :param now: seconds since the epoch.
    """

    _log = Logger()
    controller = "event-expiry"
    trouble = "cannot delete expired events"

    def __init__(
        self,
        storage: IStorage,
        clock: IReactorTime,
        now: Callable[[], float],
        most_bytes: int = MOST_BYTES,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock, metrics)
        self._now = now
        self._most_bytes, self._bytes = most_bytes, 0
        # Sorted by expiry: each write moves its Event to the end.
        self._lives: dict[_Key, _Life] = {}

    def stopService(self) -> Deferred[None]:
        self._lives.clear()
        self._bytes = 0
        return super().stopService()

    def followed(self) -> tuple[Followed, ...]:
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
        if self._bytes > self._most_bytes:
            self._loop.poke()

    async def _look(self) -> None:
        surplus = self._bytes - self._most_bytes
        for key, life in plan(self._lives, self._clock.seconds(), surplus):
            await self._delete(key, life)

    async def _delete(self, key: _Key, life: _Life) -> None:
        try:
            event = await settled(self._storage.get(EVENTS.resource, *key))
            if self._lives.get(key) == life:  # not written again meanwhile
                await settled(self._storage.delete(EVENTS.resource, event))
        except NotFound:
            self._forget(key)
        except APIError:
            pass  # written meanwhile, or the store is read-only: the next run follows soon
