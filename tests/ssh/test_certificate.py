"""
Tests for ``twisted_exec.ssh.certificate``.
"""

from __future__ import annotations

import os
import subprocess
from binascii import a2b_base64
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.tiers import PROGRAMS

if (skip := needs.conch()) is None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import SSHCertificateType
    from twisted.conch.ssh.common import NS

    from tests.ssh.authority import NOW, Authority, blob_of
    from twisted_exec.ssh.certificate import (
        MOST_BYTES,
        CertificateError,
        is_certificate,
        read_certificate,
    )


class ReadTests(SynchronousTestCase):
    """Certificates of each type."""

    skip = skip

    def refusal(self, blob: bytes) -> str:
        return str(self.assertRaises(CertificateError, read_certificate, blob))

    def test_types(self) -> None:
        """Keys and authorities of each type are read."""
        privates: list[Any] = [
            Ed25519PrivateKey.generate(),
            ec.generate_private_key(ec.SECP256R1()),
            ec.generate_private_key(ec.SECP384R1()),
            ec.generate_private_key(ec.SECP521R1()),
            rsa.generate_private_key(65537, 2048),
        ]
        for private in privates:
            for signer in privates:
                authority = Authority(signer)
                blob = authority.certify(private, b"ada", options={b"source-address": b"::1"})
                self.assertTrue(is_certificate(blob))
                read = read_certificate(blob)
                self.assertEqual(
                    (read.key.blob(), read.authority), (blob_of(private), authority.blob)
                )
                self.assertEqual(
                    (read.is_of_user, read.principals, read.serial, read.key_id),
                    (True, (b"ada",), 7, b"ada@laptop"),
                )
                self.assertEqual(read.critical_options, {b"source-address": b"::1"})

    def test_validity(self) -> None:
        """The validity has a begin and an end, and perhaps none."""
        authority, private = Authority(), Ed25519PrivateKey.generate()
        read = read_certificate(authority.certify(private, b"ada"))
        times = (NOW - 61, NOW - 60, NOW, NOW + 59.5, NOW + 60)
        self.assertEqual(
            [read.is_valid_at(time) for time in times], [False, True, True, True, False]
        )
        read = read_certificate(authority.certify(private, b"ada", valid=(0, 2**64 - 1)))
        self.assertIsNone(read.valid_before)
        self.assertTrue(read.is_valid_at(1e15))

    def test_changed(self) -> None:
        """A certificate with any other bit is refused."""
        blob = Authority().certify(Ed25519PrivateKey.generate(), b"ada")
        for at in range(len(blob)):
            changed = bytearray(blob)
            changed[at] ^= 0x20
            self.assertRaises(CertificateError, read_certificate, bytes(changed))

    def test_cut_off(self) -> None:
        """So is one that is cut off, and one with something behind it."""
        blob = Authority().certify(Ed25519PrivateKey.generate(), b"ada")
        for size in range(len(blob)):
            self.refusal(blob[:size])
        self.assertEqual(self.refusal(blob + b"\0"), "the certificate is malformed")

    def test_many_principals(self) -> None:
        """A certificate with ten thousand principals is refused by its size."""
        principals = [b"%05d" % each for each in range(10_000)]
        blob = Authority().certify(Ed25519PrivateKey.generate(), b"ada")
        listed = b"".join(map(NS, principals))
        large = blob.replace(NS(NS(b"ada")), NS(listed))
        self.assertGreater(len(large), MOST_BYTES)
        self.assertEqual(self.refusal(large), "the certificate has more than 16 KiB")

    def test_small_keys(self) -> None:
        """RSA keys of 1024 bits are refused, of users and of authorities."""
        small, good = rsa.generate_private_key(65537, 1024), Ed25519PrivateKey.generate()
        for blob in (
            Authority(good).certify(small, b"ada"),
            Authority(small).certify(good, b"ada"),
        ):
            self.assertIn("the RSA key has 1024 bits", self.refusal(blob))

    def test_other_types(self) -> None:
        """Types that are not used are named as such."""
        for kind in (
            b"ssh-dss-cert-v01@openssh.com",
            b"ssh-rsa-cert-v00@openssh.com",
            b"sk-ssh-ed25519-cert-v01@openssh.com",
            b"ssh-ed25519",
            b"",
        ):
            self.assertEqual(
                self.refusal(NS(kind) + bytes(200)), "certificates of this type are not used"
            )

    def test_host(self) -> None:
        """The certificate of a host is told apart."""
        blob = Authority().certify(
            Ed25519PrivateKey.generate(), b"gate", kind=SSHCertificateType.HOST
        )
        self.assertFalse(read_certificate(blob).is_of_user)


class KeygenTests(SynchronousTestCase):
    """Certificates of ssh-keygen."""

    starts = PROGRAMS
    skip = needs.ssh()

    def keygen(self, *words: str) -> None:
        subprocess.run(["ssh-keygen", "-q", *words], check=True, cwd=self.directory)

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.keygen("-t", "ed25519", "-N", "", "-f", "user")
        self.keygen("-t", "rsa", "-b", "2048", "-N", "", "-f", "authority")

    def certificate(self, *words: str) -> bytes:
        self.keygen("-s", "authority", "-I", "ada@laptop", *words, "user.pub")
        with open(os.path.join(self.directory, "user-cert.pub"), "rb") as file:
            return a2b_base64(file.read().split()[1])

    def test_read(self) -> None:
        """A certificate of ssh-keygen is read."""
        read = read_certificate(self.certificate("-n", "ada,bob", "-z", "9", "-O", "clear"))
        self.assertEqual((read.principals, read.serial), ((b"ada", b"bob"), 9))

    def test_sha1(self) -> None:
        """A signature with SHA-1 is refused, and the sentence says how to sign."""
        blob = self.certificate("-n", "ada", "-t", "ssh-rsa")
        problem = str(self.assertRaises(CertificateError, read_certificate, blob))
        self.assertIn("ssh-keygen -t rsa-sha2-512 -s", problem)
