"""
Tests for :mod:`twisted_exec.tls.pki.authority`.
"""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from twisted.trial.unittest import SynchronousTestCase

from tests.tls.support import authority
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.authority import Authority, Issued


def leaf(issued: Issued) -> x509.Certificate:
    return pem.certificates(issued.certificate_pem, "it")[0]


class IssueTests(SynchronousTestCase):
    """Tests for what :class:`Authority` issues."""

    def test_server(self) -> None:
        """A server certificate names DNS names and addresses, and is for servers only."""
        extensions = leaf(authority("a").issue_server(["exec.example", "::1"])).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        self.assertEqual(names.get_values_for_type(x509.DNSName), ["exec.example"])
        self.assertEqual(names.get_values_for_type(x509.IPAddress), [ipaddress.ip_address("::1")])
        usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        self.assertEqual(list(usage), [ExtendedKeyUsageOID.SERVER_AUTH])

    def test_client(self) -> None:
        """A client certificate names a user and groups as Kubernetes expects."""
        certificate = leaf(authority("a").issue_client("jane", ["dev", "ops"]))
        self.assertEqual(certificate.subject.rfc4514_string(), "CN=jane,O=ops,O=dev")
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        self.assertEqual(list(usage), [ExtendedKeyUsageOID.CLIENT_AUTH])

    def test_no_leaf_is_a_ca(self) -> None:
        """Issued certificates are not CAs."""
        certificate = leaf(authority("a").issue_client("jane"))
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        self.assertFalse(basic.value.ca)
        self.assertTrue(basic.critical)

    def test_p256(self) -> None:
        """Each certificate has a P-256 key of its own."""
        one, two = (authority("a").issue_client("jane") for _ in range(2))
        key = pem.private_key(one.key_pem, "it")
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self.assertEqual(key.curve.name, "secp256r1")
        self.assertNotEqual(one.key_pem, two.key_pem)

    def test_form_of_keys(self) -> None:
        """Keys are SEC 1: fabric8 reads no EC key in PKCS #8."""
        ca = authority("a")
        for key_pem in (ca.key_pem, ca.issue_client("jane").key_pem):
            self.assertTrue(key_pem.startswith(b"-----BEGIN EC PRIVATE KEY-----\n"))

    def test_valid_at_once(self) -> None:
        """A peer whose clock is a little behind accepts a new certificate."""
        now = datetime(2026, 1, 1, tzinfo=UTC)
        certificate = leaf(authority("a").issue_client("jane", now=now))
        self.assertEqual(certificate.not_valid_before_utc, now - timedelta(minutes=5))
        self.assertEqual(certificate.not_valid_after_utc, now + timedelta(days=365))

    def test_has_issued(self) -> None:
        """An authority recognizes its own signatures, even if another has its name."""
        one, other = Authority.create("CA"), Authority.create("CA")
        (issued,) = x509.load_pem_x509_certificates(one.issue_server(["a"]).certificate_pem)
        self.assertTrue(one.has_issued(issued))
        self.assertFalse(other.has_issued(issued))
        self.assertFalse(Authority.create("other").has_issued(issued))

    def test_no_names(self) -> None:
        """A server certificate without names is refused."""
        with self.assertRaises(TLSConfigError):
            authority("a").issue_server([])

    def test_repr_hides_the_key(self) -> None:
        """A key does not get into a log by way of ``repr``."""
        self.assertNotIn("PRIVATE", repr(authority("a").issue_client("jane")))


class LoadTests(SynchronousTestCase):
    """Tests for :meth:`Authority.load`."""

    def test_round_trip(self) -> None:
        """Certificates issued by a loaded authority are trusted by the one created."""
        made = authority("a")
        loaded = Authority.load(made.certificate_pem, made.key_pem)
        certificate = leaf(loaded.issue_client("jane"))
        certificate.verify_directly_issued_by(pem.certificates(made.certificate_pem, "it")[0])

    def test_other_key(self) -> None:
        """A key of another authority is refused."""
        with self.assertRaises(TLSConfigError) as caught:
            Authority.load(authority("a").certificate_pem, authority("b").key_pem)
        self.assertEqual(
            str(caught.exception),
            "the CA key does not belong to the CA certificate: give the pair that was issued together",
        )

    def test_key_of_several(self) -> None:
        """Of several certificates, the one that belongs to the key signs."""
        made = authority("b")
        both = authority("a").certificate_pem + made.certificate_pem
        self.assertEqual(Authority.load(both, made.key_pem).certificate_pem, made.certificate_pem)

    def test_not_a_ca(self) -> None:
        """A leaf cannot be loaded as an authority."""
        issued = authority("a").issue_client("jane")
        with self.assertRaises(TLSConfigError):
            Authority.load(issued.certificate_pem, issued.key_pem)


class IssuedTests(SynchronousTestCase):
    """Tests for :class:`Issued`."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)

    def test_no_overwriting(self) -> None:
        """Existing files are kept unless replace is true."""
        paths = [os.path.join(self.directory, name) for name in ("crt", "key")]
        issued = authority("a").issue_client("jane")
        issued.write(paths[0], paths[1])
        with self.assertRaises(TLSConfigError):
            issued.write(paths[0], paths[1])
        issued.write(paths[0], paths[1], replace=True)
