"""
A proxy between a client and backends in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.audits import AuditList
from tests.streaming.frames import handshake
from tests.streaming.http.test_upgrade_client import OneConnection
from tests.streaming.passing import carry
from twisted_exec.api.status import APIError
from twisted_exec.program.audit import Trail
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.hop import HopSettings
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.location import IStreamLocator, Location, Renewal
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.testing.network import MemoryClient, MemoryServer

SWITCHED = (
    b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
)


@implementer(IStreamLocator)
class Locator:
    """Locates the endpoints that the test sets."""

    def __init__(self) -> None:
        self.endpoints: list[tuple[str, IStreamClientEndpoint]] = []
        self.headers: Sequence[tuple[bytes, bytes]] = [(b"X-Remote-User", b"ann")]
        self.path = b"/backend?x=1"
        self.problem: Exception | None = None
        self.pool, self.user = "", "ann"
        self.located = 0
        self.machine = ""
        """What is known of the subject when there is a problem."""
        self.renew: Callable[[Renewal], Deferred[Location | None]] | None = None
        self.more: dict[str, Any] = {}
        self.waiting: Deferred[Location] | None = None

    def locate(self, context: RequestContext) -> Deferred[Location]:
        self.located += 1
        context.learn(session="s-1", user=self.user, machine=self.machine)
        if self.problem is not None:
            return fail(Failure(self.problem))
        if self.waiting is not None:
            return self.waiting
        context.learn(machine="vm", caller="apiserver", pool=self.pool)
        return succeed(self.location())

    def location(self) -> Location:
        host, headers = b"backend:1", self.headers
        return Location(self.endpoints, self.path, host, headers, renew=self.renew, **self.more)


class Proxying(Dispatcher):
    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self.proxy = proxy

    async def dispatch(self, request: Request) -> None:
        await carry(self.proxy, request)


class ProxyTestCase(SynchronousTestCase):
    """A proxy between a client and backends in memory."""

    limits = SessionLimits(100, 100)

    def setUp(self) -> None:
        self.clock = Clock()
        self.records = AuditList()
        self.sessions = Sessions(Trail(self.records, "poollet", self.clock), limits=self.limits)
        self.locator = Locator()
        self.backend = self.add_backend()
        self.proxy = Proxy(
            self.locator, HopSettings("poollet"), sessions=self.sessions, clock=self.clock
        )
        self.server = MemoryServer(Proxying(self.proxy), self.clock)

    def change_settings(self, **changes: Any) -> None:
        """Change settings of the hop."""
        self.proxy.hop.settings = replace(self.proxy.hop.settings, **changes)

    def add_backend(self, connected: bool = True) -> OneConnection:
        backend = OneConnection(connected)
        self.locator.endpoints.append((f"10.0.0.{len(self.locator.endpoints)}:1", backend))
        return backend

    def ask(self, request: bytes = handshake()) -> MemoryClient:
        client = self.server.connect()
        client.send(request)
        return client

    def refused(self, client: MemoryClient) -> APIError:
        """Return the client's Status after checking that all is closed and recorded."""
        (answer,) = client.responses()
        status = answer.json()
        self.assertEqual((status["kind"], status["code"]), ("Status", answer.code))
        self.assertEqual(len(self.sessions), 0)
        self.records.check_pairs()
        message = status["message"].removeprefix('machine "vm": ')
        self.assertEqual(self.records.ends(), [(message, answer.code)])
        return APIError(
            message,
            code=answer.code,
            reason=status["reason"],
            retry_after_seconds=int(answer.headers.get("retry-after", 0)),
            details=status.get("details"),
        )

    def switched(self, early: bytes = b"") -> MemoryClient:
        """Return the client of an established session."""
        client = self.ask()
        self.backend.protocol.dataReceived(SWITCHED + b"\r\n" + early)
        return client

    def confirmed(self, terms: bytes) -> MemoryClient:
        """Return the client of a session whose next hop confirms these terms."""
        client = self.ask()
        header = b"X-Twisted-Exec-Terms: %s\r\n" % terms if terms else b""
        self.backend.protocol.dataReceived(SWITCHED + header + b"\r\n")
        return client


class ResumingTestCase(ProxyTestCase):
    """A proxy whose clients can resume their sessions."""

    key, next_key = b"k" * 43, b"n" * 43
    answer = b"key=" + next_key + b"; seconds=60"
    resumed = b"key=" + key + b"; session=s-0; epoch=0123456789abcdef; from=4096"

    def setUp(self) -> None:
        super().setUp()
        self.locator.more = {"resumes": True}

    def request(self, value: bytes, **more: Any) -> bytes:
        return handshake(b"X-Twisted-Exec-Resume: " + value, **more)

    def answered(self, value: bytes, answer: bytes = answer) -> MemoryClient:
        """Return the client of a session whose next hop gives an answer."""
        client = self.ask(self.request(value))
        line = b"X-Twisted-Exec-Resume: " + answer + b"\r\n" if answer else b""
        self.backend.protocol.dataReceived(SWITCHED + line + b"\r\n")
        return client

    def sent(self) -> list[bytes]:
        """Return the values of the header that the next hop got."""
        lines = self.backend.transport.value().split(b"\r\n")
        return [line[23:] for line in lines if line.lower().startswith(b"x-twisted-exec-resume: ")]
