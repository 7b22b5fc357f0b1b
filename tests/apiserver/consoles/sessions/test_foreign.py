"""
Tests for :mod:`twisted_exec.apiserver.consoles.sessions.foreign`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tests.apiserver.chain import WEBSOCKET, ChainTestCase
from tests.apiserver.consoles.support import (
    ADA,
    LEASE_SECONDS,
    RESOURCE,
    Carried,
    ObjectsCase,
    SharedStorage,
)
from tests.audits import AuditList
from tests.chain import POOL, reactor
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.consoles.sessions.objects import CREATE_SECONDS, LOOK_SECONDS
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.streaming.interfaces import SESSION_DELETED


class LeaseTests(ObjectsCase):
    """Objects of servers that are no more."""

    def abandoned(self) -> None:
        """A server that dies with a session."""
        sessions, objects = self.server("two")
        Carried(sessions, 9).begin()
        self.clock.advance(CREATE_SECONDS)
        self.successResultOf(objects.stopService())

    def test_stale(self) -> None:
        """An object is deleted once its lease has expired, and not before."""
        self.abandoned()
        self.pass_time(LEASE_SECONDS - LOOK_SECONDS)
        self.assertEqual(len(self.stored()), 1)
        self.pass_time(2 * LOOK_SECONDS)
        self.assertEqual((self.stored(), self.kept()), ([], 0))

    def test_earlier_process(self) -> None:
        """This includes objects that existed before this server."""
        self.abandoned()
        self.successResultOf(self.objects.stopService())
        self.pass_time(LEASE_SECONDS)
        self.server("three")
        self.pass_time(LEASE_SECONDS - LOOK_SECONDS)
        self.assertEqual(len(self.stored()), 1)
        self.pass_time(2 * LOOK_SECONDS)
        self.assertEqual(self.stored(), [])

    def test_earlier_process_alone(self) -> None:
        """With an exclusive store, objects that existed before the server are deleted at once."""
        self.abandoned()
        self.successResultOf(self.objects.stopService())
        sessions, objects = self.server("three", exclusive=True)
        self.assertEqual((self.stored(), self.kept(objects)), ([], 0))
        Carried(sessions, 5).begin()
        self.pass_time(2 * LEASE_SECONDS)
        self.assertEqual([each["spec"]["session"] for each in self.stored()], ["s-5"])

    def test_late_list(self) -> None:
        """If the first list fails, the next one finds sessions of this server, too, which stay."""
        self.abandoned()
        self.successResultOf(self.objects.stopService())
        self.storage.unlisted = True
        sessions, _ = self.server("three", exclusive=True)
        self.storage.unlisted = False
        Carried(sessions, 5).begin()
        self.clock.advance(CREATE_SECONDS)
        self.pass_time(2 * LOOK_SECONDS)
        self.assertEqual([each["spec"]["session"] for each in self.stored()], ["s-5"])
        self.assertEqual([each.ending for each in sessions.live()], [None])

    def test_renewed_by_others(self) -> None:
        """Objects of live servers stay, and so do ours."""
        others, _ = self.server("two")
        Carried(others, 9).begin()
        self.begin()
        self.pass_time(LEASE_SECONDS)
        kept = self.kept()
        self.pass_time(10 * LEASE_SECONDS)
        self.assertEqual(len(self.stored()), 2)
        self.assertEqual(self.kept(), kept)

    def test_odd(self) -> None:
        """An object without a lifetime expires like any other."""
        body = {"metadata": {"name": "odd"}, "spec": {"session": "x"}}
        target = RequestTarget(kinds.CONSOLESESSIONS, "default")
        making = self.verbs.create(ADA, target, body, WriteOptions())
        self.successResultOf(Deferred.fromCoroutine(making))
        self.pass_time(LEASE_SECONDS + 2 * LOOK_SECONDS)
        self.assertEqual(self.stored(), [])


class TwoServersTests(ChainTestCase):
    """Two API servers on one store, with real connections."""

    async def setUp(self) -> None:
        await super().setUp()
        self.first = self.server
        self.second = APIServer(self.settings(), SharedStorage(self.storage), AuditList(), reactor)
        self.second.startService()
        self.addCleanup(self.second.stopService)
        await self.second.when_ready()
        self.pool, port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=port)
        await self.make_machine()

    async def objects(self) -> list[Object]:
        return list((await self.storage.list(RESOURCE)).items)

    async def until_there_are(self, count: int) -> list[Object]:
        while len(found := await self.objects()) != count:
            await deferLater(reactor, 0.01)
        return found

    async def test_ended_at_the_other(self) -> None:
        """A session at one server is listed at the other, and ends when it is deleted there."""
        end = await self.open()
        (obj,) = await self.until_there_are(1)
        self.assertEqual(obj["spec"]["address"], "127.0.0.1")
        self.assertEqual(obj["spec"]["via"], "machines/exec")
        self.assertEqual(obj["spec"]["protocol"], "websocket")
        self.server = self.second
        other = self.client("admin")
        self.server = self.first
        name = obj["metadata"]["name"]
        await other.delete(RESOURCE, name, "default")
        await self.until(lambda: end.lost)
        await self.until(self.ends)
        self.assertEqual(self.ends(), [(SESSION_DELETED, None)])
        (_, uri, _) = self.pool.requests[-1]
        self.assertIn("reason=SessionDeleted&message=admin+deleted+the+console+session", uri)
        self.assertEqual(await self.objects(), [])

    async def test_left(self) -> None:
        """A session that its user leaves is removed from both."""
        end = await self.open(path="/api/v1/namespaces/default/pods/{}/attach", query="?stdin=1")
        (obj,) = await self.until_there_are(1)
        self.assertEqual((obj["spec"]["via"], obj["spec"]["mode"]), ("pods/attach", "Drive"))
        end.transport.loseConnection()  # type: ignore[union-attr]
        await self.until_there_are(0)

    async def test_server_stops(self) -> None:
        """A server that stops takes its objects away, and leaves others'."""
        self.server = self.second
        await self.open()
        self.server = self.first
        await self.open()
        await self.until_there_are(2)
        await self.second.stopService()
        (obj,) = await self.until_there_are(1)
        self.assertEqual(obj["spec"]["machine"], "vm")

    async def test_looking_on(self) -> None:
        """The mode is shown, whether by a query or by a Pod's command."""
        await self.open(query="?stdin=1&readOnly=1", headers=WEBSOCKET)
        path = "/api/v1/namespaces/default/pods/{}/exec"
        await self.open(path=path, query="?stdin=1&command=console&command=--force")
        found = await self.until_there_are(2)
        self.assertEqual({each["spec"]["mode"] for each in found}, {"Watch", "TakeOver"})
        self.assertEqual({each["spec"]["pool"] for each in found}, {POOL})
