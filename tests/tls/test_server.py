"""
Tests for :mod:`twisted_exec.tls.server`.
"""

from __future__ import annotations

import os
import socket
import ssl
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL
from OpenSSL.crypto import FILETYPE_ASN1, load_certificate
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.threads import deferToThread

from tests.tls.support import (
    LoopbackCase,
    Recorder,
    authority,
    client_identity,
    server_identity,
)
from twisted_exec.tls import pem
from twisted_exec.tls.errors import HandshakeError, TLSConfigError
from twisted_exec.tls.pki.authority import Authority
from twisted_exec.tls.server import ServerTLS, peer_certificate, verify


class ServerTLSTests(LoopbackCase):
    """Tests for :class:`ServerTLS` against real clients."""

    async def test_one_byte(self) -> None:
        """Bytes pass both ways, over TLS 1.3, with no client certificate asked for."""
        server, client = await self.pair(self.server_tls(), self.client_tls())
        client.transport.write(b"in")
        server.transport.write(b"out")
        await server.has(2)
        await client.has(3)
        self.assertEqual((server.received, client.received), (b"in", b"out"))
        handle = client.transport.getHandle()
        self.assertEqual(handle.get_protocol_version_name(), "TLSv1.3")
        self.assertIsNone(peer_certificate(server.transport))

    async def test_alpn(self) -> None:
        """Only HTTP/1.1 is agreed on, whatever else a client offers."""
        for offered, agreed in ((b"h2", b"http/1.1"), b"http/1.1"), ((b"h2",), None):
            _, client = await self.pair(self.server_tls(), self.client_tls(alpn=offered))
            self.assertEqual(client.transport.negotiatedProtocol, agreed)

    async def test_told_authorities(self) -> None:
        """Each handshake announces the CAs that published_cas returns at that time."""
        told = [authority("users").certificate_pem]
        tls = self.server_tls(published_cas=lambda: told[0])
        for names in (["users"], ["users", "forwarding"]):
            told[0] = b"".join(authority(each).certificate_pem for each in names)
            _, client = await self.pair(tls, self.client_tls())
            asked = client.transport.getHandle().get_client_ca_list()
            self.assertEqual(len(asked), len(names))

    async def test_no_old_tls(self) -> None:
        """TLS 1.1 is refused."""
        tls = self.client_tls("127.0.0.1", alpn=(b"old",))
        tls.context().set_min_proto_version(SSL.TLS1_VERSION)
        tls.context().set_max_proto_version(SSL.TLS1_1_VERSION)
        with self.assertRaises(HandshakeError):
            await self.pair(self.server_tls(), tls)

    async def test_no_resumption(self) -> None:
        """No session is resumed, so every connection shows its certificate."""
        port = await self.listen(self.recorders(Greeter), self.server_tls())
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            reused = await deferToThread(_resumes, port.getHost().port, version)
            self.assertFalse(reused, str(version))

    def test_no_renegotiation(self) -> None:
        """A client that asks for renegotiation is refused."""
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)  # not ours, which would not even ask
        context.set_max_proto_version(SSL.TLS1_2_VERSION)
        protocol: Any = None
        server = self.server_tls().serverConnectionForTLS(protocol)
        client = SSL.Connection(context, None)
        server.set_accept_state()
        client.set_connect_state()
        self.assertTrue(_handshake(client, server))
        self.assertTrue(client.renegotiate())
        with self.assertRaises(SSL.WantReadError):
            client.do_handshake()
        server.bio_write(client.bio_read(1 << 16))
        with self.assertRaises(SSL.WantReadError):
            server.recv(1)
        client.bio_write(server.bio_read(1 << 16))
        with self.assertRaises(SSL.Error) as caught:
            client.do_handshake()
        self.assertEqual(pem.openssl_reason(caught.exception), "no renegotiation")

    async def test_long_chain(self) -> None:
        """A client that shows a hundred certificates costs no more than one that shows a few."""
        ca = self.write("users.crt", authority("users").certificate_pem)
        jane = client_identity("jane")
        many = b"".join(client_identity(f"filler-{n}").certificate_pem for n in range(100))
        server, client = await self.pair(
            self.server_tls(client_cas=[ca]),
            self.client_tls(certificate_pem=jane.certificate_pem + many, key_pem=jane.key_pem),
        )
        client.transport.write(b"x")
        await server.has(1)
        peer = peer_certificate(server.transport)
        assert peer is not None
        self.assertLess(len(peer.chain), 12)
        with self.assertRaises(HandshakeError):
            verify(peer, authority("users").certificate_pem)

    async def test_client_certificate(self) -> None:
        """A client's certificate is recorded, and a CA may vouch for it later."""
        ca = self.write("users.crt", authority("users").certificate_pem)
        jane = client_identity("jane", "dev")
        server, client = await self.pair(
            self.server_tls(client_cas=[ca]),
            self.client_tls(certificate_pem=jane.certificate_pem, key_pem=jane.key_pem),
        )
        client.transport.write(b"x")
        await server.has(1)
        peer = peer_certificate(server.transport)
        assert peer is not None
        self.assertEqual(peer.common_name, "jane")
        self.patch(SSL.Connection, "get_peer_certificate", None)
        self.assertIs(peer_certificate(server.transport), peer, "it was read again")
        verify(peer, authority("users").certificate_pem)

    async def test_strange_client_certificate(self) -> None:
        """A client certificate of an unknown CA passes the handshake but is not a user."""
        ca = self.write("users.crt", authority("users").certificate_pem)
        mallory = client_identity("admin", ca="evil")
        server, client = await self.pair(
            self.server_tls(client_cas=[ca]),
            self.client_tls(certificate_pem=mallory.certificate_pem, key_pem=mallory.key_pem),
        )
        client.transport.write(b"x")
        await server.has(1)
        peer = peer_certificate(server.transport)
        assert peer is not None
        with self.assertRaises(HandshakeError):
            verify(peer, authority("users").certificate_pem)

    def test_malformed_client_certificate(self) -> None:
        """A client certificate that OpenSSL accepts and our parser refuses counts as none."""
        ca = self.write("users.crt", authority("users").certificate_pem)
        jane = client_identity("jane")
        certificate = pem.certificates(jane.certificate_pem, "it")[0].public_bytes(Encoding.DER)
        for encoding, malformed in (
            (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x05"),  # an unknown version
            (b"\x0c\x04jane", b"\x16\x04j\xffne"),  # an IA5String that is not ASCII
            (b"\x0c\x04jane", b"\x03\x04\x00ane"),  # a BIT STRING
        ):
            context = SSL.Context(SSL.TLS_CLIENT_METHOD)
            der = certificate.replace(encoding, malformed)
            context.use_certificate(load_certificate(FILETYPE_ASN1, der))
            context.use_privatekey(pem.private_key(jane.key_pem, "it"))
            protocol: Any = None
            server = self.server_tls(client_cas=[ca]).serverConnectionForTLS(protocol)
            client = SSL.Connection(context, None)
            server.set_accept_state()
            client.set_connect_state()
            self.assertTrue(_handshake(client, server))
            self.assertIsNotNone(server.get_peer_certificate())
            self.assertIsNone(peer_certificate(SimpleNamespace(getHandle=lambda: server)))  # noqa: B023

    async def test_intermediates(self) -> None:
        """A client's chain is recorded with its leaf."""
        root, jane_pem, key_pem = _with_intermediate("jane")
        ca = self.write("users.crt", root)
        server, client = await self.pair(
            self.server_tls(client_cas=[ca]),
            self.client_tls(certificate_pem=jane_pem, key_pem=key_pem),
        )
        client.transport.write(b"x")
        await server.has(1)
        peer = peer_certificate(server.transport)
        assert peer is not None
        self.assertEqual(len(peer.chain), 1)
        verify(peer, root)

    async def test_names_of_all_cas(self) -> None:
        """The server announces all client CA names; Go clients choose their certificate by them."""
        cas = [
            self.write(f"{name}.crt", authority(name).certificate_pem)
            for name in ("users", "forwarding")
        ]
        _, client = await self.pair(self.server_tls(client_cas=cas), self.client_tls())
        told = client.transport.getHandle().get_client_ca_list()
        self.assertEqual([name.CN for name in told], ["users", "forwarding"])

    async def test_11_reload(self) -> None:
        """New files are shown to new connections; running ones go on."""
        clock = Clock()
        tls = self.server_tls(clock=clock)
        recorders = self.recorders()
        port = await self.listen(recorders, tls)
        accepted = recorders.next()
        old = await self.connect(port, self.client_tls())
        old_server = await accepted

        other = Authority.create("other")
        issued = other.issue_server(["localhost"])
        self.write("tls.crt", issued.certificate_pem)
        self.write("tls.key", issued.key_pem)
        clock.advance(1)
        await self.connect(port, self.client_tls(ca_pem=other.certificate_pem))
        with self.assertRaises(HandshakeError):
            await self.connect(port, self.client_tls())

        old.transport.write(b"still here")
        await old_server.has(10)

    async def test_half_written(self) -> None:
        """A certificate whose key is not there yet leaves the old pair in force."""
        clock = Clock()
        port = await self.listen(self.recorders(), self.server_tls(clock=clock))
        await self.connect(port, self.client_tls())
        other = authority("serving").issue_server(["localhost", "new.example"])
        self.write("tls.crt", other.certificate_pem)
        clock.advance(1)
        await self.connect(port, self.client_tls())
        self.write("tls.key", other.key_pem)
        clock.advance(1)
        await self.connect(port, self.client_tls("new.example"))

    async def test_handshake_deadline(self) -> None:
        """A client that says nothing, or half a greeting, is cut after ten seconds."""
        from twisted_exec.tls.endpoints import HANDSHAKE_SECONDS
        from twisted_exec.tls.fast.records import StreamTLSFactory

        for greeting in (b"", b"\x16\x03\x01\x02\x00"):
            clock = Clock()
            wrapped = StreamTLSFactory(
                self.server_tls(),
                False,
                self.recorders(),
                clock,
                handshake_seconds=HANDSHAKE_SECONDS,
            )
            port = await self.listen(wrapped, None)
            client = await self.connect(port, None)
            client.transport.write(greeting)
            while not clock.getDelayedCalls():
                await _turn()
            clock.advance(HANDSHAKE_SECONDS)
            await client.lost

    async def test_deadline_ends_with_the_handshake(self) -> None:
        """A finished handshake is not timed any more."""
        from twisted_exec.tls.fast.records import StreamTLSFactory

        clock = Clock()
        recorders = self.recorders()
        wrapped = StreamTLSFactory(self.server_tls(), False, recorders, clock, handshake_seconds=10)
        port = await self.listen(wrapped, None)
        accepted = recorders.next()
        client = await self.connect(port, self.client_tls())
        client.transport.write(b"x")
        await (await accepted).has(1)
        self.assertEqual(clock.getDelayedCalls(), [])

    async def test_current(self) -> None:
        """A connection is current until the files change; one of another server, or in the clear, never is."""
        clock = Clock()
        tls = self.server_tls(clock=clock)
        first, _ = await self.pair(tls, self.client_tls())
        self.assertTrue(tls.is_current(first.transport))
        other, _ = await self.pair(self.server_tls(clock=clock), self.client_tls())
        plain, _ = await self.pair(None, None)
        renewed = authority("serving").issue_server(["localhost", "127.0.0.1"])
        self.write("tls.crt", renewed.certificate_pem)
        self.write("tls.key", renewed.key_pem)
        self.assertTrue(tls.is_current(first.transport))  # the files are looked at once a second
        clock.advance(1)
        second, _ = await self.pair(tls, self.client_tls())
        ends = (first, second, other, plain)
        self.assertEqual(
            [tls.is_current(end.transport) for end in ends], [False, True, False, False]
        )


def _turn() -> Deferred[None]:
    from tests.tls.support import reactor

    turn: Deferred[None] = Deferred()
    reactor.callLater(0, turn.callback, None)
    return turn


def _handshake(client: SSL.Connection, server: SSL.Connection) -> bool:
    """Let two ends shake hands in memory; raises what either raises."""
    done = set()
    for _ in range(6):
        for end, other in ((client, server), (server, client)):
            try:
                end.do_handshake()
                done.add(end)
            except SSL.WantReadError:
                pass
            try:
                while True:
                    other.bio_write(end.bio_read(1 << 16))
            except SSL.WantReadError:
                pass
    return len(done) == 2


class Greeter(Recorder):
    """Says a byte, after which a TLS 1.3 ticket would have come."""

    def connectionMade(self) -> None:
        super().connectionMade()
        self.transport.write(b"x")


def _resumes(port: int, version: ssl.TLSVersion) -> bool:
    """Return whether Python's own TLS client gets a session resumed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority("serving").certificate_pem.decode())
    context.minimum_version = context.maximum_version = version
    session = None
    for _ in range(2):
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as tls,
        ):
            tls.recv(1)
            session = tls.session
            reused = tls.session_reused
    return bool(reused)


def _with_intermediate(user: str) -> tuple[bytes, bytes, bytes]:
    """A root, a chain of leaf and intermediate, and the leaf's key; all PEM."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def ca(subject: str, issuer: str, key: Any, signer: Any) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
            .sign(signer, hashes.SHA256())
        )

    root_key, middle_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = ca("root", "root", root_key, root_key)
    middle = ca("middle", "root", middle_key, root_key)
    issued = Authority(middle, middle_key).issue_client(user)
    return pem.pem_of([root]), issued.certificate_pem + pem.pem_of([middle]), issued.key_pem


class ServerFilesTests(LoopbackCase):
    """Tests for the errors of :class:`ServerTLS`'s files."""

    def refusal(self, tls: ServerTLS) -> str:
        with self.assertRaises(TLSConfigError) as caught:
            tls.load()
        return str(caught.exception)

    def tls(self, certificate: str, key: str, *client_cas: str) -> ServerTLS:
        return ServerTLS(certificate, key, client_cas=client_cas, clock=Clock())

    def test_nothing_is_opened_early(self) -> None:
        """Creating a ServerTLS opens no file."""
        self.tls("/nowhere/tls.crt", "/nowhere/tls.key")

    def test_missing(self) -> None:
        """A missing file is named."""
        self.assertIn(
            "'/nowhere/tls.crt'", self.refusal(self.tls("/nowhere/tls.crt", "/nowhere/tls.key"))
        )

    def test_mismatch(self) -> None:
        """A key of another certificate is named."""
        certificate = self.write("a.crt", server_identity("localhost").certificate_pem)
        key = self.write("b.key", client_identity("jane").key_pem)
        told = self.refusal(self.tls(certificate, key))
        self.assertIn(f"{key!r} does not belong to certificate {certificate!r}", told)

    def test_exchanged(self) -> None:
        """If certificate and key are exchanged, the message says which file is wrong."""
        issued = server_identity("localhost")
        certificate = self.write("a.crt", issued.certificate_pem)
        key = self.write("a.key", issued.key_pem)
        self.assertIn("holds no PEM certificate", self.refusal(self.tls(key, certificate)))

    def test_client_ca(self) -> None:
        """A client CA without a certificate is named."""
        issued = server_identity("localhost")
        paths = [
            self.write("a.crt", issued.certificate_pem),
            self.write("a.key", issued.key_pem),
            self.write("ca.crt", b"nothing"),
        ]
        self.assertIn(f"client CA {paths[2]!r}", self.refusal(self.tls(*paths)))

    async def test_listening_fails(self) -> None:
        """A server whose certificate is missing does not start."""
        with self.assertRaises(TLSConfigError):
            await self.listen(self.recorders(), self.tls("/nowhere/a", "/nowhere/b"))

    def test_unreadable_after_start(self) -> None:
        """A key that becomes unreadable changes nothing for new connections."""
        clock = Clock()
        tls = self.server_tls(clock=clock)
        tls.load()
        os.unlink(os.path.join(self.directory, "tls.key"))
        clock.advance(1)
        self.assertIsNotNone(tls.serverConnectionForTLS(None).get_context())
