"""
Tests for :mod:`twisted_exec.apiserver.aggregated.host_storage` and ``split``.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.apiserver.aggregated.support import Host
from twisted_exec.api.kinds import EVENTS, LEASES, MACHINES, NAMESPACES, Object
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadGateway,
    Conflict,
    Expired,
    Forbidden,
    GatewayTimeout,
    InternalError,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    from_code,
)
from twisted_exec.apiserver.aggregated.host_storage import HostedStorage, SplitStorage, unavailable
from twisted_exec.storage.interfaces import Event, IStorage
from twisted_exec.storage.memory import MemoryStorage

LEASE = LEASES.resource


def lease(name: str, namespace: str = "beats", **spec: Any) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


class HostedCase(SynchronousTestCase):
    """A host, and a store over it."""

    def setUp(self) -> None:
        self.clock, self.host = Clock(), Host()
        self.storage = HostedStorage(self.host.client, self.clock)
        self.storage.startService()
        self.addCleanup(self.storage.stopService)

    def requests(self, plural: str) -> list[str]:
        return [verb for verb, asked, *_ in self.host.cluster.requests if asked == plural]

    def get(self, *asked: Any) -> Object:
        obj: Object = self.successResultOf(self.storage.get(*asked))
        return obj

    def go_down(self) -> None:
        self.host.cluster.problem = BadGateway("nobody listens")
        self.host.cluster.end_watches(self.host.cluster.problem)

    def come_back(self) -> None:
        self.host.cluster.problem = None
        self.clock.advance(60)
        self.clock.advance(2)


class HostedTests(HostedCase):
    """Tests for :class:`HostedStorage`."""

    def test_door(self) -> None:
        """It is a non-exclusive store that is ready at once."""
        self.assertTrue(verifyObject(IStorage, self.storage))
        self.assertFalse(self.storage.exclusive)
        self.successResultOf(self.storage.when_ready())

    def test_followed(self) -> None:
        """Namespaces are read from a copy; a missing one is requested."""
        self.assertEqual(
            self.get(NAMESPACES.resource, "", "default")["metadata"]["name"], "default"
        )
        self.assertEqual(self.requests("namespaces"), ["list", "watch"])
        self.failureResultOf(self.storage.get(NAMESPACES.resource, "", "none"), NotFound)
        self.assertEqual(self.requests("namespaces"), ["list", "watch", "get"])
        listing = self.successResultOf(self.storage.list(NAMESPACES.resource))
        self.assertEqual(
            [obj["metadata"]["name"] for obj in listing.items], ["default", "kube-system"]
        )
        self.assertEqual(self.requests("namespaces"), ["list", "watch", "get"])

    def test_not_followed(self) -> None:
        """Other resources are requested each time."""
        self.host.make(LEASES, lease("a"))
        for _ in range(2):
            self.get(LEASE, "beats", "a")
            listing = self.successResultOf(self.storage.list(LEASE, "beats"))
            self.assertEqual(len(listing.items), 1)
        self.assertEqual(self.requests("leases"), ["get", "list"] * 2)

    def test_past(self) -> None:
        """Old versions have always expired."""
        self.failureResultOf(self.storage.list(LEASE, version=1), Expired)
        with self.assertRaises(Expired):
            self.storage.watch(LEASE, 1, lambda event: None)

    def test_writes(self) -> None:
        """The host sets an object's own metadata."""
        metadata = {"uid": "mine", "resourceVersion": "7", "managedFields": [{}], "generation": 3}
        told = lease("a", holderIdentity="x")
        told["metadata"] |= metadata
        made = self.successResultOf(self.storage.create(LEASE, told))
        self.assertNotEqual(made["metadata"]["uid"], "mine")
        self.assertNotIn("managedFields", made["metadata"])
        self.assertEqual(told["metadata"]["uid"], "mine")
        changed = {**made, "spec": {"holderIdentity": "y"}}
        stored = self.successResultOf(self.storage.update(LEASE, changed))
        self.assertEqual(self.get(LEASE, "beats", "a"), stored)
        self.failureResultOf(self.storage.update(LEASE, changed), Conflict)
        self.failureResultOf(self.storage.create(LEASE, told), AlreadyExists)
        self.successResultOf(self.storage.delete(LEASE, stored))
        self.failureResultOf(self.storage.delete(LEASE, stored), NotFound)

    def test_watch(self) -> None:
        """Changes in a namespace are delivered as by any store, until the watch stops."""
        told: list[Event] = []
        watch = self.storage.watch(LEASE, None, told.append, "beats")
        self.host.make(LEASES, lease("a"))
        self.host.make(LEASES, lease("b", "elsewhere"))
        self.host.make(LEASES, lease("a", holderIdentity="x"))
        self.host.cluster.remove((LEASE, "beats", "a"))
        watch.stop()
        self.host.make(LEASES, lease("c"))
        self.assertEqual([event.type for event in told], ["ADDED", "MODIFIED", "DELETED"])
        self.assertEqual([event.previous is None for event in told], [True, False, False])
        self.assertEqual(told[1].version, int(told[1].obj["metadata"]["resourceVersion"]))

    def test_election(self) -> None:
        """Only our own lease is watched, not those of other programs."""
        told: list[Event] = []
        self.storage.watch(LEASE, None, told.append, "kube-system")
        for name in ("kube-scheduler", "exec-apiserver"):
            self.host.make(LEASES, lease(name, "kube-system"))
        self.assertEqual([event.obj["metadata"]["name"] for event in told], ["exec-apiserver"])

    def test_watches_share(self) -> None:
        """
        Watches of the same resource share one watch of the host; stopping one leaves the others.
        """
        told: list[list[Event]] = [[], []]
        watches = [self.storage.watch(LEASE, None, each.append, "beats") for each in told]
        self.host.make(LEASES, lease("a"))
        watches[0].stop()
        self.host.make(LEASES, lease("b"))
        self.assertEqual([len(each) for each in told], [1, 2])
        self.assertEqual(self.requests("leases"), ["list", "watch"])

    def test_down(self) -> None:
        """
        While the host is down cached objects are served, others fail with 503; then changes
        arrive.
        """
        told: list[Event] = []
        self.storage.watch(LEASE, None, told.append, "beats")
        self.host.make(LEASES, lease("a"))
        self.go_down()
        self.get(NAMESPACES.resource, "", "default")
        failed = self.failureResultOf(
            self.storage.get(NAMESPACES.resource, "", "none"), ServiceUnavailable
        )
        self.assertEqual(failed.value.retry_after_seconds, 1)
        self.assertIn("the host cluster cannot be asked: nobody listens", failed.value.message)
        self.failureResultOf(self.storage.probe(), ServiceUnavailable)
        self.assertEqual(len(told), 1)
        self.host.cluster.remove((LEASE, "beats", "a"))
        self.host.make(LEASES, lease("b"))
        self.come_back()
        self.assertEqual([event.type for event in told], ["ADDED", "DELETED", "ADDED"])
        self.assertEqual(list(self.storage.problems), [])
        self.successResultOf(self.storage.probe())

    def test_never_up(self) -> None:
        """Before the first list the store reports a problem."""
        self.host.cluster.problem = BadGateway("nobody listens")
        storage = HostedStorage(self.host.client, self.clock)
        storage.startService()
        self.addCleanup(storage.stopService)
        self.assertEqual(list(storage.problems), ["namespaces: nobody listens"])
        self.failureResultOf(storage.list(NAMESPACES.resource), ServiceUnavailable)


class ErrorTests(SynchronousTestCase):
    """Errors of the host, for users of this server."""

    def told(self, error: APIError) -> APIError:
        return unavailable(EVENTS.resource, error)

    def test_not_theirs(self) -> None:
        """If the host refuses this server, the user gets an internal error, not 401 or 403."""
        for code in (401, 403):
            told = self.told(from_code(code, "no"))
            self.assertIsInstance(told, InternalError)
            self.assertEqual(told.message, "the host cluster refuses this server: no")

    def test_may_pass(self) -> None:
        """Temporary errors allow a retry."""
        for error in (
            BadGateway("x"),
            GatewayTimeout("x"),
            TooManyRequests("x"),
            InternalError("x"),
        ):
            told = self.told(error)
            self.assertEqual((told.code, told.retry_after_seconds), (503, 1))

    def test_as_stores_say_it(self) -> None:
        """HTTP errors of the host become the error classes of stores."""
        details = {"name": "e", "kind": "events"}
        gone = self.told(APIError("gone", code=404, reason="NotFound", details=details))
        self.assertIsInstance(gone, NotFound)
        self.assertEqual((gone.message, gone.details["name"]), ("gone", "e"))
        there = self.told(APIError("x", code=409, reason="AlreadyExists", details=details))
        self.assertIsInstance(there, AlreadyExists)
        self.assertIsInstance(self.told(APIError("x", code=409, reason="Conflict")), Conflict)
        for error in (NotFound("events", "e"), Conflict("x"), Forbidden("x", code=422)):
            self.assertIs(self.told(error), error)


class SplitTests(HostedCase):
    """Tests for :class:`SplitStorage`."""

    def test_door(self) -> None:
        """It is a store, and exclusive if the server's own store is."""
        own = MemoryStorage()
        storage = SplitStorage(own, self.storage)
        self.assertTrue(verifyObject(IStorage, storage))
        self.assertIs(storage.exclusive, own.exclusive)

    def test_picks(self) -> None:
        """Each object is where its kind is kept, and versions are those of the server's own store."""
        own = MemoryStorage()
        storage, told = SplitStorage(own, self.storage), list[Event]()
        machine = {"metadata": {"name": "vm", "namespace": "default", "uid": "u"}}
        for kind in (MACHINES, LEASES):
            storage.watch(kind.resource, None, told.append)
        made = self.successResultOf(storage.create(MACHINES.resource, machine))
        self.successResultOf(storage.create(LEASE, lease("a")))
        self.assertEqual([event.obj["metadata"]["name"] for event in told], ["vm", "a"])
        self.assertEqual(self.successResultOf(own.get(MACHINES.resource, "default", "vm")), made)
        self.failureResultOf(own.get(LEASE, "beats", "a"), NotFound)
        self.assertEqual(storage.version(), own.version())
        self.assertEqual(self.successResultOf(storage.current()), own.version())
        self.go_down()
        self.successResultOf(storage.probe())
        self.successResultOf(storage.get(MACHINES.resource, "default", "vm"))
        self.failureResultOf(storage.list(LEASE), ServiceUnavailable)
        self.successResultOf(storage.list(LEASE, stale=True))
