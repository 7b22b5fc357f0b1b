"""
Tests for :mod:`twisted_exec.storage.etcd.consistent_reads`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from tests import needs
from tests.contracts.storage import MACHINES, machine
from tests.storage.etcds import EtcdCase, any_prefix, shared
from tests.tiers import PROGRAMS
from twisted_exec.storage.etcd.client import EtcdClient
from twisted_exec.storage.etcd.consistent_reads import ConsistentReads
from twisted_exec.storage.etcd.keys import Keys
from twisted_exec.storage.etcd.reflector import EtcdReflector
from twisted_exec.storage.history import History


class _Counted(EtcdClient):
    """Counts the reads."""

    asked = 0

    async def read(self, *args: Any, **more: Any) -> Any:
        self.asked += 1
        return await super().read(*args, **more)


class SharedTests(EtcdCase):
    """Concurrent reads share a few requests to etcd."""

    starts = PROGRAMS
    skip = needs.etcd()

    async def test_shared(self) -> None:
        """Reads during a request share the next one, and see writes made before they began."""
        target = shared().target(any_prefix())
        other = await self.open(target)
        clock = other._reactor
        client, keys, history = _Counted(target, clock), Keys(target.prefix), History()
        self.addCleanup(client.close)
        following = EtcdReflector(client, keys, history, clock)
        following.start()
        self.addCleanup(following.stop)
        await following.when_ready()
        reads, before = (
            ConsistentReads(client, keys.marker, following, history, clock),
            client.asked,
        )
        early: list[Deferred[int]] = [reads.current_version() for _ in range(500)]
        stored = await other.create(MACHINES, machine("a"))
        late = [reads.current_version() for _ in range(500)]
        await gatherResults(early)
        version = int(stored["metadata"]["resourceVersion"])
        self.assertEqual(set(await gatherResults(late)), {version})
        # The first read sends a request and all reads meanwhile share the next; this happens twice.
        self.assertLessEqual(client.asked - before, 4)
