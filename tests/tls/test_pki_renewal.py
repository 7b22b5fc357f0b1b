"""
Tests for :mod:`twisted_exec.tls.pki`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError, VerificationError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki import CLIENT, Pair, create_pki, renew, renew_authority, retire_authority
from twisted_exec.tls.server import PeerCertificate, verify
from twisted_exec.tls.usages import DOCUMENT_SIGNING

NOW = datetime.now(UTC)


class RenewingTests(SynchronousTestCase):
    """Tests for a PKI directory that goes on for longer than its certificates."""

    def setUp(self) -> None:
        self.pki = create_pki(os.path.abspath(self.mktemp()), now=NOW)

    def is_trusted(self, content: bytes) -> bool:
        """Return whether the current user CA file verifies a certificate."""
        try:
            verify(
                PeerCertificate(pem.certificates(content, "it")[0]), read_file(self.pki.client_ca)
            )
        except VerificationError:
            return False
        return True

    def issued(self, user: str) -> tuple[Pair, bytes]:
        pair = self.pki.issue_user(user, [])
        return pair, read_file(pair.certificate)

    def test_in_two_steps(self) -> None:
        """Certificates of both the old and the new CA are trusted until the old CA is retired."""
        pair, before = self.issued("ada")
        renew_authority(self.pki, CLIENT, NOW)
        self.assertEqual(renew(self.pki, NOW, timedelta(days=1)), [pair])
        after = read_file(pair.certificate)
        self.assertEqual((self.is_trusted(before), self.is_trusted(after)), (True, True))
        self.assertTrue(retire_authority(self.pki, CLIENT))
        self.assertEqual((self.is_trusted(before), self.is_trusted(after)), (False, True))
        self.assertFalse(retire_authority(self.pki, CLIENT))

    def test_recorder(self) -> None:
        """A renewed certificate of a recorder still signs recordings, and nothing else."""
        pair = self.pki.issue_recorder("metal-a")
        self.assertEqual(renew(self.pki, NOW, None), [pair])
        certificate = pem.certificates(read_file(pair.certificate), "it")[0]
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        self.assertEqual(list(usage), [DOCUMENT_SIGNING])

    def test_several_times(self) -> None:
        """Old authorities stay until they expire, and no longer."""
        for _ in range(2):
            renew_authority(self.pki, CLIENT, NOW)
        self.assertEqual(len(pem.certificates(read_file(self.pki.client_ca), "it")), 3)
        renew_authority(self.pki, CLIENT, NOW + timedelta(days=3651))
        self.assertEqual(len(pem.certificates(read_file(self.pki.client_ca), "it")), 1)

    def test_no_use(self) -> None:
        """A certificate without a known purpose is reported and left as it is."""
        pair, _ = self.issued("ada")
        authority = read_file(self.pki.client_ca)  # its own issuer, and for nothing but signing
        with open(pair.certificate, "wb") as file:
            file.write(authority)
        with self.assertRaises(TLSConfigError) as caught:
            renew(self.pki, NOW, None)
        self.assertIn("user-ada.crt", str(caught.exception))
        self.assertEqual(read_file(pair.certificate), authority)

    def test_other_files(self) -> None:
        """Files that are not named like certificates are ignored."""
        with open(os.path.join(self.pki.directory, "notes.txt"), "w") as file:
            file.write("do not forget\n")
        self.assertEqual(renew(self.pki, NOW, None), [])
