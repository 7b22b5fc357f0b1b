"""
Compaction of etcd, which forgets old revisions, by one server in turn.
"""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.control.loop import PokedLoop
from twisted_exec.storage.etcd.client import COMPACT, TXN, EtcdClient
from twisted_exec.storage.etcd.errors import EtcdError
from twisted_exec.storage.etcd.keys import Keys
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb


class Compaction:
    """
    Compacts etcd's history periodically, in turn with other servers.

    :param interval_seconds: time between two compactions, and the age of compacted revisions; 0
        disables compaction.  :mod:`.target` has the default and the option.
    """

    _log = Logger()

    def __init__(
        self, client: EtcdClient, keys: Keys, clock: IReactorTime, interval_seconds: float
    ) -> None:
        self._client, self._key, self._interval = client, keys.compacted, interval_seconds
        self._turns, self._revision = 0, 0
        self._troubled = False
        self._loop = PokedLoop(self.compact, clock, interval_seconds)

    def start(self) -> None:
        if self._interval:
            self._loop.start(self._interval)

    def stop(self) -> None:
        self._loop.stop()

    async def compact(self) -> None:
        """Compact, if it is this server's turn."""
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
        # As in kube-apiserver (k8s.io/apiserver/pkg/storage/etcd3/compact.go): of all servers the
        # one that writes the key's next version has the turn.
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
        # That of one interval ago, so that a server can resume its watch after a shorter outage.
        if revision:
            await self._client.write(COMPACT, pb.CompactionRequest(revision=revision))
