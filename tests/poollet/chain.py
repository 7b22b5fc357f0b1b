"""
A whole poollet for tests: TLS and sockets are real, cluster and runtime are in memory.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests.audits import AuditList
from tests.chain import (
    PATIENCE_SECONDS,
    ask,
    await_endings,
    endpoint,
    issued,
    pki,
    poollet_settings,
    reactor,
    until,
)
from tests.poollet.doubles import CLASSES, MACHINES, MemoryRuntime, machine
from tests.streaming.raw import Raw
from twisted_exec.api import kinds
from twisted_exec.auth.interfaces import IAuthorizer
from twisted_exec.poollet.service import Poollet
from twisted_exec.poollet.settings import Settings
from twisted_exec.streaming.http.upgrade_client import (
    Upgraded,
    UpgradeRequest,
    upgrade,
)
from twisted_exec.testing.cluster import MemoryCluster
from twisted_exec.tls.pki.authority import Issued
from twisted_exec.tls.pki.directory import AUTHORITIES
from twisted_exec.wire.session_terms import TERMS_HEADER

_TERMS = TERMS_HEADER.encode()

SERVING, USERS, FORWARDING = (pki().authority(name) for name in AUTHORITIES)
API_SERVER, JANE = issued("apiserver-forwarding"), issued("user-jane")

EXEC = "/apis/compute.ironcore.dev/namespaces/{}/machines/{}/exec"


class Line(Protocol):
    """
    The runtime's stream: accepts one upgrade, then echoes; ``DELETE`` ends all others.

    A log begins with one line and goes on as the test says.
    """

    factory: Lines
    head = b""
    upgraded = False
    lost = False

    def connectionMade(self) -> None:
        self.factory.connections.append(self)

    def dataReceived(self, data: bytes) -> None:
        if self.upgraded:
            self.transport.write(data)
            return
        self.head += data
        if b"\r\n\r\n" not in self.head:
            return
        self.factory.heads.append(self.head)
        if self.head.startswith(b"DELETE"):
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            self.factory.end()
        elif self.factory.refusal:
            self.transport.write(self.factory.refusal)
            self.transport.loseConnection()
        elif self.head.startswith((b"GET /log/", b"GET /screen/")):
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n6\r\nhello\n\r\n"
            )
            self.factory.lines.append(self)
        else:
            self.upgraded = True
            terms = [each for each in self.head.split(b"\r\n") if each.startswith(_TERMS)]
            confirmed = b"".join(line + b"\r\n" for line in terms if self.factory.holds)
            self.transport.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\n%s\r\nhello" % confirmed
            )
            self.factory.lines.append(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = True


class Lines(Factory):
    """The server behind the runtime's exec URLs."""

    protocol = Line

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.connections: list[Line] = []
        self.lines: list[Line] = []
        self.refusal = b""
        self.holds = False

    def end(self) -> None:
        """End every stream."""
        for line in self.lines:
            line.transport.loseConnection()


class PoolletCase(TestCase):
    """A poollet of ``pool-a`` with one machine ``lab/vm``, which jane may open."""

    async def setUp(self) -> None:
        await_endings(self)
        self.directory = Path(tempfile.mkdtemp(dir=self.mktemp_directory()))
        self.cluster = MemoryCluster()
        self.client = self.cluster.client()
        self.runtime = MemoryRuntime()
        self.lines = Lines()
        self.audit = AuditList()
        self.rights: set[tuple[str, str]] = set()
        self.allowed: set[tuple[str, str, str]] = {
            ("jane", "machines/exec", "vm"),
            ("exec-apiserver", "machinepools/proxy", "pool-a"),
        }
        self.cluster.reviews[kinds.SUBJECTACCESSREVIEWS.resource] = self.review
        self.good_tokens = {"good": "jane"}
        self.cluster.reviews[kinds.TOKENREVIEWS.resource] = lambda review: {
            "authenticated": review["spec"]["token"] in self.good_tokens,
            "user": {"username": self.good_tokens.get(review["spec"]["token"]), "groups": ["dev"]},
        }
        await self.client.create(
            CLASSES, {"metadata": {"name": "pty"}, "capabilities": {"cpu": "1", "memory": "1Gi"}}
        )
        port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(self.lines)
        self.addCleanup(self.close_lines)
        self.addCleanup(port.stopListening)
        self.runtime.url = f"http://127.0.0.1:{port.getHost().port}/exec/token-1"
        self.runtime.log_url = f"http://127.0.0.1:{port.getHost().port}/log/token-2"
        await self.client.create(MACHINES, machine(), "lab")

    def mktemp_directory(self) -> str:
        directory = Path(self.mktemp())
        directory.mkdir(parents=True)
        return str(directory)

    async def close_lines(self) -> None:
        self.lines.end()
        await until(lambda: all(line.lost for line in self.lines.connections))

    def review(self, review: dict[str, Any]) -> dict[str, Any]:
        """Answer a SubjectAccessReview from ``self.allowed``."""
        spec = review["spec"]
        attributes = spec.get("resourceAttributes")
        if attributes is None:
            expected = (spec["user"], spec["nonResourceAttributes"]["path"], "")
        else:
            if attributes["subresource"] == "console":
                return {"allowed": (spec["user"], attributes["verb"]) in self.rights}
            is_read = attributes["subresource"] in ("log", "content")
            verb = "get" if is_read else "create"
            self.assertEqual(attributes["verb"], verb)
            resource = f"{attributes['resource']}/{attributes['subresource']}"
            expected = (spec["user"], resource, attributes["name"])
        return {"allowed": expected in self.allowed, "reason": ""}

    def write(self, name: str, content: bytes) -> str:
        path = self.directory / name
        path.write_bytes(content)
        path.chmod(0o600)
        return str(path)

    def settings(self, **more: Any) -> Settings:
        return Settings(**{**poollet_settings(provider_id="memory://pool-a", addresses=()), **more})

    async def start(self, authorizer: IAuthorizer | None = None, **more: Any) -> Poollet:
        """A poollet that has registered its pool and made its machine."""
        self.poollet = Poollet(
            self.settings(**more),
            self.client,
            self.runtime,
            self.audit,
            reactor,
            authorizer=authorizer,
        )
        self.poollet.startService()
        self.addCleanup(self.stop)
        await self.poollet.when_ready()
        await until(lambda: len(self.runtime.machines) == 1)
        return self.poollet

    async def stop(self) -> None:
        if self.poollet.running:
            await self.poollet.stopService()

    def give_time(self) -> None:
        """Let consoles wait long for the runtime."""
        admission = self.poollet.consoles.proxy.admission
        object.__setattr__(admission, "runtime_seconds", PATIENCE_SECONDS)

    def endpoint(self, identity: Issued | None) -> Any:
        return endpoint(self.poollet.address, identity)

    def open(
        self,
        headers: Sequence[tuple[bytes, bytes]] = (),
        *,
        user: bytes = b"jane",
        identity: Issued | None = API_SERVER,
        path: str = EXEC.format("lab", "vm"),
        method: bytes = b"POST",
    ) -> Deferred[Upgraded]:
        """Ask for a console, as the API server does for ``user``."""
        head = [
            (b"Connection", b"Upgrade"),
            (b"Upgrade", b"websocket"),
            *([(b"X-Remote-User", user)] if user else []),
            *headers,
        ]
        request = UpgradeRequest(method, path.encode(), b"poollet", head)
        return upgrade(
            self.endpoint(identity), request, clock=reactor, timeout_seconds=PATIENCE_SECONDS
        )

    async def view(self, *arguments: Any, **more: Any) -> Raw:
        """An open console."""
        upgraded = await self.open(*arguments, **more)
        viewer = Raw()
        upgraded.hand_over(viewer)
        self.addCleanup(upgraded.abort)
        await until(lambda: viewer.received == b"hello")
        return viewer

    async def get(
        self,
        path: str,
        *,
        identity: Issued | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> tuple[int, bytes]:
        """Code and body of a plain GET."""
        answer = await ask(self.endpoint(identity), path, headers=headers, host=b"poollet")
        return answer.code, answer.body


def status(body: bytes) -> dict[str, Any]:
    """A Status document."""
    told: dict[str, Any] = json.loads(body)
    assert told["kind"] == "Status", told
    return told
