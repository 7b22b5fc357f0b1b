"""Tests for :mod:`twisted_exec.kube.leader_election.controllers`, with two replicas."""

from __future__ import annotations

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import LEASES
from twisted_exec.kube.leader_election.controllers import LeaderElected, identity
from twisted_exec.testing.cluster import MemoryCluster

LEASE = {"namespace": "kube-system", "lease": "exec-x"}


class ActingTests(SynchronousTestCase):
    """Tests for :class:`LeaderElected`."""

    def setUp(self) -> None:
        self.clock, self.root = Clock(), MemoryCluster()

    def replica(self, name: str) -> LeaderElected:
        """Return a started replica."""
        made = LeaderElected(
            self.root.client(),
            lambda: [Service()],
            self.clock,
            self.clock.seconds,
            name=name,
            **LEASE,
        )
        made.start()
        self.addCleanup(lambda: self.successResultOf(made.stop()))
        return made

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)

    def test_one(self) -> None:
        """
        The first replica leads; when it stops, it releases the Lease and the second leads soon.
        """
        first, second = self.replica("a"), self.replica("b")
        self.pass_time(5)
        self.assertEqual((len(first.services), len(second.services)), (1, 0))
        self.successResultOf(first.stop())
        self.assertEqual(len(first.services), 0)
        self.pass_time(5)
        self.assertEqual(len(second.services), 1)
        lease = self.root.objects[LEASES.resource, "kube-system", "exec-x"]
        self.assertEqual(lease["spec"]["holderIdentity"], "b")

    def test_not_yet(self) -> None:
        """A replica is no candidate until ``when`` fires, and never after it stopped."""
        ready: Deferred[None] = Deferred()
        made = LeaderElected(
            self.root.client(),
            lambda: [Service()],
            self.clock,
            self.clock.seconds,
            when=lambda: ready,
            **LEASE,
        )
        made.start()
        self.pass_time(5)
        self.assertEqual((list(made.services), self.root.requests), ([], []))
        self.successResultOf(made.stop())
        ready.callback(None)
        self.assertEqual(self.root.requests, [])
        made.start()
        self.pass_time(5)
        self.assertEqual(len(made.services), 1)
        self.successResultOf(made.stop())

    def test_names(self) -> None:
        """Each replica has a unique name."""
        self.assertNotEqual(identity(), identity())
