"""
Compaction of etcd's history, by one of several servers.

etcd keeps every revision until a client compacts.  As in kube-apiserver
(``k8s.io/apiserver/pkg/storage/etcd3/compact.go``), each server tries every five minutes to win the
turn with a transaction on a key's version.  The winner compacts up to the revision of five minutes
before, so a server that was disconnected for up to five minutes can resume its watch.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from twisted_exec.storage.etcd.client import COMPACT, TXN, EtcdClient
from twisted_exec.storage.etcd.errors import EtcdError
from twisted_exec.storage.etcd.keys import Keys
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb


class Compaction:
    """
    Compacts etcd's history periodically, in turn with other servers.

    :param interval_seconds: time between two compactions; revisions become compactable at the same
        age.  0 disables compaction.
    """

    _log = Logger()

    def __init__(self, client: EtcdClient, keys: Keys, clock: Any, interval_seconds: float) -> None:
        self._client, self._key, self._interval = client, keys.compacted, interval_seconds
        self._turns, self._revision = 0, 0
        self._troubled = False
        self._loop = LoopingCall(self._turn)
        self._loop.clock = clock

    def start(self) -> None:
        """Start, if not started already."""
        if self._interval and not self._loop.running:
            self._loop.start(self._interval, now=False)

    def stop(self) -> None:
        """Stop."""
        if self._loop.running:
            self._loop.stop()

    def _turn(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.compact()).addErrback(
            lambda failure: self._log.failure("compacting etcd failed", failure)
        )

    async def compact(self) -> None:
        """Try to win one turn, and compact."""
        try:
            await self._compact()
        except EtcdError as error:
            if not self._troubled:
                self._log.warn("etcd cannot be compacted: {error}", error=error)
            self._troubled = True
        else:
            self._troubled = False

    async def _compact(self) -> None:
        revision = self._revision
        compare = pb.Compare(target=pb.Compare.VERSION, key=self._key, version=self._turns)
        put = pb.PutRequest(key=self._key, value=str(revision).encode())
        request = pb.TxnRequest(
            compare=[compare],
            success=[pb.RequestOp(request_put=put)],
            failure=[pb.RequestOp(request_range=pb.RangeRequest(key=self._key))],
        )
        answer = await self._client.write(TXN, request)
        self._revision = answer.header.revision
        if not answer.succeeded:
            kvs = answer.responses[0].response_range.kvs
            self._turns = kvs[0].version if kvs else 0
            return
        self._turns += 1
        if revision:
            await self._client.write(COMPACT, pb.CompactionRequest(revision=revision))
