"""
Tests for the client certificates of :mod:`twisted_exec.tls.server`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from tests.tls.support import alternatives, authority, client_identity, named, server_identity
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError, VerificationError
from twisted_exec.tls.pki.authority import Authority, Issued
from twisted_exec.tls.server import PeerCertificate, peer_certificate, verify

USERS = authority("users").certificate_pem


def peer(issued: Issued) -> PeerCertificate:
    return PeerCertificate(pem.certificates(issued.certificate_pem, "it")[0])


def subject(*attributes: tuple[x509.ObjectIdentifier, str]) -> PeerCertificate:
    """A self-signed certificate of a subject, without extensions."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return PeerCertificate(certificate)


def subordinate(*usages: x509.ObjectIdentifier) -> tuple[bytes, Authority]:
    """The PEM of a root, and a CA that it has signed for these usages."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in ("root", "sub")]
    now, made = datetime.now(UTC), []
    for name, key in zip(names, keys, strict=True):
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(names[0])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(True, None), True)
        )
        if made and usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), False)
        made.append(builder.sign(keys[0], hashes.SHA256()))
    return pem.pem_of(made[:1]), Authority(made[1], keys[1])


class PeerCertificateTests(SynchronousTestCase):
    """Tests for what a certificate says."""

    def test_no_tls(self) -> None:
        """A connection without TLS has no certificate."""
        self.assertIsNone(peer_certificate(StringTransport()))
        self.assertIsNone(peer_certificate(None))

    def test_names(self) -> None:
        """Common name and organizations are read from the subject."""
        certificate = peer(client_identity("jane", "dev", "ops"))
        self.assertEqual(certificate.common_name, "jane")
        self.assertEqual(certificate.organizations, ("dev", "ops"))
        self.assertRegex(certificate.fingerprint, "^[0-9a-f]{64}$")

    def test_no_common_name(self) -> None:
        """Without a common name there is no name."""
        self.assertEqual(subject((NameOID.ORGANIZATION_NAME, "dev")).common_name, "")

    def test_two_common_names(self) -> None:
        """Two common names count as none, since readers disagree on which to use."""
        both = subject((NameOID.COMMON_NAME, "jane"), (NameOID.COMMON_NAME, "admin"))
        self.assertEqual(both.common_name, "")


class VerifyTests(SynchronousTestCase):
    """Tests for :func:`verify`."""

    def refusal(self, certificate: PeerCertificate, ca_pem: bytes = USERS) -> str:
        with self.assertRaises(VerificationError) as caught:
            verify(certificate, ca_pem)
        return str(caught.exception)

    def test_good(self) -> None:
        """A client certificate of the CA passes, also beside other CAs."""
        verify(peer(client_identity("jane")), USERS)
        verify(peer(client_identity("jane")), authority("b").certificate_pem + USERS)

    def test_unusable_names(self) -> None:
        """Subject alternative names of a client certificate are ignored, even invalid ones."""
        names = alternatives("127.0.0.1", "*", "", "1")
        issued = named(names, common_name="jane", ca="users", usage=ExtendedKeyUsageOID.CLIENT_AUTH)
        verify(peer(issued), USERS)
        self.assertEqual(peer(issued).common_name, "jane")
        self.assertIn("refused", self.refusal(peer(issued), authority("b").certificate_pem))

    def test_malformed_names(self) -> None:
        """Names that cannot be parsed are refused."""
        for names in (b"0\x02\xa3\x00", b"0\x05\x87\x03\x01\x02\x03"):
            extension = x509.UnrecognizedExtension(x509.OID_SUBJECT_ALTERNATIVE_NAME, names)
            issued = named(extension, ca="users", usage=ExtendedKeyUsageOID.CLIENT_AUTH)
            self.assertIn("cannot be read", self.refusal(peer(issued)))

    def test_other_ca(self) -> None:
        """A certificate of another CA is refused."""
        self.assertIn(
            "unable to get local issuer",
            self.refusal(peer(client_identity("jane", ca="forwarding"))),
        )

    def test_same_name_other_ca(self) -> None:
        """A CA that merely has the same name vouches for nothing."""
        impostor = type(authority("users")).create("users")
        self.assertIn("refused", self.refusal(peer(impostor.issue_client("admin"))))

    def test_server_certificate(self) -> None:
        """A server's certificate is no user, even from the right CA."""
        self.assertEqual(
            self.refusal(peer(server_identity("localhost")), authority("serving").certificate_pem),
            "the client certificate is not meant for clients",
        )

    def test_ca_certificate(self) -> None:
        """A CA's own certificate is no user."""
        own = PeerCertificate(pem.certificates(USERS, "it")[0])
        self.refusal(own)

    def test_no_usage(self) -> None:
        """A certificate without an extended key usage is refused."""
        certificate = subject((NameOID.COMMON_NAME, "jane"))
        self.assertIn(
            "not meant for clients", self.refusal(certificate, pem.pem_of([certificate.leaf]))
        )

    def test_expired(self) -> None:
        """A certificate is valid from its first to its last second."""
        certificate = peer(client_identity("jane"))
        end = certificate.leaf.not_valid_after_utc
        verify(certificate, USERS, end - timedelta(seconds=1))
        for when in (end + timedelta(seconds=1), datetime(2020, 1, 1, tzinfo=UTC)):
            with self.assertRaises(VerificationError):
                verify(certificate, USERS, when)

    def test_time_zone(self) -> None:
        """The time may be in any zone."""
        certificate = peer(client_identity("jane"))
        end = certificate.leaf.not_valid_after_utc
        local = (end - timedelta(hours=1)).astimezone(tz=datetime.now().astimezone().tzinfo)
        verify(certificate, USERS, local)

    def test_long_chain(self) -> None:
        """A chain made to be expensive is refused unread."""
        leaf = peer(client_identity("jane")).leaf
        self.assertIn("too long", self.refusal(PeerCertificate(leaf, (leaf,) * 9)))

    def test_leaf_does_not_vouch(self) -> None:
        """A user's certificate cannot issue another user's."""
        jane = client_identity("jane")
        key = pem.private_key(jane.key_pem, "it")
        certificate = pem.certificates(jane.certificate_pem, "it")[0]
        forged = type(authority("users"))(certificate, key).issue_client("admin")
        self.assertIn(
            "refused",
            self.refusal(PeerCertificate(peer(forged).leaf, (certificate,))),
        )

    def test_ca_for_servers(self) -> None:
        """A CA between that is for servers only vouches for no client; one for both does."""
        for usages, good in (
            ([], True),
            ([ExtendedKeyUsageOID.SERVER_AUTH], False),
            ([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH], True),
            ([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE], True),
        ):
            root_pem, between = subordinate(*usages)
            leaf = peer(between.issue_client("jane")).leaf
            chain = tuple(pem.certificates(between.certificate_pem, "it"))
            told = self.refusal(PeerCertificate(leaf, chain), root_pem) if not good else ""
            if good:
                verify(PeerCertificate(leaf, chain), root_pem)
            else:
                self.assertIn("not meant for clients", told)

    def test_ca_between_alone(self) -> None:
        """If only an intermediate CA is trusted, its root is not."""
        _, between = subordinate()
        leaf = peer(between.issue_client("jane"))
        verify(leaf, between.certificate_pem)
        root_pem, other = subordinate()
        stranger = PeerCertificate(
            peer(other.issue_client("jane")).leaf,
            tuple(pem.certificates(other.certificate_pem + root_pem, "it")),
        )
        self.assertIn("refused", self.refusal(stranger, between.certificate_pem))

    def test_no_ca(self) -> None:
        """An empty CA file is our mistake, not the client's."""
        with self.assertRaises(TLSConfigError):
            verify(peer(client_identity("jane")), b"")
