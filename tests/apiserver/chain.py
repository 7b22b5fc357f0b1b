"""
A whole API server for tests: TLS and sockets are real, the poollet is a stand-in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests.apiserver.support import machine
from tests.audits import AuditList
from tests.chain import (
    LISTEN,
    PATIENCE_SECONDS,
    POOL,
    apiserver_settings,
    await_endings,
    begin,
    client,
    endpoint,
    issued,
    kubeconfig,
    pki,
    reactor,
    until,
)
from tests.streaming.raw import Raw
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.apiserver.identity.credentials import Identities
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings
from twisted_exec.kube.client import KubeClient
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.streaming.http.responses import Dispatcher, respond, respond_json
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRefused,
    UpgradeRequest,
    upgrade,
)
from twisted_exec.streaming.http.upgrade_server import requested_protocol, take_over
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.server import ServerTLS
from twisted_exec.wire.resume import RESUME_HEADER
from twisted_exec.wire.session_terms import TERMS_HEADER
from twisted_exec.wire.upgrade import accept_key, switching_protocols

POD = "/api/v1/namespaces/default/pods/{}"
EXEC = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/{}/exec"
WEBSOCKET = ((b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"))


class Line(Raw):
    """The machine's end: echoes."""

    def __init__(self, session: bytes | None, greeting: bytes = b"") -> None:
        super().__init__()
        self.session, self._greeting = session, greeting

    def connectionMade(self) -> None:
        super().connectionMade()
        self.transport.write(self._greeting)

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(data)


class Poollet(Dispatcher):
    """
    A poollet that lets everyone in.

    :ivar headers: of each request, by lower-case name.
    :ivar logs: requests for logs, which go on as the test says.
    :ivar serves_logs: if not, logs are an unknown path, as for ironcore's poollet (a Go server).
    :ivar content: of a recording.
    :ivar answer: what it answers instead of an upgrade, if anything.
    :ivar holds: whether it holds sessions to their terms, and can change them.
    :ivar greeting: what the machine's end sends first, as it is on the wire.
    :ivar protocol: the subprotocol of a complete WebSocket handshake; empty for none.
    :ivar resumable: its answer to clients that can resume their sessions; empty for none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str, dict[str, list[str]]]] = []
        self.lines: list[Line] = []
        self.logs: list[Request] = []
        self.serves_logs = True
        self.answer: tuple[int, Object] | None = None
        self.silent = False
        self.content = b'{"version":3}\n'
        self.holds = True
        self.protocol = self.resumable = ""
        self.greeting = b""

    def _chosen(self, request: Request) -> list[tuple[bytes, bytes]]:
        terms = request.getHeader(TERMS_HEADER)
        resumable = [(RESUME_HEADER.encode(), self.resumable.encode())] if self.resumable else []
        if terms is not None and self.holds:
            return [(TERMS_HEADER.encode(), terms.encode()), *resumable]
        if not self.protocol:
            return []
        key = request.getHeader(b"Sec-WebSocket-Key") or b""
        return [
            (b"Sec-WebSocket-Protocol", self.protocol.encode()),
            (b"Sec-WebSocket-Accept", accept_key(key)),
        ]

    async def dispatch(self, request: Request) -> None:
        headers = {
            name.decode().lower(): [value.decode() for value in values]
            for name, values in request.requestHeaders.getAllRawHeaders()
        }
        self.requests.append((request.method.decode(), request.uri.decode(), headers))
        if request.method == b"DELETE":
            ended = request.args[b"session"]
            for line in self.lines:
                if line.session in ended:
                    line.transport.loseConnection()  # type: ignore[union-attr]
            respond_json(request, 200, {"kind": "Status", "status": "Success"})
        elif request.method == b"PATCH" and self.holds:
            respond_json(request, 200, {"kind": "Status", "status": "Success"})
        elif request.method == b"PATCH":
            respond_json(request, 405, {"kind": "Status", "status": "Failure", "code": 405})
        elif self.silent:
            await Deferred()
        elif self.answer is not None:
            respond_json(request, *self.answer)
        elif request.path.endswith((b"/log", b"/screen", b"/content")) and not self.serves_logs:
            request.setResponseCode(404)
            request.setHeader(b"Content-Type", b"text/plain; charset=utf-8")
            request.write(b"404 page not found\n")
            request.finish()
        elif request.path.endswith(b"/screen") and self.serves_logs:
            respond(request, 200, b"<svg/>", "text/plain")
        elif request.path.endswith(b"/content"):
            respond(request, 200, self.content, "application/x-asciicast")
        elif request.path.endswith(b"/log"):
            request.setHeader(b"Content-Type", b"text/plain")
            request.write(b"hello\n")
            self.logs.append(request)
            await Deferred()  # until the API server leaves
        else:
            line = Line(request.getHeader(b"Audit-Id"), self.greeting)
            self.lines.append(line)
            take_over(
                request,
                line,
                switching_protocols(
                    requested_protocol(request) or b"websocket", self._chosen(request)
                ),
            )


class ChainTestCase(TestCase):
    """An API server on a socket, a stand-in poollet, clients with certificates."""

    address_types: Sequence[str] = kinds.ADDRESS_TYPES
    poollet_seconds = PATIENCE_SECONDS
    pools_named = True
    drain_seconds = 0.0
    token_file = ""
    identities: Identities | None = None
    """For users besides those with a certificate; by default those of the token file."""

    async def setUp(self) -> None:
        await_endings(self)
        self._poollets: list[tuple[Poollet, Site]] = []
        # Behind the server's stop: what it has asked them about ended sessions is not answered yet.
        self.addCleanup(self.until, self._are_poollets_left)
        self.audit = AuditList()
        self.storage = self.make_storage()
        self.server = APIServer(self.settings(), self.storage, self.audit, reactor)
        await begin(self.server, self.addCleanup)
        self.admin = self.client("admin")

    def make_storage(self) -> Any:
        """The store of the server; not started."""
        return MemoryStorage()

    def settings(self, **more: Any) -> Settings:
        return Settings(
            **{
                **apiserver_settings(),
                "identities": self.identities or Identities(token_file=self.token_file),
                "address_types": self.address_types,
                "poollet_seconds": self.poollet_seconds,
                "pools_named": self.pools_named,
                "drain_seconds": self.drain_seconds,
                **more,
            }
        )

    async def stop(self) -> None:
        if self.server.running:
            await self.server.stopService()

    def kubeconfig(self, name: str) -> str:
        """A kubeconfig of ``user-NAME`` or ``poollet-POOL-client``."""
        return kubeconfig(self.mktemp(), self.server.url, name)

    def client(self, user: str) -> KubeClient:
        """A client in the name of a user."""
        return client(self.server, f"user-{user}", self.addCleanup)

    async def poollet(self, pool: str = POOL, *, as_pool: str = "") -> tuple[Poollet, int]:
        """A stand-in that listens with the certificate of a pool's poollet; its port."""
        pair = pki().pair(f"poollet-{as_pool or pool}")
        made = Poollet()
        tls = ServerTLS(pair.certificate, pair.key, client_cas=[pki().forwarding_ca], clock=reactor)
        site = Site(made, reactor)
        port: Any = await server_endpoint(reactor, LISTEN, tls).listen(site)
        self.addCleanup(port.stopListening)
        self._poollets.append((made, site))
        return made, port.getHost().port

    def _are_poollets_left(self) -> bool:
        """Return whether the stand-ins have no connection any more."""
        lines = (line for poollet, _ in self._poollets for line in poollet.lines)
        return all(line.lost for line in lines) and not any(
            site.connections for _, site in self._poollets
        )

    async def make_pool(self, *addresses: tuple[str, str], port: int, name: str = POOL) -> Object:
        """A pool that reports these addresses and port."""
        body = {
            "apiVersion": "compute.ironcore.dev/v1alpha1",
            "kind": "MachinePool",
            "metadata": {"name": name},
        }
        resource = kinds.MACHINEPOOLS.resource
        await self.admin.create(resource, body)
        status = {
            "addresses": [{"type": kind, "address": address} for kind, address in addresses],
            "daemonEndpoints": {"machinepoolletEndpoint": {"port": port}},
        }
        return await self.admin.patch(resource, name, {"status": status}, subresource="status")

    async def make_machine(self, name: str = "vm", pool: str = POOL, **spec: Any) -> Object:
        """A machine bound to a pool."""
        return await self.admin.create(
            kinds.MACHINES.resource, machine(name, pool, **spec), "default"
        )

    def endpoint(self, user: str) -> Any:
        """The server's address, for a user's certificate; empty for none."""
        return endpoint(self.server.address, issued(f"user-{user}") if user else None)

    async def dial(
        self,
        name: str = "vm",
        *,
        user: str = "admin",
        method: bytes = b"POST",
        query: str = "",
        path: str = EXEC,
        headers: Sequence[tuple[bytes, bytes]] = WEBSOCKET,
    ) -> Upgraded:
        """
        Ask for a console.

        :param user: whose certificate to show; empty for none.
        :param path: with ``{}`` for the name.

        :raises UpgradeRefused: the answer was no upgrade.
        """
        sent = [*headers] + ([(b"Content-Length", b"0")] if method == b"POST" else [])
        head = UpgradeRequest(method, (path.format(name) + query).encode(), b"127.0.0.1", sent)
        return await upgrade(
            self.endpoint(user), head, clock=reactor, timeout_seconds=PATIENCE_SECONDS
        )

    async def refused(self, code: int, name: str = "vm", **more: Any) -> str:
        """The message of a refusal, which must be a Status with ``code``."""
        with self.assertRaises(UpgradeRefused) as caught:
            await self.dial(name, **more)
        answer = caught.exception
        self.assertEqual(answer.code, code, answer.body)
        status = json.loads(answer.body)
        self.assertEqual((status["kind"], status["code"]), ("Status", code))
        return str(status["message"])

    async def open(self, name: str = "vm", **more: Any) -> Raw:
        """A console that is open."""
        upgraded = await self.dial(name, **more)
        end = Raw()
        upgraded.hand_over(end)
        self.addCleanup(lambda: end.transport.abortConnection())  # type: ignore[union-attr]
        return end

    async def until(self, condition: Any) -> None:
        """Wait until a condition holds; the test's timeout bounds it."""
        await until(condition)

    async def recheck(self) -> None:
        """Run the reviews, which are periodic, now."""
        await self.server._parts.guard.review()

    def endings(self) -> list[Ending | None]:
        """The ending of each live session; ``None`` for sessions that continue."""
        return [session.ending for session in self.server._parts.sessions.live()]

    def ends(self) -> list[tuple[str, int | None]]:
        """Reason and code of each audit end so far."""
        return [(each["reason"], each.get("code")) for each in self.audit if each["event"] == "end"]


class MachineTestCase(ChainTestCase):
    """
    An API server with a machine.

    :ivar pool: the poollet of its pool, which listens on :attr:`port`.
    :ivar made: the machine as created.
    """

    async def setUp(self) -> None:
        await super().setUp()
        self.pool, self.port = await self.poollet()
        await self.make_pool(("InternalIP", "127.0.0.1"), port=self.port)
        self.made = await self.make_machine()
