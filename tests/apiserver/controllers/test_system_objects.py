"""
Tests for :mod:`twisted_exec.apiserver.controllers.system_objects`: several servers that start at the same
moment, and a store that loses the objects.  Each object is tested with the code that needs it.
"""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.defer import Deferred, fail, gatherResults
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase, TestCase

from twisted_exec.api import kinds
from twisted_exec.api.dialects import DIALECTS
from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.controllers.system_objects import SystemObjects, create_system_objects
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.auth.default_roles import bootstrap_objects
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.storage.sqlite.store import SQLiteStorage

SYSTEM_KINDS = (kinds.NAMESPACES, kinds.CLUSTERROLES, kinds.CLUSTERROLEBINDINGS)


class AtOnceTests(TestCase):
    """Servers that start at the same moment; writes take their time."""

    async def setUp(self) -> None:
        self.storage = SQLiteStorage(self.mktemp(), reactor)
        self.storage.startService()
        self.addCleanup(self.storage.stopService)
        await self.storage.when_ready()

    async def start(self) -> None:
        """Start all servers."""
        verbs = Verbs(self.storage, [], lambda: 1_700_000_000.0)
        await create_system_objects(self.storage, verbs, bootstrap_objects(DIALECTS), ["leases"])

    async def test_once_each(self) -> None:
        """All succeed, and each object exists once and complete."""
        await gatherResults([Deferred.fromCoroutine(self.start()) for _ in range(3)])
        for kind in (kinds.CLUSTERROLES, kinds.CLUSTERROLEBINDINGS):
            found = (await self.storage.list(kind.resource)).items
            wanted = [
                each for each in bootstrap_objects(DIALECTS) if each["kind"] == kind.resource.kind
            ]
            self.assertEqual(
                {each["metadata"]["name"]: each.get("rules") for each in found},
                {each["metadata"]["name"]: each.get("rules") for each in wanted},
            )
        names = [
            each["metadata"]["name"]
            for each in (await self.storage.list(kinds.NAMESPACES.resource)).items
        ]
        self.assertEqual(names, ["default", "kube-system", "leases"])


class FailingStorage(MemoryStorage):
    """A store that refuses all writes while ``fails`` is set."""

    fails = False

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        if self.fails:
            return fail(ServiceUnavailable("etcd cannot be reached"))
        return super().create(resource, obj)


class LostObjectsTests(SynchronousTestCase):
    """A running server whose store loses objects."""

    def setUp(self) -> None:
        self.storage, self.clock = FailingStorage(), Clock()
        self.verbs = Verbs(self.storage, [], lambda: 1_700_000_000.0)
        self.objects = bootstrap_objects(DIALECTS)
        making = create_system_objects(self.storage, self.verbs, self.objects, ["leases"])
        self.successResultOf(Deferred.fromCoroutine(making))
        arguments = (self.storage, self.verbs, self.objects, ["leases"], self.clock)
        self.system_objects = SystemObjects(*arguments)
        self.system_objects.startService()
        self.addCleanup(self.system_objects.stopService)

    def everything(self) -> list[tuple[Resource, str, str]]:
        """Return all objects, as :meth:`MemoryStorage.lose` takes them."""
        return [(kind.resource, "", name) for kind in SYSTEM_KINDS for name in self.names(kind)]

    def names(self, kind: kinds.Kind) -> list[str]:
        listed = self.successResultOf(self.storage.list(kind.resource))
        return [each["metadata"]["name"] for each in listed.items]

    def test_emptied(self) -> None:
        """All system objects of an emptied store are created again, each time."""
        before = self.everything()
        for _ in range(2):
            self.storage.lose(*before)
            self.assertEqual(self.everything(), before)
            self.system_objects.probe()

    def test_deleted_namespace(self) -> None:
        """A permanent namespace that another program deletes is created again."""
        stored = self.successResultOf(self.storage.get(kinds.NAMESPACES.resource, "", "default"))
        self.successResultOf(self.storage.delete(kinds.NAMESPACES.resource, stored))
        self.assertEqual(self.names(kinds.NAMESPACES), ["default", "kube-system", "leases"])

    def test_deleted_role(self) -> None:
        """A role that an administrator deletes stays deleted until the next start."""
        stored = self.successResultOf(self.storage.get(kinds.CLUSTERROLES.resource, "", "view"))
        self.successResultOf(self.storage.delete(kinds.CLUSTERROLES.resource, stored))
        self.assertNotIn("view", self.names(kinds.CLUSTERROLES))

    def test_store_fails(self) -> None:
        """
        While the store refuses the objects, the probe fails, each attempt logs one line, and the
        attempts become less frequent.  The last attempt creates the objects.
        """
        before = self.everything()
        self.storage.fails = True
        with capturedLogs() as logged:
            self.storage.lose(*before)
            self.assertRaises(ServiceUnavailable, self.system_objects.probe)
            self.clock.pump([1.0] * 60)
        texts = [formatEvent(event) for event in logged if event["log_level"].name == "warn"]
        self.assertEqual(
            set(texts),
            {"cannot create the system objects again: etcd cannot be reached"},
        )
        self.assertTrue(2 < len(texts) < 15, len(texts))
        self.storage.fails = False
        self.clock.pump([1.0] * 60)
        self.system_objects.probe()
        self.assertEqual(self.everything(), before)

    def test_stopped(self) -> None:
        """A stopped server does not try again."""
        self.storage.fails = True
        self.storage.lose(*self.everything())
        self.system_objects.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
