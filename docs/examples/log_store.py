"""
A complete store: objects in memory, and every change as one line of a log.
"""

from __future__ import annotations

import errno
import json
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock, fail
from zope.interface import implementer

from twisted_exec import stores
from twisted_exec.clients import InsufficientStorage, Resource, ServiceUnavailable
from twisted_exec.interfaces import IStorage
from twisted_exec.stores import (
    ADDED,
    DELETED,
    MODIFIED,
    NO_LIMITS,
    Encoded,
    Event,
    History,
    HistoryStorage,
    Object,
    QuotaLimits,
)

_WAITING_WRITES = 10_000


@implementer(IStorage)
class LogStorage(HistoryStorage):
    """
    :param log: ``lines()`` returns all lines; ``append(line)`` returns a Deferred that fires when
        the line is durable.  It fails with ``OSError`` without a write.
    """

    exclusive = True  # no other server writes to this log
    location = "log:example"

    def __init__(
        self,
        log: Any,
        *,
        remembered: int = stores.REMEMBERED_CHANGES,
        remembered_bytes: int = stores.REMEMBERED_BYTES,
        limits: QuotaLimits = NO_LIMITS,
    ) -> None:
        super().__init__(limits)
        self._log, self._turns = log, DeferredLock()
        self.history = History(remembered, remembered_bytes)

    def startService(self) -> None:
        objects: dict[Any, tuple[str, Object]] = {}
        version = 0
        for line in self._log.lines():
            table, change, obj = json.loads(line)
            key, version = (table, stores.key_of(obj)), int(obj["metadata"]["resourceVersion"])
            objects[key] = table, Encoded(obj)
            if change == DELETED:
                del objects[key]
        # Earlier changes are forgotten: watches from them get Expired, and clients list again.
        self.history.restore(objects.values(), version, forgotten=version)
        super().startService()

    def stopService(self) -> Deferred[None]:
        super().stopService()  # refuses new writes
        return self._turns.run(lambda: None)  # fires after the accepted ones

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self.within_quota(resource, obj, ADDED, lambda: self._queue(ADDED, resource, obj))

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self.within_quota(
            resource, obj, MODIFIED, lambda: self._queue(MODIFIED, resource, obj)
        )

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._queue(DELETED, resource, obj)

    def probe(self) -> Deferred[object]:
        return self._log.append("") if self.running else fail(_busy("the store is closed"))

    def _queue(self, change: str, resource: Resource, obj: Object) -> Deferred[Object]:
        if not self.running:
            return fail(_busy("the store is closed"))
        if len(self._turns.waiting) >= _WAITING_WRITES:
            return fail(_busy("too many writes are waiting"))
        write = self._write
        return self._turns.run(lambda: Deferred.fromCoroutine(write(change, resource, obj)))

    async def _write(self, change: str, resource: Resource, obj: Object) -> Object:
        event = self._checked(change, resource, obj)
        table = stores.table_of(resource)
        try:
            await self._log.append(json.dumps([table, change, event.obj]))
        except OSError as error:
            if error.errno == errno.ENOSPC:
                message = "the disk of the store is full: free space on it"
                raise InsufficientStorage(message, retry_after_seconds=10) from error
            raise ServiceUnavailable(f"the store cannot write: {error}") from error
        self.history.apply(table, event)  # now readers and watchers see it, then the writer
        return event.obj

    def _checked(self, change: str, resource: Resource, obj: Object) -> Event:
        """Return the change as an event if it may be made."""
        stored, version = self.history.find(resource, obj), self.history.version + 1
        if change == ADDED:
            stores.check_absent(resource, obj, stored)
            return stores.created(obj, version)
        metadata = stored["metadata"] if stored is not None else {}
        stores.check_current(
            resource, obj, metadata.get("uid"), metadata.get("resourceVersion", "")
        )
        # The event of a deletion has the stored object, not the caller's copy.
        after = stored if change == DELETED and stored is not None else obj
        return Event(change, stores.versioned(after, version), stored, version)


def _busy(why: str) -> ServiceUnavailable:
    return ServiceUnavailable(why, retry_after_seconds=1)
