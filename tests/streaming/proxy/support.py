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
from twisted_exec.api.obstacles import Obstacle
from twisted_exec.api.status import APIError
from twisted_exec.program.audit import Trail
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.location import IStreamAdmission, Location, Renewal, Upstream
from twisted_exec.streaming.proxied import ProxySettings
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.testing.network import MemoryClient, MemoryServer

SWITCHED = (
    b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
)


class ScriptedUpstream(Upstream):
    """
    An upstream whose answers the test sets.

    :ivar renewed: fires with the location of a further request.
    :ivar decided: fires with the last decision.
    :ivar meaning: converts a refusal into the user's error.
    """

    def __init__(self, obstacle: Obstacle | None = None) -> None:
        super().__init__(obstacle)
        self.renewed: Callable[[Renewal], Deferred[Location]] | None = None
        self.decided: Callable[[], Deferred[None]] = lambda: succeed(None)
        self.meaning: Callable[[APIError], APIError] | None = None

    def error_of(self, refused: UpgradeRefused) -> APIError:
        if self.meaning is None:
            return super().error_of(refused)
        return self.meaning(refused.as_api_error())

    async def confirm(self, ending: Ending | None) -> None:
        await self.decided()

    async def renew(self, location: Location, reason: Renewal) -> Location:
        return location if self.renewed is None else await self.renewed(reason)


@implementer(IStreamAdmission)
class Admission:
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
        self.upstream = ScriptedUpstream()
        self.more: dict[str, Any] = {}
        self.waiting: Deferred[Location] | None = None

    def admit(self, context: RequestContext) -> Deferred[Location]:
        self.located += 1
        context.learn(session="s-1", user=self.user, machine=self.machine)
        if self.problem is not None:
            return fail(Failure(self.problem))
        if self.waiting is not None:
            return self.waiting
        context.learn(machine="vm", caller="apiserver", pool=self.pool)
        return succeed(self.location())

    def location(self) -> Location:
        return Location(
            self.endpoints,
            self.path,
            b"backend:1",
            headers=self.headers,
            upstream=self.upstream,
            **self.more,
        )


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
        self.admission = Admission()
        self.backend = self.add_backend()
        self.proxy = Proxy(
            self.admission, ProxySettings("poollet"), sessions=self.sessions, clock=self.clock
        )
        self.server = MemoryServer(Proxying(self.proxy), self.clock)

    def change_settings(self, **changes: Any) -> None:
        """Change settings of the hop."""
        self.proxy.state.settings = replace(self.proxy.state.settings, **changes)

    def add_backend(self, connected: bool = True) -> OneConnection:
        backend = OneConnection(connected)
        self.admission.endpoints.append((f"10.0.0.{len(self.admission.endpoints)}:1", backend))
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
        self.admission.more = {"resumes": True}

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
