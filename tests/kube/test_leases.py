"""Tests for :mod:`twisted_exec.kube.leases`, with two replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import EVENTS, LEASES
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.kube.leases import LeaderElected, identity
from twisted_exec.testing.cluster import MemoryClient, MemoryCluster

LEASE = {"namespace": "kube-system", "lease": "exec-x"}


class LeaselessClient(MemoryClient):
    """A client whose user may not use Leases."""

    def _do(
        self, verb: str, resource: Resource, namespace: str, name: str, act: Callable[[], Any]
    ) -> Deferred[Any]:
        if resource == LEASES.resource:
            return fail(Forbidden(f"User cannot {verb} {resource.plural}"))
        return super()._do(verb, resource, namespace, name, act)


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

    def test_forbidden(self) -> None:
        """
        A replica that may not use its Lease writes an Event about it where the Lease belongs, with
        the number of reports, and is not ready after 30 seconds.
        """
        cluster, clock = MemoryCluster(), Clock()
        elected = LeaderElected(
            LeaselessClient(cluster),
            lambda: [Service()],
            clock,
            lambda: 1_700_000_000.0 + clock.seconds(),
            namespace="lab",
            lease="x",
            name="host_1",
        )
        elected.start()
        clock.pump([1.0] * 29)
        elected.probe()
        clock.pump([1.0] * 60)
        self.assertRaises(ServiceUnavailable, elected.probe)
        self.assertEqual(elected.services, ())
        (event,) = [
            obj for (resource, _, _), obj in cluster.objects.items() if resource == EVENTS.resource
        ]
        self.assertEqual(event["metadata"]["namespace"], "lab")
        self.assertEqual(
            [event["involvedObject"][key] for key in ("kind", "namespace", "name")],
            ["Lease", "lab", "x"],
        )
        self.assertEqual(
            [event[key] for key in ("type", "reason", "count")],
            ["Warning", "LeaderElectionFailed", 2],
        )
        self.assertIn("host_1 cannot become the leader: Lease lab/x: User", event["message"])
        self.successResultOf(elected.stop())
        self.assertEqual(clock.getDelayedCalls(), [])

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
