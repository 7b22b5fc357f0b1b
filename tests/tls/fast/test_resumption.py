"""
Tests for :mod:`twisted_exec.tls.fast.resumption`.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from cryptography import x509
from OpenSSL import SSL
from twisted.internet.defer import ensureDeferred, succeed
from twisted.internet.task import Clock

from tests.tls.support import LoopbackCase, alternatives, authority, client_identity, named
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.errors import VerificationError
from twisted_exec.tls.fast import resumption
from twisted_exec.tls.pki.authority import Issued
from twisted_exec.tls.server import peer_certificate, verify


class ResumptionTests(LoopbackCase):
    """Sessions that are resumed."""

    def setUp(self) -> None:
        super().setUp()
        self.kept: OrderedDict[Any, Any] = OrderedDict()
        self.patch(resumption, "_resumable", self.kept)
        self.users = authority("users").certificate_pem
        self.serve(resumable=True)

    def serve(self, identity: Issued | None = None, **more: Any) -> None:
        """Serve with new files from now on."""
        cas = [self.write("users.crt", self.users)]
        self.recorder, server = self.recorders(), self.server_tls(identity, client_cas=cas, **more)
        self.port = ensureDeferred(self.listen(self.recorder, server))

    def resuming(self, **more: Any) -> ClientTLS:
        """A client with a certificate."""
        alice = client_identity("alice")
        given = {"certificate_pem": alice.certificate_pem, "key_pem": alice.key_pem, **more}
        return self.client_tls(resumes=True, **given)

    async def resumes(self, tls: ClientTLS) -> bool:
        """Connect once, exchange a byte, and end; return whether a session was resumed."""
        port = await self.port
        self.port = succeed(port)
        accepted = self.recorder.next()
        connected = await self.connect(port, tls)
        server = await accepted
        connected.transport.write(b"x")
        await server.has(1)
        peer = peer_certificate(server.transport)
        assert peer is not None
        verify(peer, self.users)
        self.assertEqual(peer.common_name, "alice")
        server.transport.write(b"x")
        await connected.has(1)
        reused = [
            SSL._lib.SSL_session_reused(end.transport.getHandle()._ssl)  # type: ignore[attr-defined]
            for end in (server, connected)
        ]
        self.assertEqual(reused[0], reused[1])
        connected.transport.loseConnection()
        await connected.lost
        return bool(reused[0])

    async def test_resumed(self) -> None:
        """The second session and later ones are resumed; the server knows the user."""
        tls = self.resuming()
        self.assertEqual([await self.resumes(tls) for _ in range(4)], [False, True, True, True])

    async def test_other_settings(self) -> None:
        """Another name, CA or client certificate starts anew, and so does a client that may not."""
        await self.resumes(self.resuming())
        self.assertTrue(await self.resumes(self.resuming()))
        other = authority("users").issue_client("alice", [])
        both = authority("serving").certificate_pem + authority("evil").certificate_pem
        intermediate = client_identity("alice").certificate_pem + self.users
        for each in (
            self.resuming(ca_pem=both),
            self.resuming(certificate_pem=other.certificate_pem, key_pem=other.key_pem),
            self.resuming(certificate_pem=intermediate),
        ):
            self.assertFalse(await self.resumes(each))

    async def test_check(self) -> None:
        """The caller's check applies to a resumed session, too."""
        await self.resumes(self.resuming())

        def refuse(certificate: x509.Certificate) -> None:
            raise VerificationError("it is not the right pool")

        looks: list[x509.Certificate] = []
        self.assertTrue(await self.resumes(self.resuming(check=looks.append)))
        self.assertEqual(len(looks), 1)
        with self.assertRaisesRegex(VerificationError, "not the right pool"):
            await self.resumes(self.resuming(check=refuse))

    async def test_checked(self) -> None:
        """A check that has accepted the certificate of a session does not look at it again."""
        looks: list[x509.Certificate] = []
        tls = self.resuming(check=looks.append)
        self.assertEqual([await self.resumes(tls) for _ in range(3)], [False, True, True])
        self.assertEqual(len(looks), 1)
        self.kept.clear()
        self.assertFalse(await self.resumes(tls))
        self.assertEqual(len(looks), 2)

    async def test_age(self) -> None:
        """The server is verified in full after a while, however often the session was resumed."""
        clock = Clock()
        self.patch(resumption, "time", SimpleNamespace(monotonic=clock.seconds))
        tls, resumed = self.resuming(), []
        for _ in range(5):
            resumed.append(await self.resumes(tls))
            clock.advance(resumption.RESUMED_SECONDS * 0.4)
        self.assertEqual(resumed, [False, True, True, False, True])

    async def test_expired(self) -> None:
        """A certificate that has expired since is verified in full, and refused."""
        issued = named(alternatives("localhost"))
        self.serve(issued, resumable=True)
        tls = self.resuming()
        await self.resumes(tls)
        (kept,) = self.kept.values()
        certificate = x509.load_pem_x509_certificate(issued.certificate_pem)
        self.assertEqual(kept.expires, certificate.not_valid_after_utc)
        kept.expires = datetime.now(UTC)
        self.assertFalse(await self.resumes(tls))

    async def test_refused_by_the_server(self) -> None:
        """A server that does not resume sessions, or has new files, gets a full handshake."""
        tls = self.resuming()
        await self.resumes(tls)
        self.serve(resumable=True)
        self.assertFalse(await self.resumes(tls))
        self.assertTrue(await self.resumes(tls))
        self.serve()
        self.assertEqual([await self.resumes(tls) for _ in range(2)], [False, False])

    async def test_many_ends(self) -> None:
        """Connections that end together keep one session; one that is older is replaced."""
        tls = self.resuming()
        for _ in range(2):
            await self.resumes(tls)
        (first,) = self.kept.values()
        await self.resumes(tls)
        self.assertEqual(list(self.kept.values()), [first])
        first.since -= resumption.KEPT_SECONDS
        self.assertTrue(await self.resumes(tls))
        (later,) = self.kept.values()
        self.assertGreater(later.since, first.since)
        self.assertEqual(later.verified, first.verified)

    async def test_bounded(self) -> None:
        """Sessions of the latest servers are kept."""
        self.patch(resumption, "_SESSIONS_KEPT", 1)
        await self.resumes(self.resuming())
        await self.resumes(self.resuming(hostname="127.0.0.1"))
        self.assertEqual([host for _, host in self.kept], ["127.0.0.1"])
