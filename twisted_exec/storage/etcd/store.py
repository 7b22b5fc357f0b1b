"""
The store that several API servers share: objects in etcd.

Each server has the objects in memory (:mod:`twisted_exec.storage.history`), kept current by a watch
(:mod:`.reflector`).

A read that must see other servers' writes (:class:`ConsistentReads`) gets the revision of the marker
(:mod:`twisted_exec.storage.etcd.marker`), and waits until that is visible here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.storage import history
from twisted_exec.storage.etcd.client import READ_SECONDS, WRITE_SECONDS, EtcdClient
from twisted_exec.storage.etcd.consistent_reads import ConsistentReads
from twisted_exec.storage.etcd.keys import Keys
from twisted_exec.storage.etcd.reflector import EtcdReflector
from twisted_exec.storage.etcd.target import EtcdTarget
from twisted_exec.storage.etcd.writes import Writes
from twisted_exec.storage.history import History
from twisted_exec.storage.history_storage import HistoryStorage
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    IStorage,
    Object,
)
from twisted_exec.storage.quota import NO_LIMITS, QuotaLimits


@implementer(IStorage)
class EtcdStorage(HistoryStorage):
    """
    Objects in an etcd cluster.

    :param limits: servers that write at the same time may exceed them by these writes.
    :param remembered: number of changes kept for watches and older lists.
    :param remembered_bytes: limit of the size of these changes together.
    """

    exclusive = False

    def __init__(
        self,
        target: EtcdTarget,
        reactor: Any,
        *,
        remembered: int = history.REMEMBERED_CHANGES,
        remembered_bytes: int = history.REMEMBERED_BYTES,
        read_seconds: float = READ_SECONDS,
        write_seconds: float = WRITE_SECONDS,
        limits: QuotaLimits = NO_LIMITS,
    ) -> None:
        super().__init__(limits)
        self._reactor, self._keys = reactor, Keys(target.prefix)
        self.location = target.location
        self._remembered = remembered, remembered_bytes
        self._client = EtcdClient(target, reactor, read_seconds, write_seconds)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.history = History(*self._remembered)
        sources = (self.history, self._reactor)
        self._following = EtcdReflector(self._client, self._keys, *sources)
        self._reads = ConsistentReads(self._client, self._keys.marker, self._following, *sources)
        self._writes = Writes(self._client, self._keys, self._following, self._reads, *sources)

    @property
    def trouble(self) -> str:
        """The problem with etcd, for operators, or empty."""
        return self._following.trouble

    def startService(self) -> None:
        """Start to list and watch; see :meth:`when_ready`."""
        super().startService()
        self._begin_anew()
        self._following.start()

    def stopService(self) -> Deferred[None]:
        """Fires when accepted writes are complete or timed out."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self._writes.finish()
        self._following.stop()
        self._client.close()
        self._writes.stop()

    def when_ready(self) -> Deferred[None]:
        return self._following.when_ready()

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self.within_quota(resource, obj, ADDED, partial(self._write, ADDED, resource, obj))

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self.within_quota(
            resource, obj, MODIFIED, partial(self._write, MODIFIED, resource, obj)
        )

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return self._write(DELETED, resource, obj)

    def current(self) -> Deferred[int]:
        return self._reads.current_version() if self.running else defer.fail(_closed())

    def probe(self) -> Deferred[object]:
        return self._writes.probe() if self.running else defer.fail(_closed())

    def _write(self, change: str, resource: Resource, obj: Object) -> Deferred[Object]:
        if not self.running:
            return defer.fail(_closed())
        return self._writes.begin(change, resource, obj)


def _closed() -> APIError:
    return ServiceUnavailable("the store is closed", retry_after_seconds=1)
