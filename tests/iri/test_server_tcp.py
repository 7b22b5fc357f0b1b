"""Tests for the machine runtime interface over TCP with mutual TLS."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
from twisted.internet import reactor
from twisted.internet.error import CannotListenError
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.chain import PATIENCE_SECONDS
from tests.tls.support import authority, client_identity, server_identity, write
from twisted_exec.api import status as api
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.server import IRIServer
from twisted_exec.iri.target import MutualTLS, TargetError
from twisted_exec.tls.pki.authority import Issued

from .doubles import ScriptedRuntime


class TCPCase(TestCase):
    """A server on a free loopback port, with certificates."""

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.runtime = ScriptedRuntime()

    def files(self, name: str, issued: Issued, ca: str, **options: Any) -> MutualTLS:
        return MutualTLS(
            write(self.directory, f"{name}-ca.crt", authority(ca).certificate_pem),
            write(self.directory, f"{name}.crt", issued.certificate_pem),
            write(self.directory, f"{name}.key", issued.key_pem),
            **options,
        )

    def serve(self, **options: Any) -> IRIServer:
        tls = self.files("server", server_identity("localhost"), "users", **options)
        server = IRIServer(self.runtime, "dns:///localhost:0", reactor, tls=tls)
        server.startService()
        self.addCleanup(server.stopService)
        return server

    def connect(self, server: IRIServer, issued: Issued, ca: str = "serving") -> IRIClient:
        client = IRIClient(
            server.target,  # type: ignore[arg-type]
            reactor,
            tls=self.files("client", issued, ca),
            timeout_seconds=PATIENCE_SECONDS,
        )
        self.addCleanup(client.stopService)
        return client

    async def refused(self, client: IRIClient) -> int:
        try:
            await client.version(pb.VersionRequest())
        except api.APIError as error:
            return error.code
        self.fail("the call was answered")


class MutualTests(TCPCase):
    """Client and server authenticate each other."""

    async def test_call(self) -> None:
        """A client with a certificate of the trusted CA is served."""
        client = self.connect(self.serve(), client_identity("poollet"))
        await client.version(pb.VersionRequest())

    async def test_wrong_client(self) -> None:
        """A client with a certificate of another CA is refused."""
        stranger = client_identity("poollet", ca="others")
        self.assertEqual(await self.refused(self.connect(self.serve(), stranger)), 503)
        self.assertEqual(self.runtime.calls, [])

    async def test_wrong_server(self) -> None:
        """A client refuses a server with a certificate of another CA."""
        client = self.connect(self.serve(), client_identity("poollet"), ca="others")
        self.assertEqual(await self.refused(client), 503)
        self.assertEqual(self.runtime.calls, [])

    async def test_ended(self) -> None:
        """The client's error says which side's certificate has expired."""
        before = datetime.now(UTC) - timedelta(days=400)
        late = authority("users").issue_client("poollet", now=before)
        server = self.serve()
        client = self.connect(server, late)
        self.assertEqual(await self.refused(client), 503)
        self.assertIn("the client certificate ended on", client.trouble)
        theirs = authority("serving").issue_server(["localhost"], now=before)
        self.files("server", theirs, "users")
        client = self.connect(server, client_identity("poollet"))
        self.assertEqual(await self.refused(client), 503)
        self.assertIn("certificate has expired", client.trouble)
        self.assertNotIn("the client certificate", client.trouble)

    async def test_wrong_name(self) -> None:
        """A client refuses a server whose certificate has another name."""
        server = self.serve()
        write(self.directory, "server.crt", server_identity("elsewhere.example").certificate_pem)
        write(self.directory, "server.key", server_identity("elsewhere.example").key_pem)
        self.assertEqual(await self.refused(self.connect(server, client_identity("p"))), 503)

    async def test_named_clients(self) -> None:
        """With ``client_names``, other clients get 403."""
        server = self.serve(client_names=frozenset({"poollet"}))
        await self.connect(server, client_identity("poollet")).version(pb.VersionRequest())
        self.assertEqual(await self.refused(self.connect(server, client_identity("mallory"))), 403)
        self.assertEqual(len(self.runtime.calls), 1)

    async def test_in_the_clear(self) -> None:
        """The server refuses plaintext clients."""
        server = self.serve()

        def call() -> Any:
            with grpc.insecure_channel(server.target.address) as channel:
                try:
                    channel.unary_unary("/machine.v1alpha1.MachineRuntime/Version")(
                        b"", timeout=PATIENCE_SECONDS
                    )
                except grpc.RpcError as error:
                    return error.code()

        self.assertEqual(await deferToThread(call), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(self.runtime.calls, [])

    async def test_new_client_certificate(self) -> None:
        """A client uses a renewed certificate for the next call."""
        server = self.serve()
        client = self.connect(server, client_identity("poollet", ca="others"))
        await self.refused(client)
        self.files("client", client_identity("poollet"), "serving")
        await client.version(pb.VersionRequest())

    async def test_half_replaced_client(self) -> None:
        """
        While a renewed certificate is incomplete or lacks its key, the client keeps the old pair.
        """
        server = self.serve()
        client = self.connect(server, client_identity("poollet"))
        await client.version(pb.VersionRequest())
        other = client_identity("poollet")
        for content in (other.certificate_pem, other.certificate_pem[:100], b""):
            write(self.directory, "client.crt", content)
            await client.version(pb.VersionRequest())
        write(self.directory, "client.crt", other.certificate_pem)
        write(self.directory, "client.key", other.key_pem)
        await client.version(pb.VersionRequest())

    async def test_half_replaced_server(self) -> None:
        """A server also keeps its old certificate, key and CA until all the new ones are valid."""
        server, other = self.serve(), server_identity("localhost")
        for name, content in (
            ("server.key", other.key_pem),
            ("server.crt", other.certificate_pem[:100]),
            ("server-ca.crt", b""),
        ):
            write(self.directory, name, content)
            await self.connect(server, client_identity("poollet")).version(pb.VersionRequest())
        write(self.directory, "server.crt", other.certificate_pem)
        write(self.directory, "server-ca.crt", authority("others").certificate_pem)
        another = client_identity("poollet", ca="others")
        await self.connect(server, another).version(pb.VersionRequest())

    async def test_new_server_certificate(self) -> None:
        """A server uses a renewed certificate for the next connection."""
        server = self.serve()
        write(self.directory, "server.crt", server_identity("elsewhere.example").certificate_pem)
        write(self.directory, "server.key", server_identity("elsewhere.example").key_pem)
        await self.refused(self.connect(server, client_identity("poollet")))
        write(self.directory, "server.crt", server_identity("localhost").certificate_pem)
        write(self.directory, "server.key", server_identity("localhost").key_pem)
        await self.connect(server, client_identity("poollet")).version(pb.VersionRequest())


class StartTests(TCPCase):
    """Startup errors, each in one line."""

    def test_without_tls(self) -> None:
        """Client and server both refuse TCP without certificates."""
        for make in (
            lambda: IRIServer(self.runtime, "dns:///localhost:0", reactor),
            lambda: IRIClient("dns:///localhost:1", reactor),  # type: ignore[arg-type]
        ):
            with self.assertRaises(TargetError) as caught:
                make()
            self.assertIn("TCP needs mutual TLS", str(caught.exception))

    def test_port_in_use(self) -> None:
        """The error for a port in use names the address."""
        tls = self.files("server", server_identity("localhost"), "users")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            server = IRIServer(self.runtime, f"dns:///127.0.0.1:{port}", reactor, tls=tls)
            with self.assertRaises(CannotListenError) as caught:
                server.startService()
        self.assertEqual((caught.exception.interface, caught.exception.port), ("127.0.0.1", port))

    def test_missing_file(self) -> None:
        """The error for a missing certificate names the file."""
        tls = self.files("server", server_identity("localhost"), "users")
        os.unlink(tls.certificate)
        server = IRIServer(self.runtime, "dns:///localhost:0", reactor, tls=tls)
        with self.assertRaises(TargetError) as caught:
            server.startService()
        self.assertIn(f"cannot read {tls.certificate}", str(caught.exception))

    async def test_missing_client_file(self) -> None:
        """
        With a missing key each call fails and the error names the file, until the file exists.
        """
        server = self.serve()
        client = self.connect(server, client_identity("poollet"))
        os.unlink(os.path.join(self.directory, "client.key"))
        self.assertEqual(await self.refused(client), 503)
        self.assertIn("client.key", client.trouble)
        self.files("client", client_identity("poollet"), "serving")
        await client.version(pb.VersionRequest())

    def test_not_a_certificate(self) -> None:
        """The server refuses a file that holds no certificate."""
        tls = self.files("server", server_identity("localhost"), "users")
        write(self.directory, "server.crt", b"nonsense")
        server = IRIServer(self.runtime, "dns:///localhost:0", reactor, tls=tls)
        with self.assertRaises(TargetError) as caught:
            server.startService()
        self.assertIn("server.crt", str(caught.exception))
