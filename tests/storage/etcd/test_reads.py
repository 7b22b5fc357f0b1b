"""
Tests for :mod:`twisted_exec.storage.etcd.reads`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from tests import needs
from tests.contracts.storage import MACHINES, machine
from tests.storage.etcds import EtcdCase, any_prefix, shared
from twisted_exec.storage.etcd.client import EtcdClient
from twisted_exec.storage.etcd.keys import Keys
from twisted_exec.storage.etcd.reads import Reads
from twisted_exec.storage.etcd.reflector import EtcdReflector
from twisted_exec.storage.history import History


class _Counted(EtcdClient):
    """Counts what it is asked."""

    asked = 0

    async def read(self, *args: Any, **more: Any) -> Any:
        self.asked += 1
        return await super().read(*args, **more)


class SharedTests(EtcdCase):
    """However many read at once, etcd is asked few times."""

    skip = needs.etcd()

    async def test_shared(self) -> None:
        """Who comes while a question is under way shares the next one, and sees what was written."""
        target = shared().target(any_prefix())
        other = await self.open(target)
        clock = other._reactor
        client, keys, history = _Counted(target, clock), Keys(target.prefix), History()
        self.addCleanup(client.close)
        following = EtcdReflector(client, keys, history, clock)
        following.start()
        self.addCleanup(following.stop)
        await following.when_ready()
        reads, before = Reads(client, keys.marker, following, history, clock), client.asked
        early: list[Deferred[int]] = [reads.current() for _ in range(500)]
        stored = await other.create(MACHINES, machine("a"))
        late = [reads.current() for _ in range(500)]
        await gatherResults(early)
        version = int(stored["metadata"]["resourceVersion"])
        self.assertEqual(set(await gatherResults(late)), {version})
        # Whoever comes first asks at once, and all who come meanwhile share the next one; twice.
        self.assertLessEqual(client.asked - before, 4)
