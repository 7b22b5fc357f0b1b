"""
A poollet and the real API server, joined by TLS: what their certificates and roles allow.
"""

from __future__ import annotations

import base64
import time
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tests.apiserver.signing.test_poollets import request
from tests.chain import (
    PATIENCE_SECONDS,
    POOL,
    apiserver_settings,
    begin,
    client,
    endpoint,
    issued,
    pki,
    reactor,
    until,
)
from tests.poollet.chain import USERS, PoolletCase
from tests.poollet.doubles import CLASSES, MACHINES, POOLS, machine
from tests.streaming.raw import Raw
from twisted_exec.api import kinds
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings as APIServerSettings
from twisted_exec.apiserver.signing.authority import CAPair
from twisted_exec.kube.client import KubeClient
from twisted_exec.poollet.service import Poollet
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest, upgrade
from twisted_exec.tls.fast.reuse import ReusedTLS
from twisted_exec.tls.pki.authority import Issued

ADMIN, POOLLET = "user-admin", f"poollet-{POOL}-client"
PATH = "/apis/compute.ironcore.dev/v1alpha1/namespaces/lab/machines/vm/exec"


class TogetherTests(PoolletCase):
    """Both programs' services; only the runtime is a double."""

    async def setUp(self) -> None:
        await super().setUp()
        ca = pki().pair("ca")
        settings = APIServerSettings(**apiserver_settings(signing=CAPair(ca.certificate, ca.key)))
        server = APIServer(settings, MemoryStorage(), self.audit, reactor)
        self.server = await begin(server, self.addCleanup)
        self.admin = self.connect(ADMIN)
        await self.admin.create(kinds.NAMESPACES.resource, {"metadata": {"name": "lab"}})
        await self.admin.create(
            CLASSES, {"metadata": {"name": "pty"}, "capabilities": {"cpu": "1", "memory": "1Gi"}}
        )
        await self.admin.create(MACHINES, machine(), "lab")
        await self.serve()

    async def serve(self, **settings: Any) -> None:
        """Start the poollet."""
        self.poollet = Poollet(
            self.settings(**settings), self.connect(POOLLET), self.runtime, self.audit, reactor
        )
        await begin(self.poollet, self.addCleanup)  # ends before its client is closed

    def connect(self, name: str) -> KubeClient:
        return client(self.server, name, self.addCleanup)

    async def test_certificate_of_the_server(self) -> None:
        """A poollet gets no certificate that would let it pose as the API server."""
        await self.stop()
        body = base64.b64encode(
            request(names=[x509.DNSName("api.test")]).public_bytes(Encoding.PEM)
        ).decode()
        spec = {
            "request": body,
            "signerName": "twisted-exec.dev/poollet-serving",
            "usages": ["digital signature", "server auth"],
        }
        requests = kinds.CERTIFICATESIGNINGREQUESTS.resource
        await self.connect(POOLLET).create(requests, {"metadata": {"name": "api"}, "spec": spec})

        async def told() -> str:
            events = (await self.admin.list(kinds.EVENTS.resource, "default"))["items"]
            return next(
                (event["message"] for event in events if event["reason"] == "NotApproved"), ""
            )

        while not await told():
            await deferLater(reactor, 0.05)
        self.assertIn("api.test is the API server's own", await told())
        self.assertNotIn("status", await self.admin.get(requests, "api"))

    async def test_certificate_is_signed(self) -> None:
        """A poollet without a certificate gets one from the API server, which then trusts it."""
        await self.stop()
        await self.serve(certificate="", key="", certificate_directory=self.mktemp())
        serving = self.poollet.consoles.serving
        assert serving is not None
        await until(lambda: not serving.problem)
        await self.running()
        await self.eventually_opened()  # the files are looked at once a second

    async def eventually_opened(self) -> None:
        while True:
            try:
                await self.console(issued(ADMIN))
                return
            except UpgradeRefused as refused:
                self.assertEqual(refused.code, 502)  # it still shows what it signed itself
            turn: Deferred[None] = Deferred()
            reactor.callLater(0.05, turn.callback, None)
            await turn

    async def running(self) -> dict[str, Any]:
        """The machine, once it runs."""
        while True:
            stored = await self.admin.get(MACHINES, "vm", "lab")
            if (stored.get("status") or {}).get("state") == "Running":
                return stored
            turn: Deferred[None] = Deferred()
            reactor.callLater(0.01, turn.callback, None)
            await turn

    async def console(self, identity: Issued) -> Raw:
        head = UpgradeRequest(
            b"POST",
            PATH.encode(),
            b"api",
            [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")],
        )
        upgraded = await upgrade(
            endpoint(self.server.address, identity),
            head,
            clock=reactor,
            timeout_seconds=PATIENCE_SECONDS,
        )
        viewer = Raw()
        upgraded.hand_over(viewer)
        self.addCleanup(upgraded.abort)
        await until(lambda: viewer.received == b"hello")
        return viewer

    async def test_events(self) -> None:
        """Events show what the poollet and the runtime did with a machine."""
        machine = await self.running()
        uid = machine["metadata"]["uid"]
        self.runtime.happen(
            {IRONCORE.uid_label: uid}, "Warning", "Panicked", "the guest panicked", time.time_ns()
        )
        while True:
            listed = await self.admin.list(
                kinds.EVENTS.resource, "lab", field_selector=f"involvedObject.uid={uid}"
            )
            by_reason = {event["reason"]: event for event in listed["items"]}
            if {"Created", "Panicked"} <= set(by_reason):
                break
            turn: Deferred[None] = Deferred()
            reactor.callLater(0.05, turn.callback, None)
            await turn
        self.assertEqual(by_reason["Panicked"]["message"], "the guest panicked")
        self.assertEqual(by_reason["Panicked"]["source"]["host"], "pool-a")

    async def test_lifecycle(self) -> None:
        """The poollet's role lets it register, run and delete; nothing is denied."""
        stored = await self.running()
        self.assertEqual(stored["metadata"]["finalizers"], [IRONCORE.finalizer])
        self.assertEqual(stored["status"]["observedGeneration"], stored["metadata"]["generation"])
        pool = await self.admin.get(POOLS, "pool-a")
        self.assertEqual(pool["status"]["availableMachineClasses"], [{"name": "pty"}])
        self.assertEqual(pool["status"]["state"], "Ready")
        code, body = await self.get("/readyz")
        self.assertEqual(code, 200, body)
        await self.admin.delete(MACHINES, "vm", "lab")
        await until(lambda: not self.runtime.machines)

    async def test_unknown(self) -> None:
        """A poollet that is back corrects what the API server wrote about its machines meanwhile."""
        ready: dict[str, str] = {}

        async def wait_for(status: str) -> None:
            while ready.get("status") != status:
                vm = await self.admin.get(MACHINES, "vm", "lab")
                found = (vm.get("status") or {}).get("conditions") or [{}]
                ready.update(next(each for each in found if each.get("type") in ("Ready", None)))
                await deferLater(reactor, 0.02)

        await wait_for("True")
        silent = {**ready, "status": "Unknown", "reason": "MachinePoolStatusUnknown"}
        patch = {"status": {"conditions": [silent]}}
        await self.admin.patch(MACHINES, "vm", patch, "lab", subresource="status")
        ready.clear()
        await wait_for("True")
        self.assertEqual(ready["reason"], "Running")

    async def test_console(self) -> None:
        """A console through both; deleting the machine ends it on every hop, on record."""
        stored = await self.running()
        viewer = await self.console(issued(ADMIN))
        viewer.transport.write(b" you")
        await until(lambda: viewer.received == b"hello you")
        (call,) = self.runtime.execs
        self.assertEqual(call[1:3], ("admin", stored["metadata"]["uid"]))
        await self.admin.delete(MACHINES, "vm", "lab")
        await until(lambda: viewer.lost is not None)
        await until(lambda: len(self.audit) == 4)
        self.assertEqual({event["session"] for event in self.audit}, {call[3]})
        ends = [event for event in self.audit if event["event"] == "end"]
        self.assertEqual({end["hop"] for end in ends}, {"apiserver", "poollet"})
        self.assertEqual({end["reason"] for end in ends}, {"MachineDeleted"})
        self.assertEqual({end["caller"] for end in ends}, {"", "exec-apiserver"})

    def spares(self) -> list[Any]:
        """The connections to the poollet on which no byte has come."""
        connections = self.poollet.consoles._site.connections  # No request names them yet.
        return [each for each in connections if not each.transport.is_shaking]

    async def test_spare_connection(self) -> None:
        """
        A console leaves a connection to the poollet, which carries the next one.

        Its user is authorized as over any other connection.
        """
        await self.running()
        self.assertEqual(self.spares(), [])
        await self.console(issued(ADMIN))
        await until(self.spares)
        (spare,) = self.spares()
        joe = USERS.issue_client("joe")
        with self.assertRaises(UpgradeRefused) as caught:
            await self.console(joe)
        self.assertEqual((caught.exception.code, self.spares()), (403, [spare]))
        # The next one is refused by the poollet itself, over the spare connection.
        self.poollet.consoles.sessions.close("closed for this test")
        with self.assertRaises(UpgradeRefused) as caught:
            await self.console(issued(ADMIN))
        self.assertIn(b"closed for this test", caught.exception.body)
        await until(lambda: not self.spares())

    async def test_spare_connection_is_used(self) -> None:
        """The next console has no connection of its own."""
        await self.running()
        await self.console(issued(ADMIN))
        await until(self.spares)
        (spare,) = self.spares()
        second = await self.console(issued(ADMIN))
        second.transport.write(b"!")
        await until(lambda: second.received == b"hello!")
        await until(lambda: self.spares() not in ([], [spare]))
        self.assertEqual([each["user"] for each in self.audit].count("admin"), len(self.audit))

    async def test_next_sessions(self) -> None:
        """
        Consoles follow each other over one connection to the poollet.

        Each has its own user, who is authorized and recorded as over any other connection.
        """
        await self.running()
        ann = USERS.issue_client("ann", ["system:masters"])
        connections: set[Any] = set()
        for number, identity in enumerate((issued(ADMIN), ann, issued(ADMIN), ann)):
            viewer = await self.console(identity)
            viewer.transport.write(b" %d" % number)
            await until(lambda v=viewer, n=number: v.received == b"hello %d" % n)
            viewer.transport.loseConnection()
            # One connection is also made in advance, during the first console.
            await until(lambda: any(isinstance(one.transport, ReusedTLS) for one in self.spares()))
            with self.assertRaises(UpgradeRefused) as caught:
                await self.console(USERS.issue_client("joe"))
            self.assertEqual(caught.exception.code, 403)
            connections |= {each.transport.getHandle() for each in self.spares()}
            await until(lambda n=number: len(self.audit) >= 5 * (n + 1))
        self.assertLessEqual(len(connections), 2)
        starts = [each for each in self.audit if each["event"] == "start"]
        for hop in ("apiserver", "poollet"):
            users = [each["user"] for each in starts if each["hop"] == hop]
            self.assertEqual([user for user in users if user != "joe"], ["admin", "ann"] * 2)
        self.assertEqual({call[1] for call in self.runtime.execs}, {"admin", "ann"})

    async def test_spare_connection_to_a_poollet_that_closes_it(self) -> None:
        """The next console gets a new connection."""
        await self.running()
        await self.console(issued(ADMIN))
        await until(self.spares)
        (spare,) = self.spares()
        self.poollet.consoles._site.drain()
        await self.console(issued(ADMIN))
        await until(lambda: spare not in self.spares())

    async def test_nobody(self) -> None:
        """A user without a role is refused before the poollet hears of it."""
        await self.running()
        with self.assertRaises(UpgradeRefused) as caught:
            await self.console(USERS.issue_client("joe"))
        self.assertEqual(caught.exception.code, 403)
        self.assertEqual({event["hop"] for event in self.audit}, {"apiserver"})

    async def test_around_the_api_server(self) -> None:
        """The poollet's own certificate opens no console, neither here nor there."""
        await self.running()
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open(user=b"admin", identity=issued(POOLLET))
        self.assertEqual(caught.exception.code, 403)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.console(issued(POOLLET))
        self.assertEqual(caught.exception.code, 403)

    async def test_fenced(self) -> None:
        """The poollet may not touch another pool or see its machines."""
        mine = self.connect(POOLLET)
        await self.admin.create(MACHINES, machine("other", "pool-b"), "lab")
        status = {"status": {"state": "Running"}}
        for code, asking in (
            (403, mine.create(POOLS, {"metadata": {"name": "pool-b"}})),
            (403, mine.list(MACHINES)),
            (404, mine.get(MACHINES, "other", "lab")),
            (404, mine.patch(MACHINES, "other", status, "lab", subresource="status")),
        ):
            with self.assertRaises(APIError) as caught:
                await asking
            self.assertEqual(caught.exception.code, code)
