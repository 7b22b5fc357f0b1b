"""
Tests for :mod:`twisted_exec.storage.etcd.compaction`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests import needs
from tests.storage.etcds import EtcdCase, any_prefix
from tests.tiers import PROGRAMS
from twisted_exec.storage.etcd.client import RANGE, EtcdClient
from twisted_exec.storage.etcd.compaction import Compaction
from twisted_exec.storage.etcd.errors import EtcdError
from twisted_exec.storage.etcd.keys import Keys
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.etcd.target import EtcdTarget


class CompactionTests(EtcdCase):
    """Servers take turns."""

    starts = PROGRAMS
    skip = needs.etcd()

    async def readable(self, client: EtcdClient, revision: int) -> bool:
        """Return whether etcd can still read this revision."""
        try:
            await client.read(RANGE, pb.RangeRequest(key=b"x", revision=revision))
        except EtcdError as error:
            if error.is_compacted:
                return False
            raise
        return True

    async def revision(self, client: EtcdClient) -> int:
        answer = await client.read(RANGE, pb.RangeRequest(key=b"x"))
        return int(answer.header.revision)

    async def test_turns(self) -> None:
        """Of two servers, one compacts in each round, up to the revision of the round before."""
        target = self.cluster().target(any_prefix())
        client, keys = self.client(target), Keys(target.prefix)
        first, second = (Compaction(client, keys, Clock(), 300.0) for _ in range(2))
        await self.settled(target)
        begin = await self.revision(client)
        for one in (first, second):
            await self.put(target, "/x", "y")
            await one.compact()
        self.assertTrue(await self.readable(client, begin))
        between = await self.revision(client)
        # The number of writes to the key decides whose turn it is: here the first server's.
        await first.compact()
        await second.compact()
        self.assertFalse(await self.readable(client, begin))
        self.assertTrue(await self.readable(client, between))
        await second.compact()
        self.assertFalse(await self.readable(client, between))

    async def settled(self, target: EtcdTarget) -> None:
        """etcd answers."""
        storage = await self.open(target)
        await storage.stopService()

    async def test_off(self) -> None:
        """An interval of 0 disables compaction."""
        clock = Clock()
        compaction = Compaction(self.client(self.target()), Keys("/x"), clock, 0.0)
        compaction.start()
        self.assertEqual(clock.getDelayedCalls(), [])
        compaction.stop()

    async def test_every_five_minutes(self) -> None:
        """Compaction first runs after five minutes, and stop() cancels it."""
        clock = Clock()
        compaction = Compaction(self.client(self.target()), Keys("/x"), clock, 300.0)
        compaction.start()
        compaction.start()
        (call,) = clock.getDelayedCalls()
        self.assertEqual(call.getTime(), 300.0)
        compaction.stop()
        self.assertEqual(clock.getDelayedCalls(), [])

    async def test_trouble(self) -> None:
        """etcd that is out of reach is tried again in the next round."""
        etcds = self.cluster()
        etcds.members[0].kill()
        target = etcds.target()
        compaction = Compaction(self.client(target), Keys(target.prefix), Clock(), 300.0)
        trying: Deferred[None] = Deferred.fromCoroutine(compaction.compact())
        await trying
        etcds.start()
        await self.settled(target)
        await compaction.compact()

    def target(self) -> EtcdTarget:
        return EtcdTarget((), False)
