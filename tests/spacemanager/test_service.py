"""Tests for :mod:`twisted_exec.spacemanager.service`."""

from __future__ import annotations

import os
import stat
from typing import Any

import treq
from twisted.application.service import Service
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.kube.test_leases import LeaselessClient
from tests.spacemanager.support import Hub, HubSpaces
from twisted_exec.api.kinds import EVENTS, LEASES
from twisted_exec.api.status import BadGateway
from twisted_exec.spacemanager.interfaces import IProviders, ProviderContext
from twisted_exec.spacemanager.service import SpaceManager
from twisted_exec.spacemanager.settings import Settings
from twisted_exec.tls.errors import TLSConfigError

reactor: Any = _reactor


class Loop(HubSpaces, Service):
    """A stand-in for the Space controller loop."""


class ManagerCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.hub = Hub()
        self.loops: list[Loop] = []
        self.directory = os.path.abspath(self.mktemp())

    def make_loop(self, providers: IProviders, around: ProviderContext, *_: object) -> Loop:
        made = Loop(self.hub.cluster)
        self.loops.append(made)
        return made

    def manager(self, clock: Any = None, **settings: Any) -> SpaceManager:
        told = Settings(self.directory, **settings)
        return SpaceManager(
            told,
            self.hub.client,
            self.hub.makers,
            self.make_loop,
            clock or self.hub.clock,
            now=self.hub.now,
        )


class TermTests(ManagerCase):
    """Leader election between several managers."""

    def test_one_of_two(self) -> None:
        """Only the leader works; after it stops, the second manager takes over."""
        self.hub.desc("here")
        first, second = self.manager(), self.manager()
        for each in (first, second):
            each.startService()
            self.successResultOf(each.when_ready())
        self.hub.pass_time(5)
        self.assertEqual(len(self.hub.made), 1)
        self.assertIsNotNone(first.state)
        self.assertIsNone(second.state)
        lease = self.hub.cluster.objects[LEASES.resource, "kube-system", "exec-spacemanager"]
        self.assertTrue(lease["spec"]["holderIdentity"])
        self.successResultOf(first.stopService())
        self.assertIsNone(first.state)
        self.assertTrue(self.hub.made[0][1].closed)
        self.hub.pass_time(6)
        self.assertIsNotNone(second.state)
        self.assertEqual([loop.running for loop in self.loops], [0, 1])
        self.assertEqual(self.hub.got("here")["status"]["Phase"], "Ready")
        self.successResultOf(second.stopService())
        self.assertEqual(self.hub.clock.getDelayedCalls(), [])

    def test_killed(self) -> None:
        """A restarted manager with a fixed identity keeps its lease; another waits."""
        killed = self.manager(identity="the-one")
        killed.startService()
        self.hub.pass_time(1)
        lease = self.hub.cluster.objects[LEASES.resource, "kube-system", "exec-spacemanager"]
        held = dict(lease["spec"])
        self.successResultOf(killed.stopService())
        self.hub.cluster.objects[LEASES.resource, "kube-system", "exec-spacemanager"]["spec"] = held
        other, again = self.manager(), self.manager(identity="the-one")
        other.startService()
        again.startService()
        self.assertEqual([other.state is None, again.state is None], [True, False])
        for each in (again, other):
            self.successResultOf(each.stopService())

    def test_directory(self) -> None:
        """The state directory is created with mode 0700; a directory open to others is refused."""
        manager = self.manager()
        manager.startService()
        self.assertEqual(stat.S_IMODE(os.stat(self.directory).st_mode), 0o700)
        self.successResultOf(manager.stopService())
        os.chmod(self.directory, 0o755)
        with open(os.path.join(self.directory, "planted"), "w"):
            pass
        manager = self.manager()
        ready = manager.when_ready()
        manager.startService()
        self.assertIn("--state-dir: ", str(self.failureResultOf(ready, TLSConfigError).value))
        self.successResultOf(manager.stopService())

    def ready(self, manager: SpaceManager) -> tuple[bool, str]:
        self.hub.clock.advance(1)
        return self.successResultOf(Deferred.fromCoroutine(manager.health.ready()))

    def test_ready(self) -> None:
        """Ready needs a running manager, a hub that answers and, on the leader, synced Spaces."""
        manager = self.manager()
        self.assertFalse(self.ready(manager)[0])
        manager.startService()
        self.hub.pass_time(5)
        self.assertEqual(self.ready(manager)[0], True)
        self.loops[0].synced = False
        self.assertIn("[-]spaces", self.ready(manager)[1])
        self.loops[0].synced = True
        self.hub.cluster.problem = BadGateway("away")
        self.assertIn("[-]hub", self.ready(manager)[1])
        self.hub.cluster.problem = None
        self.successResultOf(manager.stopService())
        self.assertIn("[-]serving", self.ready(manager)[1])


class ForbiddenLeaseTests(ManagerCase):
    """A manager whose user may not use the Lease."""

    def test_not_ready(self) -> None:
        """It is not ready after a time, and says why in an Event."""
        self.hub.client = LeaselessClient(self.hub.cluster)
        manager = self.manager()
        manager.startService()
        self.hub.pass_time(40)
        ready = self.successResultOf(Deferred.fromCoroutine(manager.health.ready()))
        self.assertEqual(ready[0], False)
        self.assertIn("[-]leader-election failed", ready[1])
        self.assertIn("[+]hub ok", ready[1])
        events = [each for each in self.hub.cluster.objects if each[0] == EVENTS.resource]
        self.assertEqual([namespace for _, namespace, _ in events], ["kube-system"])
        self.successResultOf(manager.stopService())


class PortTests(TestCase):
    """The port for probes and metrics."""

    async def test_answers(self) -> None:
        """The port serves health probes and metrics without credentials; other paths answer 404."""
        case = ManagerCase("setUp")
        case.mktemp = self.mktemp  # type: ignore[method-assign]
        case.setUp()
        case.hub.clock = Clock()
        manager = case.manager(reactor, health_listen="tcp:0:interface=127.0.0.1")
        manager.startService()
        await manager.when_ready()
        port = getattr(manager.health_address, "port", 0)
        found = {}
        for path in ("/healthz", "/readyz", "/metrics", "/api"):
            answer = await treq.get(f"http://127.0.0.1:{port}{path}", persistent=False)
            found[path] = (answer.code, await answer.text())
        self.assertEqual([code for code, _ in found.values()], [200, 200, 200, 404])
        self.assertIn("twisted_exec_spaces", found["/metrics"][1])
        await manager.stopService()
        self.assertIsNone(manager.health_address)
