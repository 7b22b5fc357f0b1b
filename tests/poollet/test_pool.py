"""Tests for :mod:`twisted_exec.poollet.pool`."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.poollet.doubles import CLASSES, POOLS, MemoryRuntime, machine
from twisted_exec import build
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.poollet.pool import (
    HEARTBEAT_SECONDS,
    LOOK_SECONDS,
    RUNTIME_SECONDS,
    Pool,
    default_addresses,
)
from twisted_exec.testing.cluster import MemoryCluster, unreachable

ADDRESSES = [("InternalIP", "10.0.0.7"), ("Hostname", "host")]


class PoolTests(SynchronousTestCase):
    """Tests for :class:`Pool`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = MemoryCluster()
        self.client = self.cluster.client()
        self.runtime = MemoryRuntime()
        self.machines: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.offers = 0
        self.pool = self.make()
        self.make_class("pty", cpu="1", memory="1Gi")

    def make(self, provider_id: str = "memory://pool-a") -> Pool:
        return Pool(
            self.client,
            self.runtime,
            self.clock,
            dialect=IRONCORE,
            name="pool-a",
            provider_id=provider_id,
            machines=lambda: self.machines,
            classes=lambda: self.successResultOf(self.client.list(CLASSES))["items"],
            pool=lambda: self.cluster.objects.get((POOLS, "", "pool-a")),
            on_runtime=self.names.append,
            on_offer=self.count_offer,
            now=self.clock.seconds,
        )

    def count_offer(self) -> None:
        self.offers += 1

    def make_class(self, name: str, **capabilities: str) -> None:
        obj = {"metadata": {"name": name}, "capabilities": capabilities}
        self.successResultOf(self.client.create(CLASSES, obj))

    def start(self) -> None:
        self.pool.start(ADDRESSES, 20250)
        self.addCleanup(self.pool.stop)

    def stored(self) -> Any:
        return self.successResultOf(self.client.get(POOLS, "pool-a"))

    def status(self) -> Any:
        return self.stored()["status"]

    def ready(self) -> tuple[str, str]:
        (condition,) = self.status()["conditions"]
        return condition["status"], condition["reason"]

    def test_registers(self) -> None:
        """The pool is created, with its providerID, addresses and classes."""
        self.start()
        self.assertEqual(self.stored()["spec"], {"providerID": "memory://pool-a"})
        status = self.status()
        (condition,) = status.pop("conditions")
        self.assertEqual(
            status,
            {
                "state": "Ready",
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.7"},
                    {"type": "Hostname", "address": "host"},
                ],
                "daemonEndpoints": {"machinepoolletEndpoint": {"port": 20250}},
                "availableMachineClasses": [{"name": "pty"}],
                "capacity": {"class/machine.pty": "10"},
                "allocatable": {"class/machine.pty": "10"},
            },
        )
        self.assertEqual(
            condition,
            {
                "type": "Ready",
                "status": "True",
                "reason": "HeartbeatReceived",
                "message": f"exec-poollet {build()}",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
                "lastUpdateTime": "1970-01-01T00:00:00Z",
            },
        )
        self.assertEqual((self.names, self.pool.problem), (["memory"], ""))

    def test_classes_without_capabilities(self) -> None:
        """A runtime that reports classes without capabilities, as spheric's do, matches by name."""
        self.make_class("big", cpu="64", memory="1Ti")
        self.runtime.classes = {"big": ({}, 2), "other": ({}, 3)}
        self.start()
        self.assertEqual(self.status()["capacity"], {"class/machine.big": "2"})

    def test_exists_already(self) -> None:
        """A pool created by an administrator is completed, and otherwise left alone."""
        existing = {"metadata": {"name": "pool-a", "labels": {"a": "b"}}, "spec": {"taints": []}}
        self.successResultOf(self.client.create(POOLS, existing))
        self.start()
        self.assertEqual(self.stored()["spec"], {"taints": [], "providerID": "memory://pool-a"})
        self.assertEqual(self.stored()["metadata"]["labels"], {"a": "b"})

    def test_another_poollets_pool(self) -> None:
        """A pool with another providerID is not taken over."""
        existing = {"metadata": {"name": "pool-a"}, "spec": {"providerID": "other://x"}}
        self.successResultOf(self.client.create(POOLS, existing))
        self.start()
        self.assertIn("has providerID other://x", self.pool.problem)
        self.assertNotIn("status", self.stored())

    def test_no_right(self) -> None:
        """A kubeconfig without the rights of a poollet is reported with the role that has them."""
        self.cluster.problem = Forbidden('User "x" cannot get resource "machinepools"')
        self.start()
        role = "compute.ironcore.dev:system:machinepools"
        self.assertIn('User "x" cannot get resource "machinepools"; ', self.pool.problem)
        self.assertIn("twisted-exec pki poollet --pool pool-a writes", self.pool.problem)
        self.assertIn(f"bind the ClusterRole {role} to this user", self.pool.problem)

    def test_heartbeat(self) -> None:
        """Every ten seconds the condition says so; its transition time stays."""
        self.start()
        for _ in range(3):
            self.clock.advance(HEARTBEAT_SECONDS)
        (condition,) = self.status()["conditions"]
        self.assertEqual(condition["lastUpdateTime"], "1970-01-01T00:00:30Z")
        self.assertEqual(condition["lastTransitionTime"], "1970-01-01T00:00:00Z")
        self.assertEqual(self.runtime.calls.count("status"), 4)
        self.assertEqual(self.runtime.calls.count("version"), 1)

    def test_runtime_away(self) -> None:
        """Ready is True only while the runtime answers."""
        self.runtime.problem = ServiceUnavailable("the machine runtime cannot be reached")
        self.start()
        self.assertEqual(self.ready(), ("False", "RuntimeUnreachable"))
        self.assertEqual(self.status()["state"], "Error")
        self.assertEqual(self.status()["daemonEndpoints"]["machinepoolletEndpoint"]["port"], 20250)
        self.runtime.problem = None
        self.clock.advance(1)
        self.assertEqual(self.ready(), ("True", "HeartbeatReceived"))
        self.runtime.problem = ServiceUnavailable("the machine runtime cannot be reached")
        self.clock.advance(HEARTBEAT_SECONDS)
        self.assertEqual(self.ready(), ("False", "RuntimeUnreachable"))
        self.assertEqual(self.status()["capacity"], {"class/machine.pty": "10"})

    def test_runtime_slow(self) -> None:
        """A runtime that is too slow counts as unreachable."""
        self.start()
        self.runtime.answer = Deferred()
        self.clock.advance(HEARTBEAT_SECONDS)
        self.clock.advance(RUNTIME_SECONDS)
        self.assertEqual(self.ready(), ("False", "RuntimeUnreachable"))
        self.assertEqual(self.pool.runtime_problem, "the machine runtime does not answer")

    def test_api_server_away(self) -> None:
        """The pool registers when the API server is reachable, and retries with growing pauses."""
        self.cluster.problem = unreachable()
        self.start()
        for _ in range(120):
            self.clock.advance(1)
        self.assertIn("connection refused", self.pool.problem)
        self.assertLess(self.runtime.calls.count("status"), 25)
        self.cluster.problem = None
        self.clock.advance(HEARTBEAT_SECONDS)
        self.assertEqual((self.pool.problem, self.ready()[0]), ("", "True"))

    def test_deleted(self) -> None:
        """A deleted pool is registered again soon after the watch reports it."""
        self.start()
        self.successResultOf(self.client.delete(POOLS, "pool-a"))
        self.pool.poke()
        self.clock.advance(1)
        self.assertEqual(self.status()["state"], "Ready")

    def test_classes(self) -> None:
        """
        A class counts when name and capabilities are the same, as quantities compare; or
        when the runtime has just one with these capabilities, whatever it calls it.
        """
        self.runtime.classes |= {
            "same": ({"cpu": 2, "memory": 2048 << 20}, 3),
            "other": ({"cpu": 2, "memory": 1}, 3),
            "unknown": ({"cpu": 1}, 3),
            "twin-1": ({"cpu": 4}, 3),
            "twin-2": ({"cpu": 4}, 3),
        }
        self.make_class("same", cpu="2000m", memory="2Gi")
        self.make_class("other", cpu="2", memory="2Gi")
        self.make_class("broken", cpu="many")
        self.make_class("twins", cpu="4")
        self.make_class("lonely", cpu="9")
        self.start()
        self.assertEqual(
            self.status()["availableMachineClasses"],
            [{"name": "other"}, {"name": "pty"}, {"name": "same"}],
        )

    def test_class_gone(self) -> None:
        """A class that the runtime no longer offers disappears from the status."""
        self.runtime.classes["vm"] = ({"cpu": 1}, 2)
        self.make_class("vm", cpu="1")
        self.start()
        self.assertEqual(len(self.status()["capacity"]), 2)
        del self.runtime.classes["vm"]
        self.clock.advance(HEARTBEAT_SECONDS)
        self.assertEqual(self.status()["capacity"], {"class/machine.pty": "10"})
        self.assertEqual(self.status()["allocatable"], {"class/machine.pty": "10"})

    def test_38_offers_at_once(self) -> None:
        """A new class is written before the next heartbeat, and only then."""
        self.make_class("vm", cpu="1")
        self.start()
        patched = self.cluster.requests.count(("patch", "machinepools", "", "pool-a"))
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual(
            self.cluster.requests.count(("patch", "machinepools", "", "pool-a")), patched
        )
        self.runtime.classes["vm"] = ({"cpu": 1}, 2)
        self.clock.advance(LOOK_SECONDS - 1)
        self.clock.advance(1)
        self.assertEqual(
            self.status()["capacity"], {"class/machine.pty": "10", "class/machine.vm": "2"}
        )
        self.assertEqual(self.offers, 2)

    def test_allocatable(self) -> None:
        """Machines of a class use it up, never below nothing."""
        self.start()
        self.machines = [machine(str(number)) for number in range(4)]
        self.pool.poke()
        self.pool.poke()
        self.clock.advance(0.2)
        self.assertEqual(self.status()["allocatable"], {"class/machine.pty": "6"})
        self.assertEqual(self.runtime.calls.count("status"), 2)
        self.machines *= 5
        self.pool.poke()
        self.clock.advance(0.2)
        self.assertEqual(self.status()["allocatable"], {"class/machine.pty": "0"})

    def test_stop(self) -> None:
        """Stopping leaves no timer, whatever is under way, and the pool as it is: a restart takes a moment only."""
        self.start()
        self.successResultOf(self.pool.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.ready(), ("True", "HeartbeatReceived"))
        self.pool = self.make()
        self.runtime.answer = Deferred()
        self.start()
        self.successResultOf(self.pool.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])


class AddressTests(SynchronousTestCase):
    """Tests for :func:`default_addresses`."""

    def test_bound_to_one(self) -> None:
        """A poollet that listens on one address publishes that address."""
        name = socket.gethostname()
        self.assertEqual(
            default_addresses("127.0.0.1"),
            [("InternalIP", "127.0.0.1"), ("InternalDNS", name), ("Hostname", name)],
        )

    def test_bound_to_all(self) -> None:
        """A poollet that listens on all addresses publishes the host's own, if it has one."""
        for bound in ("0.0.0.0", "::", ""):
            addresses = dict(default_addresses(bound))
            self.assertEqual(addresses["InternalDNS"], socket.gethostname())
            if "InternalIP" in addresses:
                self.assertFalse(ipaddress.ip_address(addresses["InternalIP"]).is_loopback)
