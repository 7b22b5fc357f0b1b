"""Tests for :mod:`twisted_exec.apiserver.serving.client`."""

from __future__ import annotations

import gc

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface.verify import verifyObject

from tests.contracts.kube_client import ObjectClientContract
from tests.contracts.kube_client import machine as bound_machine
from tests.contracts.storage import machine
from twisted_exec.api import kinds
from twisted_exec.api.kinds import EVENTS, Object
from twisted_exec.api.kinds.events import WARNING
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, TooManyRequests
from twisted_exec.apiserver.controllers.expiry import SOON_SECONDS, EventExpiry
from twisted_exec.apiserver.serving.client import VerbsClient, own_recorder
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.kube.interfaces import IObjectClient
from twisted_exec.kube.recorder import Recorder
from twisted_exec.storage.memory import MemoryStorage


class VerbsClientTests(ObjectClientContract, TestCase):
    """Run the contract with :class:`VerbsClient` on a store in memory."""

    async def make_client(self) -> IObjectClient:
        verbs = Verbs(MemoryStorage(), [], lambda: 1e9)
        return VerbsClient(verbs, [kinds.MACHINES, kinds.MACHINEPOOLS, kinds.NAMESPACES])

    async def test_door(self) -> None:
        """It provides the interface."""
        self.assertTrue(verifyObject(IObjectClient, self.client))

    async def test_manager(self) -> None:
        """Writes are those of the server itself."""
        made = await self.client.create(kinds.MACHINES.resource, bound_machine("vm"), "lab")
        (entry,) = made["metadata"]["managedFields"]
        self.assertEqual(entry["manager"], "exec-apiserver")


class FullStorage(MemoryStorage):
    """
    A store that may refuse to create Events.

    :ivar refusal: its answer; ``None`` to create them.
    """

    refusal: APIError | None = None

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        if self.refusal is not None and resource == EVENTS.resource:
            return fail(self.refusal)
        return super().create(resource, obj)


class RecorderCase(SynchronousTestCase):
    """Recorders of one server."""

    def setUp(self) -> None:
        self.clock, self.storage = Clock(), FullStorage()
        body = {"metadata": {"name": "default", "uid": "uid-of-default"}}
        self.successResultOf(self.storage.create(kinds.NAMESPACES.resource, body))

    def make(self, component: str = "scheduler") -> Recorder:
        recorder = own_recorder(
            Verbs(self.storage, [], self.clock.seconds),
            self.clock,
            lambda: 1e9,
            about=kinds.MACHINES.resource,
            component=component,
        )
        self.addCleanup(recorder.stop)
        return recorder

    def events(self) -> list[Object]:
        found: list[Object] = list(self.successResultOf(self.storage.list(EVENTS.resource)).items)
        return found


class OwnRecorderTests(RecorderCase):
    """Events of the server itself."""

    def test_replicas(self) -> None:
        """Replicas, and a server after a restart, count one Event on."""
        first, second = self.make(), self.make()
        for recorder in (first, second, first, self.make()):
            recorder.record(machine("vm"), WARNING, "Failed", "no pool")
        (event,) = self.events()
        self.assertEqual(event["count"], 4)
        self.assertEqual(event["source"], {"component": "scheduler"})

    def test_components(self) -> None:
        """Another component has Events of its own."""
        for component in ("scheduler", "signer"):
            self.make(component).record(machine("vm"), WARNING, "Failed", "no pool")
        self.assertEqual([event["count"] for event in self.events()], [1, 1])

    def test_another_kind(self) -> None:
        """An object may be of another kind."""
        resource = kinds.CONSOLEREQUESTS.resource
        self.make().record(machine("vm"), WARNING, "Failed", "no pool", resource=resource)
        (event,) = self.events()
        self.assertEqual(event["involvedObject"]["kind"], "ConsoleRequest")

    def test_refused(self) -> None:
        """``write`` fails at once if the server refuses; what was refused does not count."""
        recorder = self.make()
        self.storage.refusal = TooManyRequests("exceeded quota")
        written = recorder.write(machine("vm"), WARNING, "Failed", "no pool")
        self.failureResultOf(Deferred.fromCoroutine(written), TooManyRequests)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.storage.refusal = None
        for _ in range(2):
            written = recorder.write(machine("vm"), WARNING, "Failed", "no pool")
            self.successResultOf(Deferred.fromCoroutine(written))
        self.assertEqual([event["count"] for event in self.events()], [2])

    def test_long_name(self) -> None:
        """The name of an Event is valid even if that of its object is cut within a word."""
        name = "a" * 199 + "-b." + "c" * 40
        self.make().record(machine(name), WARNING, "Failed", "no pool")
        (event,) = self.events()
        self.assertEqual(event["involvedObject"]["name"], name)


class GarbageTests(RecorderCase):
    """Writes of Events leave nothing that waits for the garbage collector."""

    def setUp(self) -> None:
        super().setUp()
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)

    def tell(self, number: int) -> None:
        self.make().record(machine(f"vm-{number}"), WARNING, "Failed", "no pool")

    def errors(self) -> list[APIError]:
        return [each for each in gc.get_objects() if isinstance(each, APIError)]

    def test_new(self) -> None:
        """The first Event about an object, before which there is none."""
        before = len(self.errors())
        for number in range(20):
            self.tell(number)
        self.assertEqual(len(self.errors()), before)
        self.assertEqual(len(self.events()), 20)

    def test_deleted_meanwhile(self) -> None:
        """Old Events that are deleted when others have deleted them."""
        for _ in range(2):
            expiry = EventExpiry(self.storage, self.clock, self.clock.seconds, most_bytes=1)
            expiry.startService()
            self.addCleanup(expiry.stopService)
        before = len(self.errors())
        for number in range(20):
            self.tell(number)
        self.clock.advance(SOON_SECONDS)
        self.assertEqual(self.events(), [])
        self.assertEqual(len(self.errors()), before)
