"""
Tests for the hand-over of :mod:`twisted_exec.apiserver.service`: two servers, one after the other, on
one file.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from tests.apiserver.chain import MachineTestCase
from tests.apiserver.consoles.support import SharedStorage
from tests.audits import AuditList
from tests.chain import reactor
from tests.streaming.raw import Raw
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.service import APIServer
from twisted_exec.program.handover.interfaces import IHandsOver, ServiceState
from twisted_exec.storage.interfaces import StorageError
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.storage.sqlite.store import SQLiteStorage
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    REVOKED,
    SESSION_DELETED,
    SHUTTING_DOWN,
)

SESSIONS = kinds.CONSOLESESSIONS.resource
MACHINES = kinds.MACHINES.resource
MACHINE_PATH = MACHINES.path("default", "vm").encode()
ROLES, BINDINGS = kinds.ROLES.resource, kinds.ROLEBINDINGS.resource


def port_of(server: APIServer) -> Any:
    """Return the port on which a server listens."""
    return server._port  # The successor gets its descriptor.


class HandOverCase(MachineTestCase):
    """An API server on SQLite, and its successors."""

    async def setUp(self) -> None:
        self.retired: dict[APIServer, Deferred[None]] = {}
        # Last of all: a successor reads the end of its predecessor's connections a moment after that has stopped.
        self.addCleanup(self.until, lambda: not self.connections())
        await super().setUp()

    def connections(self) -> list[Any]:
        """The servers' ends of connections."""
        return [each for each in reactor.getReaders() if repr(each).startswith("<HTTPChannel")]

    def make_storage(self) -> SQLiteStorage:
        self.path = getattr(self, "path", None) or self.mktemp()
        return SQLiteStorage(self.path, reactor)

    async def successor(self, handed: ServiceState) -> APIServer:
        """A started successor."""
        server = APIServer(self.settings(), self.make_storage(), AuditList(), reactor)
        # As the channel between two processes does.
        copies = [os.dup(each) for each in handed.descriptors]
        server.inherit(ServiceState(handed.values, copies))
        self.addCleanup(self.stop_server, server)
        server.startService()
        await server.when_ready()
        return server

    async def stop_server(self, server: APIServer) -> None:
        if server.running:
            await server.stopService()

    async def stop_old(self, server: APIServer) -> None:
        await self.stop_server(server)
        await self.retired[server]

    async def hand_over(self, linger_seconds: float = 3600.0) -> Deferred[None]:
        """Replace :attr:`server`; the former one is :attr:`old`."""
        self.old = self.server
        self.addCleanup(self.stop_old, self.old)
        handed = await self.old.freeze()
        self.handed = handed.values
        await port_of(self.old).stopListening()  # as the program does
        self.server = await self.successor(handed)
        retired = self.retired[self.old] = self.old.retire(linger_seconds)
        self.admin = self.client("admin")
        return retired

    async def objects(self, count: int) -> list[Object]:
        """The ConsoleSessions, as soon as there are as many."""
        while len(found := (await self.admin.list(SESSIONS))["items"]) != count:
            pass
        return list(found)

    async def echo(self, end: Raw, data: bytes) -> None:
        """Check that a console works in both directions."""
        before = len(end.received)
        end.transport.write(data)  # type: ignore[union-attr]
        await self.until(lambda: end.received[before:] == data)


class HandOverTests(HandOverCase):
    """Sessions of the old process."""

    async def test_goes_on(self) -> None:
        """A stock client's session goes on, is listed at the successor, and is deleted there."""
        end = await self.open()
        await self.objects(1)
        retired = await self.hand_over()
        await self.echo(end, b"still here")
        (obj,) = await self.objects(1)
        self.assertFalse(retired.called)
        await self.admin.delete(SESSIONS, obj["metadata"]["name"], "default")
        await self.until(lambda: end.lost)
        await retired
        self.assertEqual(self.ends(), [(SESSION_DELETED, None)])
        await self.objects(0)
        await self.old.stopService()
        await self.open()

    async def test_young(self) -> None:
        """The object of a session that is younger than its object arrives through the successor."""
        await self.open()
        handing = Deferred.fromCoroutine(self.hand_over())
        await handing
        (obj,) = await self.objects(1)
        self.assertIn(obj["spec"]["replica"], self.handed["replicas"])

    async def test_reviewed(self) -> None:
        """A permission that is withdrawn at the successor ends a session of the old process."""
        rule = {
            "apiGroups": [MACHINES.group],
            "resources": ["machines", "machines/exec"],
            "verbs": ["*"],
        }
        head = {"apiVersion": ROLES.api_version, "metadata": {"name": "consoles"}}
        await self.admin.create(ROLES, {**head, "kind": "Role", "rules": [rule]}, "default")
        binding = {
            **head,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": "consoles"},
            "subjects": [{"apiGroup": ROLES.group, "kind": "User", "name": "jane"}],
        }
        await self.admin.create(BINDINGS, binding, "default")
        end = await self.open(user="jane")
        await self.hand_over()
        await self.admin.delete(BINDINGS, "consoles", "default")
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [(REVOKED, None)])

    async def test_machine_is_deleted(self) -> None:
        """A machine that is deleted at the successor ends its sessions in the old process."""
        end = await self.open()
        retired = await self.hand_over()
        await self.admin.delete(MACHINES, "vm", "default")
        await self.until(lambda: end.lost)
        await retired
        self.assertEqual(self.ends(), [(MACHINE_DELETED, None)])

    async def test_linger(self) -> None:
        """After their time the sessions end with the reason."""
        end = await self.open()
        retired = await self.hand_over(0.0)
        await self.until(lambda: end.lost)
        await retired
        self.assertEqual(self.ends(), [(SHUTTING_DOWN, None)])
        (_, uri, _) = self.pool.requests[-1]
        self.assertIn("the+API+server+was+replaced", uri)

    async def test_row(self) -> None:
        """Sessions outlive the successor of their successor; each process knows those of all."""
        ends = []
        for turn in range(1, 4):
            ends.append(await self.open())
            await self.objects(turn)
            await self.hand_over()
        listed = await self.objects(3)
        replicas = {each["spec"]["replica"] for each in listed}
        self.assertEqual(replicas, set(self.handed["replicas"]))
        for turn, end in enumerate(ends):
            await self.echo(end, b"turn %d" % turn)
        for obj in listed:
            await self.admin.delete(SESSIONS, obj["metadata"]["name"], "default")
        await self.until(lambda: all(end.lost for end in ends))

    async def test_lost_successor(self) -> None:
        """If the successor has ended, nobody watches over the sessions: they end with the reason."""
        end = await self.open()
        retired = await self.hand_over()
        await self.server.stopService()
        await self.until(lambda: end.lost)
        await retired
        self.assertEqual(self.ends(), [(SHUTTING_DOWN, None)])
        (_, uri, _) = self.pool.requests[-1]
        self.assertIn("has+ended", uri)


class ThawTests(HandOverCase):
    """A server whose successor fails."""

    async def test_nothing_happened(self) -> None:
        """The server goes on: with its session, its watches, its controllers and what was written."""
        end = await self.open()
        old = self.server
        successor = await self.successor(await old.freeze())
        self.server = successor
        await self.client("admin").patch(
            MACHINES, "vm", {"metadata": {"labels": {"a": "b"}}}, "default"
        )
        await successor.stopService()
        self.server = old
        await old.thaw()
        await self.echo(end, b"still here")
        admin = self.client("admin")
        changed = await admin.get(MACHINES, "vm", "default")
        self.assertEqual(changed["metadata"]["labels"], {"a": "b"})
        self.assertEqual(len(await self.objects(1)), 1)
        self.assertTrue(old.is_leading)
        another = await self.open()
        await self.echo(another, b"and another")

    async def test_watches(self) -> None:
        """Watches end with the freeze, and continue after the thaw without a missed change."""
        seen: list[str] = []
        since = (await self.admin.list(MACHINES))["metadata"]["resourceVersion"]

        def watch() -> Deferred[None]:
            return self.admin.watch(
                MACHINES,
                lambda kind, obj: kind != "BOOKMARK" and seen.append(kind),
                resource_version=since,
            )

        watching = watch()
        await self.server.freeze()
        await watching
        await self.server.thaw()
        await self.make_machine("another")
        watching = watch()
        await self.until(lambda: seen)
        watching.cancel()
        with self.assertRaises(CancelledError):
            await watching
        self.assertEqual(seen, ["ADDED"])

    async def test_frozen(self) -> None:
        """
        A freeze closes kept connections, so that their clients wait for the successor at new ones.

        On a connection that was just opened a read is answered, and a write may be repeated.
        """
        kept = await self.connected()
        kept.transport.write(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % MACHINE_PATH)
        await self.until(lambda: b'"name":"vm"' in kept.received)
        self.assertFalse(kept.lost)
        reader, writer = await self.connected(), await self.connected()
        await self.server.freeze()
        await self.until(lambda: kept.lost)
        reader.transport.write(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % MACHINE_PATH)
        await self.until(lambda: reader.lost)
        self.assertIn(b"200 OK", reader.received)
        writer.transport.write(b"DELETE %b HTTP/1.1\r\nHost: x\r\n\r\n" % MACHINE_PATH)
        await self.until(lambda: writer.lost)
        head, _, body = writer.received.partition(b"\r\n\r\n")
        self.assertIn(b"HTTP/1.1 503 ", head)
        self.assertIn(b"\r\nRetry-After: 1\r\n", head + b"\r\n")
        self.assertIn(b"the server is being replaced: try again", body)
        await self.server.thaw()
        await self.client("admin").delete(MACHINES, "vm", "default")

    async def connected(self) -> Any:
        """A connection of an administrator that the server has accepted."""
        before = len(self.server._site.connections)  # No peer sees that.
        protocol = await self.endpoint("admin").connect(Factory.forProtocol(Raw))
        await self.until(lambda: len(self.server._site.connections) > before)
        return protocol

    async def test_store_does_not_go_on(self) -> None:
        """A store that cannot be written any more does not stop requests that only read."""

        async def fail() -> None:
            raise StorageError("the file is locked")

        await self.server.freeze()
        storage = self.server._replaceable
        thaw = storage.thaw
        self.patch(storage, "thaw", fail)
        with self.assertRaisesRegex(StorageError, "locked"):
            await self.server.thaw()
        found = await self.client("admin").get(MACHINES, "vm", "default")
        self.assertEqual(found["metadata"]["name"], "vm")
        self.patch(storage, "thaw", thaw)
        await self.server.thaw()

    async def test_freeze_that_failed(self) -> None:
        """A thaw is possible whatever was frozen before."""
        freezing = self.server.freeze()
        freezing.addErrback(lambda _: None)
        freezing.cancel()
        await self.server.thaw()
        # A freeze ends idle connections, and a creation is not repeated when its connection is lost.
        self.admin = self.client("admin")
        await self.make_machine("another")
        self.assertTrue(self.server.is_leading)


class SharedStoreTests(MachineTestCase):
    """Servers whose store is not exclusive: nothing of it moves."""

    def make_storage(self) -> SharedStorage:
        self.shared = getattr(self, "shared", None) or MemoryStorage()
        return SharedStorage(self.shared)

    async def test_goes_on(self) -> None:
        """The old process leaves the controllers to others, and goes on with its own store."""
        end, old = await self.open(), self.server
        await self.until(lambda: old.is_leading)
        handed = await old.freeze()
        port = port_of(old)
        self.assertFalse(old.is_leading)
        await old.thaw()
        await self.until(lambda: old.is_leading)
        await old.freeze()
        new = APIServer(self.settings(), self.make_storage(), AuditList(), reactor)
        new.inherit(handed)
        new.startService()
        self.addCleanup(new.stopService)
        await new.when_ready()
        await port.stopListening()
        retired = old.retire(3600)
        await self.until(lambda: new.is_leading)
        self.server = new
        await self.client("admin").delete(MACHINES, "vm", "default")
        await self.until(lambda: end.lost)
        await retired
        self.assertEqual(self.ends(), [(MACHINE_DELETED, None)])
        await old.stopService()


class StateTests(TestCase):
    """The state of a hand-over, and servers that have none."""

    def make(self, storage: Any) -> APIServer:
        case = MachineTestCase()
        return APIServer(case.settings(), storage, AuditList(), reactor)

    def test_interface(self) -> None:
        """A server is handed over if its store can be."""
        server = self.make(SQLiteStorage(self.mktemp(), reactor))
        self.assertTrue(verifyObject(IHandsOver, server))
        self.assertFalse(IHandsOver.providedBy(self.make(MemoryStorage())))

    def test_release_0_2_0(self) -> None:
        """
        A process of 0.2.0 keeps its file, with the remedy; it hands over a shared store.

        One of ours refuses 0.2.0 in its place by the version of the state, which was 1 there.
        """
        server = self.make(SQLiteStorage(self.mktemp(), reactor))
        with self.assertRaisesRegex(ValueError, "restart"):
            server.inherit(ServiceState({"replicas": ["host/a"]}))
        self.assertEqual(server.state_version, 2)
        shared = self.make(SharedStorage(MemoryStorage()))
        shared.inherit(ServiceState({"replicas": ["host/a"]}))
        self.assertEqual(shared.state_version, 1)

    def test_bad_state(self) -> None:
        """A state of another shape is refused."""
        server = self.make(SQLiteStorage(self.mktemp(), reactor))
        for values in ({}, {"replicas": "a"}, {"replicas": [1]}):
            with self.assertRaises(ValueError):
                server.inherit(ServiceState(values))
