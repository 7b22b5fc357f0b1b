"""
Tests for :mod:`twisted_exec.apiserver.controllers.leader_election`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import EPOCH, APITestCase
from tests.kube.test_leases_services import Part
from twisted_exec.api.kinds import EVENTS, LEASES, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Forbidden, ServiceUnavailable
from twisted_exec.apiserver.controllers.leader_election import (
    LEASE,
    NAMESPACE,
    LeaderElectedServices,
)
from twisted_exec.apiserver.controllers.namespaces import NamespaceLifecycle, ensure_namespaces
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.kube.leases import LeaderServices
from twisted_exec.storage.memory import MemoryStorage


class LeaseStorage(MemoryStorage):
    """
    A store that may refuse to read and write Leases.

    :ivar refusal: its answer; ``None`` to serve them.
    """

    refusal: APIError | None = None

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        if self.refusal is not None and resource == LEASES.resource:
            return fail(self.refusal)
        return super().get(resource, namespace, name, stale=stale)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        if self.refusal is not None and resource == LEASES.resource:
            return fail(self.refusal)
        return super().update(resource, obj)


class ElectedTests(SynchronousTestCase):
    """Two servers on one store."""

    def setUp(self) -> None:
        self.clock, self.storage = Clock(), LeaseStorage()
        verbs = Verbs(self.storage, [], lambda: EPOCH)
        self.successResultOf(Deferred.fromCoroutine(ensure_namespaces(verbs, self.storage)))

    def server(self, name: str) -> LeaderElectedServices:
        verbs = Verbs(self.storage, [], lambda: EPOCH)
        made = LeaderElectedServices(
            lambda: [Part()], self.storage, verbs, name, self.clock, self.now
        )
        made.startService()
        self.addCleanup(made.stopService)
        return made

    def now(self) -> float:
        return EPOCH + 0.25 + self.clock.seconds()

    def lease(self) -> Object:
        found: Object = self.successResultOf(self.storage.get(LEASES.resource, NAMESPACE, LEASE))
        return found

    def test_one_acts(self) -> None:
        """The first acts; the second as soon as the first has stopped, without a pause."""
        first, second = self.server("one/1"), self.server("two/2")
        self.assertEqual([len(first.services), len(second.services)], [1, 0])
        self.assertEqual(self.lease()["spec"]["holderIdentity"], "one/1")
        self.assertEqual(self.lease()["spec"]["renewTime"], "2023-11-14T22:13:20.250000Z")
        self.clock.pump([1] * 60)
        self.assertEqual([len(first.services), len(second.services)], [1, 0])
        self.successResultOf(first.stopService())
        self.assertEqual([len(first.services), len(second.services)], [0, 1])
        self.assertEqual(self.lease()["spec"]["leaseTransitions"], 1)

    def test_no_namespace(self) -> None:
        """A server whose Lease has no namespace is not ready after 30 seconds."""
        self.storage = LeaseStorage()
        server = self.server("one/1")
        self.clock.pump([1] * 29)
        server.probe()
        self.clock.pump([1] * 2)
        error = self.assertRaises(ServiceUnavailable, server.probe)
        self.assertIn('namespaces "kube-system" not found', str(error))

    def test_unavailable(self) -> None:
        """An unavailable store is not a failure of the election: the store has its own check."""
        self.storage.refusal = ServiceUnavailable("etcd cannot be reached")
        server = self.server("one/1")
        self.clock.pump([1] * 60)
        self.assertIsInstance(server.election.failure, ServiceUnavailable)
        server.probe()

    def test_event(self) -> None:
        """A failure is an Event in the namespace of the Lease."""
        server = self.server("one/1")
        lease = self.lease()
        self.storage.refusal = Forbidden("exceeded quota")
        self.clock.pump([1] * 12)
        self.assertFalse(server.services)
        (event,) = self.successResultOf(self.storage.list(EVENTS.resource)).items
        self.assertEqual(event["involvedObject"]["name"], lease["metadata"]["name"])
        self.assertEqual(event["metadata"]["namespace"], NAMESPACE)
        self.assertIn("one/1 leads, but cannot renew Lease kube-system/exec-a", event["message"])

    def test_last_one(self) -> None:
        """A server that begins where the last one stopped properly acts at once."""
        self.successResultOf(self.server("one/1").stopService())
        self.assertEqual(self.lease()["spec"]["holderIdentity"], "")
        self.assertEqual(len(self.server("two/2").services), 1)


class AssembledTests(APITestCase):
    """Election depends on the store."""

    def test_alone(self) -> None:
        """With an exclusive store there is no election, and not even a Lease."""
        self.assertIsInstance(self.parts.leading, LeaderServices)
        found = self.successResultOf(self.storage.list(LEASES.resource))
        self.assertEqual(found.items, [])

    def test_shared(self) -> None:
        """With a shared store one server leads, and namespaces are emptied once."""
        self.patch(MemoryStorage, "exclusive", False)
        first, second = self.assembled(), self.assembled()
        kinds = [[type(each) for each in one.leading.services] for one in (first, second)]
        self.assertIn(NamespaceLifecycle, kinds[0])
        self.assertEqual(kinds[1], [])

    def assembled(self) -> Any:
        parts = self.assemble()
        parts.leading.startService()
        self.addCleanup(parts.leading.stopService)
        return parts
