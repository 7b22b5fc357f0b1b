"""Tests for :mod:`twisted_exec.kube.proxy`: client, proxy and server on loopback."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol

from tests.chain import PATIENCE_SECONDS
from tests.clocks import expire
from tests.kube.kubeconfig import test_connection
from tests.tiers import PROGRAMS
from twisted_exec.api.status import APIError
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.proxy import ForwardProxy, ProxyError
from twisted_exec.testing.proxies import ConnectProxy, ProxyFactory, Socks5Proxy
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.server import ServerTLS

SERVING, reactor = test_connection.SERVING, test_connection.reactor


class Saying(Protocol):
    """A proxy with one fixed answer."""

    words = b""

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(self.words)


class Mute(Protocol):
    """A proxy that accepts connections and never answers."""

    def __init__(self, asked: Deferred[Any]) -> None:
        self._asked = asked
        self.lost: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self._asked.callback(self)

    def connectionLost(self, reason: object = None) -> None:
        self.lost.callback(None)


class ProxyTests(test_connection.TLSTests):
    """
    All of :class:`~tests.kube.kubeconfig.test_connection.TLSTests` through a proxy, and proxy
    errors.
    """

    starts = PROGRAMS

    async def setUp(self) -> None:
        await super().setUp()
        self.proxy: ProxyFactory = ConnectProxy(reactor)
        self.proxy_url = f"http://127.0.0.1:{await self.listen(self.proxy)}"

    async def tearDown(self) -> None:
        await super().tearDown()
        self.proxy.abort()

    async def listen(self, factory: Any) -> int:
        port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(factory)
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    def config(self, **more: Any) -> ClientConfig:
        return super().config(**{"proxy_url": self.proxy_url, **more})

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port.getHost().port}"

    async def test_by_way_of_it(self) -> None:
        """The client connects through the proxy."""
        await self.user(self.client())
        self.assertEqual(self.proxy.asked, [self.target])

    async def test_socks(self) -> None:
        """The client connects through SOCKS5; the proxy resolves names."""
        socks = self.proxy = Socks5Proxy(reactor)
        proxy_url = f"socks5://127.0.0.1:{await self.listen(socks)}"
        await self.user(self.client(proxy_url=proxy_url))
        socks.names["api.internal"] = "127.0.0.1"
        port = self.port.getHost().port
        config = ClientConfig(
            f"https://api.internal:{port}",
            ca=Material(data=SERVING.certificate_pem),
            proxy_url=proxy_url,
        )
        client = KubeClient(config, reactor, timeout_seconds=PATIENCE_SECONDS)
        self.clients.append(client)
        await self.user(client)
        self.assertEqual(socks.asked, [self.target, f"api.internal:{port}"])

    async def test_tls_to_the_proxy(self) -> None:
        """An https proxy is verified like the server, and gets no client certificate."""
        issued = SERVING.issue_server(["127.0.0.1"])
        server = ServerTLS(
            self.write("proxy.crt", issued.certificate_pem),
            self.write("proxy.key", issued.key_pem),
            clock=reactor,
        )
        port = await server_endpoint(reactor, "tcp:0:interface=127.0.0.1", server).listen(
            self.proxy
        )
        self.addCleanup(port.stopListening)
        proxy_url = f"https://127.0.0.1:{port.getHost().port}"
        await self.user(self.client(proxy_url=proxy_url, tls_server_name="api.internal"))
        self.assertEqual(self.proxy.asked, [self.target])
        other = self.client(proxy_url=proxy_url.replace("127.0.0.1", "localhost"))
        self.assertIn("the proxy https://localhost", await self.refusal(other))

    async def test_login(self) -> None:
        """User and password are percent-decoded; a wrong one is reported without showing it."""
        for factory, scheme in ((ConnectProxy, "http"), (Socks5Proxy, "socks5")):
            self.proxy.abort()
            self.proxy = factory(reactor, "ann:p@ss")
            where = f"127.0.0.1:{await self.listen(self.proxy)}"
            await self.user(self.client(proxy_url=f"{scheme}://ann:p%40ss@{where}"))
            for login, told in (
                ("", "wants a user name and password"),
                ("ann:canary@", "does not accept the user name and password"),
            ):
                refusal = await self.refusal(self.client(proxy_url=f"{scheme}://{login}{where}"))
                self.assertIn(f"the proxy {scheme}://{where} {told}", refusal)
                self.assertNotIn("canary", refusal)
            self.assertEqual(self.proxy.refused, 2)

    async def test_server_is_down(self) -> None:
        """The proxy's error about the server reaches the user."""
        client = KubeClient(
            ClientConfig("https://127.0.0.1:1", proxy_url=self.proxy_url),
            reactor,
            timeout_seconds=PATIENCE_SECONDS,
        )
        self.assertIn("says: 502 Bad Gateway", await self.refusal(client))
        socks = f"socks5://127.0.0.1:{await self.listen(Socks5Proxy(reactor))}"
        client = KubeClient(
            ClientConfig("https://127.0.0.1:1", proxy_url=socks),
            reactor,
            timeout_seconds=PATIENCE_SECONDS,
        )
        self.assertIn("says: connection refused", await self.refusal(client))

    async def test_proxy_is_down(self) -> None:
        """The error for an unreachable proxy names the proxy."""
        told = await self.refusal(self.client(proxy_url="http://127.0.0.1:1"))
        self.assertIn("the proxy http://127.0.0.1:1: connection refused", told)

    async def test_no_proxy(self) -> None:
        """Each answer in a wrong protocol has its own error."""
        for scheme, words, told in (
            ("http", b"SSH-2.0-OpenSSH\r\n\r\n", "does not speak HTTP"),
            ("http", b"HTTP/1.1 403 \x1b[2JForbidden\r\n\r\n", "says: 403 [2JForbidden"),
            ("http", b"HTTP/1.1 302 Found\r\nLocation: x\r\n\r\n", "says: 302 Found"),
            ("http", b"HTTP/1.1 200 OK\r\nX: " + b"x" * (70 << 10), "does not speak HTTP"),
            ("socks5", b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak SOCKS version 5"),
        ):
            factory = Factory.forProtocol(type("Said", (Saying,), {"words": words}))
            port = await self.listen(factory)
            refusal = await self.refusal(self.client(proxy_url=f"{scheme}://127.0.0.1:{port}"))
            self.assertIn(told, refusal)

    async def test_proxy_hangs_up(self) -> None:
        """The error says that the proxy closed the connection."""

        class Closing(Protocol):
            def connectionMade(self) -> None:
                assert self.transport is not None
                self.transport.loseConnection()

        port = await self.listen(Factory.forProtocol(Closing))
        told = await self.refusal(self.client(proxy_url=f"http://127.0.0.1:{port}"))
        self.assertIn("closed the connection", told)

    async def test_silent_proxy(self) -> None:
        """A silent proxy times out like any server, and the connection is closed."""
        asked: Deferred[Any] = Deferred()
        proxy = Mute(asked)
        factory = Factory.forProtocol(lambda: proxy)  # type: ignore[arg-type]
        port = await self.listen(factory)
        config = self.config(proxy_url=f"socks5://127.0.0.1:{port}")
        connecting = connectProtocol(endpoint(config, reactor, timeout_seconds=3600), Protocol())
        await asked
        expire(reactor, 3000)
        with self.assertRaises(Exception) as caught:
            await connecting
        self.assertIn(
            f"no answer from {self.target} behind the proxy socks5://127.0.0.1:{port}",
            str(caught.exception),
        )
        await proxy.lost

    async def test_cancelled(self) -> None:
        """Cancelling the connection attempt closes the connection to the proxy."""
        asked: Deferred[Any] = Deferred()
        proxy = Mute(asked)
        factory = Factory.forProtocol(lambda: proxy)  # type: ignore[arg-type]
        config = self.config(proxy_url=f"http://127.0.0.1:{await self.listen(factory)}")
        connecting = connectProtocol(endpoint(config, reactor), Protocol())
        await asked
        connecting.cancel()
        await self.assertFailure(connecting, CancelledError)
        await proxy.lost

    async def test_in_the_clear(self) -> None:
        """A server without TLS is reached through a tunnel, too."""

        class Echo(Protocol):
            def dataReceived(self, data: bytes) -> None:
                assert self.transport is not None
                self.transport.write(b"<" + data + b">")

        port = await self.listen(Factory.forProtocol(Echo))
        config = ClientConfig(f"http://127.0.0.1:{port}", proxy_url=self.proxy_url)

        class Once(Protocol):
            def __init__(self) -> None:
                self.got: Deferred[bytes] = Deferred()

            def dataReceived(self, data: bytes) -> None:
                self.got.callback(data)

        client = await connectProtocol(endpoint(config, reactor), Once())
        client.transport.write(b"hello")
        self.assertEqual(await client.got, b"<hello>")
        client.transport.abortConnection()

    def test_too_long(self) -> None:
        """A password too long for SOCKS5 is refused before connecting."""
        config = self.config(proxy_url=f"socks5://u:{'p' * 256}@127.0.0.1:1")
        failure = self.failureResultOf(connectProtocol(endpoint(config, reactor), Protocol()))
        failure.trap(ProxyError)
        self.assertIn("255 bytes at most", str(failure.value))

    def test_words(self) -> None:
        """A proxy's name has the default port and no password."""
        proxy = ForwardProxy.parse("socks5://ann:canary@[::1]")
        self.assertEqual(str(proxy), "the proxy socks5://[::1]:1080")
        self.assertNotIn("canary", repr(proxy))
        self.assertEqual((proxy.username, proxy.password), ("ann", "canary"))
        self.assertTrue(issubclass(ProxyError, Exception))
        self.assertFalse(issubclass(ProxyError, APIError))
