"""
etcd keeps every revision until somebody says that it need not: several servers, once.

As kube-apiserver does it (``k8s.io/apiserver/pkg/storage/etcd3/compact.go``): each server tries,
every five minutes, to be the one whose turn it is, by a transaction that expects a key of
ours to have been written as often as the server knows.  Who wins has etcd forget what it was told of
five minutes before, so whoever was away that long can still go on.
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
    Takes turns with other servers.

    :param seconds: how often, and how far back; 0: never.
    """

    _log = Logger()

    def __init__(self, client: EtcdClient, keys: Keys, clock: Any, seconds: float) -> None:
        self._client, self._key, self._seconds = client, keys.compacted, seconds
        self._turns, self._revision = 0, 0
        self._troubled = False
        self._loop = LoopingCall(self._turn)
        self._loop.clock = clock

    def start(self) -> None:
        """Begin, if that has not been done."""
        if self._seconds and not self._loop.running:
            self._loop.start(self._seconds, now=False)

    def stop(self) -> None:
        """No more of it."""
        if self._loop.running:
            self._loop.stop()

    def _turn(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.compact()).addErrback(
            lambda failure: self._log.failure("compacting etcd failed", failure)
        )

    async def compact(self) -> None:
        """One round."""
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
