"""
A root's API server (bytes that a test sends), the node server's routes, and a leaf's API server, on
loopback.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import connectProtocol
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from tests.audits import AuditList
from tests.chain import HOST, KUBELET_CLIENT, LISTEN, PATIENCE_SECONDS, reactor, until
from tests.streaming.raw import Raw
from twisted_exec.auth.credentials import NO_HEADERS
from twisted_exec.auth.interfaces import (
    Decision,
    IAuthenticator,
    IAuthorizer,
    PresentedCredentials,
    User,
)
from twisted_exec.auth.rules import Attributes
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.nodeserver.kubelet_api.gate import NodeAccess
from twisted_exec.nodeserver.kubelet_api.routes import HOP, KubeletCollaborators, NodeRoutes
from twisted_exec.program.audit import Trail
from twisted_exec.program.metrics import new_registry
from twisted_exec.streaming.http.responses import Dispatcher, respond
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.http.upgrade_server import header_pairs, requested_protocol, take_over
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.tls.endpoints import client_endpoint, server_endpoint
from twisted_exec.wire.upgrade import switching_protocols

from .support import SimpleLeaves, SimpleRootPods, put_leaf_pod, put_pod, simple

SPDY_HEAD = (
    b"Connection: Upgrade",
    b"Upgrade: SPDY/3.1",
    b"Content-Length: 0",
    b"X-Stream-Protocol-Version: v4.channel.k8s.io",
    b"X-Stream-Protocol-Version: v3.channel.k8s.io",
)
ROOT = KUBELET_CLIENT


@implementer(IAuthenticator, IAuthorizer)
class Everyone:
    """
    Authenticates every token as the user of that name, and grants every permission.

    :ivar asked: the requested permissions.
    :ivar forgotten: tokens that are no longer valid.
    """

    def __init__(self) -> None:
        self.users, self.forgotten = {ROOT}, set[str]()
        self.asked: list[Attributes] = []

    credential_headers = NO_HEADERS

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        token = credentials.bearer_token() or b""
        name = token.decode()
        return succeed(User(name) if token and name not in self.forgotten else None)

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        self.asked.append(attributes)
        return succeed(Decision(attributes.user.name in self.users))


class LeafServer(Dispatcher):
    """
    The API server of a leaf.

    :ivar asked: method, path with its query, and header lines of every request.
    :ivar answer: answers a request that asks for what it asks.
    :ivar ends: the connections that were upgraded by :func:`switch`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[bytes, bytes, list[tuple[bytes, bytes]]]] = []
        self.ends: list[Raw] = []
        self.raw: Callable[[], Raw] = Raw
        self.answer: Callable[[Request], None] = self.switch

    async def dispatch(self, request: Request) -> None:
        self.asked.append((request.method, request.uri, header_pairs(request.requestHeaders)))
        self.answer(request)

    def switch(self, request: Request) -> None:
        """Whatever was offered first is spoken here."""
        end = self.raw()
        self.ends.append(end)
        take_over(request, end, switching_protocols(requested_protocol(request), chosen(request)))

    def refuses(
        self, code: int, body: bytes, content_type: str = "text/plain", **headers: str
    ) -> None:
        """From now on it answers this."""

        def answer(request: Request) -> None:
            for name, value in headers.items():
                request.setHeader(name.replace("_", "-"), value)
            respond(request, code, body, content_type)

        self.answer = answer


def chosen(request: Request) -> list[tuple[bytes, bytes]]:
    """The header of a 101 that chooses the first protocol that was offered."""
    for name in (b"x-stream-protocol-version", b"sec-websocket-protocol"):
        for line in request.requestHeaders.getRawHeaders(name, []):
            return [(name.title(), line.split(b",")[0].strip())]
    return []


class ChainTestCase(TestCase):
    """
    Two clusters of which one is the other's leaf, with a Pod ``web`` in both.

    :ivar root_pod: as it is in the root.
    """

    connect_seconds = PATIENCE_SECONDS
    requires_reason = False

    async def asyncSetUp(self) -> None:
        self.clients: list[Raw] = []
        self.details: object = None
        self.leaf_server = LeafServer()
        self.leaf_port = await self._listen(self.leaf_server)
        self.config = ClientConfig(f"http://127.0.0.1:{self.leaf_port}", token="of-the-leaf")
        self.roots: SimpleRootPods
        self.leaves: SimpleLeaves
        self.roots, self.leaves = simple(config=self.config)
        (self.leaf,) = self.leaves.leaves
        self.root_pod = put_pod(self.roots.cluster, "web", "leaf-one", containers=("main", "two"))
        put_leaf_pod(self.leaf.cluster, self.root_pod)
        self.everyone, self.records = Everyone(), AuditList()
        self.sessions = Sessions(Trail(self.records, HOP, reactor))
        access = NodeAccess(self.everyone, self.everyone)
        self.collaborators = KubeletCollaborators(
            access,
            self.roots,
            self.leaves,
            self.sessions,
            reactor,
            self.connect_seconds,
            requires_reason=self.requires_reason,
        )
        self.port = await self._listen(
            NodeRoutes(self.collaborators, new_registry(process=False), self.routes())
        )

    def setUp(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.asyncSetUp())

    def routes(self) -> Any:
        """Of the node server, to be tested."""
        raise NotImplementedError

    async def _listen(self, resource: Dispatcher) -> int:
        where = server_endpoint(reactor, LISTEN, None)
        port: Any = await where.listen(Site(resource, reactor))
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    async def ask(
        self,
        target: str,
        *lines: bytes,
        method: str = "POST",
        user: str = ROOT,
        early: bytes = b"",
    ) -> Raw:
        """Send a request, with ``early`` right after its header; the answer arrives later."""
        client = await self.connected()
        head = [f"{method} {target} HTTP/1.1".encode("latin-1"), b"Host: node", *lines]
        if user:
            head.append(f"Authorization: Bearer {user}".encode())
        client.transport.write(b"\r\n".join([*head, b"", b""]) + early)
        return client

    def entry(self) -> Any:
        """Return the endpoint of the node server."""
        where = HOST, self.port
        return client_endpoint(reactor, *where, None, timeout_seconds=PATIENCE_SECONDS)

    async def connected(self) -> Raw:
        """A client that has said nothing."""
        client = Raw()
        await connectProtocol(self.entry(), client)
        self.clients.append(client)
        return client

    async def answered(self, client: Raw) -> Raw:
        """The same, once the answer's header has arrived."""
        await self.until(lambda: b"\r\n\r\n" in client.received or client.lost)
        return client

    async def refused(self, target: str, *lines: bytes, **more: Any) -> tuple[int, str]:
        """Code and message of what is answered, :attr:`details` has the rest; nothing is left of it."""
        client = await self.ask(target, *(lines or SPDY_HEAD), b"Connection: close", **more)
        await self.answered(client)
        length = int(client.head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        await self.until(lambda: len(client.body) >= length)
        await self.until(lambda: not len(self.sessions))
        if b"application/json" not in client.head:
            return client.code, client.body.decode()
        status = json.loads(client.body)
        assert (status["kind"], status["code"]) == ("Status", client.code), status
        self.details = status.get("details")
        return client.code, status["message"]

    def tearDown(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._nothing_left())

    async def _nothing_left(self) -> None:
        """Every test ends with this: no session, and no connection of either side."""
        for client in self.clients:
            if client.lost is None:
                client.transport.abortConnection()
        await self.until(lambda: all(client.lost for client in self.clients))
        await self.until(lambda: not len(self.sessions))
        await self.until(lambda: all(end.lost for end in self.leaf_server.ends))

    async def until(self, condition: Callable[[], Any]) -> float:
        """As :func:`tests.chain.until`."""
        return await until(condition)
