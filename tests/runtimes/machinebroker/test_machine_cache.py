"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.machine_cache`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.machine_runtime import machine
from tests.retained import instances
from tests.runtimes.machinebroker.support import CLASS, MACHINES, NAMESPACE
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import GatewayTimeout, NotFound, ServiceUnavailable
from twisted_exec.runtimes.machinebroker.machine_cache import CURRENT_SECONDS, MachineCache
from twisted_exec.runtimes.machinebroker.objects import BrokerPlace, CachedMachine, to_object
from twisted_exec.testing.cluster import MemoryCluster


class CopyTests(SynchronousTestCase):
    """The target's machines, as a watch keeps them."""

    def setUp(self) -> None:
        self.clock, self.cluster = Clock(), MemoryCluster()
        self.client = self.cluster.client()
        self.place = BrokerPlace(IRONCORE, NAMESPACE)
        self.gone: list[CachedMachine] = []
        self.cache = MachineCache(self.client, self.place, self.clock, self.gone.append)

    def start(self) -> None:
        self.cache.start()
        self.addCleanup(self.cache.stop)

    def make(self, name: str = "m", uid: str = "uid-x") -> Any:
        template = to_object(machine("x", CLASS, uid=uid), name, self.place)
        return self.successResultOf(self.client.create(MACHINES, template, NAMESPACE))

    def change(self, power: str) -> Any:
        patch = {"spec": {"power": power}}
        return self.successResultOf(self.client.patch(MACHINES, "m", patch, NAMESPACE))

    def test_before_the_start(self) -> None:
        """Before the first list the cache reports an error instead of an empty list."""
        self.assertRaises(ServiceUnavailable, self.cache.check)
        self.assertRaises(ServiceUnavailable, self.cache.get, "m")

    def test_kept(self) -> None:
        """Machines are found by id and by UID; a deletion is reported once."""
        self.start()
        self.make()
        self.make("other", "uid-y")
        self.assertEqual(self.cache.get("m").owner.name, "x")
        self.assertEqual([each.id for each in self.cache.of("uid-y")], ["other"])
        self.client.delete(MACHINES, "m", NAMESPACE)
        self.assertRaises(NotFound, self.cache.get, "m")
        self.assertEqual([each.id for each in self.gone], ["m"])
        self.assertEqual(self.cache.of("uid-x"), [])
        self.assertEqual([each.id for each in self.cache], ["other"])

    def test_caught_up(self) -> None:
        """A change is complete when the cache has this or a later version."""
        self.start()
        first = self.make()
        self.assertEqual(self.successResultOf(self.cache.until(first)).id, "m")
        second = self.change("Off")
        third = self.change("On")
        for each in (first, second, third):
            self.assertTrue(self.successResultOf(self.cache.until(each)).is_on)

    def test_late(self) -> None:
        """A watch that is late is not waited for without end."""
        self.start()
        created = self.make()
        created["metadata"]["resourceVersion"] = "999"
        before = len(instances(self.cache, Deferred))
        waiting = self.cache.until(created)
        self.clock.advance(CURRENT_SECONDS - 0.1)
        self.assertNoResult(waiting)
        self.clock.advance(0.2)
        self.failureResultOf(waiting, GatewayTimeout)
        self.assertEqual(len(instances(self.cache, Deferred)), before)

    def test_gone(self) -> None:
        """A deletion is over when that very machine is no more."""
        self.start()
        self.make()
        entry = self.cache.get("m")
        waiting, late = self.cache.until_gone(entry, 10), self.cache.until_gone(entry, 1)
        self.clock.advance(2)
        self.failureResultOf(late, GatewayTimeout)
        self.assertNoResult(waiting)
        self.client.delete(MACHINES, "m", NAMESPACE)
        self.successResultOf(waiting)
        self.make()
        self.successResultOf(self.cache.until_gone(entry, 10))
