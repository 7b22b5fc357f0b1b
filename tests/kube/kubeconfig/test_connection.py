"""Tests for :mod:`twisted_exec.kube.kubeconfig.connection`, with a TLS server on loopback."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import maybeDeferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from tests.chain import PATIENCE_SECONDS
from tests.kube.plugins import PluginScript
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.obstacles import Obstacle, obstacles_of
from twisted_exec.api.status import APIError, GatewayTimeout
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
    Material,
)
from twisted_exec.kube.kubeconfig.connection import endpoint, host_and_port, tls
from twisted_exec.kube.kubeconfig.headers import auth_headers, host_header, identity_headers
from twisted_exec.streaming.http.upgrade_client import connect
from twisted_exec.tls.endpoints import server_endpoint
from twisted_exec.tls.fast.transport import socket_transport
from twisted_exec.tls.pki.authority import Authority, Issued
from twisted_exec.tls.server import ServerTLS, peer_certificate

reactor: Any = _reactor

MACHINES = kinds.MACHINES.resource
SERVING, USERS = Authority.create("serving"), Authority.create("users")
SERVER = SERVING.issue_server(["127.0.0.1", "api.internal"])

CERTIFICATES = """
pem = lambda kind: open(f"{here}/{count}.{kind}").read()
answer(clientCertificateData=pem("crt"), clientKeyData=pem("key"),
       expirationTimestamp="2020-01-01T00:00:00Z")
"""


class WhoAmI(Resource):
    """Resource that returns the common name of the client's certificate."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.channels: set[Any] = set()

    def render(self, request: Request) -> bytes:
        self.channels.add(request.channel)
        peer = peer_certificate(request.channel.transport)
        return json.dumps({"user": peer.common_name if peer else ""}).encode()


class Plain(Protocol):
    """Server that answers everything in plaintext."""

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.transport.loseConnection()


class TLSTests(TestCase):
    """Server verification and client certificates."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.server = WhoAmI()
        server = ServerTLS(
            self.write("tls.crt", SERVER.certificate_pem),
            self.write("tls.key", SERVER.key_pem),
            client_cas=[self.write("users.crt", USERS.certificate_pem)],
            clock=reactor,
        )
        endpoint = server_endpoint(reactor, "tcp:0:interface=127.0.0.1", server)
        self.port = await endpoint.listen(Site(self.server))
        self.clients: list[KubeClient] = []

    async def tearDown(self) -> None:
        for client in self.clients:
            await client.close()
        await maybeDeferred(self.port.stopListening)
        for channel in self.server.channels:
            if channel.transport is not None:
                channel.transport.abortConnection()

    def write(self, name: str, content: bytes) -> str:
        path = self.directory / name
        path.write_bytes(content)
        return str(path)

    def config(self, **more: Any) -> ClientConfig:
        given = {"ca": Material(data=SERVING.certificate_pem), **more}
        return ClientConfig(f"https://127.0.0.1:{self.port.getHost().port}", **given)

    def client(self, **more: Any) -> KubeClient:
        client = KubeClient(self.config(**more), reactor, timeout_seconds=PATIENCE_SECONDS)
        self.clients.append(client)
        return client

    async def user(self, client: KubeClient) -> str:
        return str((await client.get(MACHINES, "vm"))["user"])

    async def refusal(self, client: KubeClient) -> str:
        with self.assertRaises(APIError) as caught:
            await client.get(MACHINES, "vm")
        self.assertEqual(caught.exception.code, 502)
        self.assertNotIn("\n", caught.exception.message)
        return caught.exception.message

    async def test_verified(self) -> None:
        """A server with a certificate of the CA is accepted."""
        self.assertEqual(await self.user(self.client()), "")

    async def test_stranger(self) -> None:
        """A server of another CA is refused, unless verification is off."""
        other = Authority.create("other").certificate_pem
        message = await self.refusal(self.client(ca=Material(data=other)))
        self.assertIn("cannot reach the API server", message)
        client = self.client(ca=Material(), insecure_skip_tls_verify=True)
        self.assertEqual(await self.user(client), "")

    async def test_server_name(self) -> None:
        """The certificate must match the server's name, or ``tls-server-name`` if set."""
        await self.user(self.client(tls_server_name="api.internal"))
        await self.refusal(self.client(tls_server_name="api.other"))

    async def test_certificate(self) -> None:
        """The client authenticates with its certificate."""
        jane = USERS.issue_client("jane")
        client = self.client(
            certificate=Material(data=jane.certificate_pem), key=Material(data=jane.key_pem)
        )
        self.assertEqual(await self.user(client), "jane")

    async def test_renewed_configuration(self) -> None:
        """A renewed configuration applies to the next request of the same client."""
        users = [USERS.issue_client(name) for name in ("jane", "ada")]
        jane, ada = (
            self.config(
                certificate=Material(data=user.certificate_pem), key=Material(data=user.key_pem)
            )
            for user in users
        )
        current = [jane]
        client = KubeClient(
            jane, reactor, timeout_seconds=PATIENCE_SECONDS, renew=lambda: current[0]
        )
        self.clients.append(client)
        self.assertEqual(await self.user(client), "jane")
        current[0] = ada
        self.assertEqual(await self.user(client), "ada")
        self.assertEqual(await self.user(client), "ada")

    async def test_look(self) -> None:
        """A look shows that there is another configuration, without a request."""
        jane = self.config(token="jane")
        current = [jane]
        client = KubeClient(
            jane, reactor, timeout_seconds=PATIENCE_SECONDS, renew=lambda: current[0]
        )
        before = client.look()
        self.assertEqual(client.look(), before)
        current[0] = replace(jane, token="ada")
        self.assertNotEqual(client.look(), before)
        self.assertEqual(client.config, current[0])

    async def test_renewed_certificate(self) -> None:
        """A replaced certificate file applies to the next request."""
        certificate = Material(path=str(self.directory / "me.crt"))
        key = Material(path=str(self.directory / "me.key"))
        self.store(USERS.issue_client("jane"))
        client = self.client(certificate=certificate, key=key)
        self.assertEqual(await self.user(client), "jane")
        self.assertEqual(await self.user(client), "jane")
        self.assertEqual(len(self.server.channels), 1)
        self.store(USERS.issue_client("joe"))
        self.assertEqual(await self.user(client), "joe")

    async def test_certificate_of_a_plugin(self) -> None:
        """A plugin's new certificate opens a new connection and closes the old one."""
        script = PluginScript(self.directory / "plugin", CERTIFICATES)
        for number, name in enumerate(("jane", "joe"), start=1):
            issued = USERS.issue_client(name)
            self.write(f"plugin/{number}.crt", issued.certificate_pem)
            self.write(f"plugin/{number}.key", issued.key_pem)
        client = self.client(plugin=script.plugin())
        self.assertEqual(await self.user(client), "jane")
        (first,) = self.server.channels
        # The certificate has expired, so the next request runs the plugin again.
        self.assertEqual(await self.user(client), "joe")
        self.assertEqual(len(self.server.channels), 2)
        while socket_transport(first.transport).connected:  # type: ignore[attr-defined]
            await deferLater(reactor, 0.01, lambda: None)

    def store(self, issued: Issued) -> None:
        self.write("me.crt", issued.certificate_pem)
        self.write("me.key", issued.key_pem)

    async def test_unreadable(self) -> None:
        """Missing or invalid PEM files fail with one line, before any request."""
        message = await self.refusal(self.client(ca=Material(path="/nonexistent/ca.crt")))
        self.assertIn("/nonexistent/ca.crt: No such file or directory", message)
        await self.refusal(self.client(ca=Material(data=b"nonsense")))
        jane, joe = USERS.issue_client("jane"), USERS.issue_client("joe")
        await self.refusal(
            self.client(
                certificate=Material(data=jane.certificate_pem), key=Material(data=joe.key_pem)
            )
        )
        self.assertEqual(self.server.channels, set())

    async def test_plain_server(self) -> None:
        """The error for a plaintext server mentions TLS."""
        endpoint = server_endpoint(reactor, "tcp:0:interface=127.0.0.1")
        port = await endpoint.listen(Factory.forProtocol(Plain))
        self.addCleanup(port.stopListening)
        client = KubeClient(
            ClientConfig(f"https://127.0.0.1:{port.getHost().port}"),
            reactor,
            timeout_seconds=PATIENCE_SECONDS,
        )
        self.clients.append(client)
        self.assertIn("TLS", await self.refusal(client))


class PartsTests(TestCase):
    """Addresses, credentials and headers of a configuration."""

    def test_addresses(self) -> None:
        """Ports have defaults; IPv6 addresses keep their brackets only in Host."""
        for server, address, host in (
            ("https://api", ("api", 443), b"api"),
            ("http://127.0.0.1", ("127.0.0.1", 80), b"127.0.0.1"),
            ("https://[::1]:6443/prefix", ("::1", 6443), b"[::1]:6443"),
        ):
            config = ClientConfig(server)
            self.assertEqual((host_and_port(config), host_header(config)), (address, host))

    async def test_in_the_clear(self) -> None:
        """Credentials are never sent in plaintext, even with a handmade configuration."""
        for config in (
            ClientConfig("http://192.0.2.1:1", token="t"),
            # This is the proxy's loopback, and the route to the proxy leaves this machine.
            ClientConfig("http://127.0.0.1:1", token="t", proxy_url="http://192.0.2.1:1"),
            ClientConfig("http://localhost:1", token="t", proxy_url="socks5://192.0.2.1:1"),
        ):
            with self.assertRaises(APIError) as caught:
                await KubeClient(config, reactor, timeout_seconds=PATIENCE_SECONDS).get(
                    MACHINES, "vm"
                )
            self.assertIn("in the clear", caught.exception.message)

    def test_not_in_the_clear(self) -> None:
        """TLS, and routes within this machine, do not count as plaintext."""
        for config in (
            ClientConfig("https://192.0.2.1", proxy_url="http://192.0.2.1:1"),
            ClientConfig("http://127.0.0.1:1"),
            ClientConfig("http://localhost:1", proxy_url="socks5://[::1]:1"),
        ):
            self.assertFalse(config.in_the_clear, config)

    def test_bad_pem(self) -> None:
        """The error for an invalid certificate names the kubeconfig, and the file of the certificate."""
        path = self.mktemp()
        Path(path).write_bytes(b"nonsense")
        for ca, named in (
            (Material(data=b"nonsense"), "CA"),
            (Material(path=path), f"CA in {path}"),
        ):
            with self.assertRaises(KubeConfigError) as caught:
                tls(ClientConfig("https://api", ca=ca, source="FILE"))
            reason = f"FILE: the {named} holds no PEM certificate that can be read"
            self.assertEqual(str(caught.exception), reason)

    def test_no_credentials(self) -> None:
        """Without token and password there is no header."""
        self.assertEqual(auth_headers(ClientConfig("https://api")), [])

    def test_token_file(self) -> None:
        """The token file is read for each request, and takes precedence while it holds a token."""
        path = self.mktemp()
        config = ClientConfig("https://api", token="t", token_file=path)
        for content, token in (("one\n", b"one"), ("two", b"two"), ("", b"t"), ("a b", b"t")):
            Path(path).write_text(content)
            self.assertEqual(auth_headers(config), [(b"Authorization", b"Bearer " + token)])
        Path(path).unlink()
        self.assertEqual(auth_headers(config), [(b"Authorization", b"Bearer t")])
        with self.assertRaises(KubeConfigError):
            auth_headers(ClientConfig("https://api", token_file=path))

    def test_impersonation(self) -> None:
        """Impersonation headers follow Authorization; extra keys are escaped, values are UTF-8."""
        asked = ImpersonatedUser("jäne", "7", ("dev", "ops"), (("Acme/x", ("a", "b")), ("k", ())))
        config = ClientConfig("https://api", token="t", impersonate=asked)
        self.assertEqual(
            identity_headers(config),
            [
                (b"Authorization", b"Bearer t"),
                (b"Impersonate-User", "jäne".encode()),
                (b"Impersonate-Group", b"dev"),
                (b"Impersonate-Group", b"ops"),
                (b"Impersonate-Uid", b"7"),
                (b"Impersonate-Extra-acme%2Fx", b"a"),
                (b"Impersonate-Extra-acme%2Fx", b"b"),
            ],
        )


class StoppedServerTests(TestCase):
    """A server whose kernel accepts connections while the program is stopped."""

    async def test_given_up(self) -> None:
        """A caller that gives up reads that the program does not answer, not that there is no connection."""
        stopped = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(stopped.close)
        config = ClientConfig(f"https://127.0.0.1:{stopped.getsockname()[1]}")
        connecting = connect(endpoint(config, reactor), clock=reactor, timeout_seconds=0.2)
        with self.assertRaises(GatewayTimeout) as caught:
            await connecting
        why = "its program does not answer: no TLS handshake within 0.2 s"
        self.assertEqual(caught.exception.message, why)
        self.assertEqual(obstacles_of(caught.exception), (Obstacle.NO_ANSWER,))
