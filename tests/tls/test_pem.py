"""
Tests for :mod:`twisted_exec.tls.pem`.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st
from OpenSSL import SSL
from twisted.trial.unittest import SynchronousTestCase

from tests.tls.support import authority, client_identity, replaced, with_unknown_curve
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.pki.authority import Authority


class PEMTests(SynchronousTestCase):
    """Tests for reading PEM."""

    def test_bundle(self) -> None:
        """Several certificates in one text all count."""
        text = authority("a").certificate_pem + b"\nsome words\n" + authority("b").certificate_pem
        self.assertEqual(len(pem.certificates(text, "the bundle")), 2)

    def test_cut_bundle(self) -> None:
        """A truncated bundle is refused, even if it contains complete certificates."""
        first, second = authority("a").certificate_pem, authority("b").certificate_pem
        for cut in range(1, len(second) - 1):
            with self.assertRaises(TLSConfigError, msg=str(cut)) as caught:
                pem.certificates(first + second[:cut], "the bundle")
            self.assertIn("the bundle ends in the middle", str(caught.exception))
        self.assertEqual(len(pem.certificates(first + second[:-1], "the bundle")), 2)
        self.assertEqual(len(pem.certificates(first + b"\n-----\nwords", "the bundle")), 1)

    def test_has_issued(self) -> None:
        """has_issued() checks the signature, not just the issuer's name."""
        signer, namesake = authority("a"), Authority.create("a")
        issued = signer.issue_client("ada", []).certificate_pem
        (first,), (second,), (leaf,) = (
            pem.certificates(each, "it")
            for each in (signer.certificate_pem, namesake.certificate_pem, issued)
        )
        self.assertTrue(pem.has_issued(first, leaf))
        self.assertTrue(pem.has_issued(first, first))
        self.assertFalse(pem.has_issued(second, leaf))
        self.assertFalse(pem.has_issued(leaf, first))

    @given(st.binary(max_size=200))
    def test_no_certificate(self, text: bytes) -> None:
        """Anything else is one line that names the source."""
        with self.assertRaises(TLSConfigError) as caught:
            pem.certificates(text, "certificate 'x.crt'")
        self.assertTrue(str(caught.exception).startswith("certificate 'x.crt' holds no PEM"))
        self.assertNotIn("\n", str(caught.exception))

    def test_unknown_version(self) -> None:
        """A certificate of an unknown X.509 version is refused."""
        with self.assertRaises(TLSConfigError):
            pem.certificates(replaced(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x05"), "it")

    def test_unknown_curve(self) -> None:
        """A certificate with a key of an unknown curve belongs to no key."""
        text = with_unknown_curve()
        with self.assertRaises(TLSConfigError) as caught:
            pem.use_certificate(
                pem.new_context(SSL.TLS_SERVER_METHOD),
                text,
                client_identity("jane").key_pem,
                "1",
                "2",
            )
        self.assertIn("does not belong", str(caught.exception))

    @given(st.binary(max_size=200))
    def test_no_key(self, text: bytes) -> None:
        """The message for an invalid key does not quote the file's content."""
        with self.assertRaises(TLSConfigError) as caught:
            pem.private_key(text, "key 'x.key'")
        self.assertEqual(str(caught.exception), "key 'x.key' holds no usable PEM private key")

    def test_encrypted_key(self) -> None:
        """An encrypted key is refused without a passphrase prompt."""
        text = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
        with self.assertRaises(TLSConfigError) as caught:
            pem.private_key(text, "key 'x.key'")
        self.assertEqual(
            str(caught.exception), "key 'x.key' is encrypted: give one without a passphrase"
        )

    def test_written_keys(self) -> None:
        """EC keys are written in SEC 1, others in PKCS #8; both forms are read."""
        for key, label in (
            (ec.generate_private_key(ec.SECP256R1()), b"EC PRIVATE KEY"),
            (ed25519.Ed25519PrivateKey.generate(), b"PRIVATE KEY"),
        ):
            text = pem.pem_of_key(key)
            self.assertTrue(text.startswith(b"-----BEGIN %b-----" % label))
            older = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            public = key.public_key()
            self.assertEqual(pem.private_key(text, "key").public_key(), public)
            self.assertEqual(pem.private_key(older, "key").public_key(), public)

    def test_mismatched_pair(self) -> None:
        """Certificate and key of different pairs are refused by name."""
        one, two = client_identity("one"), client_identity("two")
        with self.assertRaises(TLSConfigError) as caught:
            pem.use_certificate(
                pem.new_context(SSL.TLS_SERVER_METHOD),
                one.certificate_pem,
                two.key_pem,
                "certificate 'a.crt'",
                "key 'b.key'",
            )
        self.assertIn("key 'b.key' does not belong to certificate 'a.crt'", str(caught.exception))
