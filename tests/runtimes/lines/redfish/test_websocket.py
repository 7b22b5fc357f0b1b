"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.websocket`, with a console of Twisted and autobahn."""

from __future__ import annotations

import hashlib
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.internet.ssl import PrivateCertificate
from twisted.internet.task import Clock
from twisted.web.resource import Resource
from twisted.web.server import Site

from tests.runtimes.bmc.console import Console
from tests.streaming.places import PlacesTestCase, pki, reactor
from twisted_exec.api.status import APIError, BadGateway, GatewayTimeout, Unauthorized
from twisted_exec.runtimes.lines.redfish.websocket import (
    INPUT_BYTES,
    MESSAGE_BYTES,
    SocketHeaders,
    WebSocketEndpoint,
)
from twisted_exec.testing.drivers import Line
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.errors import VerificationError

TOKEN = "token-canary"


class Session:
    """A session with the BMC; :attr:`logins` are the credentials of this and the next logins."""

    def __init__(self, *logins: SocketHeaders) -> None:
        self.logins = list(logins)
        self.refused = 0

    async def socket_headers(self) -> SocketHeaders:
        return self.logins[0]

    async def session_refused(self, headers: SocketHeaders) -> None:
        self.refused += 1
        if len(self.logins) > 1 and headers is self.logins[0]:
            self.logins.pop(0)


class ConsoleCase(PlacesTestCase):
    """A console at a port, and an endpoint that leads there."""

    async def serve(self, **more: Any) -> WebSocketEndpoint:
        self.console = Console()
        self.console.tokens.add(TOKEN)
        root = Resource()
        root.putChild(b"console0", self.console.resource)
        # autobahn's resource does not give its connections back to the site.
        self.addCleanup(self.console.vanish)
        self.inner = await self.listen_with(Site(root))
        return self.make_endpoint(**more)

    async def listen_with(self, site: Site) -> Any:
        return await self.listen("tcp", site)

    def make_endpoint(
        self,
        session: Session | None = None,
        targets: tuple[str, ...] = ("/console0",),
        clock: Any = reactor,
        inner: Any = None,
        seconds: float = 60.0,
    ) -> WebSocketEndpoint:
        self.session = session or Session(SocketHeaders.of_token(TOKEN))
        return WebSocketEndpoint(
            inner or self.inner,
            "127.0.0.1",
            targets,
            self.session,
            clock,
            keep_alive_seconds=seconds,
        )

    async def open(self, endpoint: WebSocketEndpoint) -> Line:
        line: Line = await endpoint.connect(Factory.forProtocol(Line))
        self.addCleanup(line.transport.abortConnection)
        return line

    async def refusal(self, endpoint: WebSocketEndpoint) -> APIError:
        try:
            await self.open(endpoint)
        except APIError as error:
            self.assertNotIn(TOKEN, error.message)
            return error
        self.fail("it was not refused")


class OpenTests(ConsoleCase):
    """The handshake."""

    async def test_token(self) -> None:
        """The token of a session of Redfish opens the console."""
        endpoint = await self.serve()
        line = await self.open(endpoint)
        line.transport.write(b"hello")
        await line.until(b"hello")
        self.assertEqual(self.console.got, b"hello")

    async def test_no_right(self) -> None:
        """A user who may not open consoles is refused, with the status code."""
        endpoint = await self.serve()
        self.console.answers = [403, 403]
        self.assertIn("status code 403", (await self.refusal(endpoint)).message)

    async def test_paths(self) -> None:
        """The next path is used if the BMC does not know one."""
        endpoint = await self.serve(targets=("/console/default", "/console0"))
        await self.open(endpoint)
        nowhere = self.make_endpoint(targets=("/a", "/b"))
        self.assertIn("has no WebSocket there", (await self.refusal(nowhere)).message)

    async def test_new_login(self) -> None:
        """A session that has ended is replaced by one login, not by more."""
        old, new = SocketHeaders.of_token("old"), SocketHeaders.of_token(TOKEN)
        endpoint = await self.serve(session=Session(old, new))
        await self.open(endpoint)
        self.assertEqual(self.session.refused, 1)
        endpoint = self.make_endpoint(Session(old, old, new))
        self.assertIsInstance(await self.refusal(endpoint), Unauthorized)
        self.assertEqual(self.session.refused, 1)

    async def test_refused(self) -> None:
        """A refusal has its status code, and nothing of the BMC's words; a redirect is not followed."""
        endpoint = await self.serve()
        for code, why in (
            (302, "redirects its console (status code 302), which is not followed"),
            (429, "refuses its console with status code 429"),
            (503, "refuses its console with status code 503"),
            (200, "refuses its console with status code 200"),
        ):
            self.console.answers = [code]
            self.console.location = b"https://evil.example/console0"
            error = await self.refusal(endpoint)
            self.assertIsInstance(error, BadGateway)
            self.assertIn(why, error.message)
        self.assertEqual(len(self.console.requests), 4)

    async def test_hang(self) -> None:
        """A BMC that does not answer is given up."""
        endpoint = await self.serve()
        self.console.hangs = True
        clock = Clock()
        endpoint = self.make_endpoint(clock=clock)
        opening: Deferred[Any] = endpoint.connect(Factory.forProtocol(Line))
        await self.until(lambda: self.console.requests)
        clock.advance(15)
        with self.assertRaises(GatewayTimeout):
            await opening

    async def test_cancelled(self) -> None:
        """A line that is closed meanwhile leaves no connection."""
        endpoint = await self.serve()
        self.console.hangs = True
        opening: Deferred[Any] = endpoint.connect(Factory.forProtocol(Line))
        await self.until(lambda: self.console.requests)
        opening.addErrback(lambda _: None)
        opening.cancel()
        await opening


class LineTests(ConsoleCase):
    """An open console."""

    async def setUp(self) -> None:  # type: ignore[override]
        self.clock = Clock()
        endpoint = await self.serve(clock=self.clock)
        self.line = await self.open(endpoint)
        await self.until(lambda: self.console.sockets)

    async def test_large(self) -> None:
        """Input is sent in small messages; output may come in large ones."""
        sent = bytes(range(256)) * 256
        sizes: list[int] = []
        socket = self.console.socket
        socket.onMessage = lambda payload, isBinary: sizes.append(len(payload))
        self.line.transport.write(sent)
        await self.until(lambda: sum(sizes) == len(sent))
        self.assertEqual(max(sizes), INPUT_BYTES)
        self.console.says(b"y" * MESSAGE_BYTES)
        await self.until(lambda: len(self.line.got) == MESSAGE_BYTES)

    async def test_too_large(self) -> None:
        """A message beyond the limit ends the line, with the reason."""
        self.console.says(b"y" * (MESSAGE_BYTES + 1))
        error = await self.line.over()
        self.assertIn("broke the protocol of WebSockets", str(error))

    async def test_closed(self) -> None:
        """The BMC's reason for closing is that of the lost line."""
        self.console.end("Host is\x07 resetting")
        error = await self.line.over()
        self.assertIn("the BMC closed its console: Host is resetting", str(error))

    async def test_vanished(self) -> None:
        """A connection that is cut is a lost line."""
        self.console.vanish()
        error = await self.line.over()
        self.assertIn("the BMC's WebSocket ended: connection lost", str(error))

    async def test_loses(self) -> None:
        """Our end closes in order."""
        self.line.transport.loseConnection()
        self.assertIsInstance(await self.line.over(), ConnectionDone)
        await self.until(lambda: not self.console.sockets)

    async def test_keep_alive(self) -> None:
        """A BMC that answers pings is kept; one that does not is lost after two of them."""
        pongs: list[bytes] = []
        socket = self.line.transport._socket  # type: ignore[attr-defined]
        received = socket.onPong
        socket.onPong = lambda payload: (pongs.append(payload), received(payload))
        for count in range(1, 6):
            self.clock.advance(60)
            await self.until(lambda count=count: len(pongs) == count)
        self.console.is_deaf = True
        for _ in range(2):
            self.clock.advance(60)
        self.assertEqual(self.line.lost, [])
        self.clock.advance(60)
        self.assertIn("has not answered for 120 s", str(await self.line.over()))

    async def test_paused_output(self) -> None:
        """While nobody reads, the BMC must wait: output does not pile up here."""
        self.line.transport.pauseProducing()
        socket = self.console.socket
        while not socket.transport._tempDataBuffer and not socket.transport.dataBuffer:
            socket.sendMessage(b"y" * 65536, isBinary=True)
            await self.turn()
        self.assertEqual(self.line.got, b"")
        socket.sendMessage(b"last", isBinary=True)
        self.line.transport.resumeProducing()
        await self.line.until(b"last")

    async def turn(self) -> None:
        turned: Deferred[None] = Deferred()
        reactor.callLater(0, turned.callback, None)
        await turned

    async def test_paused_input(self) -> None:
        """Users wait while the BMC does not read."""
        typist = Typist()
        self.line.transport.registerProducer(typist, True)
        self.console.socket.transport.pauseProducing()
        while not typist.is_paused:
            self.line.transport.write(b"x" * 65536)
            await self.turn()
        self.console.socket.transport.resumeProducing()
        await self.until(lambda: not typist.is_paused)
        self.line.transport.unregisterProducer()


class Typist:
    """The users' input."""

    is_paused = False

    def pauseProducing(self) -> None:
        """As :meth:`IPushProducer.pauseProducing`."""
        self.is_paused = True

    def resumeProducing(self) -> None:
        """As :meth:`IPushProducer.resumeProducing`."""
        self.is_paused = False


class LimitTests(ConsoleCase):
    """A BMC with too many consoles."""

    async def test_most(self) -> None:
        """It accepts the next one, and closes it: its reason is the lost line's."""
        endpoint = await self.serve()
        self.console.most = 0
        line = await self.open(endpoint)
        self.assertIn("the BMC closed its console: Max sessions reached", str(await line.over()))


class PinTests(ConsoleCase):
    """A console behind TLS."""

    async def listen_with(self, site: Site) -> Any:
        # With Twisted's own TLS: autobahn's resource cannot take over ours.
        context = PrivateCertificate.loadPEM(b"".join(pki()[1:])).options()
        port = reactor.listenSSL(0, site, context, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.port = port.getHost().port
        tls = ClientTLS("localhost", ca_pem=pki()[0])
        return client_endpoint(reactor, "127.0.0.1", self.port, tls)

    def pinned(self, digest: bytes) -> Any:
        def check(certificate: x509.Certificate) -> None:
            key = certificate.public_key().public_bytes(
                Encoding.DER, PublicFormat.SubjectPublicKeyInfo
            )
            if hashlib.sha256(key).digest() != digest:
                raise VerificationError("another key than that of the pin")

        tls = ClientTLS("127.0.0.1", ca_pem=None, insecure_skip_verify=True, check=check)
        return client_endpoint(reactor, "127.0.0.1", self.port, tls)

    async def test_verified(self) -> None:
        """The endpoint of a BMC that is verified opens the console."""
        endpoint = await self.serve()
        self.console.greeting = b"login: "
        line = await self.open(endpoint)
        await line.until(b"login: ")
        certificate = x509.load_pem_x509_certificate(pki()[1])
        key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        pin = hashlib.sha256(key).digest()
        line = await self.open(self.make_endpoint(inner=self.pinned(pin)))
        await line.until(b"login: ")

    async def test_other_key(self) -> None:
        """A BMC with another key gets no request, so no token."""
        await self.serve()
        error = await self.refusal(self.make_endpoint(inner=self.pinned(b"\0" * 32)))
        self.assertIn("another key than that of the pin", error.message)
        self.assertEqual(self.console.requests, [])
