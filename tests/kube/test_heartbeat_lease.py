"""Tests for :mod:`twisted_exec.kube.heartbeat_lease`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import LEASES
from twisted_exec.api.status import Forbidden, NotFound
from twisted_exec.kube.heartbeat_lease import Lease
from twisted_exec.testing.cluster import MemoryCluster

NAMESPACE = "ironcore-machinepool-lease"


class LeaseTests(SynchronousTestCase):
    """Tests for :class:`Lease`."""

    def setUp(self) -> None:
        self.cluster = MemoryCluster()
        self.client = self.cluster.client()
        self.time = 0.25
        self.lease = self.make()

    def make(self, namespace: str = NAMESPACE) -> Lease:
        return Lease(self.client, namespace, "pool-a", lambda: self.time)

    def renew(self, lease: Lease | None = None, owner: Any = None) -> None:
        self.successResultOf(Deferred.fromCoroutine((lease or self.lease).renew(owner)))

    def spec(self) -> Any:
        return self.cluster.objects[LEASES.resource, NAMESPACE, "pool-a"]["spec"]

    def test_held(self) -> None:
        """The Lease is created, then renewed; ``acquireTime`` stays."""
        self.renew()
        spec = self.spec()
        self.assertTrue(spec["holderIdentity"].startswith("pool-a_"))
        self.assertEqual(spec["leaseDurationSeconds"], 40)
        self.assertEqual(spec["acquireTime"], "1970-01-01T00:00:00.250000Z")
        self.time = 10.0
        self.renew()
        self.assertEqual(self.spec(), {**spec, "renewTime": "1970-01-01T00:00:10.000000Z"})
        self.assertEqual(self.lease.problem, "")

    def test_taken_over(self) -> None:
        """A restarted poollet takes over the Lease."""
        self.renew()
        before = self.spec()["holderIdentity"]
        self.time = 60.0
        self.renew(self.make())
        self.assertNotEqual(self.spec()["holderIdentity"], before)
        self.assertEqual(self.spec()["acquireTime"], "1970-01-01T00:01:00.000000Z")

    def test_no_namespace(self) -> None:
        """If the namespace is missing, the problem says that an administrator should create it."""
        self.cluster.problem = NotFound("namespaces", NAMESPACE, "")
        self.renew()
        self.assertEqual(
            self.lease.problem,
            f'namespaces "{NAMESPACE}" not found; an administrator is to create the namespace '
            + NAMESPACE,
        )
        self.cluster.problem = Forbidden("no")
        self.renew()
        self.assertEqual(self.lease.problem, "no")
        self.cluster.problem = None
        self.renew()
        self.assertEqual(self.lease.problem, "")

    def test_none(self) -> None:
        """A dialect without leases sends no requests."""
        self.renew(self.make(""))
        self.assertEqual(self.cluster.requests, [])

    def test_owned(self) -> None:
        """
        The Lease names its owner, and is updated when the owner is recreated with another uid.
        """
        lease = Lease(self.client, NAMESPACE, "pool-a", lambda: self.time, holder="pool-a")
        for uid in ("u-1", "u-1", "u-2"):
            owner = {"apiVersion": "v1", "kind": "Node", "name": "pool-a", "uid": uid}
            self.renew(lease, owner)
            stored = self.cluster.objects[LEASES.resource, NAMESPACE, "pool-a"]
            self.assertEqual(stored["metadata"]["ownerReferences"], [owner])
        self.assertEqual(self.spec()["holderIdentity"], "pool-a")
