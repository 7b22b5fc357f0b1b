"""
Tests for :mod:`twisted_exec.tls.pki.renewal`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from tests.tls.pki.support import KillingTestCase
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError, VerificationError
from twisted_exec.tls.files import read_file
from twisted_exec.tls.pki.directory import CLIENT, Pair, create_pki, open_pki
from twisted_exec.tls.pki.renewal import (
    is_being_replaced,
    is_of_previous,
    renew,
    renew_authorities,
    retire_authority,
)
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
        renew_authorities(self.pki, [CLIENT], NOW)
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
            renew_authorities(self.pki, [CLIENT], NOW)
        self.assertEqual(len(pem.certificates(read_file(self.pki.client_ca), "it")), 3)
        renew_authorities(self.pki, [CLIENT], NOW + timedelta(days=3651))
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


class KilledTests(KillingTestCase):
    """Tests for a PKI directory of a program that is killed while it writes."""

    def setUp(self) -> None:
        self.directory = os.path.abspath(self.mktemp())
        self.pki = create_pki(self.directory, now=NOW)

    def test_renewed_authority(self) -> None:
        """
        Wherever its renewal is interrupted, an authority issues, old certificates stay trusted, and
        the renewal can be repeated.
        """
        pair = self.pki.issue_user("ada", [])
        write = 0
        while self.killed_before(write, lambda: renew_authorities(self.pki, [CLIENT], NOW)):
            write += 1
            new = self.pki.authority(CLIENT).issue_client("bob")
            for each in (read_file(pair.certificate), new.certificate_pem):
                peer = PeerCertificate(pem.certificates(each, "it")[0])
                verify(peer, read_file(self.pki.client_ca))
            self.assertFalse(is_being_replaced(self.pki), write)
            self.assertFalse(is_of_previous(self.pki, pair), write)
            self.assertEqual(renew(self.pki, NOW, timedelta(days=1)), [], write)
        self.assertGreater(write, 3)
        # The certificates of interrupted renewals, whose keys never signed, are gone.
        self.assertEqual(len(self.certificates(self.pki.client_ca)), 2)
        self.assertTrue(is_of_previous(self.pki, pair))
        self.assertEqual(renew(self.pki, NOW, timedelta(days=1)), [pair])

    def test_retired_authority(self) -> None:
        """After an interrupted renewal, retirement keeps the authority that signs."""
        signing = read_file(self.pki.client_ca)
        write = 0
        while len(self.certificates(self.pki.client_ca)) == 1:
            self.killed_before(write, lambda: renew_authorities(self.pki, [CLIENT], NOW))
            write += 1
        self.assertTrue(retire_authority(self.pki, CLIENT))
        self.assertEqual(read_file(self.pki.client_ca), signing)
        self.pki.issue_user("ada", [])

    def test_created(self) -> None:
        """A directory whose creation is interrupted does not open as complete."""
        write, names = 0, self.mktemp()
        while self.killed_before(write, lambda: create_pki(f"{names}-{write}")):  # noqa: B023
            with self.assertRaises(TLSConfigError):
                open_pki(f"{names}-{write}")
            write += 1
        self.assertGreater(write, 6)

    def test_issued_anew(self) -> None:
        """
        Wherever its renewal is interrupted, a certificate and its key belong together, or the next
        renewal replaces them.
        """
        pair, _ = self.pki.issue_apiserver(["localhost"])
        write = 0
        while self.killed_before(
            write, lambda: self.pki.issue_apiserver(["localhost"], replace=True)
        ):
            write += 1
            is_pair = self.is_pair(pair)
            done = renew(self.pki, NOW, timedelta(days=1))
            self.assertEqual((pair in done, self.is_pair(pair)), (not is_pair, True), write)
        self.assertGreater(write, 3)

    def is_pair(self, pair: Pair) -> bool:
        key = pem.private_key(read_file(pair.key), "the key")
        return pem.is_key_of(key, self.certificates(pair.certificate)[0])

    def certificates(self, path: str) -> list[x509.Certificate]:
        return pem.certificates(read_file(path), path)
