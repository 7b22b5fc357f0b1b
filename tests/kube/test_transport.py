"""
Tests for :meth:`HTTPTransport.open <twisted_exec.kube.transport.HTTPTransport.open>`, and of
connections that are shared.  Other requests are those of :mod:`tests.kube.test_client`.
"""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import NOT_DONE_YET, Request

from tests.chain import PATIENCE_SECONDS
from tests.clocks import expire
from tests.kube.plugins import PluginScript
from tests.kube.test_client import MACHINES, ClientTestCase, status, until
from tests.tiers import PROGRAMS
from twisted_exec.api.status import BadGateway, GatewayTimeout
from twisted_exec.kube import transport as http
from twisted_exec.kube.bodies import Gunzip
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, ImpersonatedUser
from twisted_exec.kube.transport import Incoming


class TransportCase(ClientTestCase):
    """A transport for the scripted server."""

    def transport(self, **more: Any) -> http.HTTPTransport:
        server = f"http://127.0.0.1:{self.port.getHost().port}"
        transport = http.HTTPTransport(ClientConfig(server, **more), reactor)
        self.addCleanup(transport.close)
        return transport


class SharedTests(ClientTestCase):
    """Connections that several clients share, such as those of a program that acts for many users."""

    async def setUp(self) -> None:
        await super().setUp()
        self.connections = http.IdleConnections(reactor)
        self.addCleanup(self.connections.close)
        self.server.handler = lambda request: {"metadata": {}}

    async def ask(self, user: str, **more: Any) -> None:
        """Ask once as a user, with a client of its own."""
        server = f"http://127.0.0.1:{self.port.getHost().port}"
        config = ClientConfig(server, impersonate=ImpersonatedUser(user), **more)
        client = KubeClient(config, reactor, connections=self.connections)
        await client.get(MACHINES, "vm", "default")
        await client.close()

    async def test_users(self) -> None:
        """Each request on the same connection is that of its own user, also after a client has closed."""
        for user in ("ada", "bob", "ada"):
            await self.ask(user)
        self.assertEqual(len(self.server.connections), 1)
        users = [each["impersonate-user"] for each in self.server.headers]
        self.assertEqual(users, ["ada", "bob", "ada"])

    async def test_other_settings(self) -> None:
        """Settings of the connection that have changed get a new one, and the old one is closed."""
        await self.ask("ada")
        (old,) = self.server.connections
        await self.ask("ada", tls_server_name="other")
        self.assertEqual(len(self.server.connections), 2)
        await until(lambda: old.transport is None or old.transport.disconnected)


class OpenTests(TransportCase):
    """An answer whose body follows at its reader's pace."""

    starts = PROGRAMS

    async def read(self, incoming: Incoming) -> bytes:
        body: list[bytes] = []
        ended: Deferred[bool] = Deferred()
        incoming.deliver(body.append, ended.callback)
        self.assertTrue(await ended)
        return b"".join(body)

    async def test_any_code(self) -> None:
        """Every code is an answer, with all its headers, and connections are reused."""

        def answer(request: Request) -> bytes:
            request.setResponseCode(int(request.path[1:]))
            request.responseHeaders.setRawHeaders("Odd", ["a", "b"])
            return b"body"

        self.server.handler = answer
        transport = self.transport()
        for code in (200, 302, 403, 500):
            incoming = await transport.open(
                http.Request("GET", f"/{code}"), head_seconds=PATIENCE_SECONDS
            )
            odd = [value for name, value in incoming.headers if name == b"Odd"]
            self.assertEqual((incoming.code, odd, incoming.length), (code, [b"a", b"b"], 4))
            self.assertEqual(await self.read(incoming), b"body")
        self.assertEqual(len(self.server.connections), 1)

    async def test_renewed(self) -> None:
        """After a 401 the plugin runs once more, and the request is repeated with its body."""

        def answer(request: Request) -> Any:
            good = request.getHeader("authorization") == "Bearer t2"
            return {"metadata": {}} if good else status(request, 401)

        self.server.handler = answer
        script = PluginScript(Path(self.mktemp()), "answer(token=f't{count}')")
        transport = self.transport(plugin=script.plugin())
        incoming = await transport.open(
            http.Request("POST", "/", b"{}"), head_seconds=PATIENCE_SECONDS
        )
        self.assertEqual((incoming.code, await self.read(incoming)), (200, b'{"metadata": {}}'))
        self.assertEqual(self.server.bodies, [b"{}", b"{}"])

    async def test_paused(self) -> None:
        """A reader that pauses while the first bytes arrive gets the rest when it resumes."""
        self.server.handler = lambda request: b"x" * (1 << 20)
        incoming = await self.transport().open(
            http.Request("GET", "/"), head_seconds=PATIENCE_SECONDS
        )
        sizes: list[int] = []
        paused: Deferred[None] = Deferred()
        ended: Deferred[bool] = Deferred()

        def received(data: bytes) -> None:
            sizes.append(len(data))
            if len(sizes) == 1:
                incoming.pause()
                reactor.callLater(0, paused.callback, None)  # type: ignore[attr-defined]

        incoming.deliver(received, ended.callback)
        await paused
        self.assertLess(sum(sizes), 1 << 20)
        incoming.resume()
        self.assertTrue(await ended)
        self.assertEqual(sum(sizes), 1 << 20)

    async def test_aborted(self) -> None:
        """An answer that nobody wants ends its connection, before its body is read and after."""
        for is_reading in (False, True):
            left: Deferred[None] = Deferred()

            def begin(request: Request, left: Deferred[None] = left) -> Any:
                request.notifyFinish().addBoth(lambda _: left.callback(None))
                request.write(b"x")
                return NOT_DONE_YET

            self.server.handler = begin
            incoming = await self.transport().open(
                http.Request("GET", "/"), head_seconds=PATIENCE_SECONDS
            )
            if is_reading:
                incoming.deliver(lambda _: None, self.fail)
            incoming.abort()
            incoming.abort()
            await left

    async def test_no_head(self) -> None:
        """Without a head in time the request fails."""
        self.server.handler = lambda request: NOT_DONE_YET
        opening = Deferred.fromCoroutine(
            self.transport().open(http.Request("GET", "/"), head_seconds=3600)
        )
        await until(lambda: bool(self.server.asked))
        expire(reactor, 3000)
        await self.assertFailure(opening, GatewayTimeout)

    async def test_closed(self) -> None:
        """A connection that is in use when the transport is closed ends after its answer."""
        ended: Deferred[None] = Deferred()
        requests: list[Request] = []

        def begin(request: Request) -> Any:
            requests.append(request)
            request.write(b"x")
            return NOT_DONE_YET

        self.server.handler = begin
        transport = self.transport()
        incoming = await transport.open(http.Request("GET", "/"), head_seconds=PATIENCE_SECONDS)
        await transport.close()
        (request,) = requests
        lost = request.channel.connectionLost

        def connection_lost(reason: Failure) -> None:
            lost(reason)
            ended.callback(None)

        request.channel.connectionLost = connection_lost
        request.finish()
        self.assertEqual(await self.read(incoming), b"x")
        await ended


class CompressedTests(TransportCase):
    """An answer with gzip."""

    limit_bytes = 1 << 20

    async def collect(self, body: bytes, *encodings: str) -> bytes:
        def answer(request: Request) -> bytes:
            request.responseHeaders.setRawHeaders("Content-Encoding", encodings)
            return body

        self.server.handler = answer
        asking = self.transport().collect(
            http.Request("GET", "/"), timeout_seconds=PATIENCE_SECONDS, limit_bytes=self.limit_bytes
        )
        return (await asking)[2]

    async def problem(self, body: bytes) -> str:
        with self.assertRaises(BadGateway) as caught:
            await self.collect(body, "gzip")
        return caught.exception.message

    async def test_decompressed(self) -> None:
        """The client asks for gzip, and the body is decompressed, up to the limit."""
        for body in (b"", b"{}", b"ab" * (self.limit_bytes // 2)):
            self.assertEqual(await self.collect(gzip.compress(body), "GZIP"), body)
        self.assertEqual(self.server.headers[0]["accept-encoding"], "gzip")
        self.assertEqual(await self.collect(b"{}"), b"{}")

    async def test_bomb(self) -> None:
        """A body that becomes larger than the limit is refused before it is in memory."""
        bomb = gzip.compress(bytes(64 << 20))
        tracemalloc.start()
        try:
            problem = await self.problem(bomb)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        self.assertEqual(problem, f"the server's answer is larger than {self.limit_bytes} bytes")
        self.assertLess(peak, 8 << 20)

    async def test_broken(self) -> None:
        """A body that is no gzip, or not all of it, is an error."""
        self.assertEqual(
            await self.problem(b"{}"), "the server's answer is not the gzip that its head says"
        )
        self.assertEqual(
            await self.problem(gzip.compress(b"{}" * 9)[:-9]), "the server's answer is incomplete"
        )


class GunzipTests(SynchronousTestCase):
    """Decompression in pieces."""

    def test_pieces(self) -> None:
        """Pieces are small, however well they were compressed and however they arrive."""
        body = bytes(1 << 20) + bytes(range(256)) * 300
        packed = gzip.compress(body)
        for size in (1, 100, len(packed)):
            pieces: list[bytes] = []
            gunzip = Gunzip(pieces.append)
            for start in range(0, len(packed), size):
                gunzip.feed(packed[start : start + size])
            gunzip.finish()
            self.assertEqual(b"".join(pieces), body)
            self.assertLessEqual(max(map(len, pieces)), Gunzip.PIECE_BYTES)
