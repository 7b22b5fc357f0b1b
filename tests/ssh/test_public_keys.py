"""
Tests for ``twisted_exec.ssh.public_keys``.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests import needs

if (skip := needs.conch()) is None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from twisted.conch.ssh.common import NS

    from tests.ssh.authority import Authority, blob_of, line_of
    from twisted_exec.ssh.public_keys import (
        PublicKeyError,
        fingerprint,
        key_blob,
        key_lines,
        key_of,
    )


class LineTests(SynchronousTestCase):
    """Lines of ``.pub`` files."""

    skip = skip

    def test_types(self) -> None:
        """Each type of key is read, with any comment."""
        privates: list[Any] = [
            Ed25519PrivateKey.generate(),
            ec.generate_private_key(ec.SECP256R1()),
            ec.generate_private_key(ec.SECP384R1()),
            ec.generate_private_key(ec.SECP521R1()),
            rsa.generate_private_key(65537, 2048),
        ]
        for private in privates:
            for comment in ("", " ada@laptop", " two words"):
                self.assertEqual(key_blob(line_of(private) + comment), blob_of(private))
        point = blob_of(privates[0])[15:]
        blob = NS(b"sk-ssh-ed25519@openssh.com") + point + NS(b"ssh:")
        line = f"sk-ssh-ed25519@openssh.com {b64encode(blob).decode()}"
        self.assertEqual(key_blob(line), blob)

    def test_refused(self) -> None:
        """Options, certificates and what is malformed are refused, without a quote of it."""
        good = line_of(Ed25519PrivateKey.generate())
        blob = blob_of(Ed25519PrivateKey.generate())
        certificate = b64encode(Authority().certify(Ed25519PrivateKey.generate(), b"ada")).decode()
        for line, problem in (
            ("", "TYPE BASE64"),
            ("ssh-ed25519", "TYPE BASE64"),
            (f"no-pty {good}", "TYPE BASE64"),
            (f"cert-authority {good}", "TYPE BASE64"),
            (f"ssh-dss {good.split()[1]}", "TYPE BASE64"),
            (f"ssh-ed25519-cert-v01@openssh.com {certificate}", "a certificate cannot be here"),
            (f"ssh-ed25519 {certificate}", "are not used"),
            (f"ssh-rsa {good.split()[1]}", "type of the line"),
            ("ssh-ed25519 secret!", "no base64"),
            (f"ssh-ed25519 {b64encode(blob + b'x').decode()}", "malformed"),
            (f"ssh-ed25519 {b64encode(blob[:-1]).decode()}", "malformed"),
            (f"ssh-rsa {line_of(rsa.generate_private_key(65537, 1024)).split()[1]}", "1024 bits"),
        ):
            error = self.assertRaises(PublicKeyError, key_blob, line)
            self.assertIn(problem, str(error), line)
            self.assertNotIn("secret", str(error))

    def test_any_bytes(self) -> None:
        """A blob that is cut off or changed is refused, or another key: nothing else is raised."""
        for private in (
            Ed25519PrivateKey.generate(),
            ec.generate_private_key(ec.SECP256R1()),
            rsa.generate_private_key(65537, 2048),
        ):
            blob = blob_of(private)
            for at in range(len(blob)):
                self.assertRaises(PublicKeyError, key_of, blob[:at])
                changed = bytearray(blob)
                changed[at] ^= 0x80
                try:
                    self.assertEqual(key_of(bytes(changed)).blob(), bytes(changed))
                except PublicKeyError:
                    pass

    def test_files(self) -> None:
        """Empty lines and comments are passed over; a message tells the line, and the number is bounded."""
        one, two = (line_of(Ed25519PrivateKey.generate()) for _ in range(2))
        text = f"# users\n\n{one} ada\n  # x\r\n{two}\n"
        self.assertEqual(key_lines(text, 2), [key_blob(one), key_blob(two)])
        error = self.assertRaises(PublicKeyError, key_lines, text, 1)
        self.assertEqual(str(error), "there are more than 1 keys")
        error = self.assertRaises(PublicKeyError, key_lines, f"{one}\nx\n", 9)
        self.assertIn("line 2: ", str(error))

    def test_fingerprint(self) -> None:
        """The fingerprint is that of ``ssh-keygen -l``."""
        line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJfkNV4OS33ImTXvorZr72q4v5XhVEQKfvqsxOEJ/XaR"
        expected = "SHA256:BFlAu0a4IRDePBZATpvzbeWrjzjd9h2/tKqd//EWd1Q"
        self.assertEqual(fingerprint(key_blob(line)), expected)
