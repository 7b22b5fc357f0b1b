"""
Tests for :mod:`twisted_exec.poollet.service`: consoles through a whole poollet.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import formatEvent, globalLogPublisher

from tests.chain import pki, reactor, until
from tests.poollet.chain import API_SERVER, FORWARDING, JANE, USERS, PoolletCase, status
from tests.poollet.doubles import POOLS
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.poollet.interfaces import IPoollet
from twisted_exec.poollet.service import Poollet
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused
from twisted_exec.testing.cluster import unreachable
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.server import ServerTLS


class SpareTests(PoolletCase):
    """Connections without a request."""

    async def test_spare_connections(self) -> None:
        """
        API servers, and users with a certificate, may be silent for longer than other clients.

        But not over a connection from before a change of the poollet's own certificate.
        """
        await self.start()
        events: list[Any] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        site = self.poollet.consoles._site  # Its connections have no request yet.
        assert site.spare_seconds is not None
        stranger = Authority.create("another").issue_client("exec-apiserver")
        unnamed = FORWARDING.issue_client("other")  # no proxy that is trusted
        spare, transports = [], []
        for identity in (API_SERVER, JANE, unnamed, stranger, None):
            before = set(site.connections)
            connection: Any = await self.endpoint(identity).connect(Factory.forProtocol(Protocol))
            self.addCleanup(connection.transport.abortConnection)
            # The earlier ones end after half a minute.
            await until(lambda before=before: set(site.connections) - before)
            newest = (set(site.connections) - before).pop().transport
            await until(lambda end=newest: not end.is_shaking)
            spare.append(site.spare_seconds(newest))
            transports.append(newest)
        self.assertEqual(spare, [60, 60, 0, 0, 0])
        # The certificates of the unnamed proxy and of the stranger, but not that of the API server.
        refusals = [each for each in map(str, map(formatEvent, events)) if "no user by" in each]
        self.assertEqual(len(refusals), 2, refusals)
        tls = self.poollet.consoles._tls
        assert tls is not None
        tls.load()  # its certificate was replaced
        self.assertEqual([site.spare_seconds(each) for each in transports], [0] * 5)

    async def test_runtime_behind_https(self) -> None:
        """A console leaves a connection to a runtime behind https, which carries the next one."""
        serving = pki().pair("apiserver")
        tls = ServerTLS(serving.certificate, serving.key, clock=reactor)
        server = server_endpoint(reactor, "tcp:0:interface=127.0.0.1", tls)
        port: Any = await server.listen(self.lines)
        self.addCleanup(port.stopListening)
        self.runtime.url = f"https://127.0.0.1:{port.getHost().port}/exec/token-1"
        await self.start(runtime_ca=pki().serving_ca)
        await self.view()
        await until(lambda: len(self.lines.connections) == 2)
        spare = self.lines.connections[1]
        await until(lambda: not spare.transport.is_shaking)
        turns = iter((False, False, True))  # for session tickets
        await until(lambda: next(turns))
        await self.view()
        self.assertTrue(spare.upgraded)


class ConsoleTests(PoolletCase):
    """A console that may be opened."""

    async def test_33_stream(self) -> None:
        """Bytes go both ways; the session is on record once, with its facts."""
        await self.start()
        self.assertTrue(IPoollet.providedBy(self.poollet))
        viewer = await self.view([(b"Audit-Id", b"session-7")])
        viewer.transport.write(b" you")
        await until(lambda: viewer.received == b"hello you")
        viewer.transport.loseConnection()
        await until(lambda: len(self.audit) == 2)
        start, end = self.audit
        uid = next(iter(self.poollet.machines))["metadata"]["uid"]
        facts = {
            "hop": "poollet",
            "session": "session-7",
            "user": "jane",
            "namespace": "lab",
            "machine": "vm",
            "resource": "machines.compute.ironcore.dev",
            "uid": uid,
            "pool": "pool-a",
            "caller": "exec-apiserver",
        }
        self.assertEqual({key: start[key] for key in facts}, facts)
        self.assertEqual({key: end[key] for key in facts}, facts)
        self.assertEqual((end["bytes_to_machine"], end["bytes_to_user"]), (4, 9))
        (machine_id,) = self.runtime.machines
        self.assertEqual(self.runtime.execs, [(machine_id, "jane", uid, "session-7")])

    async def test_what_the_runtime_gets(self) -> None:
        """Identity in our own headers, nothing of the caller's credentials."""
        self.allowed.add(("jäne", "machines/exec", "vm"))
        await self.start()
        await self.view(
            [
                (b"Authorization", b"Bearer canary"),
                (b"X-Remote-Group", b"canary"),
                (b"X-Twisted-Exec-User", b"canary"),
                (b"Cookie", b"canary"),
                (b"Sec-WebSocket-Version", b"13"),
            ],
            user="jäne".encode(),
        )
        (head,) = self.lines.heads
        self.assertTrue(head.startswith(b"POST /exec/token-1 HTTP/1.1\r\n"))
        self.assertNotIn(b"canary", head)
        self.assertNotIn(b"X-Remote", head)
        self.assertIn(b"X-Twisted-Exec-User: " + quote("jäne").encode() + b"\r\n", head)
        self.assertIn(b"X-Twisted-Exec-Machine-Uid: ", head)
        self.assertIn(b"Audit-Id: ", head)
        self.assertIn(b"sec-websocket-version: 13\r\n", head.lower())

    async def test_reason(self) -> None:
        """The reason that the API server sends is on record and goes on to the runtime."""
        await self.start()
        await self.view([(b"X-Twisted-Exec-Reason", b"INC%207")])
        (head,) = self.lines.heads
        self.assertIn(b"X-Twisted-Exec-Reason: INC%207\r\n", head)
        self.assertEqual(self.audit[0]["declared_reason"], "INC 7")

    async def test_reason_of_a_direct_user(self) -> None:
        """The header of a user without a proxy does not count."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view([(b"X-Twisted-Exec-Reason", b"INC%207")], user=b"", identity=JANE)
        (head,) = self.lines.heads
        self.assertNotIn(b"INC", head)
        self.assertEqual(self.audit[0]["declared_reason"], "")

    async def test_address(self) -> None:
        """The address that a trusted proxy reports is on record; a direct user cannot choose it."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        header = (b"X-Forwarded-For", b"198.51.100.1, 192.0.2.9")
        await self.view([header])
        self.assertEqual(self.audit[0]["address"], "192.0.2.9")
        await self.view([(header[0], b"192.0.2.9, forged")])
        self.assertEqual(self.audit[1]["address"], "127.0.0.1")
        await self.view([header], user=b"", identity=JANE)
        self.assertEqual(self.audit[2]["address"], "127.0.0.1")

    async def test_direct_user(self) -> None:
        """A user without a proxy needs both permissions."""
        await self.start()
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open(user=b"", identity=JANE)
        self.assertEqual(caught.exception.code, 403)
        self.assertIn("machinepools/proxy", status(caught.exception.body)["message"])
        await self.stop()
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view(user=b"", identity=JANE)

    async def test_token(self) -> None:
        """A bearer token is reviewed by the API server."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view([(b"Authorization", b"Bearer good")], user=b"", identity=None)

    async def test_session_id_of_a_user(self) -> None:
        """A user without a proxy does not choose the session's id."""
        self.allowed.add(("jane", "machinepools/proxy", "pool-a"))
        await self.start()
        await self.view([(b"Audit-Id", b"mine")], user=b"", identity=JANE)
        self.assertNotEqual(self.runtime.execs[0][3], "mine")

    async def test_pool_proxy_suffices(self) -> None:
        """A named foreign API server needs no permission on the machine."""
        foreign = USERS.issue_client("ironcore-apiserver")
        self.allowed = {("ironcore-apiserver", "machinepools/proxy", "pool-a")}
        await self.start(pool_proxy_suffices=["ironcore-apiserver"])
        await self.view(user=b"", identity=foreign)

    async def test_suffices_for_itself_only(self) -> None:
        """A user forwarded by such a server still needs the permission."""
        await self.start(pool_proxy_suffices=["exec-apiserver"])
        await self.view()
        self.allowed.remove(("jane", "machines/exec", "vm"))
        self.poollet.consoles.permissions.forget()
        with self.assertRaises(UpgradeRefused) as caught:
            await self.open()
        self.assertEqual(caught.exception.code, 403)

    async def test_new_machine(self) -> None:
        """A machine that the watch has not delivered yet is requested from the API server."""
        await self.start()
        self.patch(self.poollet.machines, "_on_change", None)
        self.poollet.machines._objects.clear()
        await self.view()

    async def test_machine_known_by_name_only(self) -> None:
        """An outdated listing is repeated before the request is refused."""
        await self.start()
        self.poollet.loop.observed.clear()
        await self.view()


class ProgramTests(PoolletCase):
    """The poollet as a program."""

    async def test_advertised(self) -> None:
        """The pool reports the listening port and the addresses."""
        await self.start()
        pool = await self.client.get(POOLS, "pool-a")
        address: Any = self.poollet.address
        pool_status = pool["status"]
        self.assertEqual(
            pool_status["daemonEndpoints"], {"machinepoolletEndpoint": {"port": address.port}}
        )
        self.assertEqual(
            pool_status["addresses"][0], {"type": "InternalIP", "address": "127.0.0.1"}
        )
        self.assertEqual(
            {address["type"] for address in pool_status["addresses"]},
            {"InternalIP", "InternalDNS", "Hostname"},
        )

    async def test_probes(self) -> None:
        """/healthz answers every client; /readyz succeeds only if every dependency answers."""
        await self.start()
        self.assertEqual(await self.get("/healthz"), (200, b"ok"))
        code, body = await self.get("/readyz")
        self.assertEqual(code, 200, body)
        for name in (b"runtime", b"apiserver", b"caches", b"pool"):
            self.assertIn(b"[+]" + name + b" ok", body)
        self.runtime.problem = ServiceUnavailable("away")
        self.assertIn(b"[-]runtime failed", await self.not_ready(b"runtime"))
        self.runtime.problem = None
        self.cluster.problem = unreachable()
        self.assertIn(b"[+]runtime ok", await self.not_ready(b"apiserver"))
        self.cluster.problem = None

    async def not_ready(self, name: bytes) -> bytes:
        """Return the listing of /readyz once a probe fails; answers are cached for a second."""
        while True:
            code, body = await self.get("/readyz")
            if b"[-]" + name in body:
                self.assertEqual(code, 503)
                return body

    async def test_34_metrics(self) -> None:
        """Metrics need permission."""
        self.allowed.add(("jane", "/metrics", ""))
        await self.start()
        await self.view()
        self.assertEqual((await self.get("/metrics"))[0], 401)
        code, body = await self.get("/metrics", identity=JANE)
        self.assertEqual(code, 200)
        self.assertIn(b"twisted_exec_sessions_active 1.0", body)
        self.assertEqual((await self.get("/metrics", identity=USERS.issue_client("joe")))[0], 403)

    async def test_one_ca_for_users_and_proxies(self) -> None:
        """The CA of users must not vouch for proxies: one user could impersonate all others."""
        both = self.write("both.crt", FORWARDING.certificate_pem + USERS.certificate_pem)
        settings = self.settings(requestheader_ca=both)
        other = Poollet(settings, self.client, self.runtime, self.audit, reactor)
        ready = other.when_ready()
        other.startService()
        message = await ready.addErrback(lambda failure: failure.getErrorMessage())
        await other.stopService()
        self.assertIn("the CA of proxies must sign nothing else", message)

    async def test_cannot_listen(self) -> None:
        """A failed start fails when_ready with one line."""
        await self.start()
        address: Any = self.poollet.address
        for more in (
            {"listen": f"tcp:{address.port}:interface=127.0.0.1"},
            {"certificate": "/nonexistent/tls.crt"},
            {"client_ca": "/nonexistent/ca.crt"},
            {"runtime_ca": "/nonexistent/ca.crt"},
            {"listen": "nonsense"},
        ):
            other = Poollet(self.settings(**more), self.client, self.runtime, self.audit, reactor)
            ready = other.when_ready()
            other.startService()
            message = await ready.addErrback(lambda failure: failure.getErrorMessage())
            await other.stopService()
            self.assertNotIn("\n", message)
            told = str(next(iter(more.values())))
            if "nonexistent" in told:
                self.assertIn(told, message)

    async def test_many(self) -> None:
        """Many sessions at once, ended in every order, leave no state behind."""
        await self.start()
        viewers = await gatherResults([Deferred.fromCoroutine(self.view()) for _ in range(20)])
        for number, viewer in enumerate(viewers):
            if number % 3 == 0:
                viewer.transport.loseConnection()
            elif number % 3 == 1:
                viewer.transport.abortConnection()
            else:
                self.lines.lines[number].transport.abortConnection()
        await until(lambda: len(self.poollet.consoles.sessions) < 14)
        self.lines.end()
        await until(lambda: len(self.poollet.consoles.sessions) == 0)
        ends = [event for event in self.audit if event["event"] == "end"]
        self.assertEqual(len(ends), 20)
