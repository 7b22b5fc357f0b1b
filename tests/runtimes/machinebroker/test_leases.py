"""
Tests for :mod:`twisted_exec.runtimes.machinebroker.tokens`, on a cluster in memory.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds
from twisted_exec.api.status import Forbidden
from twisted_exec.runtimes.machinebroker.tokens import LEASES, RETENTION_SECONDS, LeaseLedger
from twisted_exec.testing.cluster import MemoryCluster, unreachable

LABEL = "machinebroker.ironcore.dev/lease"
DIGEST = "ab" * 32


class LeaseTests(SynchronousTestCase):
    """Claims of several replicas."""

    def setUp(self) -> None:
        self.seconds = 1_000_000.0
        self.cluster, self.clock = MemoryCluster(), Clock()

    def ledger(self, client: Any = None) -> LeaseLedger:
        return LeaseLedger(
            client or self.cluster.client(), "ns", LABEL, "b-1", self.clock, lambda: self.seconds
        )

    def leases(self) -> list[Any]:
        return [obj for key, obj in self.cluster.objects.items() if key[0] == LEASES]

    def test_kind(self) -> None:
        """It is a kind that our own API server has."""
        self.assertEqual(LEASES, kinds.LEASES.resource)

    def test_once(self) -> None:
        """Of two replicas one gets it; the other, and the same again, do not."""
        first, second = self.ledger(), self.ledger()
        results = [self.successResultOf(each.take(DIGEST, 1_000_060)) for each in (first, second)]
        self.assertEqual(results, [True, False])
        self.assertFalse(self.successResultOf(first.take(DIGEST, 1_000_060)))
        (lease,) = self.leases()
        self.assertEqual(lease["spec"]["holderIdentity"], "b-1")
        self.assertNotIn(DIGEST, lease["metadata"]["name"])

    def test_given_back(self) -> None:
        """A returned claim is free for every replica; returning it twice is harmless."""
        first, second = self.ledger(), self.ledger()
        self.successResultOf(first.take(DIGEST, 1_000_060))
        for _ in range(2):
            self.successResultOf(first.give_back(DIGEST))
        self.assertTrue(self.successResultOf(second.take(DIGEST, 1_000_060)))

    def test_no_right(self) -> None:
        """A replica that may keep no claims opens nothing, and says what it needs."""
        self.cluster.problem = Forbidden("no")
        ledger = self.ledger()
        error: Any = self.failureResultOf(ledger.take(DIGEST, 1_000_060)).value
        self.assertEqual(error.code, 503)
        self.assertIn("create, delete and list on leases.coordination.k8s.io", error.message)
        failing = Deferred.fromCoroutine(ledger.probe())
        self.assertEqual(self.failureResultOf(failing).value.code, 503)
        self.cluster.problem = None
        self.successResultOf(Deferred.fromCoroutine(ledger.probe()))
        self.assertTrue(self.successResultOf(ledger.take(DIGEST, 1_000_060)))

    def test_unreachable(self) -> None:
        """If the ledger does not answer, no console is opened."""
        self.cluster.problem = unreachable()
        error: Any = self.failureResultOf(self.ledger().take(DIGEST, 1_000_060)).value
        self.assertEqual(error.code, 503)
        self.assertIn("connection refused", error.message)

    def test_cancelled(self) -> None:
        """
        A client that leaves while its token is claimed does not release another replica's claim.

        Otherwise a client that asked both replicas could use the token twice.
        """
        self.assertTrue(self.successResultOf(self.ledger().take(DIGEST, 1_000_060)))
        client = self.cluster.client()
        client.create = lambda *_, **__: Deferred()  # type: ignore[method-assign]
        taking = self.ledger(client).take(DIGEST, 1_000_060)
        taking.cancel()
        self.failureResultOf(taking, CancelledError)
        self.assertFalse(self.successResultOf(self.ledger().take(DIGEST, 1_000_060)))

    def test_swept(self) -> None:
        """Leases of tokens that have long expired are removed, and no others."""
        ledger = self.ledger()
        self.successResultOf(ledger.take(DIGEST, self.seconds + 60))
        strange = {"metadata": {"name": "strange", "labels": {LABEL: "token"}}, "spec": {}}
        self.cluster.client().create(LEASES, strange, "ns")
        ledger.start()
        self.addCleanup(ledger.stop)
        self.assertEqual(len(self.leases()), 2)
        self.seconds += 60 + RETENTION_SECONDS + 2
        self.clock.pump([60] * 2)
        self.assertEqual([each["metadata"]["name"] for each in self.leases()], ["strange"])

    def test_sweep_fails(self) -> None:
        """A sweep that fails is repeated later."""
        ledger = self.ledger()
        self.successResultOf(ledger.take(DIGEST, self.seconds + 60))
        self.cluster.problem = unreachable()
        self.seconds += 1000
        ledger.start()
        self.addCleanup(ledger.stop)
        self.cluster.problem = None
        self.clock.advance(1)
        self.clock.advance(RETENTION_SECONDS)
        self.assertEqual(self.leases(), [])

    def test_clock_jumps(self) -> None:
        """A clock that is wrong for a moment makes no used token usable again."""
        ledger, true = self.ledger(), self.seconds
        self.successResultOf(ledger.take(DIGEST, self.seconds + 60))
        self.seconds += 63_072_000
        ledger.start()
        self.addCleanup(ledger.stop)
        self.seconds = true
        self.assertFalse(self.successResultOf(ledger.take(DIGEST, self.seconds + 60)))
