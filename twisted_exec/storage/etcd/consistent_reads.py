"""
Consistent reads from the local copy: a read waits until the copy has the writes of all servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError, GatewayTimeout, InternalError
from twisted_exec.storage.etcd.client import RANGE, EtcdClient
from twisted_exec.storage.etcd.errors import UNAVAILABLE, EtcdError, read_refusal
from twisted_exec.storage.etcd.marker import is_marker_of
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.reflector import CATCH_UP_SECONDS, EtcdReflector
from twisted_exec.storage.history import History

_Reads = Sequence[Deferred[int]]


class ConsistentReads:
    """Waits until the local copy has the latest revision of etcd; concurrent reads share a request."""

    _log = Logger()

    def __init__(
        self,
        client: EtcdClient,
        marker: bytes,
        following: EtcdReflector,
        history: History,
        reactor: Any,
    ) -> None:
        self._client, self._marker, self._reactor = client, marker, reactor
        self._following, self._history = following, history
        self._waiting: list[Deferred[int]] = []
        self._is_asking = False

    def current_version(self) -> Deferred[int]:
        """
        Fires with the version of the copy when it has all writes that were complete before this call.

        Fails with an :class:`.APIError` if etcd cannot be reached or its watch lags behind.
        """
        waiting: Deferred[int] = Deferred()
        self._waiting.append(waiting)
        if not self._is_asking:
            self._is_asking = True
            Deferred.fromCoroutine(self._ask_for_waiting())
        return waiting

    async def _ask_for_waiting(self) -> None:
        while self._waiting:
            reads, self._waiting = self._waiting, []
            try:
                await self._ask(reads)
            except EtcdError as error:
                _fail(reads, read_refusal(error))
            except Exception:  # otherwise the reads would wait forever
                self._log.failure("reading failed")
                _fail(reads, InternalError("the store failed, see the log"))
        self._is_asking = False

    async def _ask(self, reads: _Reads) -> None:
        order = self._following.order
        seen = order.seen
        # etcd's progress notifications seem made for this, but may arrive before the events that
        # they cover (etcd issue 15220, in Debian's 3.4.23).
        answer = await self._client.read(RANGE, pb.RangeRequest(key=self._marker))
        marker = answer.kvs[0] if answer.kvs else pb.KeyValue()
        latest = marker.mod_revision
        # After etcd was restored from a backup, the same revision can be another write.
        is_other_write = latest == order.seen and not is_marker_of(order.marker, marker)
        if latest < seen or is_other_write:
            self._following.list_again("etcd was put back to an earlier state")
            raise EtcdError(UNAVAILABLE, "etcdserver: was put back to an earlier state")
        reached = order.reached(latest)
        reached.addTimeout(CATCH_UP_SECONDS, self._reactor)
        reached.addCallbacks(partial(self._caught_up, reads), partial(self._lagged, reads))

    def _caught_up(self, reads: _Reads, _: None) -> None:
        for each in reads:
            if not each.called:
                each.callback(self._history.version)

    def _lagged(self, reads: _Reads, failure: Failure) -> None:
        """Switch members: this member's watch does not deliver a write."""
        self._following.lags(EtcdError(UNAVAILABLE, "the watch lags behind"))
        _fail(reads, GatewayTimeout("the store is catching up with etcd", retry_after_seconds=1))


def _fail(reads: _Reads, refusal: APIError) -> None:
    for each in reads:
        if not each.called:
            each.errback(refusal)
